"""What a decoding loop hands to a streamer: the prompt, then one output a step.

Plain containers of the library's own tensors, on the model's device and in the library's shapes. Nothing here computes
or copies; :mod:`genscope.kernel_side.decoding.tap` makes them, streamers carry them. Beam search and assisted decoding
have steps of their own kinds, see ``beam_outputs`` and ``assisted_outputs``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch

from .assisted_outputs import AssistedStepOutput
from .beam_outputs import BeamResult, BeamStepOutput

__all__ = ["ALL_FIELDS", "Field", "Output", "PromptOutput", "SourceOutput", "Step", "StepOutput"]

Field = Literal["scores", "logits", "attentions", "hidden_states", "prompt_logits"]
"""A part of the outputs that costs something to keep; tokens always come."""

ALL_FIELDS: frozenset[Field] = frozenset(("scores", "logits", "attentions", "hidden_states", "prompt_logits"))


@dataclass(frozen=True, slots=True)
class SourceOutput:
    """What an encoder-decoder model reads before it decodes. Fields that were not asked for are None.

    Attributes
    ----------
    tokens : torch.Tensor or None
        Shape ``(batch, length)``, int64, one row a prompt; None when the input was not token ids.
    attention_mask : torch.Tensor or None
        Shape ``(batch, length)``, 0 on padding.
    attentions, hidden_states : tuple of torch.Tensor, optional
        Equal to ``.encoder_attentions`` and ``.encoder_hidden_states``: one a layer; hidden states also have the
        embeddings.
    """

    tokens: torch.Tensor | None
    attention_mask: torch.Tensor | None
    attentions: tuple[torch.Tensor, ...] | None = None
    hidden_states: tuple[torch.Tensor, ...] | None = None


@dataclass(frozen=True, slots=True)
class PromptOutput:
    """The prompt, or a slice of it, before the first step; one row for each sequence that ``generate`` returns.

    A streamer that did not ask for ``"prompt_logits"`` gets the whole prompt in one output. One that did gets
    consecutive slices, since the logits of a long prompt do not fit into memory at once.

    Attributes
    ----------
    tokens : torch.Tensor
        Shape ``(batch, length)``, int64, on the model's device; left padding included.
    attention_mask : torch.Tensor or None
        Shape ``(batch, length)``, 0 on padding; None when nothing is padded.
    start : int
        Position of the first token of this slice.
    logits : torch.Tensor or None
        Shape ``(batch, length, vocabulary)``, in the model's dtype: position ``i`` predicts token ``i + 1``. Only
        when ``"prompt_logits"`` was asked for.
    source : SourceOutput or None
        What the encoder read, of an encoder-decoder model; ``tokens`` are the decoder's then, mostly its start token.
    """

    tokens: torch.Tensor
    attention_mask: torch.Tensor | None = None
    start: int = 0
    logits: torch.Tensor | None = None
    source: SourceOutput | None = None


@dataclass(frozen=True, slots=True)
class StepOutput:
    """One committed step of greedy decoding or sampling. Fields that were not asked for are None.

    Attributes
    ----------
    step : int
        0 for the first generated token.
    length : int
        Length of the sequences with this step's tokens: ``prompt length + step + 1``. The key of the step.
    tokens : torch.Tensor
        Shape ``(batch,)``, int64. The pad token in rows that had finished before.
    active : torch.Tensor
        Shape ``(batch,)``, bool: rows that had not finished before this step, so whose token is the model's.
    finished : torch.Tensor
        Shape ``(batch,)``, bool: rows that are finished now.
    seconds : float
        ``time.perf_counter()`` at the commit.
    scores : torch.Tensor, optional
        Shape ``(batch, vocabulary)``, float32: after all processors, what the token was chosen from. Equals
        ``GenerateDecoderOnlyOutput.scores[step]`` bit for bit.
    logits : torch.Tensor, optional
        Shape ``(batch, vocabulary)``, float32: before all processors. Equals ``.logits[step]``.
    attentions, hidden_states : tuple of torch.Tensor, optional
        As ``.attentions[step]`` and ``.hidden_states[step]``: one a layer; hidden states also have the embeddings, or
        are those of the ``hidden_layers`` that were asked for, in that order. Of an encoder-decoder model as
        ``.decoder_attentions[step]`` and ``.decoder_hidden_states[step]``.
    cross_attentions : tuple of torch.Tensor, optional
        As ``.cross_attentions[step]``, of an encoder-decoder model; asked for with ``"attentions"``.
    """

    step: int
    length: int
    tokens: torch.Tensor
    active: torch.Tensor
    finished: torch.Tensor
    seconds: float
    scores: torch.Tensor | None = None
    logits: torch.Tensor | None = None
    attentions: tuple[torch.Tensor, ...] | None = None
    hidden_states: tuple[torch.Tensor, ...] | None = None
    cross_attentions: tuple[torch.Tensor, ...] | None = None


Step = StepOutput | BeamStepOutput | AssistedStepOutput
"""A step of any strategy."""

Output = PromptOutput | Step | BeamResult
"""What a streamer is handed, in this order: the prompt, the steps, and of a beam search what it chose."""
