"""What the cache classes of ``transformers`` hold, and how it is put into a fresh cache that a run goes on from.

A fork is filled through the layers' own public ``update``, with the keys and values of all positions: what a prefill
does, so it is exact wherever it is cut, for full attention, sliding windows (dynamic or static) and static layers. That
needs the keys and values of *all* positions, also those that a window has left: forks are made of subclasses that
behave as the library's in every bit and keep what passes through (``remembering``).

A recurrent state (Mamba and the like) cannot be cut. It is copied whole, see :class:`Checkpoint`.

The classes are those of transformers 5.24. A class that is not known here is refused: a subclass may keep more than
keys and values. Not here: which prefix is whose (``tree``), batches of rows (``forks``).
"""

from __future__ import annotations

import copy
from typing import Any

import torch
from transformers import DynamicCache, EncoderDecoderCache, StaticCache
from transformers.cache_utils import (
    CacheLayerMixin,
    DummyLayer,
    DynamicLayer,
    DynamicSlidingWindowLayer,
    LinearAttentionAndFullAttentionLayer,
    LinearAttentionAndSlidingWindowAttentionLayer,
    LinearAttentionCacheLayerMixin,
    LinearAttentionLayer,
    StaticLayer,
    StaticSlidingWindowLayer,
)

from .growing import GrowingLayer, Room, with_room
from .remembering import CountingCache, Remembering, RememberingSliding, RememberingStaticSliding
from .tree import Layers

__all__ = [
    "Checkpoint",
    "UncacheableError",
    "fresh_cache",
    "is_recurrent_cache",
    "is_static_cache",
    "known_length",
    "refill",
    "refill_cross",
    "rows_of",
    "take",
    "take_cross",
]


class UncacheableError(ValueError):
    """Why nothing of a run can be reused, for a person."""


_AS_IT_IS = (StaticLayer, DummyLayer)
_COPIED = (DynamicLayer, DynamicSlidingWindowLayer, DummyLayer)
_RECURRENT = (LinearAttentionLayer, LinearAttentionAndFullAttentionLayer, LinearAttentionAndSlidingWindowAttentionLayer)


def fresh_cache(model: Any, kind: str, length: int | None = None) -> Any:
    """Make the empty cache that ``generate`` would make, of layers that remember.

    Parameters
    ----------
    model : PreTrainedModel
    kind : {"dynamic", "static"}
        As ``cache_implementation`` of ``generate``.
    length : int, optional
        Positions that a static cache can hold.

    Raises
    ------
    UncacheableError
        For a kind or a class of layer whose contents cannot be handed on.
    """
    config = model.config.get_text_config(decoder=True)
    if not model._supports_default_dynamic_cache():  # noqa: SLF001 - no public name says so (transformers 5.24)
        raise UncacheableError(f"{type(model).__name__} keeps its state in a cache of its own kind")
    if kind == "dynamic":
        cache: Any = DynamicCache(config=config)
    elif kind == "static":
        if length is None:
            raise ValueError("a static cache needs its length; give length=")
        cache = StaticCache(config=config, max_cache_len=length)
    else:
        raise UncacheableError(
            f"a cache of the kind {kind!r} rounds what it holds, or moves it away: what comes out depends on where the "
            "prompt was cut"
        )
    if is_recurrent_cache(cache):
        return _for_states(model, cache, kind)
    cache.layers = [_remembering(layer, length) for layer in cache.layers]
    if model.config.is_encoder_decoder:
        cross = DynamicCache(config=config)
        if any(type(layer) is not DynamicLayer for layer in cross.layers):
            raise UncacheableError(f"{type(model).__name__} reads its encoder through layers that are not known here")
        cache = EncoderDecoderCache(cache, cross)
    return cache


def _for_states(model: Any, cache: Any, kind: str) -> CountingCache:
    unknown = {type(one).__name__ for one in cache.layers} - {one.__name__ for one in (*_RECURRENT, *_COPIED)}
    if unknown or model.config.is_encoder_decoder:
        raise UncacheableError(f"{type(model).__name__} has recurrent layers in a {kind} cache with {sorted(unknown)}")
    return CountingCache(cache.layers)


def _remembering(layer: Any, length: int | None) -> Any:
    if type(layer) in _AS_IT_IS:
        return layer
    if type(layer) is DynamicLayer:
        return GrowingLayer()
    if type(layer) is DynamicSlidingWindowLayer:
        return RememberingSliding(layer.sliding_window)
    if type(layer) is StaticSlidingWindowLayer:
        assert length is not None
        return RememberingStaticSliding(length, min(length, layer.max_cache_len))
    raise UncacheableError(
        f"layers of the class {type(layer).__name__} are not known here, and may keep more than keys and values"
    )


def is_recurrent_cache(cache: Any) -> bool:
    """Return whether any layer has a state that cannot be cut."""
    return any(isinstance(layer, LinearAttentionCacheLayerMixin) for layer in _own(cache).layers)


def is_static_cache(cache: Any) -> bool:
    """Return whether any layer is written in place."""
    return any(isinstance(layer, StaticLayer) for layer in _own(cache).layers)


