"""``trace(model)``: an object to call ``generate`` on, whose forward pass runs another way. The list of executions.

Not here: how each runs (``traced`` and its like), and executions that runs of a model share (``shared``).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from .compiled import Compiled
from .execution import Eager, Execution
from .exported import Exported
from .traced import Traced

__all__ = ["EXECUTIONS", "make_execution", "trace"]

EXECUTIONS: dict[str, Callable[..., Execution]] = {
    "eager": Eager,
    "traced": Traced,
    "optimised": partial(Traced, optimise="inference"),
    "compiled": Compiled,
    "exported": Exported,
}
"""How an execution is made of a model, by its name."""


def make_execution(model: Any, execution: str, **options: Any) -> Execution:
    """Return a new execution of a model.

    Raises
    ------
    ValueError
        For a name that is none.
    """
    if execution not in EXECUTIONS:
        raise ValueError(f"execution is {execution!r}; it can be one of {', '.join(map(repr, EXECUTIONS))}")
    return EXECUTIONS[execution](model, **options)


def trace(model: Any, execution: str = "traced", **options: Any) -> Any:
    """Return a view of a model whose forward pass runs another way.

    Parameters
    ----------
    model : PreTrainedModel
        Is not changed, and shares its weights. To be left as it is: the view keeps graphs of what it was.
    execution : str
        One of :data:`EXECUTIONS`.
    **options
        Of the execution, such as ``optimise`` of :class:`~.traced.Traced`.

    Returns
    -------
    PreTrainedModel
        Of the model's class. Call ``generate`` with any strategy and streamer; its ``execution`` says what it cost, and
        which passes ran eagerly.

    Examples
    --------
    >>> fast = trace(model)  # doctest: +SKIP
    >>> fast.generate(**inputs, max_new_tokens=20)  # doctest: +SKIP
    >>> fast.execution.fallbacks  # doctest: +SKIP
    Counter()
    """
    made = make_execution(model, execution, **options)
    view = made.attach(model)
    view.execution = made
    return view
