"""Numbers and texts as JSON and UTF-8 can carry them."""

from __future__ import annotations

import math
from collections.abc import Iterable

__all__ = ["number", "numbers", "sendable"]


def number(value: float | None, digits: int = 5) -> float | None:
    """Keep significant digits; None for infinity and NaN, which JSON does not have.

    Five digits keep the distance from 1 of a probability close to 1, as its logarithm.
    """
    # Adding zero turns a negative zero, which would show its sign, into a plain one.
    return None if value is None or not math.isfinite(value) else float(f"{value:.{digits}g}") + 0.0


def numbers(values: Iterable[float | None], digits: int = 5) -> list[float | None]:
    """Apply :func:`number` to each."""
    return [number(value, digits) for value in values]


def sendable(text: str) -> str:
    """Replace lone surrogates, which UTF-8 cannot carry: one would cost the whole message."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-8", "replace").decode()
    return text
