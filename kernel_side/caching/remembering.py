"""Cache layers and caches that tell more about what went through them than those of ``transformers`` 5.24.

They behave as the library's in every bit. Not here: what is made of them (``layers``).
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import torch
from transformers import Cache, DynamicCache
from transformers.cache_utils import (
    DynamicSlidingWindowLayer,
    LinearAttentionCacheLayerMixin,
    StaticSlidingWindowLayer,
)

__all__ = ["CountingCache", "Remembering", "RememberingSliding", "RememberingStaticSliding"]


class Remembering:
    """A sliding window that also keeps what it forgets, for whoever stores it; the run sees no difference.

    Attributes
    ----------
    seen : list of tuple of torch.Tensor
        Keys and values of all positions so far, in stretches.
    """

    seen: list[tuple[torch.Tensor, torch.Tensor]]

    def update(self, key_states: torch.Tensor, value_states: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        """See the library's layer."""
        self.seen.append((_alone(key_states), _alone(value_states)))
        return super().update(key_states, value_states, *args, **kwargs)  # type: ignore[misc]  # a mixin: the base is a layer

    def reset(self) -> None:
        """See the library's layer."""
        self.seen = []
        super().reset()  # type: ignore[misc]  # a mixin: the base is a layer

    def reorder_cache(self, beam_idx: torch.Tensor) -> None:
        """See the library's layer."""
        super().reorder_cache(beam_idx)  # type: ignore[misc]  # a mixin: the base is a layer
        self._pick(lambda one: one.index_select(0, beam_idx.to(one.device)))

    def all_seen(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Return keys and values of all positions, each ``(rows, heads, positions, dimension)``."""
        if len(self.seen) > 1:
            keys, values = (torch.cat(parts, dim=-2) for parts in zip(*self.seen, strict=True))
            self.seen = [(keys, values)]
        return self.seen[0]

    def _pick(self, picked: Any) -> None:
        if self.seen:
            keys, values = self.all_seen()
            self.seen = [(picked(keys), picked(values))]


class RememberingSliding(Remembering, DynamicSlidingWindowLayer):
    """A sliding window of a dynamic cache, see :class:`Remembering`."""

    def __init__(self, sliding_window: int) -> None:
        super().__init__(sliding_window=sliding_window)
        self.seen = []

    def crop(self, tokens_to_remove: int) -> None:
        """See the library's layer."""
        super().crop(tokens_to_remove)
        if tokens_to_remove:
            self._pick(lambda one: one[:, :, : -abs(tokens_to_remove)])

    def batch_repeat_interleave(self, repeats: int) -> None:
        """See the library's layer."""
        super().batch_repeat_interleave(repeats)
        self._pick(lambda one: one.repeat_interleave(repeats, dim=0))

    def batch_select_indices(self, indices: torch.Tensor) -> None:
        """See the library's layer."""
        super().batch_select_indices(indices)
        self._pick(lambda one: one[indices, ...])


class RememberingStaticSliding(Remembering, StaticSlidingWindowLayer):
    """A sliding window of a static cache, see :class:`Remembering`."""

    def __init__(self, max_cache_len: int, sliding_window: int) -> None:
        super().__init__(max_cache_len=max_cache_len, sliding_window=sliding_window)
        self.seen = []


class CountingCache(DynamicCache):
    """The cache of a recurrent model, which counts forward passes: its states have no length that could be asked for.

    Counted are the times that a layer's state was asked for, once a pass (what follows works on it in place).
    """

    def __init__(self, layers: list[Any]) -> None:
        Cache.__init__(self, layers=layers)
        self._asked = {"conv": Counter[int](), "recurrent": Counter[int]()}

    def get_conv_state(self, layer_idx: int, state_idx: int = 0) -> torch.Tensor | None:
        """See the library's cache."""
        self._asked["conv"][layer_idx] += state_idx == 0
        return super().get_conv_state(layer_idx, state_idx)

    def get_recurrent_state(self, layer_idx: int, state_idx: int = 0) -> torch.Tensor | None:
        """See the library's cache."""
        self._asked["recurrent"][layer_idx] += state_idx == 0
        return super().get_recurrent_state(layer_idx, state_idx)

    @property
    def passes(self) -> int | None:
        """How many forward passes went through all recurrent layers, None where one did not reach all."""
        recurrent = [at for at, one in enumerate(self.layers) if isinstance(one, LinearAttentionCacheLayerMixin)]
        counts = {max(asked[at] for asked in self._asked.values()) for at in recurrent}
        return counts.pop() if len(counts) == 1 else None


def _alone(tensor: torch.Tensor) -> torch.Tensor:
    """Return a tensor that keeps nothing but itself alive."""
    return tensor if tensor.untyped_storage().nbytes() == tensor.nbytes else tensor.clone()
