"""Lets the text before a stop string through as it comes, and nothing of the string.

Looks at text as it is shown, which is what may leak. Ending a generation at stop strings is done elsewhere, by what it
is made of (``record.string_search``).
"""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["TextBeforeStop"]


class TextBeforeStop:
    """The text of one row, up to the first stop string.

    The first is the one that is complete first; of several at once, the longest. So nothing depends on the pieces in
    which the text comes.

    Parameters
    ----------
    strings : sequence of str
        None of them empty. Without any, all text is let through.

    Attributes
    ----------
    found : str or None
        The stop string, once it was there. Nothing comes any more then.
    """

    def __init__(self, strings: Sequence[str] = ()) -> None:
        self._strings = tuple(strings)
        self._longest = max(map(len, self._strings), default=0)
        self._held = ""
        self.found: str | None = None

    def push(self, text: str) -> str:
        """Take the next text; return what is let through now. What may yet become a stop string is held back."""
        if self.found is not None:
            return ""
        text, self._held = self._held + text, ""
        places = [(at + len(one), at, one) for one in self._strings if (at := text.find(one)) >= 0]
        if places:
            _, start, self.found = min(places)
            return text[:start]
        begun = self._begun(text)
        self._held = text[len(text) - begun :]
        return text[: len(text) - begun]

    def end(self) -> str:
        """Return what is held back: at the end of the text it is no stop string."""
        held, self._held = self._held, ""
        return held

    def _begun(self, text: str) -> int:
        """Return how many characters at the end of a text may be the beginning of a stop string."""
        most = min(self._longest - 1, len(text))
        ends = ((size, text[-size:]) for size in range(most, 0, -1))
        return next((size for size, end in ends if any(one.startswith(end) for one in self._strings)), 0)
