"""What watches the generation of a turn: an end for each row where its room ends, and a count of what each row got."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from transformers import StoppingCriteria

from ..streaming.assisted_outputs import AssistedStepOutput
from ..streaming.base import StepStreamer
from ..streaming.beam_outputs import BeamResult
from ..streaming.outputs import Output, StepOutput

__all__ = ["Outcome", "Rooms"]


class Rooms(StoppingCriteria):
    """Ends each row where its room ends; ``generate`` itself knows one length for all, with padding in it."""

    def __init__(self, rooms: Sequence[int], prompt: int) -> None:
        self._rooms = torch.tensor(list(rooms))
        self._prompt = prompt

    def __call__(self, input_ids: torch.Tensor, scores: Any, **kwargs: Any) -> torch.Tensor:  # noqa: ARG002 - the base's
        # A beam search asks about several hypotheses of each row, in the order of the rows.
        rooms = self._rooms.repeat_interleave(len(input_ids) // len(self._rooms))
        return (rooms <= input_ids.shape[1] - self._prompt).to(input_ids.device)


class Outcome(StepStreamer):
    """Counts the tokens of each row that are the model's, and keeps their logits where they are asked for."""

    def __init__(self, rows: int, *, logits: bool) -> None:
        self.fields = frozenset({"logits"} if logits else ())
        self._lengths = [0] * rows
        self._logits: list[torch.Tensor] = []

    def put(self, output: Output) -> None:
        if isinstance(output, StepOutput):
            self._lengths = [
                length + active for length, active in zip(self._lengths, output.active.tolist(), strict=True)
            ]
            if "logits" in self.fields:
                assert output.logits is not None
                self._logits.append(output.logits)
        elif isinstance(output, BeamResult):
            self._lengths = output.lengths.tolist()
        elif isinstance(output, AssistedStepOutput):  # of one row
            self._lengths = [self._lengths[0] + output.tokens.shape[1]]

    def end(self, error: BaseException | None = None) -> None:
        """Nothing waits for it."""

    def length(self, row: int) -> int:
        return self._lengths[row]

    def logits_of(self, row: int, count: int) -> torch.Tensor | None:
        if "logits" not in self.fields:
            return None
        # A copy of the row alone: the others' need not be held with it.
        return torch.stack([logits[row] for logits in self._logits[:count]])
