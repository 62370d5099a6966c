"""The runs of one scope: starting, stopping, showing, and what waits for the model to load. No traits, no messages.

All runs are kept, but what can be looked at only of the last run that keeps any: attention and hidden states take
megabytes a token. A twin is two runs that are started together: the second one is shown when the first one ends, and
stopping either stops both. A comparison is shown as one, whichever of its runs goes.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Literal

from ..kernel_side.request import Request
from .sender import Sender
from .source import ModelSource
from .tree import tree_of
from .twins import TwinWatch

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..kernel_side.comparison.comparison import Comparison
    from ..kernel_side.engines.base import Engine
    from ..kernel_side.run import Run
    from ..kernel_side.twin import Twin

    Shown = Run | Comparison
    """What can be on the page."""

__all__ = ["RunAction", "Runs"]

RunAction = Literal["stop", "pause", "resume", "step"]


class Runs:
    """Starts runs one at a time: a new one stops the one before. Used from any thread.

    Parameters
    ----------
    source : ModelSource
    sender : Sender
        Streams each run from its start.
    started : callable
        Called with the request of each run that was started.

    Attributes
    ----------
    shown : Run, Comparison or None
        What is on the page: the last that was started or asked for.
    """

    def __init__(self, source: ModelSource, sender: Sender, started: Callable[[Request], None]) -> None:
        self._source = source
        self._sender = sender
        self._started = started
        self._runs: list[Run] = []
        self.shown: Shown | None = None
        self._comparisons: dict[str, Comparison] = {}
        self._twin: Twin | None = None
        self._watch: TwinWatch | None = None
        self._pending: Callable[[], object] | None = None
        self._lock = threading.Lock()
        self._telling = threading.Lock()
        self._closed = False

    @property
    def all(self) -> list[Run]:
        """All runs, oldest first."""
        return list(self._runs)

    @property
    def current(self) -> Run | None:
        """The last run."""
        runs = self._runs
        return runs[-1] if runs else None

    @property
    def going(self) -> bool:
        """Whether the current run is not over."""
        current = self.current
        return current is not None and not current.over

    @property
    def comparisons(self) -> list[Comparison]:
        """All comparisons, oldest first."""
        return list(self._comparisons.values())

    def named(self, name: str | None) -> Run | None:
        """Return the run of this id; the current one without an id."""
        return self.current if name is None else next((run for run in self.all if run.id == name), None)

    def lane(self, name: str, lane: int) -> tuple[Run | None, int]:
        """Return the run, and which of its lanes, that a lane of this run or comparison is."""
        comparison = self._comparisons.get(name)
        if comparison is None:
            return self.named(name), lane
        return (comparison.lanes[lane].run, comparison.lanes[lane].index) if lane < len(comparison.lanes) else (None, 0)

    def show(self, name: str) -> None:
        """Show a run or a comparison that is there; of none of this id nothing happens."""
        run = self._comparisons.get(name) or self.named(name)
        if run is not None:
            with self._lock:
                self.shown = run
                self._sender.begin(run)

    def start(self, request: Request, *, paused: bool = False, engine: Engine | None = None) -> Run:
        """Start a run; waits until the model is loaded.

        Parameters
        ----------
        request : Request
        paused : bool
            Pause after the first token.
        engine : Engine, optional
            Of this run, in place of the scope's.

        Raises
        ------
        SettingsError
            When the request does not fit the model; the run before goes on then.
        """
        from ..kernel_side.run import Run  # imports torch

        engine = engine or self._source.engine()
        return self._start(request, lambda: [Run(engine, request, paused=paused)])[0]

    def twin(self, request: Request) -> Twin:
        """Start a request eagerly and, behind that, in its execution; waits until the model is loaded.

        Raises
        ------
        SettingsError
            When the request does not fit the model, or is eager itself; the run before goes on then.
        """
        from ..kernel_side.twin import Twin  # imports torch

        engine = self._source.engine()
        made: list[Twin] = []

        def both() -> Sequence[Run]:
            twin = Twin(engine, request)
            made.append(twin)
            if self._watch is not None:
                self._watch.close()
            self._twin = twin
            self._watch = TwinWatch(twin, lambda state: self._sender.set_traits(twin_state=state))
            return twin.eager, twin.other

        self._start(request, both)
        [twin] = made
        twin.eager.add_done_callback(lambda _: self._show_other(twin))
        return twin

    def compare(self, prompt: object, settings: Any, changes: Sequence[Any], seeds: Any = None) -> Comparison:
        """Start a comparison; waits until the model is loaded.

        Parameters
        ----------
        prompt, settings, changes, seeds
            See :class:`~genscope.kernel_side.comparison.comparison.Comparison`; ``settings`` is what all share.

        Raises
        ------
        SettingsError
            When one of the lanes does not fit; the run before goes on then.
        """
        from ..kernel_side.comparison.comparison import Comparison  # imports torch

        engine = self._source.engine()
        made: list[Comparison] = []

        def runs() -> Sequence[Run]:
            comparison = Comparison(engine, prompt, changes, seeds=seeds, base=settings)
            made.append(comparison)
            self._comparisons[comparison.id] = comparison
            return comparison.runs

        self._start(Request.make(prompt, settings), runs, lambda: made[0])
        return made[0]

    def ask_to(self, start: Callable[[], object]) -> None:
        """Start something now, or as soon as the model is loaded; never waits."""
        self._pending = start
        if self._source.done:
            self.start_pending()
        else:
            self._sender.problems([])

    def ask(self, request: Request, *, paused: bool = False, twin: bool = False) -> None:
        """Start a run or a twin now, or as soon as the model is loaded (see :meth:`start_pending`); never waits."""
        self.ask_to((lambda: self.twin(request)) if twin else (lambda: self.start(request, paused=paused)))

    def start_pending(self) -> None:
        """Start what was asked for while the model was loading."""
        with self._lock:
            pending, self._pending = self._pending, None
        if pending is not None:
            pending()

    def act(self, action: RunAction, name: str | None = None) -> None:
        """Stop, pause, resume or step a run that is not over. Only sets flags."""
        if action == "stop" and name is None:
            self._pending = None
        comparison = self._comparison_of(name)
        if comparison is not None:
            getattr(comparison, action)()
            return
        run = self.named(name)
        twin = None if run is None else self._twin_of(run)
        if twin is not None and action == "stop":
            twin.stop()
            return
        if twin is not None and name is None and not twin.eager.over:
            run = twin.eager  # the other waits for it
        if run is not None and not run.over:
            getattr(run, action)()

    def close(self) -> None:
        """Stop the current run, and start no other."""
        self._closed = True
        if self._watch is not None:
            self._watch.close()
        self.act("stop")

    def stop_lane(self, name: str, lane: int) -> None:
        """End one lane of a comparison; of none of this id, or no such lane, nothing happens."""
        comparison = self._comparisons.get(name)
        if comparison is not None and 0 <= lane < len(comparison.lanes) and not comparison.lanes[lane].run.over:
            comparison.stop(lane)

    def _comparison_of(self, name: str | None) -> Comparison | None:
        """Return the comparison of this id; without an id the one that the current run is part of."""
        if name is not None:
            return self._comparisons.get(name)
        return next((one for one in self.comparisons if self.current in one.runs), None)

    def _start(
        self, request: Request, make: Callable[[], Sequence[Run]], show: Callable[[], Shown] | None = None
    ) -> Sequence[Run]:
        """Start what ``make`` makes, in order; show its first or ``show()``, and stop what went before."""
        with self._lock:
            if self._closed:
                raise RuntimeError("this scope is closed; make a new one")
            before = (
                self._comparison_of(None) or self._twin_of(self._runs[-1]) or self._runs[-1] if self._runs else None
            )
            made = make()
            if before is not None:
                before.stop()
            for run in made:
                if run.looks is not None and run.looks.observed:
                    for older in self._runs:
                        if older.looks is not None:
                            older.looks.clear()
                self._runs.append(run)
            self.shown = made[0] if show is None else show()
            self._sender.problems([])
            self._sender.begin(self.shown)
            self._tell_tree()
        for run in made:
            run.add_done_callback(lambda _: self._tell_tree())
        # Outside of the lock: who hears of it may start runs.
        self._started(request)
        return made

    def _twin_of(self, run: Run) -> Twin | None:
        """Return the twin that a run is part of, if it is the last one."""
        twin = self._twin
        return twin if twin is not None and run in (twin.eager, twin.other) else None

    def _show_other(self, twin: Twin) -> None:
        """Have the second run take the place of the first one, which is over, unless a person looks elsewhere."""
        with self._lock:
            if self.shown is twin.eager and twin.eager.state != "stopped" and not self._closed:
                self.shown = twin.other
                self._sender.begin(twin.other)

    def _tell_tree(self) -> None:
        with self._telling:  # of two threads that tell it, the later one tells of the more runs
            self._sender.set_traits(tree=tree_of(self.all, self.comparisons))
