"""The error of a look at what is not there."""

from __future__ import annotations

__all__ = ["UnseenError"]


class UnseenError(LookupError):
    """What was to be looked at cannot be; the message is a sentence for a person, with the way out."""
