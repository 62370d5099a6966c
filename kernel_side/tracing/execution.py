"""What all executions share: a forward that stands in for the model's own, and falls back to it, openly.

An execution makes graphs as they are needed, one a situation, and compares each with the model's own forward before it
is trusted: the first passes it serves run both ways. What cannot be served runs eagerly, for that pass only, and is
counted with its reason. A fifth execution is a file with a subclass of :class:`GraphExecution` (or of
:class:`Execution`, where it has no graphs) and a line in ``trace``.

Not here: what a graph is made of (``step``), and who shares executions (``shared``).
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import threading
import time
import types
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from transformers.modeling_outputs import CausalLMOutputWithPast, Seq2SeqLMOutput

from ..decoding.model_view import view_of
from .situation import Call, CannotError, Situation, read
from .step import CancelledError, Step
from .writeback import write_back

__all__ = ["Cost", "Execution", "GraphExecution", "PreparationError", "Preparing"]

Graph = Callable[..., tuple[torch.Tensor, ...]]

TRUSTED_AFTER = 2
"""Passes, of different sizes where there are, that a graph's results are compared in."""

TOLERANCE = 2e-4
"""Largest difference of logits from eager ones, in float32, over the larger of 1 and the largest logit."""


class PreparationError(RuntimeError):
    """An execution cannot be prepared on this machine; the message says what to install or do. Eager runs on."""


@dataclass(frozen=True, slots=True)
class Cost:
    """What an execution has cost so far.

    Attributes
    ----------
    seconds : float
        Spent preparing: making graphs, and the passes in which they were compared with eager ones.
    graphs : tuple of str
        What there are graphs for.
    largest_difference : float
        Of logits from eager ones, in the passes that were compared.
    compared : int
        How many these were.
    """

    seconds: float = 0.0
    graphs: tuple[str, ...] = ()
    largest_difference: float = 0.0
    compared: int = 0


@dataclass(frozen=True, slots=True)
class Preparing:
    """What is being prepared now.

    Attributes
    ----------
    what : str
        For a person, such as ``"one token on a cache"``.
    stage : str
        What is being done for it, such as ``"tracing"``.
    since : float
        The moment it began, by ``perf_counter``.
    """

    what: str
    stage: str
    since: float


@dataclass(slots=True)
class Hooks:
    """What a run wants to know of preparations that its thread makes; see :meth:`Execution.watched`."""

    begin: Callable[[Preparing], None] = lambda _: None
    end: Callable[[], None] = lambda: None
    cancelled: Callable[[], bool] = lambda: False
    fallbacks: Counter[str] = field(default_factory=Counter)
    passes: int = 0


class Execution(ABC):
    """How the forward pass of one model runs.

    Parameters
    ----------
    model : PreTrainedModel
        Is not changed. Must have what it is to have while graphs are made: they hold it as it is.

    Attributes
    ----------
    name : str
        As a person chooses it.
    cost : Cost
    fallbacks : Counter of str
        Passes that ran eagerly, by reason.
    passes : int
        Passes that ran as this execution runs them.
    """

    name: str

    def __init__(self, model: Any) -> None:
        self.model = model
        self.cost = Cost()
        self.fallbacks: Counter[str] = Counter()
        self.passes = 0
        self.lock = threading.RLock()
        """Held while something is prepared."""
        self._closed = False
        self._here = threading.local()

    @abstractmethod
    def forward(self, model: Any, inputs: dict[str, Any]) -> Any:
        """Run a pass.

        Parameters
        ----------
        model : PreTrainedModel
            The view that was called.
        inputs : dict
            Its forward's keyword arguments.

        Returns
        -------
        ModelOutput
            Of the class that the model itself returns.

        Raises
        ------
        CannotError
            Where this pass is to run eagerly.
        """

    def prepare(self, ids: torch.Tensor, **generate: Any) -> None:
        """Prepare what a generation needs, by a short one of the same kind.

        Parameters
        ----------
        ids : torch.Tensor
            Shape ``(rows, tokens)``: any tokens.
        **generate
            Arguments of ``generate`` that decide which passes there are: ``num_beams``, ``attention_mask``,
            ``prompt_lookup_num_tokens`` and the like.
        """
        self.attach(self.model).generate(
            ids, **{"max_new_tokens": 4, "do_sample": False, "eos_token_id": None} | generate
        )

    def close(self) -> None:
        """Let go of what was prepared, and of its memory. Views run eagerly from then on."""
        self._closed = True

    def attach(self, model: Any) -> Any:
        """Return a view of the model, or of a view of it, that runs in this way.

        It has all that the model has, ``generate`` included. Its generation config says that ``generate`` is not to
        compile anything by itself.
        """
        view = view_of(model, disable_compile=True)
        eager = type(model).forward

        @functools.wraps(eager)
        def forward(itself: Any, *args: Any, **inputs: Any) -> Any:
            if args:
                inputs |= inspect.signature(eager).bind_partial(itself, *args).arguments
                del inputs["self"]
            try:
                if self._closed:
                    raise CannotError("the execution was dropped")
                if torch.is_grad_enabled():
                    raise CannotError("gradients are wanted")
                if _layers(itself) != _layers(self.model):  # while early exit drafts (transformers 5.24)
                    raise CannotError("fewer layers are run")
                output = self.forward(itself, inputs)
                self.passes += 1
                self.hooks.passes += 1
            except CannotError as reason:
                self.fallbacks[str(reason)] += 1
                self.hooks.fallbacks[str(reason)] += 1
                return eager(itself, **inputs)
            return output

        view.forward = types.MethodType(forward, view)
        return view

    @property
    def hooks(self) -> Hooks:
        """What whoever generates in this thread wants to know."""
        found: Hooks | None = getattr(self._here, "hooks", None)
        if found is None:
            found = self._here.hooks = Hooks()
        return found

    @contextlib.contextmanager
    def watched(self, hooks: Hooks) -> Iterator[Hooks]:
        """Tell ``hooks`` what this thread's passes prepare and how they run."""
        before, self._here.hooks = self.hooks, hooks
        try:
            yield hooks
        finally:
            self._here.hooks = before


