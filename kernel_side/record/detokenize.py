"""Text of a sequence as its tokens come: what each one completes, its bytes, and which tokens share a character.

Takes constant time a token where the tokenizer's rules are known (``token_bytes``), and decodes a short window where
they are not (``windowed``). Knows code points only: an emoji of several code points may come in several parts, half a
code point never comes.
"""

from __future__ import annotations

import codecs
import copy
from typing import Any, NamedTuple, cast

from transformers import PreTrainedTokenizerBase

from .decoder_rules import Rules
from .text_stages import CLEAN_UP, Replacer, Stage
from .token_bytes import TokenBytes, literal, token_bytes_of
from .windowed import Windowed

__all__ = ["Detokenizer", "Piece", "TokenBytes", "literal", "token_bytes_of"]


class Piece(NamedTuple):
    r"""What one token did to the text.

    Attributes
    ----------
    text : str
        The text that became final with this token: ``""`` inside a character. The texts of all pieces, in order, then
        :meth:`Detokenizer.tail`, make the full decode.
    bytes : bytes or None
        The exact bytes that it adds; None when the tokenizer does not say.
    group : int
        Position of the first token of its character group. Tokens that share a character are one group, chains of
        them too; a token alone has its own position.
    special : bool
        Whether the tokenizer marks it as special.
    shown : str
        What to draw for this token itself. Differs from `text` where that is final too late or is not its own: a
        character made of byte tokens shows with its last byte (its text waits for the end of the run of byte tokens,
        since the library replaces the whole run when any of it is invalid); U+FFFD that an earlier, unfinished token
        turned into is not shown with the next one; bytes outside any character show as ``\xE2``. A group that shows
        ``""`` in the end never became a character: draw :func:`literal` of its bytes.
    """

    text: str
    bytes: bytes | None
    group: int
    special: bool
    shown: str


class Detokenizer:
    """Turns the token ids of one sequence into text as they come.

    ``"".join(piece.text ...) + tail()`` equals ``tokenizer.decode(ids, ...)`` with the same arguments, for any ids.

    Parameters
    ----------
    tokenizer : PreTrainedTokenizerBase
    skip_special_tokens, clean_up_tokenization_spaces, **decode_kwargs
        As for ``tokenizer.decode``. By default everything is kept as it is. Cleaning up holds a space back.
    """

    def __init__(
        self,
        tokenizer: PreTrainedTokenizerBase,
        *,
        skip_special_tokens: bool = False,
        clean_up_tokenization_spaces: bool | None = False,
        **decode_kwargs: Any,
    ) -> None:
        self._bytes = token_bytes_of(tokenizer)
        self._way: _Exact | _InWindow
        if self._bytes.rules is not None:
            stages = [stage.copy() for stage in self._bytes.rules.stages]
            if _cleans_up(tokenizer, clean_up_tokenization_spaces):
                stages += [Replacer(pattern, content) for pattern, content in CLEAN_UP]
            self._way = _Exact(self._bytes, self._bytes.rules, stages, skip_special_tokens)
        else:
            if skip_special_tokens:  # some classes take few arguments: name only what is asked for
                decode_kwargs["skip_special_tokens"] = True
            if clean_up_tokenization_spaces is not None:
                decode_kwargs["clean_up_tokenization_spaces"] = clean_up_tokenization_spaces

            def decode(ids: list[int]) -> str:
                return cast("str", tokenizer.decode(ids, **decode_kwargs))

            self._way = _InWindow(self._bytes, Windowed(decode))

    def push(self, token_id: int) -> Piece:
        """Take the next token. An id that the tokenizer does not have adds nothing, as in ``decode``."""
        return self._way.push(token_id)

    def peek(self, token_id: int) -> str:
        r"""Return what a token would show if it came next; nothing changes.

        A token that completes a character shows the whole character; bytes that make none show as ``\xE2``.
        """
        return self._way.peek(token_id)

    def is_special(self, token_id: int) -> bool:
        """Return whether the tokenizer marks a token as special."""
        return self._bytes.is_special(token_id)

    def tail(self) -> str:
        """Return what is still held back, as it is when nothing more comes: ``""`` nearly always."""
        return self._way.tail()

    def fork(self) -> Detokenizer:
        """Return a detokenizer that goes on from here, independent of this one."""
        other = copy.copy(self)
        other._way = self._way.fork()  # noqa: SLF001 - its own class
        return other


