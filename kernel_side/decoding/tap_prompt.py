"""Looks at what goes into a generation: which rows the prompt has, its logits, and what an encoder read.

Passes of its own where the run's own pass does not give what was asked for, so that the run stays as it is.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from transformers import PreTrainedModel

from ..streaming.outputs import Field, PromptOutput, SourceOutput
from .tap import Call, UnobservableError

__all__ = [
    "attention_implementation",
    "check_fields_of_model",
    "hidden_layers_of",
    "prompt_logits",
    "prompt_of",
    "source_of",
]


def attention_implementation(model: PreTrainedModel) -> str:
    """Return how a model computes attention; only ``"eager"`` returns it."""
    return str(model.config._attn_implementation)


def is_recurrent(model: PreTrainedModel) -> bool:
    """Return whether a model carries a state that cannot take several tokens at once, nor go back."""
    return bool(model._is_stateful)  # noqa: SLF001 - no public name says so (transformers 5.24)


def check_fields_of_model(model: PreTrainedModel, fields: frozenset[Field]) -> None:
    """Refuse what this model cannot give.

    Raises
    ------
    UnobservableError
        For attentions of an implementation that the library answers with silent empty tuples (transformers 5.24), and
        for prompt logits of an encoder-decoder model.
    """
    implementation = attention_implementation(model)
    if "attentions" in fields and implementation != "eager":
        msg = (
            f"attentions cannot be observed with the attention implementation {implementation!r}, which returns none; "
            "run a view of it, view_of(model, attention='eager').generate(...), which leaves the model as it is"
        )
        raise UnobservableError(msg)
    if "prompt_logits" in fields and model.config.is_encoder_decoder:
        msg = "an encoder-decoder model has no logits of its prompt, which its encoder reads; leave prompt_logits out"
        raise UnobservableError(msg)


def hidden_layers_of(model: PreTrainedModel, layers: Sequence[int] | None) -> tuple[int, ...] | None:
    """Return layers counted from the front, None for all.

    Raises
    ------
    UnobservableError
        For a layer that the model, of an encoder-decoder model the decoder, does not have.
    """
    if layers is None:
        return None
    count: int = model.config.get_text_config(decoder=True).num_hidden_layers + 1
    if wrong := [layer for layer in layers if not -count <= layer < count]:
        msg = (
            f"hidden_layers has {wrong}, but {type(model).__name__} has the hidden states 0 (the embeddings) "
            f"to {count - 1} (the last layer's); negative numbers to {-count} count from the end"
        )
        raise UnobservableError(msg)
    return tuple(layer % count for layer in layers)


def prompt_of(call: Call) -> tuple[PromptOutput, torch.Tensor | None]:
    """Return the prompt as streamers get it, without its logits, and the position ids that belong to it.

    Beam search works on ``num_beams`` copies of each prompt; streamers get one for each sequence that is returned.
    """
    tokens = call.input_ids
    name = "decoder_" if call.model.config.is_encoder_decoder else ""
    mask = call.model_kwargs.get(f"{name}attention_mask")
    positions = call.model_kwargs.get(f"{name}position_ids")
    beams, returned = call.generation_config.num_beams or 1, call.generation_config.num_return_sequences or 1
    if beams > 1:
        rows = torch.arange(len(tokens), device=tokens.device).view(-1, beams)[:, :returned].reshape(-1)
        tokens = tokens[rows]
        mask = None if mask is None else mask[rows]
        # Positions of several axes (multimodal models) have the rows second.
        positions = None if positions is None else positions[rows] if positions.dim() == 2 else positions[:, rows]
    return PromptOutput(tokens, mask), positions


def source_of(call: Call, fields: frozenset[Field]) -> SourceOutput | None:
    """Return what the encoder read, None for a decoder-only model.

    Its states are those of the run's own pass where ``generate`` was told to return them, else of one more pass.

    Raises
    ------
    UnobservableError
        For states of an encoder whose input was not token ids, when ``generate`` was not told to return them.
    """
    if not call.model.config.is_encoder_decoder:
        return None
    copies = max(call.generation_config.num_beams or 1, call.generation_config.num_return_sequences or 1)
    mask = call.model_kwargs.get("attention_mask")
    mask = None if mask is None else mask[::copies]
    tokens = call.inputs_tensor
    # Outputs of the encoder that the caller computed come with stand-ins for ids, all negative.
    if tokens is not None and (tokens.dim() != 2 or tokens.is_floating_point() or bool((tokens < 0).any())):
        tokens = None
    outputs: Any = call.model_kwargs["encoder_outputs"]
    wanted = [field for field in ("attentions", "hidden_states") if field in fields]
    if any(outputs.get(field) is None for field in wanted):
        if tokens is None:
            msg = (
                "states of an encoder whose input is not token ids are observed only when it returns them anyway; "
                "pass return_dict_in_generate=True, output_hidden_states=True, output_attentions=True to generate()"
            )
            raise UnobservableError(msg)
        asked = {f"output_{field}": True for field in wanted}
        outputs = call.model.get_encoder()(input_ids=tokens, attention_mask=mask, return_dict=True, **asked)
    return SourceOutput(tokens, mask, **{field: outputs.get(field) for field in wanted})


def prompt_logits(
    model: PreTrainedModel,
    input_ids: torch.Tensor,
    mask: torch.Tensor | None = None,
    positions: torch.Tensor | None = None,
    chunk: int = 512,
) -> Iterator[tuple[int, torch.Tensor]]:
    """Give the logits of each position of a prompt, from a prefill of its own.

    The run's own prefill is left as it is: it computes logits for the last position only, and asking it for all of them
    would change that position's last bits.

    Parameters
    ----------
    model : PreTrainedModel
    input_ids : torch.Tensor
        Shape ``(batch, length)``.
    mask, positions : torch.Tensor, optional
        The attention mask and the position ids, as ``generate`` prepared them; shape ``(batch, length)``.
    chunk : int
        Positions a forward pass, of all rows together, so that logits of long or many prompts are never all held at
        once by the model. Prompts up to this length take one pass, as do all prompts of recurrent models. Of many rows
        no fewer than 16 positions each.

    Yields
    ------
    start : int
        Position of the slice's first token.
    logits : torch.Tensor
        Shape ``(batch, positions, vocabulary)``, consecutive slices.
    """
    length = input_ids.shape[1]
    chunk = length if is_recurrent(model) else max(16, chunk // len(input_ids))
    cache = None
    for start in range(0, length, chunk):
        stop = min(start + chunk, length)
        # With a cache also when one pass is enough: without, gpt2 lays tensors out otherwise and the last bits move.
        inputs: dict[str, Any] = {"input_ids": input_ids[:, start:stop], "use_cache": True}
        if mask is not None:
            inputs["attention_mask"] = mask[:, :stop]
        if positions is not None:
            inputs["position_ids"] = positions[:, start:stop]
        if cache is not None:
            inputs["cache"] = cache
        outputs = model(**inputs, return_dict=True)
        cache = outputs.get("cache")
        yield start, outputs.logits