def _layers(model: Any) -> int:
    layers: int = model.config.get_text_config(decoder=True).num_hidden_layers
    return layers


class GraphExecution(Execution):
    """An execution with a graph a situation."""

    def __init__(self, model: Any) -> None:
        super().__init__(model)
        self._graphs: dict[Situation, Graph] = {}
        self._refused: dict[Situation, str] = {}
        self._compared: dict[Situation, set[tuple[int, ...]]] = {}

    @abstractmethod
    def make(self, step: Step, call: Call, stage: Callable[[str], None]) -> Graph:
        """Make a graph of a step.

        Parameters
        ----------
        step : Step
        call : Call
            One that the graph is for; its tensors may be kept.
        stage : callable
            Told what is being done.

        Raises
        ------
        CannotError
            Where there can be none, for a person.
        PreparationError
            Where the machine lacks something.
        """

    def situation_of(self, situation: Situation) -> Situation:
        """Return the situation whose graph serves another one: the same, unless an execution needs fewer."""
        return situation

    def forward(self, model: Any, inputs: dict[str, Any]) -> Any:
        """Run the graph that fits; make and compare it first where it is new."""
        call = read(model, inputs)
        key = self.situation_of(call.situation)
        if (reason := self._refused.get(key)) is not None:
            raise CannotError(reason)
        graph = self._graphs.get(key)
        sizes = tuple(
            size for tensor in (call.tensors["ids"], *list(call.tensors.values())[-1:]) for size in tensor.shape
        )
        compared = self._compared.setdefault(call.situation, set())
        if graph is not None and (len(compared) >= TRUSTED_AFTER or sizes in compared):
            return self._output(call, graph(*call.tensors.values()))
        with self._preparing(key):
            if graph is None:
                graph = self._make(key, call)
            return self._compare(key, graph, call, model, inputs, sizes)

    def _make(self, key: Situation, call: Call) -> Graph:
        """Make a graph, or note why there is none."""

        def stage(what: str) -> None:
            if self.hooks.cancelled():
                raise CancelledError
            self.hooks.begin(Preparing(str(key), what, time.perf_counter()))

        step = Step(self.model, key, tuple(call.tensors)).eval()
        step.cancelled = self.hooks.cancelled
        try:
            graph = self.make(step, call, stage)
        except CancelledError:
            raise CannotError("preparing was cancelled") from None
        except CannotError as error:
            self._refused[key] = str(error)
            raise
        except PreparationError as error:
            self._refused[key] = str(error)
            raise CannotError(str(error)) from error
        except Exception as error:
            self._refused[key] = reason = f"{self.name} failed: {type(error).__name__}: {_first_line(error)}"
            raise CannotError(reason) from error
        self._graphs[key] = graph
        graphs = (*self.cost.graphs, str(key))
        self.cost = Cost(self.cost.seconds, graphs, self.cost.largest_difference, self.cost.compared)
        return graph

    def _compare(
        self, key: Situation, graph: Graph, call: Call, model: Any, inputs: dict[str, Any], sizes: tuple[int, ...]
    ) -> Any:
        """Run a pass both ways; the eager results are what it gives."""
        ours, *_ = graph(*(tensor.clone() for tensor in call.tensors.values()))
        output = type(model).forward(model, **inputs)
        theirs = output.logits
        difference = float((ours.float() - theirs.float()).abs().max()) if ours.shape == theirs.shape else float("inf")
        allowed = _tolerance(theirs)
        cost = self.cost
        self.cost = Cost(cost.seconds, cost.graphs, max(cost.largest_difference, difference), cost.compared + 1)
        if not difference <= allowed:
            del self._graphs[key]
            self._refused[key] = f"its logits differ from eager ones by {difference:.2g}"
            self.fallbacks[self._refused[key]] += 1
            self.hooks.fallbacks[self._refused[key]] += 1
            return output
        self._compared[call.situation].add(sizes)
        return output

    @contextlib.contextmanager
    def _preparing(self, key: Situation) -> Iterator[None]:
        with self.lock:
            began = time.perf_counter()
            self.hooks.begin(Preparing(str(key), "comparing with eager", began))
            try:
                yield
            finally:
                cost = self.cost
                seconds = cost.seconds + time.perf_counter() - began
                self.cost = Cost(seconds, cost.graphs, cost.largest_difference, cost.compared)
                self.hooks.end()

    def _output(self, call: Call, given: tuple[torch.Tensor, ...]) -> Any:
        logits, *written = given
        write_back(call, tuple(written))
        if call.situation.encoder:
            states = call.tensors["encoder"]
            return Seq2SeqLMOutput(logits=logits, cache=call.cache, encoder_last_hidden_state=states)
        return CausalLMOutputWithPast(logits=logits, cache=call.cache)

    def close(self) -> None:
        """Drop all graphs."""
        super().close()
        with self.lock:
            self._graphs.clear()
            self._compared.clear()


def _tolerance(logits: torch.Tensor) -> float:
    """Return how far logits may be from eager ones: more where numbers have fewer digits."""
    precision = torch.finfo(logits.dtype).eps / torch.finfo(torch.float32).eps
    return TOLERANCE * max(1.0, float(logits.abs().max())) * max(1.0, precision)


def _first_line(error: BaseException) -> str:
    return (str(error).strip() or "no message").split("\n", 1)[0][:200]
