"""Exported execution: ``torch.export`` of a step, compiled by AOTInductor into a package that is kept on disk.

A package holds no weights: it is given the model's own, so that a graph costs some megabytes, and a later process
loads it at once. One graph serves all lengths; where a situation has one row and one token, these are fixed in it.

Making one follows the step with fake tensors, then runs a C++ compiler. One is made at a time in a process, under a
lock, since exporting sets what is global: meanwhile other threads see ``torch.compiler.is_compiling()`` and
``is_exporting()`` true (the library then makes masks that it leaves out else, so an eager pass beside it can differ in
its last digits), ``torch._inductor`` and ``torch._dynamo`` have patched settings, and calls of modules go through the
exporter's wrapper, which passes on what it does not know. Warnings and logs of the thread that makes a graph are kept
from the notebook; those of others are shown.

Not here: the files (``packages``).
"""

from __future__ import annotations

import contextlib
import logging
import tempfile
import threading
import warnings
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch._inductor import exc as inductor_exc  # torch 2.13
from torch._inductor.cpp_builder import get_cpp_compiler  # torch 2.13

from ..caching.key import Seen, why_not
from . import packages
from .execution import Graph, GraphExecution, PreparationError
from .situation import Call, CannotError, Situation
from .step import Step

__all__ = ["NO_COMPILER", "Exported"]

NO_COMPILER = (
    "exported graphs need a C++ compiler, and none was found. Install one: on Debian and Ubuntu `sudo apt install g++`, "
    "with conda `conda install -c conda-forge cxx-compiler`, on macOS `xcode-select --install`, on Windows the Visual "
    "Studio Build Tools (Desktop development with C++); or name one in the environment variable CXX"
)

_ONE_AT_A_TIME = threading.Lock()
_WAIT = 0.2
_EXAMPLES = (3, 5, 11, 17, 23, 29, 37, 41, 47)
"""Lengths of the tensors that are exported: neither 0 nor 1, which exporters take apart, and no two alike."""
_LONGEST = 1 << 30

Sizes = tuple[int | str, ...]


class Exported(GraphExecution):
    """Runs packages. See :class:`~.execution.Execution`.

    Parameters
    ----------
    model : PreTrainedModel
    """

    name = "exported"

    def __init__(self, model: Any) -> None:
        super().__init__(model)
        self._fingerprint: str | None = None

    def situation_of(self, situation: Situation) -> Situation:
        """Return the same for any number of rows where several tokens are fed: these fill the processor anyway."""
        return situation if situation.one else replace(situation, row=False)

    def make(self, step: Step, call: Call, stage: Callable[[str], None]) -> Graph:
        """Load a package; make it first where none is kept."""
        stage("loading")
        if self._fingerprint is None:
            seen = Seen(self.model)
            if (reason := why_not(seen)) is not None:
                raise CannotError(reason)
            self._fingerprint = packages.fingerprint(seen)
        situation = self.situation_of(call.situation)
        sizes = _sizes(situation, call)
        tied = _Tied(step, sizes).eval()
        name = packages.name_of(
            self._fingerprint,
            situation=situation,
            names=tuple(call.tensors),
            shapes=[(str(tensor.dtype), str(tensor.device), sizes[key]) for key, tensor in call.tensors.items()],
        )
        try:
            with packages.locked(name, lambda: stage("waiting for another process, which is making it")):
                graph = _load(name, tied)
                if graph is None:
                    with _alone(lambda: stage("waiting for another graph, which is being made")):
                        _make(name, f"{type(self.model).__name__}: {situation}", tied, call, sizes, stage)
                    stage("loading")
                    graph = _load(name, tied)
        except OSError as error:
            raise PreparationError(
                f"exported graphs could not be kept in {str(packages.folder())!r}: {error}; the environment variable "
                "GENSCOPE_CACHE can name another folder"
            ) from error
        if graph is None:
            raise CannotError("its package was made and could not be loaded")
        return graph


