"""What a forward pass is asked for, as tensors: which graph fits it, and why none does.

``read`` takes what a decoding loop hands to a model's forward and makes of it a :class:`Call`: the tensors in a fixed
order, and the :class:`Situation` that they are in, which picks the graph. Masks are made here, by the library's own
functions and for the real cache, so that a graph gets one exactly where the model itself would make one: without
padding the graphs take the same attention path as eager, which their bit-equality hangs on.

Not here: graphs (``step``, ``execution``), and how the cache is written back (``writeback``).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from transformers import DynamicCache, EncoderDecoderCache
from transformers.cache_utils import DynamicLayer, DynamicSlidingWindowLayer
from transformers.masking_utils import create_bidirectional_mask, create_masks_for_generate

from ..caching.growing import GrowingLayer
from ..caching.remembering import RememberingSliding
from .few_rows import MOST

__all__ = ["Call", "CannotError", "Situation", "read"]

_LAYERS = (DynamicLayer, GrowingLayer, DynamicSlidingWindowLayer, RememberingSliding)
_READ = {"input_ids", "attention_mask", "position_ids", "cache", "use_cache", "logits_to_keep", "return_dict"}
_READ_BEHIND_ENCODER = {
    "decoder_input_ids",
    "attention_mask",
    "decoder_attention_mask",
    "encoder_outputs",
    "cache",
    "use_cache",
    "return_dict",
}
_ASKED = {
    "output_attentions": "attentions are asked for",
    "output_hidden_states": "hidden states are asked for",
}


class CannotError(Exception):
    """Why a forward pass runs eagerly, for a person; short, since reasons are counted."""


@dataclass(frozen=True, slots=True)
class Situation:
    """Passes that one graph serves, whatever their lengths and rows.

    Attributes
    ----------
    one : bool
        Whether a single token is fed.
    cached : bool
        Whether the cache holds something.
    rows : int or None
        How many rows there are, where they are few (:data:`.few_rows.MOST`); None where they are more.
    masks : tuple of str
        Which masks there are: ``"mask"``, ``"mask.sliding_attention"``, ``"cross_mask"`` and the like.
    patterns : tuple of str, or None
        Names of the masks that the model takes by kind of layer; None where it takes one for all.
    keep : {"last", "some", "all"}
        Which positions' logits are asked for.
    positions : bool
        Whether positions are told.
    encoder : bool
        Whether there is an encoder.
    """

    one: bool
    cached: bool
    rows: int | None
    masks: tuple[str, ...]
    patterns: tuple[str, ...] | None
    keep: str
    positions: bool
    encoder: bool

    def __str__(self) -> str:
        """Say it as a person would."""
        what = "one token" if self.one else "several tokens"
        where = "on a cache" if self.cached else "from the start"
        rows = "" if self.rows == 1 else ", several rows" if self.rows is None else f", {self.rows} rows"
        masked = ", masked" if any(name != "cross_mask" for name in self.masks) else ""
        logits = {"last": "", "some": ", logits of some", "all": ", logits of all"}[self.keep]
        return f"{what} {where}{rows}{masked}{logits}"


@dataclass(frozen=True, slots=True)
class Call:
    """A forward pass as tensors.

    Attributes
    ----------
    situation : Situation
    tensors : dict
        By name, in the order in which a graph takes them: ``ids`` and ``positions`` of shape ``(rows, tokens)``, masks
        of shape ``(rows, 1, tokens, columns)``, ``kept`` of shape ``(tokens to keep,)``, ``encoder`` of shape
        ``(rows, source, size)``, then ``keys.0``, ``values.0`` and so on, of shape ``(rows, heads, columns, size)``,
        and those of the cross attention.
    cache : transformers.Cache
        To be written to.
    """

    situation: Situation
    tensors: dict[str, torch.Tensor]
    cache: Any


def read(model: Any, inputs: Mapping[str, Any]) -> Call:
    """Read what a decoding loop hands to a model's forward.

    Parameters
    ----------
    model : PreTrainedModel
    inputs : mapping
        The keyword arguments.

    Raises
    ------
    CannotError
        Where no graph can serve it.
    """
    encoder = bool(model.config.is_encoder_decoder)
    config = model.config.get_text_config(decoder=True)
    for name, reason in _ASKED.items():
        if inputs.get(name):
            raise CannotError(reason)
    known = _READ_BEHIND_ENCODER if encoder else _READ
    for name, value in inputs.items():
        if name not in known and value is not None and value is not False:
            raise CannotError(f"{name} is given")
    cache = inputs.get("cache")
    if cache is None and inputs.get("use_cache") and not encoder:
        cache = DynamicCache(config=config)  # as the model itself makes one
    if cache is None or not inputs.get("use_cache", True):
        raise CannotError("there is no cache")
    own = cache.self_attention_cache if encoder and isinstance(cache, EncoderDecoderCache) else cache
    if encoder is not isinstance(cache, EncoderDecoderCache):
        raise CannotError(f"its cache is a {type(cache).__name__}")
    if encoder and not own.layers:
        raise CannotError("its cache has no layers yet")
    ids = inputs.get("decoder_input_ids" if encoder else "input_ids")
    if ids is None:
        raise CannotError("embeddings are given in place of ids")
    positions = inputs.get("position_ids")
    if ids.dim() != 2 or (positions is not None and positions.dim() != 2):
        raise CannotError("ids or positions have more dimensions than rows and tokens")
    rows, fed = ids.shape
    held = _held(own)
    tensors = {"ids": ids}
    if positions is not None:
        tensors["positions"] = positions.expand(rows, fed)
    masks, patterns = _masks(model, config, inputs, ids, own, encoder=encoder)
    tensors |= masks
    keep = _keep(inputs, fed)
    if keep == "some":
        count = int(inputs["logits_to_keep"])
        tensors["kept"] = torch.arange(fed - count, fed, device=ids.device)
    if encoder:
        tensors["encoder"] = _encoder_states(inputs)
    if held:
        for index, layer in enumerate(own.layers):
            tensors |= {f"keys.{index}": layer.keys, f"values.{index}": layer.values}
    if encoder and all(cache.is_updated.values()):
        if not held:
            raise CannotError("what the encoder gave is cached, and nothing of the decoder is")
        for index, layer in enumerate(cache.cross_attention_cache.layers):
            tensors |= {f"cross_keys.{index}": layer.keys, f"cross_values.{index}": layer.values}
    elif encoder and held:
        raise CannotError("nothing of the encoder is cached behind a decoder's tokens")
    situation = Situation(
        one=fed == 1,
        cached=bool(held),
        rows=rows if rows <= MOST else None,
        masks=tuple(masks),
        patterns=patterns,
        keep=keep,
        positions=positions is not None,
        encoder=encoder,
    )
    return Call(situation, tensors, cache)


def _held(cache: Any) -> int:
    """Return how many positions the layers hold; raises for layers that are no plain keys and values."""
    for layer in cache.layers:
        if type(layer) not in _LAYERS:  # a subclass may keep more, or in another way
            raise CannotError(f"its cache has layers of the class {type(layer).__name__}")
    lengths = {layer.get_seq_length() for layer in cache.layers} or {0}  # one without a config has no layers yet
    if len(lengths) != 1:
        raise CannotError("layers of its cache hold different lengths")
    return int(lengths.pop())


def _keep(inputs: Mapping[str, Any], fed: int) -> str:
    asked = inputs.get("logits_to_keep", 0)
    if isinstance(asked, torch.Tensor):
        raise CannotError("logits of chosen positions are asked for")
    if asked == 1 or fed == 1:
        return "last"
    return "some" if 0 < asked < fed else "all"


def _encoder_states(inputs: Mapping[str, Any]) -> torch.Tensor:
    outputs = inputs.get("encoder_outputs")
    if outputs is None:
        raise CannotError("the encoder has not read yet")
    states: torch.Tensor = outputs[0]
    return states


def _masks(
    model: Any, config: Any, inputs: Mapping[str, Any], ids: torch.Tensor, cache: Any, *, encoder: bool
) -> tuple[dict[str, torch.Tensor], tuple[str, ...] | None]:
    """Make the masks that the model would make; those that it leaves out are not there."""
    rows, implementation = ids.shape[0], config._attn_implementation
    if implementation not in ("sdpa", "eager"):
        raise CannotError(f"its attention implementation is {implementation!r}")
    # The library reads shape, dtype and device of it, no value.
    like = torch.empty(*ids.shape, 1, dtype=model.dtype, device=ids.device)
    given = inputs.get("decoder_attention_mask" if encoder else "attention_mask")
    made = create_masks_for_generate(config, like, given, cache, position_ids=inputs.get("position_ids"))
    patterns = tuple(sorted(made)) if isinstance(made, dict) else None
    by_name = {f"mask.{kind}": made[kind] for kind in patterns} if patterns is not None else {"mask": made}
    if encoder:
        states = _encoder_states(inputs)
        source = inputs.get("attention_mask")
        cross = create_bidirectional_mask(config, like, source, encoder_hidden_states=states)
        by_name["cross_mask"] = cross
    masks = {}
    for name, mask in by_name.items():
        if mask is None:
            continue
        if not isinstance(mask, torch.Tensor) or mask.dim() != 4:
            raise CannotError("its masks are no plain tensors")
        masks[name] = mask.expand(rows, *mask.shape[1:])
    if implementation == "eager" and len(masks) < len(by_name):
        raise CannotError("eager attention without a mask")
    return masks, patterns
