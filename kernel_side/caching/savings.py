"""Estimates how long computing prompt tokens would have taken, from runs that did compute them.

A pass over ``n`` tokens takes about ``step + (n - 1) * rate`` seconds, where ``step`` is what a single token takes.
Not here: what was really saved, which only a cold run of the same prompt tells.
"""

from __future__ import annotations

import threading

__all__ = ["PrefillRate"]

_FEWEST = 16
"""Tokens that a pass must have computed to say anything: below, its fixed costs hide theirs."""


class PrefillRate:
    """Seconds a prompt token of one model, by the run that computed the most so far. Safe to use from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._tokens = 0
        self._rate: float | None = None

    def note(self, computed: int, first: float, step: float) -> None:
        """Learn from a run.

        Parameters
        ----------
        computed : int
            Prompt tokens, of all rows, that its first pass computed.
        first : float
            Seconds that this pass took.
        step : float
            Seconds that a later one took, which computed one token a row.
        """
        with self._lock:
            if computed >= max(_FEWEST, self._tokens) and first > step > 0:
                self._tokens, self._rate = computed, (first - step) / (computed - 1)

    def estimate(self, tokens: int) -> float | None:
        """Return how many seconds these tokens would take; None where no run has told."""
        with self._lock:
            return None if self._rate is None else self._rate * tokens
