"""A bounded way from one generating thread to one reader, with an end, an error and a way to hang up.

The standard library's queue cannot be closed from either side (``Queue.shutdown`` came with Python 3.13), and a reader
that goes away must not leave the generating thread blocked for ever.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from typing import Generic, TypeVar

__all__ = ["Channel", "Ended", "nothing_came"]

T = TypeVar("T")


class Ended(Exception):  # noqa: N818 - a signal, not an error
    """Nothing more will come."""


def nothing_came(timeout: float | None) -> TimeoutError:
    """Make the error of a reader that waited in vain."""
    return TimeoutError(f"nothing came within {timeout} s; the generation may still be running")


class Channel(Generic[T]):
    """A first-in first-out channel between two threads.

    Parameters
    ----------
    capacity : int
        Items held before ``put`` waits for the reader; 0 for no bound.
    on_change : callable, optional
        Called, outside the lock and in the thread of ``put`` or ``end``, after each of them.
    """

    def __init__(self, capacity: int = 0, on_change: Callable[[], object] | None = None) -> None:
        if capacity < 0:
            msg = f"capacity is {capacity}; use 0 for no bound or a positive number"
            raise ValueError(msg)
        self._capacity = capacity
        self._items: deque[T] = deque()
        self._changed = threading.Condition()
        self._ended = False
        self._closed = False
        self._error: BaseException | None = None
        self._on_change = on_change

    @property
    def ended(self) -> bool:
        """Whether the generation said its end."""
        return self._ended

    @property
    def closed(self) -> bool:
        """Whether the reader hung up."""
        return self._closed

    def put(self, item: T) -> None:
        """Add an item; waits while the channel is full, and drops the item once the reader hung up."""
        with self._changed:
            self._changed.wait_for(lambda: self._closed or not self._capacity or len(self._items) < self._capacity)
            if self._closed:
                return
            self._items.append(item)
            self._changed.notify_all()
        self._tell()

    def end(self, error: BaseException | None = None) -> None:
        """Say that nothing more comes, never waiting; the first call counts."""
        with self._changed:
            if self._ended:
                return
            self._ended = True
            self._error = error
            self._changed.notify_all()
        self._tell()

    def close(self) -> None:
        """Hang up: drop what is held and release a waiting ``put``."""
        with self._changed:
            self._closed = True
            self._items.clear()
            self._changed.notify_all()

    def get(self, timeout: float | None = None) -> T:
        """Take the next item.

        Parameters
        ----------
        timeout : float, optional
            Seconds to wait; None waits without limit, 0 not at all.

        Raises
        ------
        Ended
            After the last item, when the generation went well or the reader hung up.
        BaseException
            After the last item, the error that the generation ended with; once, then `Ended`.
        TimeoutError
            When nothing came in time.
        """
        with self._changed:
            if not self._changed.wait_for(lambda: self._items or self._ended or self._closed, timeout):
                raise nothing_came(timeout)
            if self._items:
                item = self._items.popleft()
                self._changed.notify_all()
                return item
            error, self._error = self._error, None
        if error is not None:
            raise error
        raise Ended

    def _tell(self) -> None:
        if self._on_change is not None:
            self._on_change()
