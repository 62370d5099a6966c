"""Follows a step with ``torch.export``, for all lengths, and checks that the exporter took none of them as fixed.

Not here: what is made of the program (``exported``).
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.export.graph_signature import InputKind

from .situation import Call, CannotError, Situation
from .step import Step

__all__ = ["Sizes", "Tied", "export", "sizes_of"]

Sizes = tuple[int | str, ...]
"""A tensor's shape: what is fixed as a number, what is free as a name, or as a sum of names and numbers."""

_EXAMPLES = (3, 5, 11, 17, 23, 29, 37, 41, 47)
"""Lengths that are exported with: neither 0 nor 1, which the exporter takes apart, and no two alike."""

_LONGEST = 1 << 30


class Tied(nn.Module):
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
                torch._check(length == known.setdefault(size, length))  # noqa: SLF001 - torch documents it
        for size, length in pairs:
            if isinstance(size, str) and "+" in size:
                torch._check(length == _sum(size, known))  # noqa: SLF001 - torch documents it
        given: tuple[torch.Tensor, ...] = self.step(*tensors)
        return given


def export(call: Call, tied: Tied, sizes: dict[str, Sizes]) -> Any:
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
    for one in program.graph_signature.input_specs:
        if one.kind is InputKind.CONSTANT_TENSOR:  # which AOTInductor would give a number for a name (torch 2.13)
            one.kind, one.persistent = InputKind.BUFFER, False
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


def sizes_of(situation: Situation, call: Call) -> dict[str, Sizes]:
    """Return the shape of each tensor, with names, or sums of names, for what is free.

    Layers whose windows are equally long hold equally many positions, and share a name.
    """
    rows: int | str = situation.rows or "rows"
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
