"""A forward pass as a pure function of tensors, which tracers and exporters can follow.

    step(ids, positions?, masks..., keys.0, values.0, ...) -> (logits, keys.0', values.0', ...)

The model's own code runs inside, on a view of it that shares the weights: masks come from outside (an attention
implementation of our own, which is the library's but has no function that makes masks, keeps it from making others),
and the cache is one that only joins tensors. Keys and values that come out are those of all positions that go in and
the new ones; windows are cut, and real caches written, outside (``writeback``).

Not here: which tensors there are (``situation``), and what is made of a step (``traced`` and its like).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from transformers import DynamicCache, EncoderDecoderCache
from transformers.cache_utils import DynamicLayer
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.modeling_outputs import BaseModelOutput
from transformers.modeling_utils import AttentionInterface
from transformers.utils import output_capturing

from ..decoding.model_view import view_of
from .situation import Situation

__all__ = ["ATTENTION", "CancelledError", "Step"]

ATTENTION = "genscope_sdpa"
"""The library's attention, under a name for which it makes no masks (``masking_utils`` of transformers 5.24)."""

AttentionInterface.register(ATTENTION, sdpa_attention_forward)


class CancelledError(Exception):
    """Somebody no longer wants the graph that is being made."""


class _Joining(DynamicLayer):
    """A layer that joins what it is given, whatever kind of layer the real one is."""

    def __init__(self, check: Callable[[], None]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # transformers 5.24
        self._check = check

    def update(self, key_states: torch.Tensor, value_states: torch.Tensor, *_: Any, **__: Any) -> Any:
        self._check()
        if not self.is_initialized:
            self.keys, self.values, self.is_initialized = key_states, value_states, True
        else:
            held: Any = (self.keys, self.values)
            self.keys = torch.cat([held[0], key_states], dim=-2)
            self.values = torch.cat([held[1], value_states], dim=-2)
        return self.keys, self.values

    def hold(self, keys: torch.Tensor, values: torch.Tensor) -> None:
        """Begin with these."""
        self.keys, self.values, self.is_initialized = keys, values, True


class Step(nn.Module):
    """The forward pass of a model in one situation.

    Parameters
    ----------
    model : PreTrainedModel
        Is not changed.
    situation : Situation
    names : tuple of str
        Of the tensors, in the order in which they are given.
    """

    def __init__(self, model: Any, situation: Situation, names: tuple[str, ...]) -> None:
        super().__init__()
        implementation = model.config.get_text_config(decoder=True)._attn_implementation
        self.model = view_of(model, attention=ATTENTION if implementation == "sdpa" else None)
        _unhook(self.model)
        self.names = names
        self._situation = situation
        config = model.config.get_text_config(decoder=True)
        self._layers = len(DynamicCache(config=config).layers)
        self.cancelled: Callable[[], bool] = lambda: False
        """Asked while a tracer or an exporter follows the step."""

    def _check(self) -> None:
        if self.cancelled():
            raise CancelledError

    def forward(self, *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """Return logits ``(rows, kept, vocabulary)``, then keys and values of each layer."""
        given = dict(zip(self.names, tensors, strict=True))
        situation = self._situation
        own = self._cache(given, "")
        masks: Any = given.get("mask")
        if situation.patterns is not None:
            masks = {kind: given.get(f"mask.{kind}") for kind in situation.patterns}
        inputs: dict[str, Any] = {"use_cache": True, "return_dict": True}
        if situation.positions:
            inputs["position_ids"] = given["positions"]
        if situation.encoder:
            cross = self._cache(given, "cross_")
            cache = EncoderDecoderCache(own, cross)
            cache.is_updated = dict.fromkeys(range(self._layers), "cross_keys.0" in given)
            inputs |= {
                "decoder_input_ids": given["ids"],
                "decoder_attention_mask": masks,
                "attention_mask": given.get("cross_mask"),
                "encoder_outputs": BaseModelOutput(last_hidden_state=given["encoder"]),
                "cache": cache,
            }
        else:
            cross = None
            inputs |= {"input_ids": given["ids"], "attention_mask": masks, "cache": own}
        if situation.keep != "all" and not situation.one:
            inputs["logits_to_keep"] = 1 if situation.keep == "last" else given["kept"]
        logits = self.model(**inputs).logits
        written: list[Any] = [*own.layers]
        if cross is not None and "cross_keys.0" not in given:
            written += cross.layers
        return (logits, *(tensor for layer in written for tensor in (layer.keys, layer.values)))

    def _cache(self, given: dict[str, torch.Tensor], prefix: str) -> DynamicCache:
        layers = [_Joining(self._check) for _ in range(self._layers)]
        for index, layer in enumerate(layers):
            if f"{prefix}keys.{index}" in given:
                layer.hold(given[f"{prefix}keys.{index}"], given[f"{prefix}values.{index}"])
        cache = DynamicCache()
        cache.layers = [*layers]
        return cache


def _unhook(view: Any) -> None:
    """Take off the hooks by which the library hands outputs out: nobody asks a step, and not all compilers follow them.

    They hang on all modules of a model that was ever asked for hidden states or attentions (transformers 5.24).
    """
    for module in view.modules():
        hooks = module._forward_hooks  # noqa: SLF001 - torch documents no other way to the hooks of others
        for number, hook in list(hooks.items()):
            if getattr(hook, "__module__", None) == output_capturing.__name__:
                del hooks[number]
