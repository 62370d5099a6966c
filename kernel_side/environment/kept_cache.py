"""Keeps the KV of histories from one turn to the next, and makes one cache of them for the next batch.

After a turn the rows of a batch differ in length: each ended at its own token, tools answered at length or in a word,
and finished rows leave. So the KV of each row is taken out of the batch that it was computed in, and the next batch
gets a cache of its own: rows padded on the left, as their ids are, and without gaps, which sliding windows could not
pass over. The cache that a turn works on is never one that something else still needs.

Kept are layers that hold keys and values by position: full attention, and sliding windows, which record all that passes
through them and so take as much memory as the others. For all else :func:`why_not_kept` says why it is computed anew.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from transformers import DynamicCache
from transformers.cache_utils import DynamicLayer, DynamicSlidingWindowLayer

from ..decoding.tap_prompt import is_recurrent

__all__ = ["KeptRow", "Packed", "empty_cache", "kept_rows", "matching", "pack", "why_not_kept"]

_MOVING_ROPE = {"dynamic", "longrope"}
"""RoPE that turns all positions otherwise once a sequence passes a length."""


@dataclass(frozen=True, slots=True)
class KeptRow:
    """The KV of the first tokens of one history.

    Attributes
    ----------
    cache : DynamicCache
        Of the batch that it was computed in.
    row, begin : int
        Where it lies there: its row, and its first column.
    ids : tuple of int
        The tokens whose KV is there.
    """

    cache: DynamicCache
    row: int
    begin: int
    ids: tuple[int, ...]

    @property
    def length(self) -> int:
        """Tokens whose KV is there."""
        return len(self.ids)


@dataclass(frozen=True, slots=True)
class Packed:
    """A cache for a batch, and the number of tokens of each row that it holds."""

    cache: DynamicCache
    reused: tuple[int, ...]


def why_not_kept(model: Any, asked: Mapping[str, Any]) -> str | None:
    """Say why the KV of this model, generating like this, cannot be kept; None when it can.

    Parameters
    ----------
    model : PreTrainedModel
    asked : mapping
        Arguments of ``generate`` that are in effect.
    """
    name = type(model).__name__
    if model.config.is_encoder_decoder:
        return f"the encoder of {name} reads the whole history anew in each turn"
    if is_recurrent(model):
        return f"{name} is recurrent: its state cannot be taken back to the end of a segment"
    if asked.get("use_cache") is False:
        return "generation_kwargs say use_cache=False"
    implementation = asked.get("cache_implementation")
    if implementation not in (None, "dynamic"):
        return f"generation_kwargs ask for the cache {implementation!r}, and only a dynamic one is kept"
    if (asked.get("num_beams") or 1) > 1:
        return "a beam search moves its hypotheses between the rows of its cache"
    for argument in ("assistant_model", "prompt_lookup_num_tokens", "assistant_early_exit"):
        if asked.get(argument) is not None:
            return f"generation_kwargs have {argument}, and drafts do not go with a cache that is begun"
    config = model.config.get_text_config(decoder=True)
    rope = _moving_rope(getattr(config, "rope_parameters", None))
    if rope is not None:
        return f"{name} has RoPE of the type {rope!r}, which turns earlier positions anew when the text grows"
    if "chunked_attention" in (getattr(config, "layer_types", None) or ()):
        return f"{name} attends in chunks, which begin elsewhere when the padding changes"
    for layer in DynamicCache(config=config).layers:
        if type(layer) not in (DynamicLayer, DynamicSlidingWindowLayer):
            return f"{name} has a cache layer of the kind {type(layer).__name__}, which is not kept by position"
    return None


def _moving_rope(parameters: Any) -> str | None:
    """Return the type that moves, of parameters that may be nested by the kind of the layer."""
    if not isinstance(parameters, Mapping):
        return None
    kind = parameters.get("rope_type", parameters.get("type"))
    if kind in _MOVING_ROPE:
        return str(kind)
    return next((found for nested in parameters.values() if (found := _moving_rope(nested))), None)


def empty_cache(model: Any) -> DynamicCache:
    """Return a cache whose sliding layers keep all that passes through them."""
    cache = DynamicCache(config=model.config.get_text_config(decoder=True))
    cache.activate_past_recording()
    return cache


def pack(model: Any, kept: Sequence[KeptRow | None], tokens: Sequence[Sequence[int]]) -> Packed:
    """Make the cache of a batch from what is kept of its rows.

    A cache holds the same columns of all rows. The row with the most new tokens says how many: what others have beyond
    is computed once more, in columns that would be padding otherwise.

    Parameters
    ----------
    model : PreTrainedModel
    kept : sequence of (KeptRow or None)
        None where nothing is kept. What belongs to other tokens is not used.
    tokens : sequence of sequence of int
        Each row as a whole; at least one token more than are kept of it.
    """
    lengths = [len(row) for row in tokens]
    rows = matching(kept, tokens)
    width = max(lengths)
    new = max(length - (0 if row is None else row.length) for row, length in zip(rows, lengths, strict=True))
    columns = width - new
    cache = empty_cache(model)
    reused = tuple(max(0, length - new) for length in lengths)
    if columns <= 0 or not any(reused):
        return Packed(cache, (0,) * len(rows))
    first = next(row for row in rows if row is not None)
    layers: list[Any] = cache.layers
    for index, layer in enumerate(layers):
        source: Any = first.cache.layers[index]
        if not source.is_initialized:  # shares the KV of another layer
            continue
        layer.lazy_initialization(source.keys, source.values)
        layer.keys = _gathered([_of(row, index, "keys") for row in rows], source.keys, reused, columns)
        layer.values = _gathered([_of(row, index, "values") for row in rows], source.values, reused, columns)
        if isinstance(layer, DynamicSlidingWindowLayer):
            layer.cumulative_length = columns
    return Packed(cache, reused)


def matching(kept: Sequence[KeptRow | None], tokens: Sequence[Sequence[int]]) -> list[KeptRow | None]:
    """Leave out what is kept of other tokens than each row begins with."""
    return [
        one if one is not None and one.ids == tuple(row[: one.length]) else None
        for one, row in zip(kept, tokens, strict=True)
    ]


def _of(row: KeptRow | None, index: int, name: str) -> torch.Tensor | None:
    if row is None:
        return None
    states: torch.Tensor = getattr(row.cache.layers[index], name)
    return states[row.row, :, row.begin : row.begin + row.length]


def _gathered(
    rows: Sequence[torch.Tensor | None], like: torch.Tensor, reused: Sequence[int], columns: int
) -> torch.Tensor:
    """Return the first ``reused`` positions of each row, shape ``(rows, heads, columns, size)``, zeros before them."""
    states = like.new_zeros((len(rows), like.shape[1], columns, like.shape[3]))
    for index, (row, count) in enumerate(zip(rows, reused, strict=True)):
        if row is not None and count:
            states[index, :, columns - count :] = row[:, :count]
    return states


def kept_rows(
    cache: DynamicCache, tokens: Sequence[Sequence[int]], generated: Sequence[Sequence[int]]
) -> list[KeptRow | None]:
    """Say where the KV of each row lies in the cache of a batch that has generated.

    Parameters
    ----------
    cache : DynamicCache
    tokens, generated : sequence of sequence of int
        Each row before the generation, and what of it became its history.

    Returns
    -------
    list of (KeptRow or None)
        None where the cache is not as it should be, so that nothing wrong can be reused.
    """
    width, total = max(map(len, tokens)), cache.get_seq_length()
    layers: list[Any] = cache.layers
    filled = [layer for layer in layers if layer.is_initialized]
    whole = all(layer.keys is not None and layer.keys.shape[-2] == total for layer in filled)
    if not filled or not whole or total < width:
        return [None] * len(tokens)
    kept: list[KeptRow | None] = []
    for index, (row, new) in enumerate(zip(tokens, generated, strict=True)):
        begin = width - len(row)
        # The KV of a batch's last token is computed when the next one is asked for.
        kept.append(KeptRow(cache, index, begin, (*row, *new)[: total - begin]))
    return kept
