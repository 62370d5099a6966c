"""A comparison: settings and seeds on one prompt, in lanes that grow side by side.

Lanes that can share their forward passes are rows of one run; the others are runs of their own, which wait for their
turn. To whoever shows it, a comparison looks like one run with all of these lanes. Not here: which lanes there are
(``asked``), what came of them (``report``), and running (``run``).
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Self

from ..record.recording import Lane, Recording
from ..request import Request, Settings
from ..run import Run
from ..run_status import RunState, RunStatus
from .asked import Asked, asked_for, batches, request_of

if TYPE_CHECKING:
    from ..engines.base import Engine
    from ..record.record import Record

__all__ = ["ComparedLane", "Comparison", "compare"]

_FURTHEST: tuple[RunState, ...] = ("preparing", "prefilling", "decoding", "paused", "queued")
"""States of a comparison that is not over, by which of its runs' states says most."""


@dataclass(frozen=True, slots=True)
class ComparedLane:
    """One lane of a comparison.

    Attributes
    ----------
    label : str
        What tells it from the others.
    settings : Settings
        With the seed that is used.
    group : int
        Which of the given settings these are.
    run : Run
        That it is part of.
    index : int
        Which of that run's lanes it is.
    """

    label: str
    settings: Settings
    group: int
    run: Run
    index: int

    @property
    def lane(self) -> Lane:
        """The lane as its run has it."""
        return self.run.lanes[self.index]

    @property
    def record(self) -> Record:
        """Its tokens so far."""
        return self.lane.record

    @property
    def prompt_tokens(self) -> int:
        """How many of its tokens are the prompt."""
        return self.lane.prompt_tokens

    @property
    def generated(self) -> int:
        """How many tokens came behind the prompt so far."""
        return self.lane.generated

    @property
    def text(self) -> str:
        """Its generated text so far."""
        return self.lane.text

    @property
    def why(self) -> str | None:
        """Why it ended; None before the end of its run, and where that was stopped."""
        return self.run.whys[self.index] if self.run.whys else None

    @property
    def batched(self) -> int:
        """How many lanes, this one included, its forward passes are for."""
        return len(self.run.lanes)


class Comparison:
    """Settings and seeds on one prompt. All runs are queued at once.

    Parameters
    ----------
    engine : Engine
    prompt : str or list of ChatMessage
    settings : sequence of (Settings or mapping)
    seeds : int or sequence of int, optional
    base : Settings or mapping, optional
        See :func:`~.asked.asked_for`.

    Attributes
    ----------
    id : str
    lanes : tuple of ComparedLane
        In the order in which they were asked for.
    runs : tuple of Run
    request : Request
        Of the first run.
    recording : Recording
        The lanes of all runs.

    Raises
    ------
    SettingsError
        When one of them does not fit; nothing runs then.
    """

    def __init__(
        self,
        engine: Engine,
        prompt: object,
        settings: Sequence[Settings | Mapping[str, Any]],
        *,
        seeds: int | Sequence[int] | None = None,
        base: Settings | Mapping[str, Any] | None = None,
    ) -> None:
        self.id = uuid.uuid4().hex[:12]
        asked = asked_for(settings, seeds, base)
        places = batches(asked)
        requests = [request_of(prompt, [asked[index] for index in indices]) for indices in places]
        for request in requests:
            engine.prepare(request)  # before any is queued
        self.runs = _start(engine, requests)
        self.lanes = _lanes(asked, places, self.runs)
        self.request = self.runs[0].request
        # Without tables: those are of single runs, to whose steps they refer.
        self.recording = Recording(
            tuple(replace(one.lane, prompt=0, sequence=at, label=one.label) for at, one in enumerate(self.lanes))
        )

    # What it is

    @property
    def settings(self) -> Settings:
        """What the first run's lanes have in common."""
        return self.runs[0].settings

    @property
    def over(self) -> bool:
        """Whether all runs are over."""
        return all(run.over for run in self.runs)

    @property
    def state(self) -> RunState:
        """Of the run that goes, while one does; else failed or stopped where one of them is, or finished."""
        states = {run.state for run in self.runs}
        order: tuple[RunState, ...] = (*_FURTHEST, "failed", "stopped", "finished")
        return next(state for state in order if state in states)

    @property
    def whys(self) -> tuple[str | None, ...]:
        """Why each lane ended; empty before all have."""
        return tuple(lane.why for lane in self.lanes) if self.over else ()

    @property
    def texts(self) -> list[str]:
        """The generated texts so far, one a lane."""
        return [lane.text for lane in self.lanes]

    @property
    def compared(self) -> tuple[ComparedLane, ...]:
        """The lanes, by a name that a plain run does not have."""
        return self.lanes

    @property
    def looks(self) -> None:
        """Nothing can be looked at here; each lane's run has its own."""
        return None

    def status(self) -> RunStatus:
        """Return where it stands: of the run that goes, or of the last one, with all lanes' tokens and errors."""
        going = next((run for run in self.runs if not run.over), self.runs[-1])
        status = going.status()
        statuses = [run.status() for run in self.runs]
        errors = [one.error for one in statuses if one.error is not None]
        elapsed = [one.elapsed for one in statuses if one.elapsed is not None]
        return replace(
            status,
            state=self.state,
            why=None,
            error=errors[0] if errors else None,
            generated=max(one.generated for one in statuses),
            elapsed=sum(elapsed) if elapsed else None,
            reuse=statuses[0].reuse,
        )

    def __repr__(self) -> str:
        return f"<Comparison {self.id}: {self.state}, {len(self.lanes)} lanes in {len(self.runs)} runs>"

    # What can be done with it

    def stop(self, lane: int | None = None) -> None:
        """End one lane after the current step, or all; what came is kept."""
        if lane is not None:
            chosen = self.lanes[lane]
            chosen.run.stop(chosen.index if chosen.batched > 1 else None)
            return
        for run in reversed(self.runs):  # so that none of them begins
            run.stop()

    def pause(self) -> None:
        """Pause the run that goes, after its step."""
        self._going(Run.pause)

    def resume(self) -> None:
        """Go on after a pause."""
        self._going(Run.resume)

    def step(self) -> None:
        """Let the run that goes take one more step, and pause."""
        self._going(Run.step)

    def _going(self, act: Callable[[Run], None]) -> None:
        run = next((run for run in self.runs if not run.over), None)
        if run is not None:
            act(run)

    def wait(self, timeout: float | None = None) -> Self:
        """Wait until all are over, as :meth:`.Run.wait`, which says what is raised."""
        deadline = None if timeout is None else time.monotonic() + timeout
        try:
            for run in self.runs:
                run.wait(None if deadline is None else max(0.0, deadline - time.monotonic()))
        except KeyboardInterrupt:
            self.stop()
            raise
        return self

    def add_done_callback(self, callback: Callable[[Comparison], object]) -> None:
        """Call back with this comparison once all runs are over, in the last one's thread; at once if they are."""
        waiting = {run.id for run in self.runs}

        def done(run: Run) -> None:
            waiting.discard(run.id)
            if not waiting:
                callback(self)

        for run in self.runs:
            run.add_done_callback(done)


