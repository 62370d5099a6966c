"""The same request eagerly and in another execution: whether they say the same, and when the preparation has paid off.

Two runs, one after the other, each as any other run; what they keep of their logits is compared when both are over.
Not here: running (``run``), and the executions (``tracing``).
"""

from __future__ import annotations

import math
import threading
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from .engines.base import Engine
from .record.record import Token
from .request import Problem, Request, SettingsError, make_settings
from .run import Run
from .tracing.use import ExecutionStatus

__all__ = ["Difference", "Twin", "TwinReport"]


@dataclass(frozen=True, slots=True)
class Difference:
    """The first position at which the two runs differ.

    Attributes
    ----------
    lane : int
    position : int
    eager, other : Token or None
        What each has there, with the alternatives of its distribution; None where it had ended.
    """

    lane: int
    position: int
    eager: Token | None
    other: Token | None


@dataclass(frozen=True, slots=True)
class TwinReport:
    """What came of a twin. None is unknown.

    Attributes
    ----------
    compared : int
        Positions of generated tokens that both runs have got to, of all lanes.
    agreeing : int
        Those before the first difference of their lane.
    difference : Difference or None
        The first one; None where there is none so far.
    largest_gap : float or None
        Largest difference of a logit, over the steps before the first difference; None before both are over, and for
        beam searches, whose rows are not those of their sequences.
    first_token : tuple of (float or None)
        Seconds to the first token: eager, other; preparing left out.
    per_token : tuple of (float or None)
        Seconds for each further token.
    execution : ExecutionStatus or None
        Of the other run; None before it began.
    pays_off_after : int or None
        Tokens after which the time that this twin prepared for is made up for; None where it never is, or nothing was
        prepared: then it pays off at once.
    """

    compared: int
    agreeing: int
    difference: Difference | None
    largest_gap: float | None
    first_token: tuple[float | None, float | None]
    per_token: tuple[float | None, float | None]
    execution: ExecutionStatus | None
    pays_off_after: int | None


class Twin:
    """A request that runs twice. Both runs are queued at once, the eager one first.

    Parameters
    ----------
    engine : Engine
    request : Request
        Its execution is the other run's, and the seed that the eager run drew. Both compute their whole prompt. Their
        logits are kept until they are compared, and for good where the request keeps them.

    Attributes
    ----------
    eager, other : Run

    Raises
    ------
    SettingsError
        When the request does not fit the model, or says ``execution="eager"``.
    """

    def __init__(self, engine: Engine, request: Request) -> None:
        settings = request.settings
        if settings.execution == "eager":
            message = "eager compared with itself shows nothing"
            raise SettingsError([Problem("execution", "eager", message, "Choose another execution.")])
        # What one of them found in the prefix cache would be in its time to the first token.
        changes = {"keep": sorted({*settings.keep, "logits"}), "prefix_cache": False}
        self._releases = "logits" not in settings.keep
        self._lock = threading.Lock()
        self._logits_compared = False
        self._largest_gap: float | None = None
        self.eager = Run(engine, _changed(request, execution="eager", **changes))
        try:
            self.other = Run(engine, _changed(request, seed=self.eager.settings.seed, **changes))
        except BaseException:
            self.eager.stop()
            raise

    @property
    def over(self) -> bool:
        """Whether both runs are over."""
        return self.eager.over and self.other.over

    def stop(self) -> None:
        """Stop both."""
        self.other.stop()
        self.eager.stop()

    def wait(self, timeout: float | None = None) -> TwinReport:
        """Wait for both, as :meth:`.Run.wait`, and return what came of them."""
        self.eager.wait(timeout)
        self.other.wait(timeout)
        return self.report()

    def report(self) -> TwinReport:
        """Return what is known so far."""
        over = self.over  # asked before the records, which are whole then
        compared = agreeing = 0
        difference: Difference | None = None
        same: list[int] = []
        for index, (eager, other) in enumerate(zip(self.eager.lanes, self.other.lanes, strict=True)):
            begin = eager.prompt_tokens
            ours, theirs = other.record[begin:], eager.record[begin:]
            at = _first_difference(ours, theirs)
            known = min(len(ours), len(theirs))
            # Where one is only shorter, that is a difference once both are over.
            differs = at < known or (over and len(ours) != len(theirs))
            if differs and (difference is None or begin + at < difference.position):
                difference = Difference(index, begin + at, _at(theirs, at), _at(ours, at))
            same.append(at)
            compared += known
            agreeing += at
        eager_status, other_status = self.eager.status(), self.other.status()
        speeds = [
            None if status.tokens_per_second is None else 1 / status.tokens_per_second
            for status in (eager_status, other_status)
        ]
        execution = other_status.execution
        return TwinReport(
            compared=compared,
            agreeing=agreeing,
            difference=difference,
            largest_gap=self._compared_logits(same, over=over),
            first_token=(eager_status.first_token, other_status.first_token),
            per_token=(speeds[0], speeds[1]),
            execution=execution,
            pays_off_after=_pays_off(execution, speeds[0], speeds[1]),
        )

    def _compared_logits(self, same: Sequence[int], *, over: bool) -> float | None:
        """Compare what both kept of their logits, once, and let go of it unless it was asked for: it is large."""
        with self._lock:
            if over and not self._logits_compared:
                self._largest_gap, self._logits_compared = self._gap(same), True
                for run in (self.eager, self.other) if self._releases else ():
                    if run.output is not None:
                        run.output = replace(run.output, logits=None)
            return self._largest_gap

    def _gap(self, same: Sequence[int]) -> float | None:
        """Return the largest difference of a logit, up to the choice at which tokens differ."""
        if self.eager.settings.searches:
            return None
        kept = [getattr(run.output, "logits", None) for run in (self.eager, self.other)]
        if kept[0] is None or kept[1] is None:
            return None
        largest: float | None = None
        for step, (theirs, ours) in enumerate(zip(*kept, strict=False)):
            # The logits of the step that chose differently still come from the same tokens.
            rows = [row for row, at in enumerate(same) if step <= at and row < len(theirs)]
            if not rows:
                break
            gap = _difference(ours[rows], theirs[rows])
            largest = gap if largest is None else max(largest, gap)
        return largest


def _changed(request: Request, **changes: Any) -> Request:
    return replace(request, settings=make_settings(request.settings, **changes))


def _difference(ours: Any, theirs: Any) -> float:
    difference = (ours - theirs).abs()
    difference[ours == theirs] = 0.0  # minus infinity on both sides
    return float(difference.max())


def _first_difference(ours: Sequence[Token], theirs: Sequence[Token]) -> int:
    return next(
        (at for at, (one, other) in enumerate(zip(ours, theirs, strict=False)) if one.id != other.id),
        min(len(ours), len(theirs)),
    )


def _at(tokens: Sequence[Token], position: int) -> Token | None:
    return tokens[position] if position < len(tokens) else None


def _pays_off(execution: ExecutionStatus | None, eager: float | None, other: float | None) -> int | None:
    if execution is None or eager is None or other is None or other >= eager or not execution.prepared:
        return None
    return math.ceil(execution.prepared / (eager - other))
