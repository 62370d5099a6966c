"""A run: one generation in the background, with its request, state, record and output.

It owns the thread, the states and stop / pause / step, and keeps what came when something goes wrong. What is
generated, and how, is the engine's.
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import contextvars
import dataclasses
import logging
import threading
import time
import traceback
import uuid
from collections import Counter
from collections.abc import Callable, Generator, Iterator, Sequence
from pathlib import Path
from types import EllipsisType, TracebackType
from typing import TYPE_CHECKING, Any, Self

from .branching import branch_of, reply_to
from .engines.base import Engine
from .idle_threads import release_threads
from .record.export import recording_to_json, to_frame
from .record.record import Record, Token
from .record.recording import Lane, Recording
from .record.rounds import summarize
from .request import Request, Settings
from .run_status import RunState, RunStatus
from .stopwatch import Stopwatch

if TYPE_CHECKING:
    import pandas as pd

    from .observation.looks import Looks

__all__ = ["Run", "RunState", "RunStatus"]

_OVER: tuple[RunState, ...] = ("finished", "stopped", "failed")
_GOING: tuple[RunState, ...] = ("prefilling", "decoding")
_EXIT_GRACE = 30.0
"""Seconds that the interpreter's exit waits for runs that go on: for the step, or the prefill, that each is in."""

_log = logging.getLogger(__name__)
_going: set[Run] = set()


@atexit.register
def _stop_all() -> None:
    """Stop what still goes on at exit: a thread that Python ends inside of torch aborts the whole process."""
    going = list(_going)
    for run in going:
        run.stop()
    deadline = time.monotonic() + _EXIT_GRACE
    for run in going:
        run._thread.join(max(0.0, deadline - time.monotonic()))  # noqa: SLF001 - its own module


