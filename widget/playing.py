"""Splits what ``Scope.play`` is given among the environment and the settings of its run."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ..kernel_side.engines.base import Engine
    from ..kernel_side.engines.environment_engine import EnvironmentEngine

__all__ = ["environment_of"]


def environment_of(engine: Engine, options: dict[str, Any]) -> tuple[EnvironmentEngine, dict[str, Any]]:
    """Return the engine of an environment on a scope's model, and the settings that are left.

    Parameters
    ----------
    engine : Engine
        The scope's.
    options : dict
        Arguments of :class:`~genscope.kernel_side.engines.environment_engine.EnvironmentEngine`, and settings.

    Raises
    ------
    TypeError
        Where the model is not in this process.
    """
    from ..kernel_side.engines.environment_engine import EnvironmentEngine  # imports torch
    from ..kernel_side.engines.in_process import InProcessEngine

    if not isinstance(engine, InProcessEngine):
        raise TypeError(f"an environment plays on a model in this process, and the scope has a {type(engine).__name__}")
    known = inspect.signature(EnvironmentEngine).parameters
    own = {name: value for name, value in options.items() if name in known and name != "engine"}
    settings = {name: value for name, value in options.items() if name not in own}
    return EnvironmentEngine(engine, **own), settings
