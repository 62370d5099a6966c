"""Which positions of a run's prompts and sources are tokens of its records, and which lanes have what in common."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from ..streaming.outputs import PromptOutput
from .cut import Kind, columns

__all__ = ["Prompts"]


@dataclass(frozen=True, slots=True)
class Prompts:
    """The prompts of the lanes of one run.

    Attributes
    ----------
    length : int
        Of all prompts, padding included.
    positions : list of torch.Tensor
        For each lane, int64: where its prompt is no padding.
    sources : list of int
        For each lane the row of what the encoder read; 0 without one.
    source_positions : list of (torch.Tensor or None)
        For each lane, int64: where its source is no padding; None for everywhere.
    same : list of int
        For each lane the first lane with the same prompt, and the same source.
    """

    length: int
    positions: list[torch.Tensor]
    sources: list[int]
    source_positions: list[torch.Tensor | None]
    same: list[int]

    @classmethod
    def of(cls, output: PromptOutput) -> Prompts:
        """Read them off what a streamer is handed first."""
        rows, length = output.tokens.shape
        mask = torch.ones(rows, length) if output.attention_mask is None else output.attention_mask.cpu()
        positions = [of_row.nonzero()[:, 0] for of_row in mask]
        sources: list[int] = [0] * rows
        source_positions: list[torch.Tensor | None] = [None] * rows
        source = output.source
        if source is not None:
            # One row a prompt, which may have several lanes.
            whole = (source.attention_mask, *(source.attentions or ()), *(source.hidden_states or ()), source.tokens)
            count = next((len(part) for part in whole if part is not None), rows)
            sources = [lane // (rows // count) for lane in range(rows)]
            if source.attention_mask is not None:
                by_row = [of_row.nonzero()[:, 0] for of_row in source.attention_mask.cpu()]
                source_positions = [by_row[row] for row in sources]
        first: dict[object, int] = {}
        prompts = zip(sources, output.tokens.cpu(), positions, strict=True)
        keys = [(row, tuple(tokens[where].tolist())) for row, tokens, where in prompts]
        return cls(length, positions, sources, source_positions, [first.setdefault(k, i) for i, k in enumerate(keys)])

    def trim(self, kind: Kind, lane: int, states: torch.Tensor) -> torch.Tensor:
        """Take padding out of the states of a token of a lane, as :meth:`.cut.Pass.last` gives them."""
        if kind == "cross":
            return columns(states, self.source_positions[lane])
        positions = self.positions[lane]
        if kind == "hidden" or len(positions) == self.length:
            return states
        return columns(states, torch.cat([positions, torch.arange(self.length, states.shape[-1])]))
