"""The one thread of a scope that sends to the front end. Decides when; ``frames`` decides what, ``scope`` hears all.

It lives while there is something to send and ends by itself: no polling while nothing runs, nothing to join at exit.

A run is streamed by one cursor: rows behind it are sent, in slices, about 25 times a second. A ``pull`` sets the cursor
back, so the answer comes in order, with the live rows at its end, where the front end can use them at last.
"""

from __future__ import annotations

import contextvars
import logging
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Any

from . import wire
from .frames import Frames, Streamed

__all__ = ["Sender"]

_log = logging.getLogger(__name__)

FRAME_SECONDS = 0.04
"""Between frames of a live run."""
CATCH_UP_SECONDS = 0.01
"""Between slices while rows wait: a Jupyter server drops what comes faster than 1,000 messages a second."""
SLICE = 1000
"""Rows a message, at most."""
BEAT_SECONDS = 1.0


class _Stream:
    """A run on its way to the front end."""

    def __init__(self, run: Streamed) -> None:
        self.run = run
        self.frames = Frames(run)
        self.sent = 0  # rows
        self.state: str | None = None  # as last sent
        self.ended = False
        self.told = False  # on_end was called


class Sender:
    """Sends a scope's messages and writes its traits, in order, from one thread.

    Each command brings the context of whoever gave it, and what is sent from then on is sent in that context: ipykernel
    files it under that cell, and answers the front end on the shell that it last spoke to.

    Parameters
    ----------
    send : callable
        Sends one message.
    write : callable
        Sets traits, given as a dict; False when it could not yet, and wants to be asked again.
    on_end : callable
        Called with the run after its end was sent, once a run.
    """

    def __init__(
        self,
        send: Callable[[wire.BackMessage], None],
        write: Callable[[dict[str, Any]], bool],
        on_end: Callable[[Any], None],
    ) -> None:
        self._send_now = send
        self._write = write
        self._on_end = on_end
        self._changed = threading.Condition()
        self._commands: deque[tuple[contextvars.Context, Callable[[], None]]] = deque()
        self._thread: threading.Thread | None = None
        self._closed = False
        self._sending = threading.RLock()  # reentrant: what is sent may close us
        # Only touched by the thread:
        self._context = contextvars.copy_context()
        self._stream: _Stream | None = None
        self._traits: dict[str, Any] = {}
        self._waiting: list[threading.Event] = []
        self._due = 0.0
        self._last_sent = 0.0

    # From any thread

    def begin(self, run: Streamed) -> None:
        """Stream this run from now on, instead of the one before."""
        stream = _Stream(run)

        def start() -> None:
            self._stream = stream
            message = stream.frames.begin()
            self._send(message)
            self._note_state(stream, message["status"]["state"])
            self._due = 0.0

        self._post(start)

    def pull(self, start: int, run: str | None = None) -> None:
        """Send the current run's record again from a row on; from the beginning when another run is named."""

        def rewind() -> None:
            stream = self._stream
            if stream is None:
                return
            if start == 0 or run not in (None, stream.run.id):
                stream.sent = 0
                self._send(stream.frames.begin())
            else:
                stream.sent = min(stream.sent, start)
            stream.ended = False
            self._due = 0.0

        self._post(rewind)

    def problems(self, problems: list[wire.WireProblem]) -> None:
        """Send what is wrong with what was asked for, or that nothing is."""
        self._post(lambda: self._send({"kind": "problems", "problems": problems}))

    def set_traits(self, **traits: Any) -> None:
        """Write traits soon; of values for the same trait in quick succession only the last one."""
        self._post(lambda: self._traits.update(traits))

    def flush(self, timeout: float) -> bool:
        """Wait until all that was asked for is sent, a run's end included; False when that took too long."""
        if self._closed:
            return False
        reached = threading.Event()
        self._post(lambda: self._waiting.append(reached))
        return reached.wait(timeout)

    def close(self) -> None:
        """Send nothing any more; when this returns, nothing is being sent."""
        with self._sending, self._changed:
            self._closed = True
            self._commands.clear()
            self._changed.notify_all()

    def _post(self, command: Callable[[], None]) -> None:
        with self._changed:
            if self._closed:
                return
            self._commands.append((contextvars.copy_context(), command))
            if self._thread is None:
                self._thread = threading.Thread(target=self._work, name="genscope-sender", daemon=True)
                self._thread.start()
            self._changed.notify_all()

    # In the thread

    def _work(self) -> None:
        while (commands := self._next()) is not None:
            for context, command in commands:
                self._context = context
                self._guarded(command)
            if time.monotonic() >= self._due:
                self._guarded(self._tick)
                self._due = time.monotonic() + self._pause()

    def _guarded(self, work: Callable[[], None]) -> None:
        try:
            self._context.run(work)
        except Exception:  # noqa: BLE001 - of a comm, of any kind
            if not self._closed:
                # The way to the front end is broken; the run itself is not, so only the stream stands still.
                _log.exception("genscope: a message to the front end could not be sent")
            self._traits = {}
            if self._stream is not None:  # kept, for the front end to pull
                self._stream.ended = self._stream.told = True

    def _next(self) -> list[tuple[contextvars.Context, Callable[[], None]]] | None:
        """Wait for commands or for the next frame; None, and the thread is over, when nothing is left to do."""
        with self._changed:
            if not self._commands and not self._closed and self._busy():
                self._changed.wait(max(0.0, self._due - time.monotonic()))
            elif not self._commands or self._closed:
                for event in self._waiting:
                    event.set()
                self._waiting = []
                self._thread = None
                return None
            commands = list(self._commands)
            self._commands.clear()
            return commands

    def _busy(self) -> bool:
        return bool(self._traits) or (self._stream is not None and not self._stream.told) or self._is_live()

    def _is_live(self) -> bool:
        return self._stream is not None and not self._stream.ended

    def _pause(self) -> float:
        stream = self._stream
        if stream is None or stream.ended:
            return FRAME_SECONDS
        behind = len(stream.run.record) - stream.sent
        return CATCH_UP_SECONDS if behind > SLICE or stream.run.over else FRAME_SECONDS

    def _tick(self) -> None:
        stream = self._stream
        if stream is not None and not stream.ended:
            self._advance(stream)
        if self._traits and self._write(self._traits):
            self._traits = {}
        if stream is not None and stream.ended and not stream.told:
            stream.told = True
            self._on_end(stream.run)

    def _advance(self, stream: _Stream) -> None:
        """Send the next slice, or the end, or a sign of life where one is due."""
        run = stream.run
        over = run.over  # asked before the record: no row comes after
        state = run.state
        rows = len(run.record)
        if stream.sent < rows:
            stop = min(rows, stream.sent + SLICE)
            self._send(stream.frames.data(stream.sent, stop))
            stream.sent = stop
        elif over:
            self._send(stream.frames.end())
            stream.ended = True
        elif state != stream.state or time.monotonic() - self._last_sent >= BEAT_SECONDS:
            self._send(stream.frames.beat())
        self._note_state(stream, state)

    def _note_state(self, stream: _Stream, state: str) -> None:
        if state != stream.state:
            stream.state = state
            self._traits["state"] = state

    def _send(self, message: wire.BackMessage) -> None:
        with self._sending:
            if not self._closed:
                self._send_now(message)
        self._last_sent = time.monotonic()
