"""Finds strings in the text of sequences as their tokens come: with which token one is complete.

Looks at the bytes, which each token has at once, also where its text has to wait for the neighbours (runs of byte
tokens); UTF-8 cannot be matched at a wrong place. And at the text, for tokenizers whose bytes are not known and for
what broken bytes turn into. What to do about a string that was found is decided elsewhere.
"""

from __future__ import annotations

import copy
from collections.abc import Collection, Sequence

import torch
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
    end_ids : collection of int
        Tokens that end the search too, such as EOS.

    Attributes
    ----------
    ended : bool
        Whether a string or one of these tokens was found.
    found : str or None
        The string that was complete first; of several at once, the one that was named first.
    length : int
        Tokens that were pushed, up to the one that ended the search.

    Examples
    --------
    >>> search = StringSearch(tokenizer, ["stop"])
    >>> for token in tokenizer("please stop here")["input_ids"]:
    ...     search.push(token)
    >>> search.found
    'stop'
    """

    def __init__(
        self,
        tokenizer: PreTrainedTokenizerBase,
        strings: Sequence[str],
        context: Sequence[int] = (),
        end_ids: Collection[int] = (),
    ) -> None:
        self._strings = tuple(strings)
        self._wanted = tuple(string.encode("utf-8", "surrogatepass") for string in strings)
        self._longest = max(map(len, self._wanted), default=0)
        self._detokenizer = Detokenizer(tokenizer)
        for token in context[-CONTEXT:]:
            self._detokenizer.push(token)
        self._begun = bool(self._detokenizer.tail())  # a character that the context began
        self._bytes, self._text = b"", ""  # the end of what was pushed: a string may have begun there
        self._end_ids = end_ids
        self.ended = False
        self.found: str | None = None
        self.length = 0

    def push(self, token: int) -> None:
        """Take the next token. Nothing changes any more once the search has ended."""
        if self.ended:
            return
        self.length += 1
        self.ended = token in self._end_ids
        piece = self._detokenizer.push(token)
        text = piece.text
        if self._begun and text:
            text, self._begun = text[1:], False
        self._bytes += text.encode("utf-8", "surrogatepass") if piece.bytes is None else piece.bytes
        self._text += text
        for string, wanted in zip(self._strings, self._wanted, strict=True):
            if wanted in self._bytes or string in self._text:
                self.found, self.ended = string, True
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
    tokenizer, strings, end_ids
        As for :class:`StringSearch`.
    """

    def __init__(
        self, tokenizer: PreTrainedTokenizerBase, strings: Sequence[str], end_ids: Collection[int] = ()
    ) -> None:
        self._tokenizer = tokenizer
        self._strings = tuple(strings)
        self._end_ids = frozenset(end_ids)
        self._searches: list[StringSearch] = []
        self._ids = torch.empty(0, 0, dtype=torch.int64)  # what they have seen, and the context before it
        self._context = 0

    def update(self, ids: torch.Tensor, prompt: int) -> list[StringSearch]:
        """Take all rows as they are now; return the search of each.

        A row that continues one of the last update costs its new tokens.

        Parameters
        ----------
        ids : torch.Tensor
            Shape ``(rows, length)``, int64.
        prompt : int
            Columns before what is searched.
        """
        context = min(prompt, CONTEXT)
        ids = ids[:, prompt - context :]
        seen, width = self._ids.to(ids.device), self._ids.shape[1]
        if ids.shape[0] == len(self._searches) and context == self._context and torch.equal(ids[:, :width], seen):
            searches, new = self._searches, ids[:, width:].tolist()
        else:
            rows = ids.tolist()
            parents = self._parents(rows, width, context)
            both = list(zip(parents, rows, strict=True))
            searches = [self._new(row[:context]) if parent is None else parent.fork() for parent, row in both]
            new = [row[context if parent is None else width :] for parent, row in both]
        for search, tokens in zip(searches, new, strict=True):
            for token in tokens:
                search.push(token)
        # A copy: some loops write into the ids that they hand out.
        self._searches, self._ids, self._context = searches, ids.clone(), context
        return searches

    def _parents(self, rows: Sequence[Sequence[int]], width: int, context: int) -> list[StringSearch | None]:
        """Return the search that each row continues, by what it holds."""
        if context != self._context:
            return [None] * len(rows)
        known = dict(zip(map(tuple, self._ids.tolist()), self._searches, strict=True))
        return [known.get(tuple(row[:width])) if len(row) >= width else None for row in rows]

    def _new(self, context: Sequence[int]) -> StringSearch:
        return StringSearch(self._tokenizer, self._strings, context, self._end_ids)
