"""The runs of one scope: starting, stopping, showing, and what waits for the model to load. No traits, no messages.

All runs are kept, but what can be looked at only of the last run that keeps any: attention and hidden states take
megabytes a token.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Literal

from ..kernel_side.request import Request
from .sender import Sender
from .source import ModelSource
from .tree import tree_of

if TYPE_CHECKING:
    from ..kernel_side.engines.base import Engine
    from ..kernel_side.run import Run

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
    shown : Run or None
        The run on the page: the last that was started or asked for.
    """

    def __init__(self, source: ModelSource, sender: Sender, started: Callable[[Request], None]) -> None:
        self._source = source
        self._sender = sender
        self._started = started
        self._runs: list[Run] = []
        self.shown: Run | None = None
        self._pending: tuple[Request, bool] | None = None
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

    def named(self, name: str | None) -> Run | None:
        """Return the run of this id; the current one without an id."""
        return self.current if name is None else next((run for run in self.all if run.id == name), None)

    def show(self, name: str) -> None:
        """Show a run that is there; of none of this id nothing happens."""
        run = self.named(name)
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
        return self._start(engine or self._source.engine(), request, paused)

    def ask(self, request: Request, *, paused: bool = False) -> None:
        """Start a run now, or as soon as the model is loaded (see :meth:`start_pending`); never waits."""
        self._pending = (request, paused)
        if self._source.done:
            self.start_pending()
        else:
            self._sender.problems([])

    def start_pending(self) -> None:
        """Start what was asked for while the model was loading."""
        with self._lock:
            pending, self._pending = self._pending, None
        if pending is not None:
            self._start(self._source.engine(), *pending)

    def act(self, action: RunAction, name: str | None = None) -> None:
        """Stop, pause, resume or step a run that is not over. Only sets flags."""
        if action == "stop" and name is None:
            self._pending = None
        run = self.named(name)
        if run is not None and not run.over:
            getattr(run, action)()

    def close(self) -> None:
        """Stop the current run, and start no other."""
        self._closed = True
        self.act("stop")

    def _start(self, engine: Engine, request: Request, paused: bool) -> Run:
        from ..kernel_side.run import Run  # imports torch

        with self._lock:
            if self._closed:
                raise RuntimeError("this scope is closed; make a new one")
            run = Run(engine, request, paused=paused)
            if self._runs:
                self._runs[-1].stop()
            if run.looks is not None and run.looks.observed:
                for older in self._runs:
                    if older.looks is not None:
                        older.looks.clear()
            self._runs.append(run)
            self.shown = run
            self._sender.problems([])
            self._sender.begin(run)
            self._tell_tree()
        run.add_done_callback(lambda _: self._tell_tree())
        # Outside of the lock: who hears of it may start runs.
        self._started(request)
        return run

    def _tell_tree(self) -> None:
        with self._telling:  # of two threads that tell it, the later one tells of the more runs
            self._sender.set_traits(tree=tree_of(self.all))
