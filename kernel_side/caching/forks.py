"""Makes of known prefixes, one a row, the cache that a batch goes on from.

Rows are as long as the longest, padded on the left, each maybe several times (beams, several sequences). A cache has as
many columns in all rows, so the row of which the least is known decides; where a row still has padding its columns are
zero, and masked. Not here: what is known (``tree``), and when tensors may be shared (``layers``).
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from .tree import Layers, Node

__all__ = ["beginning", "repeat", "stack"]


def beginning(node: Node, length: int) -> Layers:
    """Return keys and values of the first ``length`` ids on the way to the end of a node.

    Those of a single node are its own ``layers`` or views of them, else they are copies.
    """
    parts: list[Layers] = []
    for one in node.path():
        if one.layers and length > 0:
            here = min(length, len(one.ids))
            parts.append(one.layers if here == len(one.ids) else _cut(one.layers, here))
            length -= here
    if len(parts) <= 1:
        return parts[0] if parts else ()
    return _join(parts, dim=-2)


def stack(rows: Sequence[Layers], lengths: Sequence[int], columns: int, *, left: bool) -> Layers:
    """Make one batch of rows.

    Parameters
    ----------
    rows : sequence of Layers
        Each row's own; empty of a row with none.
    lengths : sequence of int
        How many columns each row has.
    columns : int
        How many the batch has. What is missing is filled with zeros.
    left : bool
        On which side it is missing.
    """
    if len(rows) == 1 and lengths[0] == columns:
        return rows[0]
    model = next(row for row in rows if row)
    whole = []
    for row, length in zip(rows, lengths, strict=True):
        missing = columns - length
        zeros = tuple(None if pair is None else (_zeros(pair[0], missing), _zeros(pair[1], missing)) for pair in model)
        if not row:
            whole.append(zeros)
        elif missing:
            whole.append(_join([zeros, row] if left else [row, zeros], dim=-2))
        else:
            whole.append(row)
    return _join(whole, dim=0)


def repeat(layers: Layers, copies: int) -> Layers:
    """Return each row ``copies`` times, one after the other."""
    if copies == 1:
        return layers

    def repeated(tensor: torch.Tensor) -> torch.Tensor:
        # One row's copies share their tensor until the first step.
        if tensor.shape[0] == 1:
            return tensor.expand(copies, *tensor.shape[1:])
        return tensor.repeat_interleave(copies, dim=0)

    return tuple(None if pair is None else (repeated(pair[0]), repeated(pair[1])) for pair in layers)


def _cut(layers: Layers, length: int) -> Layers:
    return tuple(None if pair is None else (pair[0][:, :, :length], pair[1][:, :, :length]) for pair in layers)


def _join(parts: Sequence[Layers], dim: int) -> Layers:
    return tuple(
        None
        if pairs[0] is None
        else (torch.cat([one[0] for one in pairs], dim), torch.cat([one[1] for one in pairs], dim))
        for pairs in zip(*parts, strict=True)
    )


def _zeros(like: torch.Tensor, columns: int) -> torch.Tensor:
    return like.new_zeros(1, like.shape[1], columns, like.shape[3])
