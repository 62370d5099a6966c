"""Measures a run's time with its pauses left out. Safe to read from other threads."""

from __future__ import annotations

import time

__all__ = ["Stopwatch"]


class Stopwatch:
    """Seconds since the start, pauses left out. All moments are ``time.perf_counter()``."""

    def __init__(self) -> None:
        # The moment at which it showed 0, later by each pause, and since when it stands still. One tuple, replaced as
        # a whole: a reader in another thread never sees half of a change.
        self._state: tuple[float | None, float | None] = (None, None)

    def start(self) -> None:
        """Start from 0."""
        self._state = (time.perf_counter(), None)

    def stop(self) -> None:
        """Stand still, until :meth:`go`."""
        zero, stopped = self._state
        if stopped is None:
            self._state = (zero, time.perf_counter())

    def go(self) -> None:
        """Run on; the time since :meth:`stop` does not count."""
        zero, stopped = self._state
        if zero is not None and stopped is not None:
            self._state = (zero + time.perf_counter() - stopped, None)

    def since_start(self, moment: float) -> float:
        """Return what the watch showed at a moment after the last :meth:`go`."""
        zero, _ = self._state
        return 0.0 if zero is None else moment - zero

    def elapsed(self) -> float | None:
        """Return what the watch shows now; None before the start."""
        zero, stopped = self._state
        return None if zero is None else (time.perf_counter() if stopped is None else stopped) - zero
