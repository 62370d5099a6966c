"""Finds strings in the text of sequences as their tokens come: with which token one is complete.

Looks at the bytes, which each token has at once, also where its text has to wait for the neighbours (runs of byte
tokens); UTF-8 cannot be matched at a wrong place. And at the text, for tokenizers whose bytes are not known and for
what broken bytes turn into. What to do about a string that was found is decided elsewhere.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence

from transformers import PreTrainedTokenizerBase

from .detokenize import Detokenizer

__all__ = ["SearchedRows", "StringSearch"]

CONTEXT = 8
"""Tokens of a prompt that are read before what is searched, so that this does not begin as a text of its own would."""


class StringSearch:
    """Follows one sequence of generated tokens.

    Parameters
    ----------
    tokenizer : PreTrainedTokenizerBase
    strings : sequence of str
        None of them empty.
    context : sequence of int
        The tokens before, the last few are enough. A string that begins in them does not count, nor does a character.

    Attributes
    ----------
    found : str or None
        The string that was complete first; of several at once, the one that was named first.
    length : int
        Tokens that were pushed, up to the one that completed it.

    Examples
    --------
    >>> search = StringSearch(tokenizer, ["stop"])
    >>> for token in tokenizer("please stop here")["input_ids"]:
    ...     search.push(token)
    >>> search.found
    'stop'
    """

    def __init__(self, tokenizer: PreTrainedTokenizerBase, strings: Sequence[str], context: Sequence[int] = ()) -> None:
        self._strings = tuple(strings)
        self._wanted = tuple(string.encode("utf-8", "surrogatepass") for string in strings)
        self._longest = max(map(len, self._wanted), default=0)
        self._detokenizer = Detokenizer(tokenizer)
        for token in context[-CONTEXT:]:
            self._detokenizer.push(token)
        self._begun = bool(self._detokenizer.tail())  # a character that the context began
        self._bytes, self._text = b"", ""  # the end of what was pushed: a string may have begun there
        self.found: str | None = None
        self.length = 0

    def push(self, token: int) -> None:
        """Take the next token. Nothing changes any more once a string was found."""
        if self.found is not None:
            return
        self.length += 1
        piece = self._detokenizer.push(token)
        text = piece.text
        if self._begun and text:
            text, self._begun = text[1:], False
        self._bytes += text.encode("utf-8", "surrogatepass") if piece.bytes is None else piece.bytes
        self._text += text
        for string, wanted in zip(self._strings, self._wanted, strict=True):
            if wanted in self._bytes or string in self._text:
                self.found = string
                return
        self._bytes = self._bytes[max(0, len(self._bytes) - self._longest + 1) :]
        self._text = self._text[max(0, len(self._text) - self._longest + 1) :]

    def fork(self) -> StringSearch:
        """Return one that goes on from here, independent of this one."""
        other = copy.copy(self)
        other._detokenizer = self._detokenizer.fork()  # noqa: SLF001 - its own class
        return other


class SearchedRows:
    """Follows rows of tokens that may change places, fork and die, as hypotheses of a beam search do.

    Parameters
    ----------
    tokenizer, strings
        As for :class:`StringSearch`.
    """

    def __init__(self, tokenizer: PreTrainedTokenizerBase, strings: Sequence[str]) -> None:
        self._tokenizer = tokenizer
        self._strings = tuple(strings)
        self._known: dict[tuple[tuple[int, ...], tuple[int, ...]], StringSearch] = {}
        self._lengths: set[int] = set()

    def update(self, rows: Sequence[tuple[Sequence[int], Sequence[int]]]) -> list[StringSearch]:
        """Take all rows as they are now; return the search of each.

        Parameters
        ----------
        rows : sequence of (sequence of int, sequence of int)
            Of each row the tokens before what is searched, and all generated ones. A row that continues one of the
            last update costs its new tokens.
        """
        known: dict[tuple[tuple[int, ...], tuple[int, ...]], StringSearch] = {}
        searches = []
        for before, generated in rows:
            context, tokens = tuple(before[-CONTEXT:]), tuple(generated)
            search = known.get((context, tokens)) or self._continue(context, tokens)
            known[context, tokens] = search
            searches.append(search)
        self._known = known
        self._lengths = {len(tokens) for _, tokens in known}
        return searches

    def _continue(self, context: tuple[int, ...], tokens: tuple[int, ...]) -> StringSearch:
        for length in sorted(self._lengths, reverse=True):
            parent = self._known.get((context, tokens[:length])) if length <= len(tokens) else None
            if parent is not None:
                search, new = parent.fork(), tokens[length:]
                break
        else:
            search, new = StringSearch(self._tokenizer, self._strings, context), tokens
        for token in new:
            search.push(token)
        return search