def compare(
    model: Any,
    tokenizer: Any,
    prompt: object,
    settings: Sequence[Settings | Mapping[str, Any]],
    *,
    seeds: int | Sequence[int] | None = None,
    **base: Any,
) -> Comparison:
    """Compare settings and seeds on one prompt, in the background.

    Parameters
    ----------
    model : PreTrainedModel
    tokenizer : PreTrainedTokenizerBase
    prompt : str or list of dict
        Text, or chat messages.
    settings : sequence of mapping
        What differs between the lanes, such as ``[{"temperature": 0.5}, {"temperature": 1.0}]``.
    seeds : int or sequence of int, optional
        How many seeds, or which: each is used with all settings.
    **base
        Settings that all have.

    Returns
    -------
    Comparison

    Raises
    ------
    SettingsError
        Naming what is wrong, its value and the way out.

    Examples
    --------
    >>> compare(
    ...     model,
    ...     tokenizer,
    ...     "Once upon a time",
    ...     [{"temperature": 0.5}, {"temperature": 1.5}],
    ...     seeds=2,
    ...     strategy="sample",
    ... ).wait()  # doctest: +SKIP
    """
    from ..engines.in_process import InProcessEngine  # imports torch

    return Comparison(InProcessEngine(model, tokenizer), prompt, settings, seeds=seeds, base=base)


def _start(engine: Engine, requests: Sequence[Request]) -> tuple[Run, ...]:
    runs: list[Run] = []
    try:
        for request in requests:
            runs.append(Run(engine, request))  # noqa: PERF401 - those before one that fails are stopped
    except BaseException:
        for run in reversed(runs):
            run.stop()
        raise
    return tuple(runs)


def _lanes(asked: Sequence[Asked], places: Sequence[Sequence[int]], runs: Sequence[Run]) -> tuple[ComparedLane, ...]:
    found: dict[int, list[ComparedLane]] = {}
    for indices, run in zip(places, runs, strict=True):
        for at, index in enumerate(indices):
            one = asked[index]
            # Of a run of its own all sequences are lanes.
            own = range(len(run.lanes)) if len(indices) == 1 else [at]
            settings = run.request.variants[at] if run.request.variants else run.settings
            found[index] = [
                ComparedLane(
                    one.label if len(own) == 1 else f"{one.label}, sequence {lane + 1}", settings, one.group, run, lane
                )
                for lane in own
            ]
    return tuple(lane for index in sorted(found) for lane in found[index])
