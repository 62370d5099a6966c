"""Smaller numbers for weights: int8 by torchao, and what bfloat16 and int8 bring on this processor.

Both change results. int8 weights take a quarter of the memory; without a compiled execution each layer unpacks its own
in every pass, which costs more time on a processor than it saves. Not here: bfloat16 weights, which are ``dtype`` of
``load_model``, and int8 arithmetic.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import logging
import warnings
from collections.abc import Iterator
from typing import Any, Literal

import torch
from torch import nn

from .loading import ModelLoadError

__all__ = ["Weights", "gains_from_bfloat16", "in_int8", "note", "require_torchao"]

Weights = Literal["int8"]

_UNITS = ("avx512_bf16", "amx_bf16", "avx10_2", "bf16", "sve_bf16")
"""What multiplies bfloat16 numbers, of x86 and ARM, as ``torch.cpu.get_capabilities`` names it (torch 2.13)."""


def gains_from_bfloat16(device: torch.device | str = "cpu") -> bool | None:
    """Return whether a device multiplies bfloat16 numbers in units of its own.

    Without them bfloat16 is emulated, which is slower than float32. That torch or oneDNN "support" it says nothing:
    they count emulation too.

    Parameters
    ----------
    device : torch.device or str

    Returns
    -------
    bool or None
        None where it is not known: devices other than CPUs and CUDA's, and torch before ``get_capabilities``.
    """
    kind = torch.device(device).type
    if kind == "cuda":
        return bool(torch.cuda.is_bf16_supported(including_emulation=False))
    capabilities = getattr(torch.cpu, "get_capabilities", None)
    if kind != "cpu" or capabilities is None:
        return None
    found = capabilities()
    return any(found.get(unit) for unit in _UNITS)


def require_torchao() -> None:
    """Raise ModelLoadError, which says what to install, where torchao is missing."""
    if importlib.util.find_spec("torchao") is None:
        raise ModelLoadError(
            'weights="int8" needs the package torchao. Install: pip install "genscope[torchao]"; then restart Python.'
        )


def in_int8(model: Any, name: str) -> None:
    """Turn the weights of a model's linear layers into int8, each with a scale a row.

    Parameters
    ----------
    model : PreTrainedModel
        Is changed. Embeddings and norms stay as they are; so does what is added and multiplied in between.
    name : str
        Of the model, for messages.

    Raises
    ------
    ModelLoadError
        Without torchao, for a model without linear layers in its body (GPT-2's are of a class of their own), and for
        what torchao refuses.
    """
    require_torchao()
    body = model.base_model.modules()
    if not any(type(module) is nn.Linear for module in body):
        raise ModelLoadError(
            f"{name!r} has no linear layers that can have int8 weights ({type(model).__name__} computes in layers of "
            "another class). Load it without weights=..."
        )
    try:
        with _quiet():
            torchao: Any = importlib.import_module("torchao.quantization")  # not by `import`: it is optional
            torchao.quantize_(model, torchao.Int8WeightOnlyConfig())
    except Exception as error:  # an import that fails for another torch, a dtype that it has no kernel for
        raise ModelLoadError(
            f"The weights of {name!r} could not be made int8: {error}\nLoad it without weights=..., or install a "
            'torchao that fits this torch: pip install --upgrade "genscope[torchao]"'
        ) from error


def note(model: Any, weights: Weights | None) -> str:
    """Return what a person should know of a loaded model's numbers; empty for plain float32."""
    notes = []
    if weights == "int8":
        notes.append("int8 weights: results differ")
    if model.dtype == torch.bfloat16:
        gains = gains_from_bfloat16(model.device)
        slower = "slower than float32 here, which has no units for it; " if gains is False else ""
        notes.append(f"bfloat16: {slower}results differ")
    return "; ".join(notes)


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Keep what torchao says when it is imported off the screen: which kernels for other devices it has not."""
    names = ("torchao", "torch.utils._pytree")
    before = {name: logging.getLogger(name).level for name in names}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            for name in names:
                logging.getLogger(name).setLevel(logging.ERROR)
            yield
        finally:
            for name, level in before.items():
                logging.getLogger(name).setLevel(level)
