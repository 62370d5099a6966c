"""What a decoder or ``decode`` does to joined text, done to text that arrives in parts.

Each stage gives the same text in total as the operation on the whole, and holds back only what a later part could
still change. It knows nothing of tokens.
"""

from __future__ import annotations

from typing import Protocol, Self

__all__ = ["CLEAN_UP", "Replacer", "Stage", "StartStripper"]

CLEAN_UP = (
    (" .", "."), (" ?", "?"), (" !", "!"), (" ,", ","), (" ' ", "'"), (" n't", "n't"), (" 'm", "'m"), (" 's", "'s"),
    (" 've", "'ve"), (" 're", "'re"),
)  # fmt: skip
"""What ``clean_up_tokenization_spaces`` replaces, in its order (``PreTrainedTokenizerBase.clean_up_tokenization``)."""


class Stage(Protocol):
    """A change of text that arrives in parts."""

    def push(self, text: str) -> str:
        """Take a part; return what is final now."""

    def flush(self) -> str:
        """Return what is held back, without a change of state."""

    def copy(self) -> Self:
        """Return a stage that goes on from the same state."""


class Replacer:
    """``str.replace``.

    Parameters
    ----------
    pattern : str
        Not empty.
    content : str
    """

    def __init__(self, pattern: str, content: str) -> None:
        self._pattern = pattern
        self._content = content
        self._held = ""

    def push(self, text: str) -> str:
        """See :class:`Stage`; holds back a start of the pattern."""
        text = self._held + text
        parts = text.split(self._pattern)  # like replace: from the left, without overlap
        last = parts[-1]
        size = min(len(last), len(self._pattern) - 1)
        while size and not last.endswith(self._pattern[:size]):
            size -= 1
        self._held = last[len(last) - size :]
        parts[-1] = last[: len(last) - size]
        return self._content.join(parts)

    def flush(self) -> str:
        """See :class:`Stage`."""
        return self._held

    def copy(self) -> Replacer:
        """See :class:`Stage`."""
        other = Replacer(self._pattern, self._content)
        other._held = self._held
        return other


class StartStripper:
    """Removes a character from the start of the text, several times at most; holds nothing back.

    Parameters
    ----------
    content : str
        One character.
    count : int
    """

    def __init__(self, content: str, count: int) -> None:
        self._content = content
        self._left = count

    def push(self, text: str) -> str:
        """See :class:`Stage`."""
        while self._left and text:
            if not text.startswith(self._content):
                self._left = 0
                break
            text = text[len(self._content) :]
            self._left -= 1
        return text

    def flush(self) -> str:
        """See :class:`Stage`."""
        return ""

    def copy(self) -> StartStripper:
        """See :class:`Stage`."""
        return StartStripper(self._content, self._left)
