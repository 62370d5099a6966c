"""A scope for ``generate()``: watch a language model decode in a notebook.

This file only gathers the names that most people need; it imports each when it is first used, so that
``import genscope.kernel_side`` in a script or a server loads nothing of Jupyter.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from genscope.kernel_side.caching.prefix_cache import PrefixCache as PrefixCache
    from genscope.kernel_side.comparison.comparison import Comparison as Comparison
    from genscope.kernel_side.comparison.comparison import compare as compare
    from genscope.kernel_side.decoding.contrastive import ContrastiveSearch as ContrastiveSearch
    from genscope.kernel_side.decoding.diverse_beam import DiverseBeamSearch as DiverseBeamSearch
    from genscope.kernel_side.decoding.dola import DoLa as DoLa
    from genscope.kernel_side.decoding.model_view import view_of as view_of
    from genscope.kernel_side.decoding.observe import observe as observe
    from genscope.kernel_side.engines.environment_engine import EnvironmentEngine as EnvironmentEngine
    from genscope.kernel_side.engines.in_process import InProcessEngine as InProcessEngine
    from genscope.kernel_side.environment.environment import TextEnvironment as TextEnvironment
    from genscope.kernel_side.environment.history import TextHistory as TextHistory
    from genscope.kernel_side.environment.stopping import StringStoppingCriteria as StringStoppingCriteria
    from genscope.kernel_side.models import load_model as load_model
    from genscope.kernel_side.record.recorder import Recorder as Recorder
    from genscope.kernel_side.request import Request as Request
    from genscope.kernel_side.request import SettingsError as SettingsError
    from genscope.kernel_side.request import make_settings as make_settings
    from genscope.kernel_side.run import Run as Run
    from genscope.kernel_side.streaming.base import OutputStreamer as OutputStreamer
    from genscope.kernel_side.streaming.iterate import AsyncOutputIteratorStreamer as AsyncOutputIteratorStreamer
    from genscope.kernel_side.streaming.iterate import OutputIteratorStreamer as OutputIteratorStreamer
    from genscope.kernel_side.streaming.text import AsyncTextIteratorStreamer as AsyncTextIteratorStreamer
    from genscope.kernel_side.streaming.text import TextIteratorStreamer as TextIteratorStreamer
    from genscope.kernel_side.streaming.text import TextStreamer as TextStreamer
    from genscope.kernel_side.tracing.trace import trace as trace
    from genscope.kernel_side.twin import Twin as Twin
    from genscope.widget.magics import load_ipython_extension as load_ipython_extension
    from genscope.widget.scope import Scope as Scope

_HOME = {
    "AsyncOutputIteratorStreamer": "genscope.kernel_side.streaming.iterate",
    "AsyncTextIteratorStreamer": "genscope.kernel_side.streaming.text",
    "Comparison": "genscope.kernel_side.comparison.comparison",
    "ContrastiveSearch": "genscope.kernel_side.decoding.contrastive",
    "DiverseBeamSearch": "genscope.kernel_side.decoding.diverse_beam",
    "DoLa": "genscope.kernel_side.decoding.dola",
    "EnvironmentEngine": "genscope.kernel_side.engines.environment_engine",
    "InProcessEngine": "genscope.kernel_side.engines.in_process",
    "OutputIteratorStreamer": "genscope.kernel_side.streaming.iterate",
    "OutputStreamer": "genscope.kernel_side.streaming.base",
    "PrefixCache": "genscope.kernel_side.caching.prefix_cache",
    "Recorder": "genscope.kernel_side.record.recorder",
    "Request": "genscope.kernel_side.request",
    "Run": "genscope.kernel_side.run",
    "Scope": "genscope.widget.scope",
    "SettingsError": "genscope.kernel_side.request",
    "StringStoppingCriteria": "genscope.kernel_side.environment.stopping",
    "TextEnvironment": "genscope.kernel_side.environment.environment",
    "TextHistory": "genscope.kernel_side.environment.history",
    "TextIteratorStreamer": "genscope.kernel_side.streaming.text",
    "TextStreamer": "genscope.kernel_side.streaming.text",
    "Twin": "genscope.kernel_side.twin",
    "compare": "genscope.kernel_side.comparison.comparison",
    "load_ipython_extension": "genscope.widget.magics",
    "load_model": "genscope.kernel_side.models",
    "make_settings": "genscope.kernel_side.request",
    "observe": "genscope.kernel_side.decoding.observe",
    "trace": "genscope.kernel_side.tracing.trace",
    "view_of": "genscope.kernel_side.decoding.model_view",
}
"""Where each public name is defined."""

__version__ = "0.1.0"
__all__ = [
    "AsyncOutputIteratorStreamer",
    "AsyncTextIteratorStreamer",
    "Comparison",
    "ContrastiveSearch",
    "DiverseBeamSearch",
    "DoLa",
    "EnvironmentEngine",
    "InProcessEngine",
    "OutputIteratorStreamer",
    "OutputStreamer",
    "PrefixCache",
    "Recorder",
    "Request",
    "Run",
    "Scope",
    "SettingsError",
    "StringStoppingCriteria",
    "TextEnvironment",
    "TextHistory",
    "TextIteratorStreamer",
    "TextStreamer",
    "Twin",
    "__version__",
    "compare",
    "load_ipython_extension",
    "load_model",
    "make_settings",
    "observe",
    "trace",
    "view_of",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(_HOME[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOME})
