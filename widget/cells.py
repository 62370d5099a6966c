"""Which scope belongs to which notebook cell: running a cell again ends the runs of the scopes it made before."""

from __future__ import annotations

import weakref
from typing import Any, Protocol

__all__ = ["claim_cell"]


class _Stoppable(Protocol):
    def stop(self) -> None: ...


_made: dict[str, tuple[str, list[weakref.ref[Any]]]] = {}
"""By cell: its last execution and the scopes made in it."""


def claim_cell(scope: _Stoppable) -> None:
    """Note that a scope is made by the cell that runs now; stop those that an earlier execution of the cell made.

    Does nothing where the front end does not say which cell runs (a script, another widget's callback).
    """
    found = _current()
    if found is None:
        return
    cell, execution = found
    before, scopes = _made.get(cell, (execution, []))
    if before != execution:
        for reference in scopes:
            old = reference()
            if old is not None:
                old.stop()
        scopes = []
    _made[cell] = (execution, [*scopes, weakref.ref(scope)])


def _current() -> tuple[str, str] | None:
    """Return the running cell's id and its execution's, as JupyterLab and Notebook send them."""
    from IPython import get_ipython

    get_parent = getattr(get_ipython(), "get_parent", None)  # ipykernel's shells have it, others not
    parent = get_parent() if get_parent is not None else None
    if not isinstance(parent, dict):
        return None
    cell = parent.get("metadata", {}).get("cellId")
    execution = parent.get("header", {}).get("msg_id")
    return (cell, execution) if isinstance(cell, str) and isinstance(execution, str) else None
