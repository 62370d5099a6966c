"""Executions with a graph a situation: made when they are first needed, compared with eager before they are trusted.

A graph is followed from one pass and serves others, so that something that was constant in the one may have been taken
for constant in all (a length, an offset). Each graph's first passes therefore run both ways, in sizes that differ, and
what is handed on is the eager result. A graph whose logits are too far off is dropped, with that as the reason.

Not here: what a graph is made of (``step``), and how (``traced``, ``exported``).
"""

from __future__ import annotations

import contextlib
import math
from abc import abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import torch
from transformers.modeling_outputs import CausalLMOutputWithPast, Seq2SeqLMOutput

from .execution import Execution, PreparationError
from .situation import Call, CannotError, Situation, read
from .step import CancelledError, Step
from .writeback import write_back

__all__ = ["TOLERANCE", "TRUSTED_AFTER", "Graph", "GraphExecution", "difference_of", "tolerance"]

Graph = Callable[..., tuple[torch.Tensor, ...]]

TRUSTED_AFTER = 2
"""Passes, of different sizes, in which a graph is compared with eager."""

TOLERANCE = 2e-4
"""Largest difference of logits from eager ones, in float32, in units of the largest logit (of 1 where that is less)."""


class GraphExecution(Execution):
    """An execution with a graph a situation. See :class:`~.execution.Execution`."""

    def __init__(self, model: Any) -> None:
        super().__init__(model)
        self._graphs: dict[Situation, Graph] = {}
        self._refused: dict[Situation, str] = {}
        self._compared: dict[tuple[Situation, bool], set[tuple[int, ...]]] = {}

    @abstractmethod
    def make(self, step: Step, call: Call, stage: Callable[[str], None]) -> Graph:
        """Make a graph of a step.

        Parameters
        ----------
        step : Step
        call : Call
            One that the graph is for.
        stage : callable
            Told what is being done. Raises CancelledError where nobody wants the graph any more.

        Raises
        ------
        CannotError
            Where there can be none, for a person.
        PreparationError
            Where the machine lacks something.
        """

    def situation_of(self, situation: Situation) -> Situation:
        """Return the situation whose graph serves another one: of one row, or any number, unless it is told apart."""
        return replace(situation, rows=1 if situation.rows == 1 else None)

    def forward(self, model: Any, inputs: dict[str, Any]) -> Any:
        """Run the graph that fits; make and compare it first where it is new."""
        call = read(model, inputs)
        key = self.situation_of(call.situation)
        if (reason := self._refused.get(key)) is not None:
            raise CannotError(reason)
        graph = self._graphs.get(key)
        alone = call.situation.rows == 1
        compared = self._compared.setdefault((key, alone), set())
        what = str(replace(call.situation, rows=key.rows or (1 if alone else None)))
        sizes = tuple(size for tensor in call.tensors.values() for size in tensor.shape)
        if graph is not None and (len(compared) >= TRUSTED_AFTER or sizes in compared):
            logits, *written = self._run(key, graph, call)
            write_back(call, tuple(written))
            self._ran()
            return _output(call, logits)
        with self._preparing(what):
            graph = graph or self._make(key, call, what)
            self.use.stage("comparing with eager")
            ours, *_ = self._run(key, graph, call)
        output = type(model).forward(model, **inputs)
        if self._agree(key, ours, output.logits):
            compared.add(sizes)
        return output

    def close(self) -> None:
        """Drop all graphs."""
        super().close()
        with self.lock:
            self._graphs.clear()
            self._compared.clear()

    @contextlib.contextmanager
    def _preparing(self, what: str) -> Iterator[None]:
        use = self.use
        use.begin(what)
        try:
            with self.lock:
                yield
        finally:
            self.cost = replace(self.cost, seconds=self.cost.seconds + use.end())

    def _make(self, key: Situation, call: Call, what: str) -> Graph:
        """Make a graph, or note why there is none."""
        use = self.use

        def stage(what: str) -> None:
            if use.cancelled():
                raise CancelledError
            use.stage(what)

        try:
            step = Step(self.model, key, tuple(call.tensors)).eval()
            step.cancelled = use.cancelled
            graph = self.make(step, call, stage)
        except CancelledError:
            raise CannotError("preparing was cancelled") from None
        except (CannotError, PreparationError) as error:
            self._refused[key] = str(error)
            raise CannotError(str(error)) from error
        except Exception as error:
            # Tracers and compilers raise what they please; the run goes on, and says what it was.
            reason = self._refused[key] = f"{self.name} failed: {type(error).__name__}: {_first_line(error)}"
            raise CannotError(reason) from error
        self._graphs[key] = graph
        use.graphs += 1
        self.cost = replace(self.cost, graphs=(*self.cost.graphs, what))
        return graph

    def _run(self, key: Situation, graph: Graph, call: Call) -> tuple[torch.Tensor, ...]:
        try:
            return graph(*call.tensors.values())
        except CannotError:
            raise  # this pass alone
        except Exception as error:
            # A guard on a size, say. Nothing was written yet, so the pass can still run eagerly.
            self._graphs.pop(key, None)
            reason = self._refused[key] = f"the graph failed: {type(error).__name__}: {_first_line(error)}"
            raise CannotError(reason) from error

    def _agree(self, key: Situation, ours: torch.Tensor, theirs: torch.Tensor) -> bool:
        """Compare logits; drop the graph where they are too far apart."""
        difference, cost = difference_of(ours, theirs), self.cost
        self.use.differed(difference)
        largest = max(cost.largest_difference, difference)
        self.cost = replace(cost, compared=cost.compared + 1, largest_difference=largest)
        if difference <= tolerance(theirs):
            return True
        self._graphs.pop(key, None)
        self._refused[key] = f"its logits differ from eager ones by {difference:.2g}"
        return False


def difference_of(ours: torch.Tensor, theirs: torch.Tensor) -> float:
    """Return the largest difference of logits; infinity for other shapes, or where one is no number."""
    if ours.shape != theirs.shape:
        return math.inf
    differences = (ours.float() - theirs.float()).abs()
    differences[ours == theirs] = 0.0  # minus infinity on both sides is no difference
    difference = float(differences.max())
    return math.inf if math.isnan(difference) else difference


def tolerance(logits: torch.Tensor) -> float:
    """Return how far logits may be from eager ones: more where their numbers have fewer digits."""
    digits = torch.finfo(logits.dtype).eps / torch.finfo(torch.float32).eps
    return TOLERANCE * max(1.0, float(logits.abs().max())) * max(1.0, digits)


def _output(call: Call, logits: torch.Tensor) -> Any:
    if call.situation.encoder:
        states: Any = call.tensors["encoder"]
        return Seq2SeqLMOutput(logits=logits, cache=call.cache, encoder_last_hidden_state=states)
    return CausalLMOutputWithPast(logits=logits, cache=call.cache)


def _first_line(error: BaseException) -> str:
    return (str(error).strip() or "no message").split("\n", 1)[0][:200]
