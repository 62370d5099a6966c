"""Measures a run's time with its pauses left out. Safe to read from other threads."""

from __future__ import annotations

import time

__all__ = ["Stopwatch"]


class Stopwatch:
    """Seconds since the start, pauses left out; 0 before it. All moments are ``time.perf_counter()``."""

    def __init__(self) -> None:
        self._start: float | None = None
        self._stopped: float | None = None
        self._paused = 0.0

    def start(self) -> None:
        """Start from 0."""
        self._start = time.perf_counter()

    def stop(self) -> None:
        """Stand still, until :meth:`go`."""
        if self._stopped is None:
            self._stopped = time.perf_counter()

    def go(self) -> None:
        """Run on; the time since :meth:`stop` does not count."""
        if self._stopped is not None:
            self._paused += time.perf_counter() - self._stopped
            self._stopped = None

    def since_start(self, moment: float) -> float:
        """Return what the watch showed at a moment after the last :meth:`go`."""
        return 0.0 if self._start is None else moment - self._start - self._paused

    def elapsed(self) -> float:
        """Return what the watch shows now."""
        stopped = self._stopped
        return self.since_start(time.perf_counter() if stopped is None else stopped)
