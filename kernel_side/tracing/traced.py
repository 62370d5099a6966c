"""Traced execution: ``torch.jit.trace`` of a step, which saves what Python and dispatch cost.

``optimise`` says what is done to a trace:

- ``"none"``: nothing; the same kernels in the same order, so that logits are bit-equal to eager ones;
- ``"freeze"``: weights become constants of the graph;
- ``"inference"``: for one token of one row frozen, then ``torch.jit.optimize_for_inference``, which also lays the
  weights out anew (a second copy of them). Graphs for several rows or tokens are left as they are: several rows lose by
  it, and for the prompt alone a further copy of all weights is a high price.

``torch.jit`` is in maintenance upstream; ``torch.export`` is its announced successor (``exported``). Its deprecation
warnings are kept to this file.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, get_args

import torch
from torch.jit import TracerWarning  # type: ignore[attr-defined]  # documented, but not listed (torch 2.13)

from .graphs import Graph, GraphExecution
from .quiet import quiet
from .situation import Call, CannotError, Situation
from .step import Step

__all__ = ["Optimise", "Traced"]

Optimise = Literal["none", "freeze", "inference"]

_BY_SIZES = ("transformers/integrations/sdpa_attention.py", "transformers/cache_utils.py", "torch/nn/functional.py")
"""Files (transformers 5.24, torch 2.13) that decide by sizes only, in ways that all passes of one situation share."""


class Traced(GraphExecution):
    """Runs traces. See :class:`~.execution.Execution`.

    Parameters
    ----------
    model : PreTrainedModel
    optimise : {"none", "freeze", "inference"}

    Raises
    ------
    ValueError
        For another word.
    """

    name = "traced"

    def __init__(self, model: Any, optimise: Optimise = "none") -> None:
        if optimise not in get_args(Optimise):
            raise ValueError(f"optimise is {optimise!r}; it can be one of {', '.join(map(repr, get_args(Optimise)))}")
        super().__init__(model)
        self.optimise = optimise
        if optimise != "none":
            self.name = "optimised"

    def situation_of(self, situation: Situation) -> Situation:
        """Return the same for any number of rows, where they are not treated apart."""
        apart = self.optimise == "inference" and situation.one
        return replace(situation, rows=1 if apart and situation.rows == 1 else None)

    def make(self, step: Step, call: Call, stage: Callable[[str], None]) -> Graph:
        """Trace, then do what was asked for."""
        stage("tracing")
        # The tracer looks at every attribute, among them one of which transformers 5.24 warns.
        with torch.no_grad(), quiet(), warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            graph: Any = torch.jit.trace(step, tuple(call.tensors.values()), check_trace=False, strict=False)
        _check_decisions(said)
        with torch.no_grad(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            if self.optimise == "freeze" or (
                self.optimise == "inference" and call.situation.rows == 1 and call.situation.one
            ):
                stage("optimising")
                graph = torch.jit.freeze(graph.eval())
                if self.optimise == "inference":
                    graph = torch.jit.optimize_for_inference(graph)
        made: Graph = graph
        return made


def _check_decisions(said: list[warnings.WarningMessage]) -> None:
    """Refuse a trace of code that decided by what was in a tensor: it would decide the same for ever."""
    for warning in said:
        file = Path(warning.filename)
        if issubclass(warning.category, TracerWarning) and not file.as_posix().endswith(_BY_SIZES):
            where = f"{file.name}, line {warning.lineno}"
            raise CannotError(f"its code decides by what is in a tensor ({where}), which a trace takes for constant")
