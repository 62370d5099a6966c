"""Writes what a graph gave into the cache that the decoding loop goes on with. Not here: graphs."""

from __future__ import annotations

from typing import Any

import torch
from transformers.cache_utils import DynamicLayer

from ..caching.growing import GrowingLayer
from .situation import Call

__all__ = ["write_back"]


def write_back(call: Call, written: tuple[torch.Tensor, ...]) -> None:
    """Put keys and values into the very cache object of a call.

    Parameters
    ----------
    call : Call
    written : tuple of torch.Tensor
        Keys and values of each layer, of all positions that went in and the new ones; where a decoder's first pass
        read the encoder, those of the cross attention behind them.
    """
    cache: Any = call.cache
    fed = call.tensors["ids"].shape[1]
    own = cache.self_attention_cache if call.situation.encoder else cache
    count = len(written) // 2 if not call.situation.encoder else len(own.layers)
    for index, keys, values in zip(range(count), written[::2], written[1::2], strict=False):
        if index >= len(own.layers):
            own.update(keys, values, index)  # a cache without a config makes its layers as they are needed
            continue
        layer = own.layers[index]
        if type(layer) in (DynamicLayer, GrowingLayer):
            # What `update` comes to, without its copy.
            if not layer.is_initialized:
                layer.lazy_initialization(keys, values)
            layer.keys, layer.values = keys, values
        else:
            layer.update(keys[:, :, -fed:], values[:, :, -fed:])
    behind = written[2 * count :]
    if not behind:
        return
    for index, layer in enumerate(cache.cross_attention_cache.layers):
        layer.update(behind[2 * index], behind[2 * index + 1])
        cache.is_updated[index] = True
