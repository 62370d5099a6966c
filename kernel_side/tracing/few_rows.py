"""Linear layers of few rows, written as sums, from which a compiler makes loops that read the weights once, in order.

A product with a matrix of some rows is a call of the processor's linear algebra library, which is made for many. On
the demo model it reads weights at a third of the memory's bandwidth for one row, and at a quarter for four. Of a sum of
products inductor makes loops of its own (torch 2.13), which come to 0.6 to 0.95 and 0.55 of it. A token is bound by
reading the weights, so this decides what it takes.

Not here: the compilers (``exported``, ``compiled``).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import nn

if TYPE_CHECKING:
    from .situation import Situation

__all__ = ["MOST", "Sums", "as_sums", "has_few"]

MOST = 4
"""Rows up to which it pays."""


class Sums(nn.Linear):
    """A linear layer for few rows."""

    def forward(self, input: torch.Tensor) -> torch.Tensor:  # noqa: A002 - as the library calls it
        if input.dim() != 3 or input.shape[1] != 1:  # what an encoder gave: as many rows as it read
            return super().forward(input)
        rows = input.reshape(-1, self.in_features)
        # One sum a row: of one over all the compiler would make a loop that reads the weights once a row.
        given = torch.stack([(self.weight * row).sum(-1) for row in rows.unbind()])
        if self.bias is not None:
            given = given + self.bias
        return given.reshape(*input.shape[:-1], self.out_features)


def has_few(model: Any, situation: Situation) -> bool:
    """Return whether passes in a situation have few rows, and the same number of them, on a processor."""
    return bool(model.device.type == "cpu") and situation.one and situation.rows is not None


def as_sums(view: Any) -> None:
    """Change the linear layers of a view of a model, whose modules are its own.

    Left alone are layers of other classes, which may compute something else.
    """
    for module in view.modules():
        if type(module) is nn.Linear and module.weight.dtype is torch.float32:
            module.__class__ = Sums
