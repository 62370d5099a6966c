"""Where a run stands: its state and its numbers at one moment. How they come about is in ``run``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from .caching.reuse import PromptReuse
from .record.rounds import DraftSummary
from .tracing.use import ExecutionStatus

__all__ = ["RunState", "RunStatus"]

RunState = Literal["queued", "preparing", "prefilling", "decoding", "paused", "finished", "stopped", "failed"]


@dataclass(frozen=True, slots=True)
class RunStatus:
    """Where a run stands, measured at one moment. None is unknown.

    Attributes
    ----------
    state : str
        One of :data:`RunState`.
    why : str or None
        ``"eos"``, ``"stop string '...'"`` or ``"length"`` once finished; of several lanes that ended differently how
        many ended how.
    error : str or None
        Type and message of the exception that ended the run.
    generated : int
        Generated tokens of the longest sequence; of a beam search that goes on its steps.
    elapsed : float or None
        Seconds since the run left the queue, pauses left out; None before it did.
    first_token : float or None
        Seconds from leaving the queue to the first generated token.
    tokens_per_second : float or None
        Of one sequence, after the first token, pauses left out.
    observation_share : float or None
        Share of ``elapsed``, 0 to 1, that measuring and recording took.
    queue_ahead : int
        Runs of this model that go first.
    drafts : DraftSummary or None
        What drafting was worth so far; None without drafting.
    reuse : PromptReuse or None
        What was taken from the prefix cache; None before it was asked, and in a run without one.
    execution : ExecutionStatus or None
        How forward passes run where that is not eagerly. What it prepares is in none of the times here.
    """

    state: RunState
    why: str | None
    error: str | None
    generated: int
    elapsed: float | None
    first_token: float | None
    tokens_per_second: float | None
    observation_share: float | None
    queue_ahead: int
    drafts: DraftSummary | None = None
    reuse: PromptReuse | None = None
    execution: ExecutionStatus | None = None
