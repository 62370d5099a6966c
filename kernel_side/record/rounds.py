"""The rounds of an assisted run: what was drafted, what the model kept, and what that was worth.

Plain rows beside the record; needs neither torch nor a model. ``recorder`` makes them.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

__all__ = ["Draft", "DraftSummary", "Round", "summarize"]


@dataclass(frozen=True, slots=True)
class Draft:
    """A drafted token.

    Attributes
    ----------
    id : int
    text : str
        What it would have added to the text.
    draft_logprob : float or None
        Natural-log probability in the distribution that it was drafted from; None where drafts have none (prompt
        lookup).
    target_logprob : float or None
        The same in the model's own distribution after all processors, given the drafts before it; ``-inf`` when a
        processor cut it.
    """

    id: int
    text: str
    draft_logprob: float | None
    target_logprob: float | None

    @property
    def draft_probability(self) -> float | None:
        """Probability that it was drafted with, 0 to 1."""
        return None if self.draft_logprob is None else math.exp(self.draft_logprob)

    @property
    def target_probability(self) -> float | None:
        """Probability that the model gives it, 0 to 1."""
        return None if self.target_logprob is None else math.exp(self.target_logprob)


@dataclass(frozen=True, slots=True)
class Round:
    """One round: some tokens were drafted, one forward pass of the model checked them all.

    ``accepted + rejected`` are the drafts; ``accepted + bonus`` are the tokens that the round added to the record.

    Attributes
    ----------
    step : int
        0 for the first round.
    position : int
        Position in the record of the round's first token.
    drafts : tuple of Draft
    accepted : int
        How many of the drafts, from the first on, were kept.
    bonus : int
        How many tokens are the model's own: 1, or 0 where the sequence ended within the drafts.
    seconds : float or None
        Time since the round before.
    """

    step: int
    position: int
    drafts: tuple[Draft, ...]
    accepted: int
    bonus: int
    seconds: float | None

    @property
    def rejected(self) -> int:
        """How many drafts were dropped."""
        return len(self.drafts) - self.accepted


@dataclass(frozen=True, slots=True)
class DraftSummary:
    """What drafting was worth.

    Attributes
    ----------
    rounds : int
        Forward passes of the model: one a round.
    drafted, accepted, generated : int
        Tokens.
    """

    rounds: int
    drafted: int
    accepted: int
    generated: int

    @property
    def acceptance(self) -> float | None:
        """Share of the drafts that was kept, 0 to 1; None without drafts."""
        return self.accepted / self.drafted if self.drafted else None

    @property
    def wasted(self) -> int:
        """Drafts that were dropped."""
        return self.drafted - self.accepted

    @property
    def tokens_per_forward(self) -> float | None:
        """Tokens for each forward pass of the model; 1 without drafting. None before the first round."""
        return self.generated / self.rounds if self.rounds else None


def summarize(rounds: Iterable[Round]) -> DraftSummary:
    """Add up rounds."""
    count = drafted = accepted = generated = 0
    for one in rounds:
        count += 1
        drafted += len(one.drafts)
        accepted += one.accepted
        generated += one.accepted + one.bonus
    return DraftSummary(count, drafted, accepted, generated)
