"""Incremental text of tokenizers that can only be asked to decode: a short window is decoded at each token.

As text-generation-inference and vLLM do it: the new text is the difference between the decoded window with and without
the new tokens. Exact for decoders that join tokens from left to right. Bytes are not known here.
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
"""Tokens. A window only grows while no token of it shows on its own: endless U+FFFD, or endless nothing."""


class Windowed:
    """Turns token ids into text as they come.

    Parameters
    ----------
    decode : callable
        Decodes a list of ids.
    """

    def __init__(self, decode: Callable[[list[int]], str]) -> None:
        self._decode = decode
        self._window: list[int] = []  # the first tokens are context
        self._given = ""  # the part of the decoded window that was given out
        self._doubts = 0  # tokens in a row after which the window decodes otherwise
        self.holding = False  # whether the last token left a character unfinished

    def push(self, token_id: int) -> str:
        """Take a token; return the text that is complete now."""
        self._window.append(token_id)
        text = self._decode(self._window)
        end = len(text)
        while len(text) - end < _MOST_HELD and text.endswith(_REPLACEMENT, 0, end):
            end -= 1
        # Some decoders replace a whole run of bytes until its last character is whole again.
        self._doubts = 0 if text.startswith(self._given) else self._doubts + 1
        too_long = len(self._window) > _LONGEST_WINDOW
        if too_long:
            end = len(text)
        elif 0 < self._doubts <= _MOST_HELD:
            end = 0
        self.holding = end < len(text)
        new = text[len(self._given) : end]
        if new:
            self._given = text[:end]
        if too_long or (new and not self.holding):
            self._shrink()
        return new

    def peek(self, token_id: int) -> str:
        """Return what a token would add, without taking it; an unfinished character shows as U+FFFD."""
        return self._decode([*self._window, token_id])[len(self._given) :]

    def tail(self) -> str:
        """Return what is held back."""
        return self._decode(self._window)[len(self._given) :]

    def fork(self) -> Windowed:
        """Return one that goes on from here."""
        other = copy.copy(self)
        other._window = self._window.copy()  # noqa: SLF001 - its own class
        return other

    def _shrink(self) -> None:
        """Keep the shortest context: from the last token that shows on its own.

        A token that does not may hang on what is before it, or start inside a character.
        """
        size = len(self._window)
        for start in range(size - 1, max(0, size - _MOST_CONTEXT), -1):
            text = self._decode(self._window[start:])
            if text and not text.startswith(_REPLACEMENT):
                break
        else:
            if size <= _LONGEST_WINDOW:
                return
            start = size - _MOST_CONTEXT
            text = self._decode(self._window[start:])
        self._window = self._window[start:]
        self._given = text
