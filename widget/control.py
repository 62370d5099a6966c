"""A second comm, for Stop alone: it arrives while another, synchronous cell is busy.

ipykernel hands a front end's message to the shell on which the kernel last published on that comm. On this comm the
kernel never publishes, so its messages stay on the subshell that the front end opened it from. Its handlers run in
that subshell's thread and only set flags.
"""

from __future__ import annotations

import logging
import weakref
from typing import Any, Protocol

from ipywidgets.comm import get_comm_manager

__all__ = ["TARGET", "register"]

TARGET = "genscope.control"

_log = logging.getLogger(__name__)


class _Stoppable(Protocol):
    def stop(self, run: str | None) -> None: ...


_scopes: weakref.WeakValueDictionary[str, _Stoppable] = weakref.WeakValueDictionary()
"""By the widget's model id."""


def register(model_id: str, scope: _Stoppable) -> None:
    """Let the front end stop a scope's runs by a control comm; keeps no scope alive."""
    _scopes[model_id] = scope
    manager = get_comm_manager()
    if manager is not None and TARGET not in manager.targets:
        manager.register_target(TARGET, _opened)


def _opened(comm: Any, message: Any) -> None:
    data = message["content"].get("data")
    model_id = data.get("model_id") if isinstance(data, dict) else None

    def handle(message: Any) -> None:
        data = message["content"].get("data")
        if not isinstance(data, dict) or data.get("kind") != "stop":
            _log.warning("genscope: ignored a message on the control comm")
            return
        run = data.get("run")
        scope = _scopes.get(model_id) if isinstance(model_id, str) else None
        if scope is not None:
            scope.stop(run if isinstance(run, str) else None)

    comm.on_msg(handle)
