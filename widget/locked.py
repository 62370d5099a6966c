"""A widget that several threads may use at once. Knows nothing of what the widget shows.

ipywidgets is not thread-safe: it loses trait changes, or raises, when one thread holds syncing and another sets a
trait. Here every such step takes one lock. It is one for all scopes, not one each: linked scopes set each other's
traits, and two locks taken in either order would block for ever.
"""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

import anywidget
import traitlets

__all__ = ["LockedWidget"]

_log = logging.getLogger(__name__)

_WRITE_TIMEOUT = 0.02
"""Seconds that a write from a thread of ours waits: a user's observer may hold the lock for as long as it likes."""


class LockedWidget(anywidget.AnyWidget):
    """An anywidget whose traits any thread may set, while another one sends or holds them."""

    _lock: ClassVar[threading.RLock] = threading.RLock()

    def __setattr__(self, name: str, value: Any) -> None:
        if isinstance(getattr(type(self), name, None), traitlets.TraitType):
            with self._lock:
                super().__setattr__(name, value)
        else:
            super().__setattr__(name, value)

    def set_trait(self, name: str, value: Any) -> None:
        """Set a trait, a read-only one too."""
        with self._lock:
            super().set_trait(name, value)

    def notify_change(self, change: Any) -> None:
        """Tell the front end and the observers of a change."""
        with self._lock:
            super().notify_change(change)

    def set_state(self, sync_data: dict[str, Any]) -> None:
        """Take trait values from the front end."""
        with self._lock:
            super().set_state(sync_data)

    def get_state(self, *args: Any, **kwargs: Any) -> dict[str, Any]:
        """Return the synced traits as JSON."""
        with self._lock:
            state: dict[str, Any] = super().get_state(*args, **kwargs)
            return state

    def send_state(self, key: Any = None) -> None:
        """Send traits to the front end."""
        with self._lock:
            super().send_state(key)

    @contextlib.contextmanager
    def hold_sync(self) -> Iterator[None]:
        """Send the traits that change inside of this context at its end, in one message."""
        with self._lock, super().hold_sync():
            yield

    @contextlib.contextmanager
    def hold_trait_notifications(self) -> Iterator[None]:
        """Validate and tell of the traits that change inside of this context at its end."""
        with self._lock, super().hold_trait_notifications():
            yield

    def try_write(self, traits: Mapping[str, Any]) -> bool:
        """Set traits from a thread that must not wait; False when the lock was taken, and nothing was set.

        What an observer raises is logged: it is nobody's who could handle it here.
        """
        if not self._lock.acquire(timeout=_WRITE_TIMEOUT):
            return False
        try:
            for name, value in traits.items():
                try:
                    self.set_trait(name, value)
                except Exception:  # noqa: BLE001 - a user's, of any kind
                    _log.exception("genscope: an observer of the trait %r raised", name)
        finally:
            self._lock.release()
        return True
