"""Prefix caches filled without running a model: keys and values are a function of the ids up to each position.

So a wrong one is seen at once, and thousands of look-ups take seconds.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import torch
from transformers import LlamaConfig, LlamaForCausalLM

from genscope.kernel_side.caching.growing import room_behind
from genscope.kernel_side.caching.lease import Lease
from genscope.kernel_side.caching.prefix_cache import PrefixCache
from genscope.kernel_side.caching.tree import Node

LAYERS, HEADS, SIZE = 2, 2, 4
A_TOKEN = LAYERS * HEADS * SIZE * 2 * 4
"""Bytes that a token takes."""


@functools.cache
def small_model(seed: int = 0) -> Any:
    """Make the smallest model that a lease can be for."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        config = LlamaConfig(
            vocab_size=8,
            hidden_size=HEADS * SIZE,
            intermediate_size=8,
            num_hidden_layers=LAYERS,
            num_attention_heads=HEADS,
        )
        return LlamaForCausalLM(config).eval()


def expected(ids: Sequence[int], layer: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the keys and values of a sequence, ``(1, heads, tokens, size)``, each position's of all ids up to it."""
    state, values = layer + 1, []
    for one in ids:
        state = (state * 31 + one + 1) % 1_000_003
        values.append(float(state))
    column = torch.tensor(values)[None, None, :, None]
    shape = torch.arange(HEADS * SIZE).view(1, HEADS, 1, SIZE)
    return column + shape, column - shape


def compute(lease: Lease, rows: Sequence[Sequence[int]], cache: Any) -> None:
    """Do what forward passes would: put in what the cache does not hold of rows of one length, padding left out."""
    for layer in range(LAYERS):
        pairs = [expected(row, layer) for row in rows]
        for which in (0, 1):
            assert len({pair[which].shape for pair in pairs}) == 1
        keys, values = (torch.cat([pair[which] for pair in pairs])[:, :, lease.columns :] for which in (0, 1))
        cache.update(keys, values, layer)


def check_fork(lease: Lease, cache: Any) -> None:
    """Compare what a fork holds with what it should."""
    for layer in range(LAYERS):
        held = cache.layers[layer]
        if not lease.columns:
            assert not held.is_initialized
            continue
        for row, prompt in enumerate(lease.prompts):
            real = max(0, lease.columns - lease.pad(row))
            for copy in range(lease.copies):
                at = row * lease.copies + copy
                for ours, theirs in zip((held.keys, held.values), expected(prompt[:real], layer), strict=True):
                    assert ours.shape[2] == lease.columns
                    assert torch.equal(
                        ours[at : at + 1, :, lease.columns - real :],
                        theirs.expand_as(ours[at : at + 1, :, lease.columns - real :]),
                    )
                    assert not ours[at, :, : lease.columns - real].any()


def nodes_of(prefixes: PrefixCache) -> list[Node]:
    """Return all nodes that a cache holds."""
    return prefixes._shelf.nodes


def check_account(prefixes: PrefixCache) -> None:
    """Compare bytes accounted with bytes held, by unique storage, with the budget, and contents with what they should be."""
    nodes = nodes_of(prefixes)
    tensors = [one for node in nodes for pair in node.layers for one in pair or ()]
    storages = {one.untyped_storage().data_ptr(): one.untyped_storage().nbytes() for one in tensors}
    stats = prefixes.stats()
    assert len(storages) == len(tensors)
    assert stats.nbytes == sum(storages.values()) == sum(node.nbytes for node in nodes)
    assert stats.nbytes <= prefixes.max_bytes
    assert stats.tokens == sum(len(node.ids) for node in nodes)
    for node in nodes:
        path = [one for above in node.path() for one in above.ids]
        start = len(path) - len(node.ids)
        room = room_behind(len(node.ids)) if node.parent is not None and node.parent.parent is None else 0
        assert node.nbytes == (len(node.ids) + room) * A_TOKEN
        assert all(child.parent is node and child.ids[0] == first for first, child in node.children.items())
        for layer, pair in enumerate(node.layers):
            assert pair is not None
            for ours, theirs in zip(pair, expected(path, layer), strict=True):
                assert torch.equal(ours, theirs[:, :, start:])
