"""A scope for ``generate()``: watch a language model decode in a notebook.

This file only gathers the names that most people need; it imports each when it is first used, so that
``import genscope.kernel_side`` in a script or a server loads nothing of Jupyter.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from genscope.kernel_side.decoding.observe import observe as observe
    from genscope.kernel_side.models import load_model as load_model
    from genscope.widget.magics import load_ipython_extension as load_ipython_extension
    from genscope.widget.scope import Scope as Scope

_HOME = {
    "Scope": "genscope.widget.scope",
    "load_ipython_extension": "genscope.widget.magics",
    "load_model": "genscope.kernel_side.models",
    "observe": "genscope.kernel_side.decoding.observe",
}
"""Where each public name is defined."""

__version__ = "0.1.0"
__all__ = ["Scope", "__version__", "load_ipython_extension", "load_model", "observe"]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(_HOME[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOME})
