"""What a run took from the prefix cache, summed up for a person.

Plain data. Looking up is in ``prefix_cache``; who fills this in is the engine's job.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from .hits import RowHit

__all__ = ["PromptReuse", "Verified"]


@dataclass(frozen=True, slots=True)
class Verified:
    """How the first step differs from that of the same prompt without the cache.

    Attributes
    ----------
    difference, largest : float
        Largest difference of a logit, over all prompts and the whole vocabulary, and the largest logit, its scale.
    agrees : bool
        Whether both find the same token the most probable, for each prompt.
    """

    difference: float
    largest: float
    agrees: bool


@dataclass(frozen=True, slots=True)
class PromptReuse:
    """What a run took from the prefix cache.

    Attributes
    ----------
    rows : tuple of RowHit
        By prompt.
    asked, cached : tuple
        By prompt the text of the first token that was computed, and the texts that are known in its place.
    saved : float or None
        Seconds saved, the price of looking and copying taken off; None where nobody knows.
    saved_measured : bool
        Whether :attr:`saved` was measured against a cold run of the same prompt; else it is an estimate.
    verified : Verified or None
        Where it was asked for.
    """

    rows: tuple[RowHit, ...]
    asked: tuple[str, ...]
    cached: tuple[tuple[str, ...], ...]
    saved: float | None = None
    saved_measured: bool = False
    verified: Verified | None = None

    @classmethod
    def of(cls, rows: Sequence[RowHit], decode: Callable[[list[int]], Any]) -> PromptReuse:
        """Sum up what was found, with the texts of tokens as a tokenizer's ``decode`` gives them."""
        return cls(
            tuple(rows),
            asked=tuple("" if row.end.asked is None else str(decode([row.end.asked])) for row in rows),
            cached=tuple(tuple(str(decode([one])) for one in row.end.cached) for row in rows),
        )

    @property
    def tokens(self) -> int:
        """Tokens of all prompts; of an encoder-decoder model the decoder's."""
        return sum(row.tokens for row in self.rows)

    @property
    def reused(self) -> int:
        """How many of them were not computed."""
        return sum(row.reused for row in self.rows)

    @property
    def nbytes(self) -> int:
        """Bytes of keys and values that were handed over."""
        return sum(row.nbytes for row in self.rows)

    @property
    def sources_reused(self) -> int | None:
        """Texts that the encoder need not read; None without an encoder."""
        return None if self.rows[0].source is None else sum(bool(row.source) for row in self.rows)

    @property
    def worst(self) -> int:
        """The prompt with the most left to compute; the first of equals."""
        return max(range(len(self.rows)), key=lambda at: self.rows[at].tokens - self.rows[at].reused)

    def message(self) -> str:
        """Say of the prompt with the most left why no more of it was reused, with the texts of tokens."""
        at = self.worst
        end, others = self.rows[at].end, self.cached[at]
        if end.kind != "differs":
            return end.message
        known = " or ".join(map(repr, others))
        return f"at position {end.position} it has {self.asked[at]!r}, known is {known}"
