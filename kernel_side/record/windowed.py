"""Incremental text of tokenizers that can only be asked to decode: a short window is decoded at each token.

As text-generation-inference and vLLM do it: the new text is the difference between the decoded window with and without
the new tokens. Exact for decoders that join tokens from left to right; the end is compared with the full decode.
Bytes are not known here.
"""

from __future__ import annotations

import copy
from collections.abc import Callable

__all__ = ["Windowed"]

_REPLACEMENT = "\ufffd"
_MOST_HELD = 3
"""An unfinished UTF-8 character has at most 3 bytes, and each decodes to at most one U+FFFD."""
_MOST_CONTEXT = 8
_LONGEST_WINDOW = 256
"""Tokens. A window only grows while no token of it shows on its own: endless U+FFFD, or endless space."""


class Windowed:
    """Turns token ids into text as they come.

    Parameters
    ----------
    decode : callable
        Decodes a list of ids.
    """

    def __init__(self, decode: Callable[[list[int]], str]) -> None:
        self._decode = decode
        self._ids: list[int] = []
        self._parts: list[str] = []
        self._start = 0  # of the window: its first token is context
        self._done = 0  # characters of the decoded window that were given out
        self.holding = False  # whether the last token left a character unfinished

    def push(self, token_id: int) -> str:
        """Take a token; return the text that is complete now."""
        self._ids.append(token_id)
        text = self._decode(self._ids[self._start :])
        held = 0
        while held < _MOST_HELD and text.endswith(_REPLACEMENT, 0, len(text) - held):
            held += 1
        if held and len(self._ids) - self._start > _LONGEST_WINDOW:
            held = 0
        self.holding = held > 0
        end = len(text) - held
        new = text[self._done : end]
        self._done = max(self._done, end)
        if new:
            self._parts.append(new)
        if new and not held:
            self._shrink()
        return new

    def peek(self, token_id: int) -> str:
        """Return what a token would add, without taking it; an unfinished character shows as U+FFFD."""
        return self._decode([*self._ids[self._start :], token_id])[self._done :]

    def tail(self) -> str:
        """Return what is missing from the decode of all tokens."""
        given = "".join(self._parts)
        text = self._decode(self._ids)
        if text.startswith(given):
            return text[len(given) :]
        return self._decode(self._ids[self._start :])[self._done :]

    def fork(self) -> Windowed:
        """Return one that goes on from here."""
        other = copy.copy(self)
        other._ids = self._ids.copy()  # noqa: SLF001 - its own class
        other._parts = self._parts.copy()  # noqa: SLF001 - its own class
        return other

    def _shrink(self) -> None:
        """Keep the shortest context: from the last token that shows on its own.

        Spaces may hang on whether a token is the first, and a token may start inside a character.
        """
        for start in range(len(self._ids) - 1, max(self._start, len(self._ids) - _MOST_CONTEXT), -1):
            text = self._decode(self._ids[start:])
            if text.strip() and not text.startswith(_REPLACEMENT):
                self._start, self._done = start, len(text)
                return
        if len(self._ids) - self._start > _LONGEST_WINDOW:
            self._start = len(self._ids) - _MOST_CONTEXT
            self._done = len(self._decode(self._ids[self._start :]))
