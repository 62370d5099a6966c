"""Exported execution: ``torch.export`` of a step, compiled by AOTInductor into a package that is kept on disk.

A package holds no weights: it is given the model's own, so that a graph costs some megabytes, and a later process
loads it at once. One graph serves all lengths. Few rows of one token are a situation of their own, in which these are
fixed; on a processor linear layers are written anew there (``few_rows``), which is what a decode step gains most by.

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
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch.fx.experimental import proxy_tensor

from ..caching.key import Seen
from . import packages
from .exporting import Sizes, Tied, export, sizes_of
from .few_rows import as_sums, has_few
from .fingerprint import fingerprint, name_of
from .graphs import Graph, GraphExecution
from .quiet import quiet
from .situation import Call, CannotError, Situation
from .step import Step

__all__ = ["Exported"]

_ONE_AT_A_TIME = threading.Lock()
_WAIT = 0.2
_OPTIONS: dict[str, Any] = {"aot_inductor.package_constants_in_so": False}
"""Of inductor (torch 2.13): weights are the model's."""


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
        """Return the same for any number of rows, but where few rows of one token are worth a graph of their own."""
        if not situation.one:
            return replace(situation, rows=None)
        return situation if has_few(self.model, situation) else super().situation_of(situation)

    def make(self, step: Step, call: Call, stage: Callable[[str], None]) -> Graph:
        """Load a package; make it first where none is kept."""
        stage("loading")
        if self._fingerprint is None:
            self._fingerprint = fingerprint(Seen(self.model))
        situation = self.situation_of(call.situation)
        sizes = sizes_of(situation, call)
        if has_few(self.model, situation):
            as_sums(step.model)
        tied = Tied(step, sizes).eval()
        name = name_of(
            self._fingerprint,
            situation=situation,
            shapes=[(key, sizes[key], str(tensor.dtype), str(tensor.device)) for key, tensor in call.tensors.items()],
            options=sorted(_OPTIONS.items()),
        )
        with packages.locked(name, lambda: stage("waiting for another process, which makes it")):
            graph = _load(name, tied)
            if graph is None:
                with _alone(lambda: stage("waiting for another graph, which is being made")):
                    _make(name, f"{type(self.model).__name__}: {situation}", tied, call, sizes, stage)
                stage("loading")
                graph = _load(name, tied)
        if graph is None:
            raise CannotError("its package was made, and cannot be loaded")
        return graph


class _Package:
    """A loaded package, with the tensors that it was given."""

    def __init__(self, loader: Any, constants: dict[str, torch.Tensor]) -> None:
        self._loader = loader
        self._constants = constants  # of which the library has only the addresses

    def __call__(self, *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        # Loops are made for dense tensors, and do not look.
        return tuple(self._loader.boxed_run([tensor.contiguous() for tensor in tensors]))


def _loader(package: Path) -> Any:
    """Open a package: what ``torch._inductor.aoti_load_package`` wraps (torch 2.13).

    The wrapper takes seconds to import, and reads anew at each call how its arguments are nested.
    """
    from torch._C._aoti import AOTIModelPackageLoader

    return AOTIModelPackageLoader(str(package), "model", False, 1, -1)


def _load(name: str, tied: Tied) -> _Package | None:
    """Load what is kept, if it is whole; give it the step's weights."""
    with tempfile.TemporaryDirectory(prefix="genscope-", ignore_cleanup_errors=True) as here, quiet():
        found = packages.fetch(name, Path(here))
        if found is None:
            return None
        package, own = found
        try:
            loader = _loader(package)
            constants = _constants(loader.get_constant_fqns(), tied, own)
            # Not as copies: their addresses; all of them; for good.
            loader.load_constants(constants, False, True, True)
        except (RuntimeError, ValueError, KeyError):  # of another library than it says, or nothing that can be loaded
            return None
    return _Package(loader, constants)


def _constants(names: list[str], tied: Tied, own: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Return the tensors of these names: the step's, or else those that were kept. KeyError where there are none."""
    of_step = _tensors(tied)
    device = next(iter(of_step.values())).device
    return {name: of_step[name] if name in of_step else own[name].to(device) for name in names}


def _tensors(tied: Tied) -> dict[str, torch.Tensor]:
    named = (*tied.named_parameters(remove_duplicate=False), *tied.named_buffers(remove_duplicate=False))
    return {name: tensor.detach() for name, tensor in named}


def _make(name: str, what: str, tied: Tied, call: Call, sizes: dict[str, Sizes], stage: Callable[[str], None]) -> None:
    """Export, compile, keep."""
    # It takes seconds to import, and processes that only load do without.
    from torch._inductor import aoti_compile_and_package

    from .compiler import require_compiler

    began = time.perf_counter()
    require_compiler(headers=False)
    # A graph is for passes without gradients; tensors of the inference mode cannot be followed.
    with torch.inference_mode(False), torch.no_grad(), quiet():
        stage("exporting")
        program = export(call, tied, sizes)
        stage("compiling")
        with packages.scratch(name) as here:
            package = here / "graph.pt2"
            aoti_compile_and_package(program, package_path=str(package), inductor_configs=dict(_OPTIONS))
            others = set(_loader(package).get_constant_fqns()) - set(_tensors(tied))
            own = {other: program.constants[other] for other in others}
            packages.put(name, what, time.perf_counter() - began, package, own)


@contextlib.contextmanager
def _alone(waiting: Callable[[], None]) -> Iterator[None]:
    """Let one thread of this process at a time make a graph."""
    while not _ONE_AT_A_TIME.acquire(timeout=_WAIT):
        waiting()
    try:
        yield
    finally:
        # The exporter goes on holding the last graph that it followed, and the weights with it (torch 2.13).
        proxy_tensor._FAKE_TENSOR_ID_TO_PROXY_MAP_FOR_EXPORT.clear()  # noqa: SLF001
        _ONE_AT_A_TIME.release()
