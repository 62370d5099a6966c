"""The one thread of a scope that sends to the front end. Decides when; ``stream`` decides what, ``scope`` hears all.

It lives while there is something to send and ends by itself: no polling while nothing runs, nothing to join at exit.

The slices of a run are sent about 25 times a second, and faster while more rows wait than one message takes: those of
many lanes, or of a long answer to a pull.
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
from .frames import Streamed
from .stream import Stream
from .tables import TableName

__all__ = ["Sender"]

_log = logging.getLogger(__name__)

FRAME_SECONDS = 0.04
"""Between frames of a live run."""
CATCH_UP_SECONDS = 0.01
"""Between slices while rows wait: a Jupyter server drops what comes faster than 1,000 messages a second."""
BEAT_SECONDS = 1.0


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
        self._stream: Stream | None = None
        self._told = True  # on_end was called for the stream
        self._traits: dict[str, Any] = {}
        self._waiting: list[threading.Event] = []
        self._due = 0.0
        self._last_sent = 0.0

    # From any thread

    def begin(self, run: Streamed) -> None:
        """Stream this run from now on, instead of the one before."""
        stream = Stream(run)

        def start() -> None:
            self._stream, self._told = stream, False
            self._begin(stream)

        self._post(start)

    def pull(
        self, start: int = 0, *, run: str | None = None, track: int | None = None, table: TableName | None = None
    ) -> None:
        """Send rows of the current run again.

        Those of a track or of a table from ``start`` on; everything where neither is named, or another run is.
        """

        def rewind() -> None:
            stream = self._stream
            if stream is None:
                return
            keys = [key for key in (track, table) if key is not None]
            if not keys or run not in (None, stream.run.id):
                self._begin(stream)
            for key in keys:
                stream.rewind(key, start)
            self._due = 0.0

        self._post(rewind)

    def answer(self, make: Callable[[], wire.BackMessage]) -> None:
        """Send what ``make`` returns, behind all that was asked for before; it is called in the sender's thread."""
        self._post(lambda: self._send(make()))

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
                self._stream.ended = self._told = True

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
        return bool(self._traits) or not self._told or self._is_live()

    def _is_live(self) -> bool:
        return self._stream is not None and not self._stream.ended

    def _pause(self) -> float:
        stream = self._stream
        if stream is None or stream.ended:
            return FRAME_SECONDS
        return CATCH_UP_SECONDS if stream.run.over or stream.waiting else FRAME_SECONDS

    def _tick(self) -> None:
        stream = self._stream
        if stream is not None and not stream.ended:
            self._advance(stream)
        if self._traits and self._write(self._traits):
            self._traits = {}
        if stream is not None and stream.ended and not self._told:
            self._told = True
            self._on_end(stream.run)

    def _begin(self, stream: Stream) -> None:
        self._send(stream.begin())
        self._traits["state"] = stream.state
        self._due = 0.0

    def _advance(self, stream: Stream) -> None:
        state = stream.state
        message = stream.next(beat=time.monotonic() - self._last_sent >= BEAT_SECONDS)
        if message is not None:
            self._send(message)
        if stream.state != state:
            self._traits["state"] = stream.state

    def _send(self, message: wire.BackMessage) -> None:
        with self._sending:
            if not self._closed:
                self._send_now(message)
        self._last_sent = time.monotonic()
