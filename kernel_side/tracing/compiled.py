"""Compiled execution: ``torch.compile`` with inductor, of each decoder layer or of the whole step.

- ``part="layer"``, the default on a CPU: one function for all layers (``layers``), seconds a situation; embeddings, the
  head and what is between layers run as Python.
- ``part="step"``, the default elsewhere: the whole step, which on a CPU takes minutes a situation.

Lengths and rows are marked as dynamic, and all tensors made contiguous, so that no length is compiled for by itself.
Inductor keeps what it compiled where it always does, and takes it from there in later processes. A pass that needs
another graph nevertheless (a cache of a single position, another number of threads) is counted in ``recompilations``.

Not done: static caches. A pass on one runs eagerly, and counts as a fallback; where the device likes them best, as
CUDA does, ``generate(cache_implementation="static")`` of the library compiles by itself, without any of this. Nor CUDA
graphs (``mode="reduce-overhead"``), whose outputs the next pass overwrites. Nothing here was run on a GPU yet.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import types
import weakref
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Literal, get_args

import torch

from .few_rows import as_sums, has_few
from .graphs import Graph, GraphExecution
from .layers import run_layer, through
from .quiet import quiet
from .situation import Call, CannotError, Situation
from .step import CancelledError, Step

__all__ = ["Compiled", "Part"]

Part = Literal["layer", "step"]

_VARYING = {1: (0,), 2: (0, 1), 3: (0, 1), 4: (0, 2, 3)}
"""Dimensions that may be rows or lengths, by the number of dimensions; those that turn out constant do no harm."""


class Compiled(GraphExecution):
    """Runs what inductor compiles. See :class:`~.execution.Execution`.

    Parameters
    ----------
    model : PreTrainedModel
    part : {"layer", "step"}, optional
        What is compiled as one. By default ``"layer"`` on a CPU and ``"step"`` on other devices.

    Attributes
    ----------
    recompilations : int
        Graphs that were compiled in later passes than the first of their situation.

    Raises
    ------
    ValueError
        For another word.
    """

    name = "compiled"

    def __init__(self, model: Any, part: Part | None = None) -> None:
        if part is not None and part not in get_args(Part):
            raise ValueError(f"part is {part!r}; it can be one of {', '.join(map(repr, get_args(Part)))}")
        super().__init__(model)
        self.part: Part = part or ("layer" if self.model.device.type == "cpu" else "step")
        self.recompilations = 0

    def situation_of(self, situation: Situation) -> Situation:
        """Return the same for any number of rows, but where few rows are worth a graph of their own."""
        return situation if has_few(self.model, situation) else super().situation_of(situation)

    def make(self, step: Step, call: Call, stage: Callable[[str], None]) -> Graph:
        """Compile for a situation, by a pass of its kind."""
        from .compiler import require_compiler  # slow to import, and seldom needed

        stage("compiling")
        require_compiler()
        if has_few(self.model, call.situation):
            as_sums(step.model)
        graph = _Compiled(self, step, str(call.situation))
        if _alone(call.tensors) is None:
            graph.compile(call.tensors.values())
        return graph

    @contextlib.contextmanager
    def compiling(self, what: str) -> Iterator[None]:
        """Count the time of what is done inside as spent preparing, and keep the libraries' warnings to themselves."""
        counted = contextlib.nullcontext() if self.use.status().preparing else self._preparing(what)
        with counted, self.lock, quiet():
            self.use.stage("compiling")
            yield

    def recompiles(self) -> None:
        """Count a graph that is compiled in a later pass."""
        self.recompilations += 1
        self.use.recompilations += 1


class _Compiled:
    """What is compiled for one situation. Kept by its execution, which it does not keep."""

    def __init__(self, execution: Compiled, step: Step, what: str) -> None:
        self._execution = weakref.ref(execution)
        self._what = what
        self._made = False
        self._marking = False
        self._step = step
        step.cancelled = _nobody  # the compiler follows it
        whole = execution.part == "step"
        compiled: Any = torch.compile(
            _own(Step.forward if whole else run_layer), backend=self._backend(), fullgraph=True, dynamic=True
        )

        def run(*given: Any) -> Any:
            if self._marking:
                _mark(given)
            return compiled(*given)

        if whole:
            self._run: Callable[..., Any] = functools.partial(run, step)
        else:
            self._run = step
            through(step, run)

    def __call__(self, *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """Run; compile first where nothing was compiled yet."""
        if (reason := _alone(dict(zip(self._step.names, tensors, strict=True)))) is not None:
            raise CannotError(reason)
        if self._made:
            given: tuple[torch.Tensor, ...] = self._run(*(tensor.contiguous() for tensor in tensors))
            return given
        try:
            return self.compile(tensors)
        except CancelledError:
            raise CannotError("preparing was cancelled") from None

    def compile(self, tensors: Iterable[torch.Tensor]) -> tuple[torch.Tensor, ...]:
        """Run for the first time."""
        execution = self._execution()
        if execution is None:
            raise CannotError("the execution was dropped")
        # Marks stay on a tensor: these are others, of the same memory.
        own = [tensor.contiguous().detach() for tensor in tensors]
        with execution.compiling(self._what):
            self._marking = True
            try:
                given: tuple[torch.Tensor, ...] = self._run(*own)
            except Exception as error:
                if execution.use.cancelled():  # whatever dynamo made of it
                    raise CancelledError from error
                raise
            finally:
                self._marking = False
        self._made = True
        return given

    def _backend(self) -> Callable[..., Any]:
        """Return what dynamo calls for each graph. Dynamo never forgets it, so that it must not keep anything."""
        here = weakref.ref(self)

        def backend(graph: torch.fx.GraphModule, inputs: list[torch.Tensor]) -> Any:
            ours = here()
            execution = None if ours is None else ours._execution()  # noqa: SLF001 - this class's own
            if ours is None or execution is None or execution.use.cancelled():
                raise CancelledError
            with execution.compiling(ours._what):  # noqa: SLF001
                # Dynamo may ask for a graph twice, the second time for other numbers in it.
                compiled = torch._dynamo.lookup_backend("inductor")(graph, inputs)  # noqa: SLF001 - its public place
            if ours._made:  # noqa: SLF001
                execution.recompiles()
            return compiled

        return backend


def _own(function: Any) -> Any:
    """Return a function of the same code, under a name of its own.

    Dynamo keeps what it compiled with the code: so it goes when this function goes, and neither counts nor forgets what
    others compile.
    """
    code = function.__code__.replace(co_name=f"{function.__name__}_{next(_numbers)}")
    return types.FunctionType(code, function.__globals__, code.co_name, function.__defaults__, function.__closure__)


_numbers = itertools.count()


def _mark(given: Any) -> None:
    """Mark what may be rows and lengths as dynamic, wherever there is a tensor."""
    if isinstance(given, torch.Tensor):
        for dimension in _VARYING.get(given.dim(), ()):
            torch._dynamo.maybe_mark_dynamic(given, dimension)  # noqa: SLF001 - its public place
    elif isinstance(given, tuple | list):
        for one in given:
            _mark(one)
    elif isinstance(given, dict):
        _mark(tuple(given.values()))


def _alone(tensors: dict[str, torch.Tensor]) -> str | None:
    """Return why a pass is not worth its graph: compilers take a size of 1 for constant, and here it is not."""
    if "keys.0" in tensors and tensors["keys.0"].shape[2] == 1:
        return "its cache holds a single position"
    if "encoder" in tensors and tensors["encoder"].shape[1] == 1:
        return "its encoder read a single token"
    return None


def _nobody() -> bool:
    return False
