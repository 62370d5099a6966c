"""What decides a graph that is kept on disk, as hashes that are the same in every process.

Unlike ``caching.key``, which tells at once whether a model in memory is still what it was, this reads all weights, once
for an execution. Not here: files (``packages``).
"""

from __future__ import annotations

import contextlib
import hashlib
import inspect
import platform
import sys
import types
import uuid
from pathlib import Path
from typing import Any

import torch
import transformers
from torch import nn

from ..caching.key import UNSHARED, Seen

__all__ = ["FORMAT", "fingerprint", "name_of"]

FORMAT = 2
"""Rises when what is kept changes, or what a step computes."""

_LEFT_OUT = (frozenset(vars(nn.Module())) - {"training"}) | UNSHARED
_PLAIN = (int, float, bool, str, bytes, type(None), torch.dtype, torch.device)
_FUNCTIONS = (types.FunctionType, types.MethodType, types.BuiltinFunctionType)
_ABOUT_PROCESSORS = ("model name", "flags", "Features", "CPU part")


def fingerprint(seen: Seen) -> str:
    """Return a hash of all of a model that decides its graphs: contents of all weights, settings, classes, code.

    Where code cannot be read, the hash is one that never comes again.
    """
    said = hashlib.sha256()
    for name, module in seen.modules:
        own = [(key, _said(value)) for key, value in sorted(vars(module).items()) if key not in _LEFT_OUT]
        said.update(repr((name, type(module).__module__, type(module).__qualname__, own)).encode())
    for source in sorted({_source(kind) for one in {type(one) for _, one in seen.modules} for kind in one.__mro__}):
        said.update(source.encode())
    for name, tensor in seen.tensors:
        said.update(repr((name, str(tensor.device), tensor.stride(), _contents(tensor))).encode())
    return said.hexdigest()


def name_of(model: str, **decides: Any) -> str:
    """Return the name that a graph is kept under.

    Parameters
    ----------
    model : str
        Of :func:`fingerprint`.
    **decides
        What else decides it; each is taken as its ``repr``.
    """
    machine = {
        "format": FORMAT,
        "torch": torch.__version__,
        "transformers": transformers.__version__,
        # A library is built for the very processor, and its loops for so many threads.
        "machine": (platform.system(), platform.machine(), _processor(), torch.backends.cpu.get_cpu_capability()),
        "threads": torch.get_num_threads(),
        "devices": [torch.cuda.get_device_name(at) for at in range(torch.cuda.device_count())],
        "arithmetic": torch.get_float32_matmul_precision(),
    }
    said = repr((model, sorted(machine.items()), sorted(decides.items())))
    return hashlib.sha256(said.encode()).hexdigest()[:32]


def _said(value: Any) -> Any:
    """Return what is the same in every process of what an attribute holds."""
    if isinstance(value, _PLAIN):
        return value
    if isinstance(value, torch.Tensor):
        return _contents(value)
    if isinstance(value, list | tuple):
        return [_said(one) for one in value]
    if isinstance(value, set | frozenset):
        return sorted(repr(_said(one)) for one in value)
    if isinstance(value, dict):
        return [(str(key), _said(one)) for key, one in value.items()]
    if isinstance(value, transformers.PreTrainedConfig):
        settings = {key: one for key, one in value.to_dict().items() if key not in UNSHARED}
        return sorted((str(key), repr(one)) for key, one in settings.items()), value._attn_implementation
    if isinstance(value, _FUNCTIONS):
        return value.__module__, value.__qualname__
    return type(value).__module__, type(value).__qualname__


def _contents(tensor: torch.Tensor) -> tuple[str, tuple[int, ...], str]:
    plain = tensor.detach().cpu().contiguous().reshape(-1)
    read = hashlib.sha256(plain.view(torch.uint8).numpy().data if plain.numel() else b"")
    return str(tensor.dtype), tuple(tensor.shape), read.hexdigest()


def _source(kind: type) -> str:
    """Return the code that a class stands in; that of Python, torch and transformers is told by their versions."""
    if kind.__module__.split(".")[0] in ("builtins", "torch", "transformers", "typing", *sys.stdlib_module_names) and (
        kind.__module__ != "__main__"
    ):
        return ""
    file = getattr(sys.modules.get(kind.__module__), "__file__", None)
    try:
        return inspect.getsource(kind) if file is None else Path(file).read_text(encoding="utf-8")
    except (OSError, TypeError, UnicodeError):
        return uuid.uuid4().hex


def _processor() -> str:
    """Return the processor's name and what it can do, as the system says it."""
    with contextlib.suppress(OSError):
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").split("\n\n", 1)[0].splitlines()
        return "; ".join(line for line in lines if line.startswith(_ABOUT_PROCESSORS))
    return platform.processor()
