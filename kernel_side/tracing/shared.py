"""The executions that runs of a model share: made once, and dropped when anything changes that decides their results.

A graph may have taken anything of a model for constant: weights (frozen ones are copies), its configuration, adapters.
So they are kept under the key of keys and values (``caching.key``), which is taken anew for each run.
Nothing here keeps a model alive.
"""

from __future__ import annotations

import threading
import weakref
from typing import Any

from ..caching.key import Key, Seen, key_of
from .execution import Execution
from .trace import make_execution

__all__ = ["drop", "execution_of"]

_kept: weakref.WeakKeyDictionary[Any, dict[str, tuple[Key, Execution]]] = weakref.WeakKeyDictionary()
_lock = threading.Lock()


def execution_of(model: Any, name: str) -> Execution:
    """Return the shared execution of a model, as the model is now.

    Parameters
    ----------
    model : PreTrainedModel
    name : str
        One of :data:`~.trace.EXECUTIONS`.

    Raises
    ------
    ValueError
        For a name that is none.
    """
    key = key_of(Seen(model), "graphs", name)
    with _lock:
        kept = _kept.setdefault(model, {})
        if name in kept:
            known, execution = kept[name]
            if not known.differences(key):
                return execution
            execution.close()
            del kept[name]
        execution = make_execution(model, name)
        kept[name] = (key, execution)
        return execution


def drop(model: Any, name: str | None = None) -> None:
    """Let go of what was prepared for a model, of one execution or of all, and of its memory."""
    with _lock:
        kept = _kept.get(model, {})
        for one in [name] if name is not None else list(kept):
            if one in kept:
                kept.pop(one)[1].close()
