"""The Jupyter widget and notebook extension.

``%load_ext genscope.widget`` imports this file alone; each name below is imported when it is first used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .magics import load_ipython_extension as load_ipython_extension
    from .scope import Scope as Scope

_HOME = {
    "Scope": "scope",
    "load_ipython_extension": "magics",
}
"""In which module each public name is defined."""

__all__ = ["Scope", "load_ipython_extension"]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(f".{_HOME[name]}", __name__), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOME})
