"""Cuts what one forward pass gave into what belongs to single tokens, on the CPU.

A token was chosen from the pass of the position before it, so its row is the row of that position. What tokens there
are, and who may look, is in ``states``. Shapes are those of transformers 5.24: attention ``(rows, heads, queries,
keys)`` and hidden states ``(rows, queries, size)``, one tensor a layer.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch

__all__ = ["Kind", "Layers", "Pass", "columns", "uneven", "whole_attention"]

Kind = Literal["self", "cross", "hidden"]
"""Attention on the own tokens, attention on the source's, hidden states."""

Layers = Sequence[torch.Tensor]
"""What a forward pass gave of one kind: a tensor a layer, of hidden states also the embeddings."""


@dataclass(frozen=True, slots=True)
class Pass:
    """What one forward pass gave.

    Attributes
    ----------
    layers : dict
        Of each kind, one tensor a layer.
    seen : int
        Tokens up to the last query, padding included: what that query could look at.
    """

    layers: dict[Kind, Layers]
    seen: int

    def last(self, kind: Kind, rows: torch.Tensor | None = None) -> torch.Tensor:
        """Cut out the last query, from which the next token was chosen.

        Parameters
        ----------
        kind : {"self", "cross", "hidden"}
        rows : torch.Tensor, optional
            Shape ``(rows,)``, int64: which; by default all.

        Returns
        -------
        torch.Tensor
            Shape ``(rows, layers, heads, seen)``, of cross attention ``(rows, layers, heads, source)``, float16; of
            hidden states ``(rows, layers, size)``. A copy, padding included.
        """
        parts = []
        for layer in self.layers[kind]:
            part = layer[:, -1] if kind == "hidden" else layer[:, :, -1]
            part = part if rows is None else part[rows.to(part.device)]
            if kind == "self":
                part = _aligned(part, self.seen)
            parts.append(part if kind == "hidden" else part.half())
        device = parts[0].device
        return torch.stack([part.to(device) for part in parts], dim=1).cpu()

    def before(self, kind: Kind, row: int, kept: torch.Tensor, source: torch.Tensor | None) -> list[torch.Tensor]:
        """Cut out the other queries, which the rest of the prompt follows.

        Parameters
        ----------
        kind : {"self", "cross", "hidden"}
        row : int
        kept : torch.Tensor
            Int64, increasing: positions of the prompt that are no padding.
        source : torch.Tensor or None
            The same of the source; None for all.

        Returns
        -------
        list of torch.Tensor
            As the entries of :meth:`last` without padding, for consecutive tokens, the last of which is the prompt's
            last: of each kind as many as the pass had queries for. They share their memory.
        """
        queries = self.layers[kind][0].shape[-2]
        first = self.seen - queries  # position of the first query: later where a cache came with the prompt
        asked = kept[:-1][kept[:-1] >= first]
        if not len(asked):
            return []
        if kind == "hidden":
            states = [layer[row].cpu()[asked - first] for layer in self.layers[kind]]
            return list(torch.stack(states).unbind(1))
        if kind == "cross":
            weights = [columns(layer[row].half().cpu()[:, asked - first], source) for layer in self.layers[kind]]
            return list(torch.stack(weights).unbind(2))
        # A token looks at what came before it only, so half of the square is left out: the rows lie end to end.
        keys = kept[None, :] <= asked[:, None]
        places = ((asked - first)[:, None] * self.seen + kept[None, :])[keys]
        rows = []
        for layer in self.layers[kind]:
            square = _aligned(layer[row].half().cpu(), self.seen)
            rows.append(square.reshape(len(square), -1).index_select(1, places))
        return list(torch.stack(rows).split(keys.sum(dim=1).tolist(), dim=-1))


def whole_attention(layers: Layers, row: int, kept: torch.Tensor | None) -> torch.Tensor:
    """Return an encoder's attention of one row, shape ``(layers, heads, source, source)``, float16, without padding."""
    weights = torch.stack([layer[row].half().cpu() for layer in layers])
    return weights if kept is None else weights[:, :, kept][..., kept]


def uneven(layers: Layers) -> bool:
    """Tell whether layers differ in heads or sizes, so that they cannot be kept as one."""
    # Heads are the second axis of attention, the size is the last one of hidden states.
    return len({layer.shape[1] if layer.dim() == 4 else layer.shape[-1] for layer in layers}) > 1


def _aligned(weights: torch.Tensor, seen: int) -> torch.Tensor:
    """Give attention ``(..., keys)`` one key for each token seen.

    A sliding window leaves out the oldest, on which the weight is 0. A static cache, of a window also while that is not
    full, has places behind the newest.
    """
    missing = seen - weights.shape[-1]
    return torch.nn.functional.pad(weights, (missing, 0)) if missing > 0 else weights[..., :seen]


def columns(weights: torch.Tensor, kept: torch.Tensor | None) -> torch.Tensor:
    """Return the weights on these keys only, or on all."""
    return weights if kept is None else weights[..., kept]
