"""What a decoding loop of our own returns: sequences, or the library's own output classes.

Only for decoder-only models. Not here: what streamers get, which is the tap's.
"""

from __future__ import annotations

from typing import Any

import torch
from transformers import GenerationConfig
from transformers.generation.utils import GenerateBeamDecoderOnlyOutput, GenerateDecoderOnlyOutput

__all__ = ["Returned"]


class Returned:
    """Keeps what ``generate`` was asked to return, and nothing else."""

    def __init__(self, config: GenerationConfig) -> None:
        self._asked = bool(config.return_dict_in_generate)
        wanted = ("scores", "logits", "attentions", "hidden_states")
        self._kept: dict[str, tuple[Any, ...] | None] = {
            name: () if self._asked and getattr(config, f"output_{name}") else None for name in wanted
        }

    @property
    def scores(self) -> tuple[torch.Tensor, ...] | None:
        """The scores so far, or None when they were not asked for."""
        return self._kept["scores"]

    def add(self, outputs: Any, logits: torch.Tensor, scores: torch.Tensor) -> None:
        """Take what one step gave."""
        step = {"scores": scores, "logits": logits}
        for name, kept in self._kept.items():
            if kept is not None:
                self._kept[name] = (*kept, step[name] if name in step else getattr(outputs, name))

    def tokens(self, sequences: Any, cache: Any) -> Any:
        """Make the return value of a loop that follows one sequence a row."""
        if not self._asked:
            return sequences
        return GenerateDecoderOnlyOutput(sequences=sequences, cache=cache, **self._kept)

    def beams(self, sequences: Any, scores: Any, indices: Any, cache: Any) -> Any:
        """Make the return value of a beam search."""
        if not self._asked:
            return sequences
        return GenerateBeamDecoderOnlyOutput(
            sequences=sequences,
            sequences_scores=None if self.scores is None else scores,
            beam_indices=indices,
            cache=cache,
            **self._kept,
        )
