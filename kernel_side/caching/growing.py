"""A dynamic cache layer that appends in place, and the room behind keys and values that it writes into.

The library's layer joins all that it holds with what is new, in every step: a copy of the whole cache a token, and a
tenth of a step's time on the demo model behind 1,000 tokens. This one keeps room behind what it holds, a part of its
length, and copies only when the room is used up. What it returns is a view of the first positions of a larger tensor,
each head's positions one after the other as ever, so what attention computes from it is the same in every bit.

The first positions may belong to somebody else, who must never see a change: a node of a prefix cache lends the room
behind it to one layer at a time (:class:`Room`). Not here: which node, and when (``lease``, ``tree``).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from transformers.cache_utils import DynamicLayer

__all__ = ["GrowingLayer", "Room", "room_behind", "with_room"]

_SHARE = 16
"""Room is a sixteenth of what is held: a copy of everything comes as often as that many tokens are new."""

_LEAST = 32
"""Positions of room that a layer makes itself at least. What is kept for later has none of this."""


def room_behind(tokens: int) -> int:
    """Return how many positions of room keys and values of so many tokens are stored with."""
    return tokens // _SHARE


def with_room(tensor: torch.Tensor, room: int) -> torch.Tensor:
    """Return a copy of keys or values, as a view of a tensor with so many more positions that hold nothing yet.

    Parameters
    ----------
    tensor : torch.Tensor
        Shape ``(rows, heads, positions, dimension)``.
    room : int
    """
    rows, heads, held, dimension = tensor.shape
    whole = tensor.new_empty(rows, heads, held + room, dimension)[:, :, :held]
    whole.copy_(tensor)
    return whole


@dataclass(frozen=True, slots=True)
class Room:
    """Where a layer may write.

    Attributes
    ----------
    keys, values : torch.Tensor
        Shape ``(rows, heads, capacity, dimension)``.
    first : int
        Positions before this one are somebody else's: they are read only.
    borrowed : object or None
        Lives as long as somebody may write here; None where the tensors are the layer's own.
    """

    keys: torch.Tensor
    values: torch.Tensor
    first: int = 0
    borrowed: object = None

    @staticmethod
    def behind(keys: torch.Tensor, values: torch.Tensor, borrowed: object = None) -> Room:
        """Return the room behind tensors that :func:`with_room` made, all of which are somebody else's."""
        return Room(_whole(keys), _whole(values), keys.shape[2], borrowed)

    def takes(self, keys: torch.Tensor, more: int) -> bool:
        """Return whether so many positions can be written behind what a layer holds."""
        held = keys.shape[2]
        same = keys.data_ptr() == self.keys.data_ptr() and keys.stride() == self.keys.stride()
        if not same or keys.shape[0] != self.keys.shape[0]:
            return False  # somebody has picked rows, or moved them
        if self.keys.is_inference() and not torch.is_inference_mode_enabled():
            return False  # such tensors are written nowhere else
        return self.first <= held <= self.keys.shape[2] - more


class GrowingLayer(DynamicLayer):
    """The library's layer (transformers 5.24) for whoever uses it, see the module.

    Nothing is written in place but positions behind those that it was given to begin with. Where something else than
    appending is done to its tensors in every step, as beam search does, it joins them as the library's does.
    """

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # transformers 5.24
        self._room: Room | None = None
        self._given: torch.Tensor | None = None  # the keys as they were left behind the last pass

    def hold(self, keys: torch.Tensor, values: torch.Tensor, room: Room | None = None) -> None:
        """Begin with keys and values, which are not written to, and maybe with room behind them."""
        self.lazy_initialization(keys, values)
        self.keys, self.values, self._given, self._room = keys, values, keys, room

    def update(self, key_states: torch.Tensor, value_states: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        """See the library's layer."""
        more = key_states.shape[2]
        if not self.is_initialized or key_states.requires_grad or not self._make_room(more):
            given = super().update(key_states, value_states, *args, **kwargs)
            self._given = self.keys
            return given
        assert self._room is not None
        assert self.keys is not None
        held = self.keys.shape[2]
        for whole, new in ((self._room.keys, key_states), (self._room.values, value_states)):
            whole[:, :, held : held + more] = new
        self.keys, self.values = (one[:, :, : held + more] for one in (self._room.keys, self._room.values))
        self._given = self.keys
        return self.keys, self.values

    def reset(self) -> None:
        """See the library's layer."""
        super().reset()
        self._room = self._given = None

    def _make_room(self, more: int) -> bool:
        """Return whether there is room behind what is held, or there was reason to make it."""
        keys, values = self.keys, self.values
        assert keys is not None
        assert values is not None
        if self._room is not None and self._room.takes(keys, more) and values.shape[2] == keys.shape[2]:
            return True
        self._room = None
        if keys is not self._given or keys.dim() != 4 or values.shape[:3] != keys.shape[:3]:
            return False
        room = more + max(_LEAST, keys.shape[2] // _SHARE)
        self.keys, self.values = with_room(keys, room), with_room(values, room)
        self._room = Room(_whole(self.keys), _whole(self.values))
        return True


def _whole(tensor: torch.Tensor) -> torch.Tensor:
    """Return keys or values with the room behind them."""
    rows, heads, held, dimension = tensor.shape
    room = tensor.untyped_storage().nbytes() // tensor.element_size() // (rows * heads * dimension) - held
    return tensor.as_strided((rows, heads, held + room, dimension), tensor.stride())