def rows_of(cache: Any) -> set[int]:
    """Return how many rows layers have: one number, but after a run that failed while it picked some."""
    layers = [layer for layer in _own(cache).layers if isinstance(layer, CacheLayerMixin)]
    return {one.shape[0] for layer in layers for one in (layer.keys, layer.values) if one is not None and one.dim() > 1}


def known_length(cache: Any) -> int:
    """Return how many positions all attention layers hold: fewer than some do after a pass that was interrupted."""
    return min((_length(layer) for layer in _own(cache).layers if isinstance(layer, CacheLayerMixin)), default=0)


def _length(layer: Any) -> int:
    if isinstance(layer, Remembering):
        return sum(keys.shape[-2] for keys, _ in layer.seen)
    if isinstance(layer, StaticLayer):
        return int(layer.get_seq_length())
    # A run may have failed between the two.
    return min(0 if one is None or one.dim() < 2 else one.shape[-2] for one in (layer.keys, layer.values))


def take(cache: Any, row: int, start: int, stop: int, room: int) -> Layers:
    """Return copies of one row's keys and values of the columns from ``start`` to before ``stop``, with room behind."""

    def own(tensor: torch.Tensor) -> torch.Tensor:
        return with_room(tensor[row : row + 1, :, start:stop], room)

    def of(layer: Any) -> tuple[torch.Tensor, torch.Tensor] | None:
        if isinstance(layer, DummyLayer):
            return None
        keys, values = layer.all_seen() if isinstance(layer, Remembering) else (layer.keys, layer.values)
        return own(keys), own(values)

    return tuple(of(layer) for layer in _own(cache).layers)


def take_cross(cache: Any, row: int, length: int) -> Layers:
    """Return copies of one row's keys and values of what the encoder read, without padding."""
    return tuple(
        (layer.keys[row : row + 1, :, :length].clone(), layer.values[row : row + 1, :, :length].clone())
        for layer in cache.cross_attention_cache.layers
    )


def refill_cross(cache: Any, layers: Layers) -> None:
    """Put keys and values of what the encoder read into an empty cache."""
    for index, pair in enumerate(layers):
        assert pair is not None  # checked when the cache was made
        cache.cross_attention_cache.layers[index].update(*pair)
        cache.is_updated[index] = True


def refill(cache: Any, layers: Layers, borrowed: object = None) -> None:
    """Put keys and values of all positions so far into an empty cache, as a prefill would.

    Parameters
    ----------
    cache : Cache
        Made by :func:`fresh_cache`.
    layers : Layers
        They are shared with the cache, which does not write to them.
    borrowed : object, optional
        Given where layers may write into the room behind them, as long as they keep this.
    """
    for layer, pair in zip(_own(cache).layers, layers, strict=True):
        if pair is None:
            continue
        if isinstance(layer, GrowingLayer):
            # What `update` does, without its copy.
            layer.hold(*pair, room=None if borrowed is None else Room.behind(*pair, borrowed))
        else:
            layer.update(*pair)


class Checkpoint:
    """All that the layers of a recurrent or hybrid model hold behind one sequence, copied.

    Parameters
    ----------
    cache : DynamicCache
        Made by :func:`fresh_cache`.
    row : int
        Which of its rows.
    """

    def __init__(self, cache: Any, row: int) -> None:
        self.layers = [copy.deepcopy(layer) for layer in cache.layers]
        for layer in self.layers:
            layer.reorder_cache(torch.tensor([row]))

    @property
    def nbytes(self) -> int:
        """Bytes of all storages, each counted once."""
        storages = {one.data_ptr(): one.nbytes() for layer in self.layers for one in _storages(layer)}
        return sum(storages.values())

    @staticmethod
    def restore(cache: Any, rows: list[Checkpoint]) -> None:
        """Put copies into an empty cache, one row after the other."""
        cache.layers = [_stack([copy.deepcopy(row.layers[index]) for row in rows]) for index in range(len(cache))]


def _stack(layers: list[Any]) -> Any:
    """Return the first of some layers, with the rows of all."""
    first = layers[0]
    if len(layers) == 1 or isinstance(first, DummyLayer):
        return first
    for name in ("keys", "values"):
        if isinstance(getattr(first, name, None), torch.Tensor):
            setattr(first, name, torch.cat([getattr(layer, name) for layer in layers]))
    for name in ("conv_states", "recurrent_states"):
        for index, tensor in getattr(first, name, {}).items():
            if tensor is not None:
                getattr(first, name)[index] = torch.cat([getattr(layer, name)[index] for layer in layers])
    return first


def _storages(layer: Any) -> list[Any]:
    states = [*getattr(layer, "conv_states", {}).values(), *getattr(layer, "recurrent_states", {}).values()]
    tensors = [getattr(layer, "keys", None), getattr(layer, "values", None), *states]
    return [one.untyped_storage() for one in tensors if isinstance(one, torch.Tensor)]


def _own(cache: Any) -> Any:
    """Return the decoder's own part of an encoder-decoder model's cache."""
    return cache.self_attention_cache if isinstance(cache, EncoderDecoderCache) else cache