class _Exact:
    """Follows the tokenizer's rules."""

    def __init__(self, token_bytes: TokenBytes, rules: Rules, stages: list[Stage], skip_special: bool) -> None:
        self._bytes = token_bytes
        self._rules = rules
        self._stages = stages
        self._skip_special = skip_special
        self._first = rules.positional
        self._position = 0
        self._group = 0  # of the last token
        self._unfinished = b""  # a start of a character
        self._run = b""  # byte tokens whose text is not final (byte fallback only)

    def push(self, token_id: int) -> Piece:
        position = self._position
        self._position += 1
        special = self._bytes.is_special(token_id)
        if self._skip_special and self._bytes.is_skipped(token_id):
            return Piece("", b"", self._stay(position), special, "")
        unit = self._bytes.unit(token_id, first=self._first)
        if unit is None:
            return Piece("", None, self._stay(position), special, "")
        self._first = False
        raw = unit.raw
        if unit.text is not None and not self._unfinished and not self._run:  # nearly always
            self._group = position
            text = shown = unit.text
            late = ""
        elif unit.is_byte or self._rules.sink == "byte_level":
            late, text, shown = self._take(raw, position)
            if unit.is_byte:
                self._run += raw
                late = text = ""
        else:
            self._group = position
            late, text, shown = self._end_run(), unit.shown, unit.shown
            self._run = self._unfinished = b""
        given = final = late + text
        for stage in self._stages:
            final = stage.push(final)
        if final != given and not late:  # what was stripped here is neither text nor bytes of this token
            shown = final
            raw = final.encode()
        return Piece(final, raw, self._group, special, shown)

    def peek(self, token_id: int) -> str:
        if self._skip_special and self._bytes.is_skipped(token_id):
            return ""
        unit = self._bytes.unit(token_id, first=self._first)
        if unit is None:
            return ""
        if self._unfinished and (unit.is_byte or self._rules.sink == "byte_level"):
            data = self._unfinished + unit.raw
            return literal(data) if _completes(self._unfinished, unit.raw) else unit.shown
        if self._position == 0 and self._rules.stages:
            shown = unit.shown
            for stage in self._rules.stages:
                again = stage.copy()
                shown = again.push(shown) + again.flush()
            return shown
        return unit.shown

    def tail(self) -> str:
        text = self._end_run() if self._run else self._unfinished.decode("utf-8", "replace")
        for stage in self._stages:
            again = stage.copy()
            text = again.push(text) + again.flush()
        return text

    def fork(self) -> _Exact:
        other = copy.copy(self)
        other._stages = [stage.copy() for stage in self._stages]  # noqa: SLF001 - its own class
        return other

    def _stay(self, position: int) -> int:
        """Return the group of a token that adds nothing: inside a character it is that character's."""
        if not self._unfinished:
            self._group = position
        return self._group

    def _take(self, raw: bytes, position: int) -> tuple[str, str, str]:
        """Add bytes; return what an unfinished character before them turned into, their text, and what they show."""
        before = self._unfinished
        late = ""
        if before:
            if _continues(before, raw):
                position = self._group
            else:
                before, late = b"", "\ufffd"  # one for the whole broken start
        self._group = position
        data = before + raw
        used = _complete_size(data)
        text = data[:used].decode("utf-8", "replace")
        shown = text if "\ufffd" not in text else literal(data[:used])
        self._unfinished = data[used:]
        return late, text, shown

    def _end_run(self) -> str:
        """Return the text of the run of byte tokens: where any of it is invalid, every byte is replaced."""
        try:
            return self._run.decode()
        except UnicodeDecodeError:
            return "\ufffd" * len(self._run)


class _InWindow:
    """Decodes a window; bytes are not known, and groups only by what decodes to U+FFFD at the end."""

    def __init__(self, token_bytes: TokenBytes, windowed: Windowed) -> None:
        self._bytes = token_bytes
        self._windowed = windowed
        self._position = 0
        self._group = 0

    def push(self, token_id: int) -> Piece:
        if not self._windowed.holding:
            self._group = self._position
        self._position += 1
        text = self._windowed.push(token_id)
        return Piece(text, None, self._group, self._bytes.is_special(token_id), text)

    def peek(self, token_id: int) -> str:
        return self._windowed.peek(token_id)

    def tail(self) -> str:
        return self._windowed.tail()

    def fork(self) -> _InWindow:
        other = copy.copy(self)
        other._windowed = self._windowed.fork()  # noqa: SLF001 - its own class
        return other


def _complete_size(data: bytes) -> int:
    """Return how many of the bytes are not the start of a character at their end."""
    _, size = codecs.utf_8_decode(data, "replace", False)
    # Python waits for the third byte of an encoded surrogate, for error handlers that take it; it is never valid.
    return len(data) if data[size : size + 1] == b"\xed" and data[size + 1 : size + 2] > b"\x9f" else size


def _continues(unfinished: bytes, raw: bytes) -> bool:
    """Return whether bytes go on with a started character; no bytes do."""
    data = unfinished + raw[:1]
    size = _complete_size(data)
    if size == 0:
        return True
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


def _completes(unfinished: bytes, raw: bytes) -> bool:
    """Return whether bytes go on with a started character up to its end."""
    missing = (2 if unfinished[0] < 0xE0 else 3 if unfinished[0] < 0xF0 else 4) - len(unfinished)
    try:
        (unfinished + raw[:missing]).decode()
    except UnicodeDecodeError:
        return False
    return True


def _cleans_up(tokenizer: PreTrainedTokenizerBase, asked: bool | None) -> bool:
    """Return whether ``decode`` would clean up: it declines for BPE, whose spaces are meant, unless it is forced to."""
    if not (tokenizer.clean_up_tokenization_spaces if asked is None else asked):
        return False
    model = type(tokenizer.backend_tokenizer.model).__name__
    return model != "BPE" or bool(tokenizer.clean_up_tokenization_spaces_for_bpe_even_though_it_will_corrupt_output)
