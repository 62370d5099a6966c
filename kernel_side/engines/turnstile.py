"""Lets holders through one at a time, in the order they came, and lets them leave the queue."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable

__all__ = ["Turnstile"]


class Turnstile:
    """A fair lock whose waiting can be given up (``threading.Lock`` promises neither)."""

    def __init__(self) -> None:
        self._queue: deque[object] = deque()
        self._changed = threading.Condition()

    def join(self) -> object:
        """Take the next place in the queue; give the ticket back with :meth:`leave`, whatever happens."""
        ticket = object()
        with self._changed:
            self._queue.append(ticket)
        return ticket

    def ahead(self, ticket: object) -> int:
        """Return how many go first: 0 when it is this ticket's turn."""
        with self._changed:
            return self._queue.index(ticket)

    def wait(self, ticket: object, given_up: Callable[[], bool]) -> bool:
        """Wait for this ticket's turn; False when ``given_up`` said so first (call :meth:`nudge` to have it asked)."""
        with self._changed:
            self._changed.wait_for(lambda: self._queue[0] is ticket or given_up())
            return not given_up()

    def nudge(self) -> None:
        """Have all that wait ask ``given_up`` again."""
        with self._changed:
            self._changed.notify_all()

    def leave(self, ticket: object) -> None:
        """Leave the queue, or let the next one through."""
        with self._changed:
            self._queue.remove(ticket)
            self._changed.notify_all()
