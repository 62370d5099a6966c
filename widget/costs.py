"""What observing costs on a model: measured once, in the background, when somebody wants to know.

Measuring itself is the engine's.
"""

from __future__ import annotations

import atexit
import contextvars
import logging
import threading
from collections.abc import Callable, Mapping
from typing import Any

__all__ = ["Costs"]

_log = logging.getLogger(__name__)

_EXIT_GRACE = 10.0
"""Seconds that the interpreter's exit waits for a measurement: a thread ended inside of torch aborts the process."""
_SWITCHES = ("attention", "logit_lens")
"""Settings whose cost is asked for."""

_measuring: set[threading.Thread] = set()


@atexit.register
def _wait_for_all() -> None:
    for thread in list(_measuring):
        thread.join(_EXIT_GRACE)


class Costs:
    """Measures what observing costs, once.

    Parameters
    ----------
    engine : callable
        Returns the engine; may wait for it, and may raise. An engine that has no ``costs`` costs nothing.

    Attributes
    ----------
    texts : dict of str or None
        By setting: its cost, in words for a person, or why it could not be measured. None until that is known.
    """

    def __init__(self, engine: Callable[[], Any]) -> None:
        self.texts: dict[str, str] | None = None
        self._engine = engine
        self._lock = threading.Lock()
        self._listeners: list[Callable[[], None]] = []
        self._started = False

    def measure(self, listener: Callable[[], None]) -> None:
        """Measure in the background, unless that was done; call back, in whichever thread, once it is known."""
        with self._lock:
            known = self.texts is not None
            if not known:
                self._listeners.append(listener)
            start, self._started = not self._started, True
            if start:
                # With the context copied, ipykernel files what it prints under the cell that asked for it.
                work = contextvars.copy_context().run
                threading.Thread(target=work, args=(self._work,), name="genscope-costs", daemon=True).start()
        if known:
            listener()

    def _work(self) -> None:
        try:
            texts = self._measured(self._engine())
        except BaseException as error:  # noqa: BLE001 - shown to whoever asked
            _log.warning("genscope: what observing costs could not be measured", exc_info=True)
            texts = dict.fromkeys(_SWITCHES, f"could not be measured ({type(error).__name__}: {error})")
        with self._lock:
            self.texts = texts
            listeners, self._listeners = self._listeners, []
        for listener in listeners:
            listener()

    def _measured(self, engine: Any) -> dict[str, str]:
        measure = getattr(engine, "costs", None)
        if measure is None:
            return {}
        _measuring.add(threading.current_thread())
        try:
            costs: Mapping[str, Any] = measure()
        finally:
            _measuring.discard(threading.current_thread())
        return {setting: cost.text() for setting, cost in costs.items()}
