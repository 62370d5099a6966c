"""What one run does with an execution: which passes ran in it, which did not and why, and what was prepared meanwhile.

Not here: executions (``execution``).
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

__all__ = ["ExecutionStatus", "Preparing", "Use"]


@dataclass(frozen=True, slots=True)
class Preparing:
    """What is being prepared.

    Attributes
    ----------
    what : str
        For a person, such as ``"one token on a cache"``.
    stage : str
        What is being done for it, such as ``"tracing"``.
    seconds : float
        Since this began.
    """

    what: str
    stage: str
    seconds: float


@dataclass(frozen=True, slots=True)
class ExecutionStatus:
    """How a run's forward passes run, at one moment.

    Attributes
    ----------
    name : str
        The execution.
    passes : int
        Passes that ran in it.
    compared : int
        Passes that ran eagerly, and beside that in a new graph, to compare the two.
    fallbacks : mapping of str to int
        Passes that ran eagerly because nothing else could serve them, by reason.
    prepared : float
        Seconds that this run spent preparing, which are in none of its other times.
    graphs : int
        Graphs that were made meanwhile; others were there.
    recompilations : int
        Times that a compiler made one anew.
    largest_difference : float or None
        Of logits from eager ones where they were compared; None where they were not.
    preparing : Preparing or None
        What is being prepared now.
    """

    name: str
    passes: int = 0
    compared: int = 0
    fallbacks: Mapping[str, int] = field(default_factory=dict)
    prepared: float = 0.0
    graphs: int = 0
    recompilations: int = 0
    largest_difference: float | None = None
    preparing: Preparing | None = None


class Use:
    """Counts for one run, in its thread; read from any.

    Parameters
    ----------
    name : str
        The execution.
    pause, resume : callable
        Called around what is prepared: its time is none of the generation's.
    cancelled : callable
        Whether the run no longer wants what is being prepared.
    """

    def __init__(
        self,
        name: str = "eager",
        *,
        pause: Callable[[], object] = lambda: None,
        resume: Callable[[], object] = lambda: None,
        cancelled: Callable[[], bool] = lambda: False,
    ) -> None:
        self.cancelled = cancelled
        self.passes = self.compared = self.graphs = self.recompilations = 0
        self._name = name
        self._fallbacks: Counter[str] = Counter()
        self._prepared = 0.0
        self._largest: float | None = None
        self._now: tuple[str, str, float] | None = None
        self._pause, self._resume = pause, resume

    @property
    def preparing(self) -> bool:
        """Whether something is being prepared."""
        return self._now is not None

    def begin(self, what: str) -> None:
        """Begin to prepare something."""
        self._pause()
        self._now = (what, "", time.perf_counter())

    def stage(self, stage: str) -> None:
        """Say what is being done for it."""
        if self._now is not None:
            what, _, since = self._now
            self._now = (what, stage, since)

    def end(self) -> float:
        """Be done with it, one way or another; return the seconds that it took."""
        assert self._now is not None
        (_, _, since), self._now = self._now, None
        seconds = time.perf_counter() - since
        self._prepared += seconds
        self._resume()
        return seconds

    def fell_back(self, reason: str) -> None:
        """Count a pass that ran eagerly."""
        self._fallbacks[reason] += 1

    def differed(self, difference: float) -> None:
        """Take note of how far logits are from eager ones."""
        self.compared += 1
        self._largest = max(self._largest or 0.0, difference)

    def status(self) -> ExecutionStatus:
        """Return the counts as they are now."""
        now = self._now
        return ExecutionStatus(
            name=self._name,
            passes=self.passes,
            compared=self.compared,
            fallbacks=dict(self._fallbacks),
            prepared=self._prepared,
            graphs=self.graphs,
            recompilations=self.recompilations,
            largest_difference=self._largest,
            preparing=None if now is None else Preparing(now[0], now[1], time.perf_counter() - now[2]),
        )