class Run:
    """One generation in a background thread. It is queued at once and starts when the model is free.

    One that still goes on when the interpreter exits is stopped.

    Parameters
    ----------
    engine : Engine
    request : Request
    paused : bool
        Pause after the first token, for stepping.

    Attributes
    ----------
    engine : Engine
    id : str
        Unique.
    request : Request
        As it was asked for, with the seed that is used.
    recording : Recording
        All that was recorded so far; kept however the run ends.
    record : Record
        The tokens of the first lane so far.
    output : object
        What ``generate`` returned (of the in-process engine one of the library's output classes, without its cache),
        None before the end.
    error : BaseException or None
        What ended a failed run.
    whys : tuple of (str or None)
        Why each lane ended; empty before the end.

    Raises
    ------
    SettingsError
        When the request does not fit the engine's model; nothing is queued then.

    Examples
    --------
    >>> run = Run(engine, Request.make("Once upon a time", max_new_tokens=20))  # doctest: +SKIP
    >>> for token in run:  # doctest: +SKIP
    ...     print(token.text, end="")
    """

    def __init__(self, engine: Engine, request: Request, *, paused: bool = False) -> None:
        self.engine = engine
        self._job = engine.prepare(request)
        self._turnstile = engine.turnstile
        self.id = uuid.uuid4().hex[:12]
        self.request = self._job.request
        self.recording: Recording = self._job.recording
        self.record: Record = self.recording.lanes[0].record
        self.output: Any = None
        self.error: BaseException | None = None
        self._trace: TracebackType | None = None
        self.whys: tuple[str | None, ...] = ()
        self._state: RunState = "queued"
        self._changed = threading.Condition()
        self._stop = False
        # Steps allowed before the next pause; None means no pause.
        self._allowed: int | None = 0 if paused else None
        self._stopwatch = Stopwatch()
        self._callbacks: list[Callable[[Run], object]] = []
        # With the context copied, ipykernel files what the thread prints under the cell that started it.
        work = contextvars.copy_context().run
        self._thread = threading.Thread(target=work, args=(self._work,), name=f"genscope-run-{self.id}", daemon=True)
        self._ticket = self._turnstile.join()
        _going.add(self)
        release_threads()  # this thread's, which is not the one that generates
        try:
            self._thread.start()
        except BaseException:  # no more threads: without a thread nobody would give the ticket back
            _going.discard(self)
            self._turnstile.leave(self._ticket)
            raise

    # What it is

    @property
    def state(self) -> RunState:
        """One of :data:`RunState`."""
        state = self._state
        use = self._job.execution
        return "preparing" if state in _GOING and use is not None and use.preparing else state

    @property
    def over(self) -> bool:
        """Whether the run is finished, stopped or failed."""
        return self._state in _OVER

    @property
    def settings(self) -> Settings:
        """The settings, with the seed that is used."""
        return self.request.settings

    @property
    def lanes(self) -> tuple[Lane, ...]:
        """The sequences of the run: prompt after prompt, each with its sequences."""
        return self.recording.lanes

    @property
    def prompt_tokens(self) -> int:
        """Tokens of the first lane's prompt, which are the first rows of its record."""
        return self.lanes[0].prompt_tokens

    @property
    def text(self) -> str:
        """The first lane's generated text so far, see :attr:`Lane.text <.record.recording.Lane.text>`."""
        return self.lanes[0].text

    @property
    def texts(self) -> list[str]:
        """The generated texts so far, one a lane."""
        return [lane.text for lane in self.lanes]

    @property
    def why(self) -> str | None:
        """Why a finished run ended; of lanes that ended differently how many ended how."""
        return _together(self.whys)

    @property
    def looks(self) -> Looks | None:
        """Looks at attention and at what each layer would have said; None where the engine keeps no such thing."""
        return self._job.looks

    def status(self) -> RunStatus:
        """Return where the run stands now."""
        with self._changed:
            state = self.state
            ahead = self._turnstile.ahead(self._ticket) if state == "queued" else 0
        progress, rounds = self._job.progress, self.recording.rounds
        generated, elapsed = progress.generated, self._stopwatch.elapsed()
        after_first = (progress.last or 0.0) - (progress.first or 0.0)
        return RunStatus(
            state=state,
            why=self.why,
            error=None if self.error is None else f"{type(self.error).__name__}: {self.error}",
            generated=generated,
            elapsed=elapsed,
            first_token=progress.first,
            tokens_per_second=(generated - 1) / after_first if generated > 1 and after_first > 0 else None,
            observation_share=self._job.busy / elapsed if generated and elapsed else None,
            queue_ahead=ahead,
            drafts=summarize(rounds) if self.settings.drafts else None,
            reuse=self._job.reuse,
            execution=None if self._job.execution is None else self._job.execution.status(),
        )

    def to_frame(self) -> pd.DataFrame:
        """Return the records of all lanes as a frame, see :func:`~genscope.kernel_side.record.export.to_frame`."""
        return to_frame([lane.record for lane in self.lanes])

    def to_json(self) -> str:
        """Return all that was recorded, prompt, settings and how the run ended as JSON, see ``recording_from_json``."""
        about = {
            "prompt": self.request.plain_prompt(),
            "settings": self.settings.model_dump(),
            "branch": None if self.request.branch is None else dataclasses.asdict(self.request.branch),
            "status": dataclasses.asdict(self.status()),
            "whys": list(self.whys),
        }
        return recording_to_json(self.recording, about)

    def save(self, path: str | Path) -> None:
        """Write :meth:`to_json` to a file, in UTF-8."""
        Path(path).write_text(self.to_json(), encoding="utf-8")

    def __repr__(self) -> str:
        status = self.status()
        end = f", {status.error or status.why}" if status.error or status.why else ""
        return f"<Run {self.id}: {status.state}{end}, {status.generated} tokens: {self.text[:60]!r}>"

    # What can be done with it

    def branch(self, at: int, token: int | str | None = None, *, lane: int = 0, **changes: Any) -> Run:
        """Start a run that goes on from this one's tokens.

        What it keeps are the very ids, which are not tokenized again; with a prefix cache their keys and values are
        reused, so that it starts with about one decode step of work.

        Parameters
        ----------
        at : int
            How many tokens stay, from the first on: 0 to ``len(record)``, where the new run goes on behind this one.
        token : int or str, optional
            Id or text that stands at position ``at`` and behind it; by default the model chooses.
        lane : int
            Which sequence.
        **changes
            Settings that differ from this run's. The seed that this run used stays too, so that branching twice gives
            the same; ``seed=None`` draws another one.

        Raises
        ------
        SettingsError
            Naming what is wrong, its value and the way out.
        """
        return Run(self.engine, branch_of(self, at, token, lane=lane, **changes))

    def reply(self, text: str, *, lane: int = 0, **changes: Any) -> Run:
        """Start a run with the next turn of the conversation, of which this run's text is the last turn.

        Only what is new is tokenized. Where the chat template writes earlier turns otherwise than they were,
        ``request.branch.rewritten`` says so, and the tokens up to there stay.

        Parameters
        ----------
        text : str
            What the user says.
        lane, **changes
            See :meth:`branch`.

        Raises
        ------
        SettingsError
            When the prompt is no conversation, or the chat template refuses it.
        """
        return Run(self.engine, reply_to(self, text, lane=lane, **changes))

    def stop(self, lane: int | None = None) -> None:
        """End the run, or one of its lanes, after the current step; what came is kept. Does nothing once it is over.

        Raises
        ------
        ValueError
            For a lane that cannot end alone: only those of a comparison can.
        """
        if lane is not None:
            stopped = getattr(self._job, "stopped_lanes", None)
            if stopped is None or not self.request.variants or not 0 <= lane < len(self.lanes):
                raise ValueError(f"lane {lane} of this run does not end alone; stop the run")
            stopped.add(lane)
            return
        self._change(stop=True)
        self._turnstile.nudge()

    def pause(self) -> None:
        """Pause after the current step."""
        self._change(allowed=0)

    def resume(self) -> None:
        """Go on after a pause."""
        self._change(allowed=None)

    def step(self) -> None:
        """Let a paused run take one more step; pauses a running one after its next."""
        with self._changed:
            self._change(allowed=(self._allowed or 0) + 1)

    def _change(self, *, stop: bool = False, allowed: int | EllipsisType | None = ...) -> None:
        with self._changed:
            self._stop = self._stop or stop
            if not isinstance(allowed, EllipsisType):
                self._allowed = allowed
            self._changed.notify_all()

    def wait(self, timeout: float | None = None) -> Self:
        """Wait until the run is over.

        Parameters
        ----------
        timeout : float, optional
            Seconds.

        Returns
        -------
        Run
            This one.

        Raises
        ------
        TimeoutError
            When it is not over in time; it runs on.
        KeyboardInterrupt
            Passed on after it stopped the run.
        Exception
            What the run failed with.
        """
        deadline = None if timeout is None else time.monotonic() + timeout
        try:
            while not self.over:
                left = 0.1 if deadline is None else min(0.1, deadline - time.monotonic())
                if left <= 0:
                    msg = f"run {self.id} is still {self.state} after {timeout} s; it goes on in the background"
                    raise TimeoutError(msg)
                # In short waits: Python 3.11 handles no signal inside a long one.
                with self._changed:
                    self._changed.wait_for(lambda: self.over, left)
        except KeyboardInterrupt:
            self.stop()
            raise
        if self.error is not None:
            # From where it came: raised as it is, it would gather the frames of everyone who waits.
            raise self.error.with_traceback(self._trace)
        return self

    def add_done_callback(self, callback: Callable[[Run], object]) -> None:
        """Call back with this run once it is over, in its thread; at once if it is already.

        What a callback raises in the run's thread is logged.
        """
        with self._changed:
            if not self.over:
                self._callbacks.append(callback)
                return
        callback(self)

    def __await__(self) -> Generator[Any, None, Self]:
        """Wait without blocking the event loop; returns and raises as :meth:`wait`."""
        loop = asyncio.get_running_loop()
        over = asyncio.Event()

        def wake(_: Run) -> None:
            with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits any more
                loop.call_soon_threadsafe(over.set)

        self.add_done_callback(wake)
        yield from over.wait().__await__()
        return self.wait()

    def __iter__(self) -> Iterator[Token]:
        """Iterate over the first lane's generated tokens as they come; then raises what the run failed with, if it did.

        A KeyboardInterrupt while waiting for the next token stops the run, as in :meth:`wait`.
        """
        position = self.prompt_tokens
        try:
            while True:
                over = self.over  # asked before the record: no token comes after
                if position < len(self.record):
                    yield self.record[position]
                    position += 1
                elif over:
                    self.wait()
                    return
                else:
                    self.record.wait_beyond(position, 0.1)
        except KeyboardInterrupt:
            self.stop()
            raise

    # What it does

    def _work(self) -> None:
        """Run in the background thread: wait for the model, generate, tell the end."""
        end: RunState = "failed"
        try:
            if self._turnstile.wait(self._ticket, lambda: self._stop):
                self._stopwatch.start()
                self._state = "prefilling"
                outcome = self._job.execute(self._stopwatch, self._checkpoint)
                self.output, self.whys = outcome.output, outcome.whys
            end = "finished" if self.whys and all(self.whys) else "stopped"
        except BaseException as error:  # noqa: BLE001 - whatever it is, wait() raises it for whoever asked
            _clear_frames(error)
            self.error, self._trace = error, error.__traceback__
        finally:
            self._stopwatch.stop()
            with self._changed:
                self._state = end
                callbacks, self._callbacks = self._callbacks, []
                self._changed.notify_all()
            self._turnstile.leave(self._ticket)
        for callback in callbacks:
            try:
                callback(self)
            except Exception:  # noqa: BLE001 - the others wait for their call
                _log.exception("a callback of run %s failed", self.id)
        _going.discard(self)

    def _checkpoint(self, *, step: bool = True) -> bool:
        """Take note of a step; pause here while paused. True ends the generation. Without a step only say whether."""
        with self._changed:
            if not step:
                return self._stop
            while self._allowed == 0 and not self._stop:
                self._state = "paused"
                self._stopwatch.stop()
                self._changed.wait()
            self._stopwatch.go()
            self._state = "decoding"
            if self._allowed:
                self._allowed -= 1
            return self._stop


def _together(whys: Sequence[str | None]) -> str | None:
    """Say in one line why all lanes ended; None before the end, and when they were all stopped."""
    counts = Counter(why for why in whys if why is not None)
    if len(counts) <= 1 and len(counts) == len(set(whys)):
        return next(iter(counts), None)
    return ", ".join(f"{why} ({count})" for why, count in counts.most_common()) or None


def _clear_frames(error: BaseException) -> None:
    """Empty the frames of an error and of those that led to it.

    Their locals hold tensors, which after an out-of-memory error are the memory that is needed.
    """
    chained: BaseException | None = error
    seen: set[int] = set()
    while chained is not None and id(chained) not in seen:
        seen.add(id(chained))
        traceback.clear_frames(chained.__traceback__)
        chained = chained.__cause__ or chained.__context__