class _Package:
    """A loaded package, with the tensors that it was given."""

    def __init__(self, runner: Any, constants: dict[str, torch.Tensor]) -> None:
        self._loader = runner.loader  # torch 2.13; the runner reads the shape of its arguments anew at each call
        self._constants = constants  # of which the library has only the addresses

    def __call__(self, *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        # Loops are made for dense tensors, and do not look.
        return tuple(self._loader.boxed_run([tensor.contiguous() for tensor in tensors]))


def _load(name: str, tied: _Tied) -> _Package | None:
    """Load what is kept, if it is whole; give it the step's weights."""
    with tempfile.TemporaryDirectory(prefix="genscope-", ignore_cleanup_errors=True) as here, _quiet():
        found = packages.fetch(name, Path(here))
        if found is None:
            return None
        package, own = found
        try:
            runner = torch._inductor.aoti_load_package(str(package))
            constants = _constants(runner.get_constant_fqns(), tied, own)
            runner.load_constants(constants, check_full_update=True, user_managed=True)
        except (RuntimeError, ValueError, KeyError):  # of another library than it says, or nothing that can be loaded
            return None
    return _Package(runner, constants)


def _constants(names: list[str], tied: _Tied, own: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Return the tensors of these names: the step's, or else those that were kept. KeyError where there are none."""
    of_step = _tensors(tied)
    device = next(iter(of_step.values())).device
    return {name: of_step[name] if name in of_step else own[name].to(device) for name in names}


def _tensors(tied: _Tied) -> dict[str, torch.Tensor]:
    named = (*tied.named_parameters(remove_duplicate=False), *tied.named_buffers(remove_duplicate=False))
    return {name: tensor.detach() for name, tensor in named}


def _make(name: str, what: str, tied: _Tied, call: Call, sizes: dict[str, Sizes], stage: Callable[[str], None]) -> None:
    """Export, compile, keep."""
    _check_compiler()
    # A graph is for passes without gradients; tensors of the inference mode cannot be followed.
    with torch.inference_mode(False), torch.no_grad(), _quiet():
        stage("exporting")
        program = _export(call, tied, sizes)
        stage("compiling")
        with packages.scratch() as here:
            package = here / "graph.pt2"
            options = {"aot_inductor.package_constants_in_so": False}
            torch._inductor.aoti_compile_and_package(program, package_path=str(package), inductor_configs=options)
            runner = torch._inductor.aoti_load_package(str(package))
            others = set(runner.get_constant_fqns()) - set(_tensors(tied))
            del runner
            held = {**program.state_dict, **program.constants}
            own = {other: held[other] for other in others}
            packages.put(name, what, package, own)


class _Tied(nn.Module):
    """A step that says which lengths of its tensors are the same, or sums of others, so that an exporter knows."""

    def __init__(self, step: Step, sizes: dict[str, Sizes]) -> None:
        super().__init__()
        self.step = step
        self._sizes = [*sizes.values()]

    def forward(self, *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        known: dict[str, int] = {}
        pairs = [
            pair for shape, one in zip(self._sizes, tensors, strict=True) for pair in zip(shape, one.shape, strict=True)
        ]
        for size, length in pairs:
            if isinstance(size, str) and "+" not in size:
                torch._check(length == known.setdefault(size, length))
        for size, length in pairs:
            if isinstance(size, str) and "+" in size:
                torch._check(length == _sum(size, known))
        given: tuple[torch.Tensor, ...] = self.step(*tensors)
        return given


def _export(call: Call, tied: _Tied, sizes: dict[str, Sizes]) -> Any:
    """Export a step for all lengths; raises where the exporter takes one of them as fixed, or as another's."""
    lengths: dict[str, int] = {}
    for size in (size for shape in sizes.values() for size in shape if isinstance(size, str) and "+" not in size):
        lengths.setdefault(size, _EXAMPLES[len(lengths)])
    tensors, free = [], []
    for name, tensor in call.tensors.items():
        shape = [size if isinstance(size, int) else _sum(size, lengths) for size in sizes[name]]
        tensors.append(torch.zeros(shape, dtype=tensor.dtype, device=tensor.device))
        free.append({at: torch.export.Dim.DYNAMIC for at, size in enumerate(sizes[name]) if isinstance(size, str)})
    program = torch.export.export(tied, tuple(tensors), dynamic_shapes={"tensors": tuple(free)}, strict=False)
    _check_lengths(program, sizes)
    return program


def _check_lengths(program: Any, sizes: dict[str, Sizes]) -> None:
    """Raise CannotError unless a program's lengths are as free as was asked."""
    given = set(program.graph_signature.user_inputs)
    shapes = [node.meta["val"].shape for node in program.graph.nodes if node.op == "placeholder" and node.name in given]
    found: dict[str, Any] = {}
    for size, length in (pair for pairs in map(zip, sizes.values(), shapes) for pair in pairs):
        if isinstance(size, str) and found.setdefault(size, length.node.expr) != length.node.expr:
            raise CannotError(f"the exporter takes two lengths apart ({size})")
    symbols = [length for size, length in found.items() if "+" not in size]
    if len(set(symbols)) < len(symbols) or not all(length.is_Symbol for length in symbols):
        raise CannotError(f"the exporter ties lengths together: {found}")
    for length, allowed in program.range_constraints.items():
        if length.is_Symbol and not (allowed.lower <= 2 and allowed.upper >= _LONGEST):
            raise CannotError(f"the exporter takes lengths only from {allowed.lower} to {allowed.upper}")


def _sum(size: str, of: dict[str, Any]) -> Any:
    return sum(int(part) if part.isdecimal() else of[part] for part in size.split("+"))


def _sizes(situation: Situation, call: Call) -> dict[str, Sizes]:
    """Return the shape of each tensor, with names, or sums of names, for what is free.

    Layers whose windows are equally long hold equally many positions, and share a name.
    """
    rows: int | str = 1 if situation.row else "rows"
    fed: int | str = 1 if situation.one else "fed"
    own = call.cache.self_attention_cache if situation.encoder else call.cache
    held = [f"held by {getattr(layer, 'sliding_window', None) or 'all'}" for layer in own.layers]
    sizes: dict[str, Sizes] = {}
    for name, tensor in call.tensors.items():
        kind, _, of = name.partition(".")
        last = int(tensor.shape[-1])
        if kind in ("ids", "positions"):
            sizes[name] = (rows, fed)
        elif kind == "kept":
            sizes[name] = ("kept",)
        elif kind == "encoder":
            sizes[name] = (rows, "source", last)
        elif kind == "cross_mask":
            sizes[name] = (rows, 1, fed, "source")
        elif kind == "mask":
            layers = [one for one in held if one.endswith("all") == (of == "full_attention")] if of else held
            columns = f"{(layers or held)[0]}+{fed}" if situation.cached else fed
            sizes[name] = (rows, 1, fed, columns)
        else:
            length = "source" if kind.startswith("cross_") else held[int(of)]
            sizes[name] = (rows, int(tensor.shape[1]), length, last)
    return sizes


def _check_compiler() -> None:
    try:
        get_cpp_compiler()
    except (inductor_exc.InvalidCxxCompiler, RuntimeError, OSError) as error:
        raise PreparationError(NO_COMPILER) from error


@contextlib.contextmanager
def _alone(waiting: Callable[[], None]) -> Iterator[None]:
    """Let one thread of this process at a time make a graph."""
    while not _ONE_AT_A_TIME.acquire(timeout=_WAIT):
        waiting()
    try:
        yield
    finally:
        _ONE_AT_A_TIME.release()


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Keep what this thread warns and logs from being shown. What other threads warn is shown."""
    here, quiet = threading.get_ident(), [True]
    handlers = {id(one): one for one in logging.root.handlers}
    for name, logger in list(logging.root.manager.loggerDict.items()):
        if name.startswith("torch") and isinstance(logger, logging.Logger):
            handlers |= {id(one): one for one in logger.handlers}
    if logging.lastResort is not None:
        handlers[id(logging.lastResort)] = logging.lastResort

    def passes(record: logging.LogRecord) -> bool:
        return record.thread != here

    with warnings.catch_warnings():
        # Filters are the process's (until Python 3.14), so what is shown is decided where it is shown.
        warnings.simplefilter("default")
        show = warnings.showwarning

        def showwarning(*what: Any, **more: Any) -> None:
            if not quiet or threading.get_ident() != here:
                show(*what, **more)

        warnings.showwarning = showwarning
        for handler in handlers.values():
            handler.addFilter(passes)
        try:
            yield
        finally:
            quiet.clear()  # should another thread that saved it put it back
            for handler in handlers.values():
                handler.removeFilter(passes)
