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
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from types import EllipsisType, TracebackType
from typing import TYPE_CHECKING, Any, Self

from .engines.base import Engine
from .record.export import record_to_json, to_frame
from .record.record import Record, Token
from .request import Request, Settings
from .run_status import RunState, RunStatus
from .stopwatch import Stopwatch

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["Run", "RunState", "RunStatus"]

_OVER: tuple[RunState, ...] = ("finished", "stopped", "failed")
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
    id : str
        Unique.
    request : Request
        As it was asked for, with the seed that is used.
    record : Record
        The tokens so far; kept however the run ends.
    output : object
        What ``generate`` returned (of the in-process engine a ``GenerateDecoderOnlyOutput``, without its cache), None
        before the end.
    error : BaseException or None
        What ended a failed run.
    why : str or None
        Why a finished run ended.

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
        self._job = engine.prepare(request)
        self._turnstile = engine.turnstile
        self.id = uuid.uuid4().hex[:12]
        self.request = self._job.request
        self.record: Record = self._job.record
        self.output: Any = None
        self.error: BaseException | None = None
        self._trace: TracebackType | None = None
        self.why: str | None = None
        self._state: RunState = "queued"
        self._changed = threading.Condition()
        self._stop = False
        # Steps allowed before the next pause; None means no pause.
        self._allowed: int | None = 0 if paused else None
        self._stopwatch = Stopwatch()
        self._last_token_at = 0.0
        self._callbacks: list[Callable[[Run], object]] = []
        # With the context copied, ipykernel files what the thread prints under the cell that started it.
        work = contextvars.copy_context().run
        self._thread = threading.Thread(target=work, args=(self._work,), name=f"genscope-run-{self.id}", daemon=True)
        self._ticket = self._turnstile.join()
        _going.add(self)
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
        return self._state

    @property
    def over(self) -> bool:
        """Whether the run is finished, stopped or failed."""
        return self._state in _OVER

    @property
    def settings(self) -> Settings:
        """The settings, with the seed that is used."""
        return self.request.settings

    @property
    def prompt_tokens(self) -> int:
        """Tokens of the prompt, which are the first rows of the record."""
        return len(self._job.prompt_ids)

    @property
    def text(self) -> str:
        """The generated text so far, special tokens left out; a stop string that ended the run is part of it."""
        tail = self.record.tail  # read first: it is set after the last token
        parts = [token.text for token in self.record[:] if token.origin == "generated" and not token.special]
        return "".join(parts) + tail

    def status(self) -> RunStatus:
        """Return where the run stands now."""
        with self._changed:
            state = self._state
            ahead = self._turnstile.ahead(self._ticket) if state == "queued" else 0
        generated = max(0, len(self.record) - self.prompt_tokens)
        elapsed = self._stopwatch.elapsed()
        first = self.record[self.prompt_tokens].seconds if generated else None
        after_first = self._last_token_at - (first or 0.0)
        return RunStatus(
            state=state,
            why=self.why,
            error=None if self.error is None else f"{type(self.error).__name__}: {self.error}",
            generated=generated,
            elapsed=elapsed,
            first_token=first,
            tokens_per_second=(generated - 1) / after_first if generated > 1 and after_first > 0 else None,
            observation_share=self._job.busy / elapsed if generated and elapsed else None,
            queue_ahead=ahead,
        )

    def to_frame(self) -> pd.DataFrame:
        """Return the record as a frame, see :func:`~genscope.kernel_side.record.export.to_frame`."""
        return to_frame(self.record)

    def to_json(self) -> str:
        """Return record, prompt, settings and how the run ended as JSON, see ``record_from_json``."""
        prompt = self.request.prompt
        about = {
            "prompt": prompt if isinstance(prompt, str) else [message.model_dump() for message in prompt],
            "settings": self.settings.model_dump(),
            "status": dataclasses.asdict(self.status()),
        }
        return record_to_json(self.record, about)

    def save(self, path: str | Path) -> None:
        """Write :meth:`to_json` to a file, in UTF-8."""
        Path(path).write_text(self.to_json(), encoding="utf-8")

    def __repr__(self) -> str:
        status = self.status()
        end = f", {status.error or status.why}" if status.error or status.why else ""
        return f"<Run {self.id}: {status.state}{end}, {status.generated} tokens: {self.text[:60]!r}>"

    # What can be done with it

    def stop(self) -> None:
        """End the run after the current step; what came is kept. Does nothing once it is over."""
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
        """Iterate over the generated tokens as they come; raises what the run failed with, after the last one.

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
                self.output, self.why = outcome.output, outcome.why
            end = "finished" if self.why else "stopped"
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

    def _checkpoint(self) -> bool:
        """Take note of a step; pause here while paused. True ends the generation."""
        self._last_token_at += self.record[-1].seconds or 0.0
        with self._changed:
            while self._allowed == 0 and not self._stop:
                self._state = "paused"
                self._stopwatch.stop()
                self._changed.wait()
            self._stopwatch.go()
            self._state = "decoding"
            if self._allowed:
                self._allowed -= 1
            return self._stop


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
