"""What beam search hands to a streamer: its steps with their candidates, and the sequences it chose at the end.

No token of a beam search is final before the end. So a step carries what the search considered and kept, by reference
(candidate, parent row), and :func:`trace` follows the references back. Plain containers; ``decoding.tap_beams`` makes
them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch

__all__ = ["BeamResult", "BeamStepOutput", "Trace", "trace"]


@dataclass(frozen=True, slots=True)
class BeamStepOutput:
    """One step of a beam search, or of beam sampling. Fields that were not asked for are None.

    ``rows`` are ``batch * beams``: beam ``b`` of prompt ``p`` is row ``p * beams + b``. ``scores``, ``logits``,
    attentions and hidden states are of the rows *before* this step's choice; ``live`` says which candidate each row
    holds after it. ``kept`` is the number of candidates a prompt, at least ``2 * beams``.

    Attributes
    ----------
    step : int
        0 for the first generated token.
    length : int
        Length of the candidates with this step's tokens: ``prompt length + step + 1``.
    seconds : float
        ``time.perf_counter()`` when the step was complete.
    candidate_tokens : torch.Tensor
        Shape ``(batch, kept)``, int64, best first.
    candidate_parents : torch.Tensor
        Shape ``(batch, kept)``, int64: the row that each candidate continues.
    candidate_scores : torch.Tensor
        Shape ``(batch, kept)``, float32: log-probability of the whole candidate, by the scores after all processors.
        Around ``-1e9`` and below: fillers, of beams that hold no hypothesis.
    candidate_stops : torch.Tensor
        Shape ``(batch, kept)``, bool: the candidate met a stopping criterion. Of these only the first ``beams`` can
        come into the pool of finished hypotheses.
    live : torch.Tensor
        Shape ``(batch, beams)``, int64: the candidate that each beam holds from here on. Row ``p * beams + b`` of the
        next step continues candidate ``live[p, b]``.
    live_scores : torch.Tensor
        Shape ``(batch, beams)``, float32: log-probability of the live hypotheses; around ``-1e9`` and below: fillers.
    finished : torch.Tensor
        Shape ``(batch, beams)``, bool: places of the pool of finished hypotheses that are taken, best first.
    finished_scores : torch.Tensor
        Shape ``(batch, beams)``, float32: log-probability over ``length ** length_penalty``. ``-1e9`` where free.
    finished_steps, finished_candidates : torch.Tensor
        Shape ``(batch, beams)``, int64: the candidate that ended there, and its step. Without meaning where free.
    scores : torch.Tensor, optional
        Shape ``(rows, vocabulary)``, float32: log-probabilities after all processors. Equals
        ``GenerateBeamDecoderOnlyOutput.scores[step]`` bit for bit.
    logits : torch.Tensor, optional
        Shape ``(rows, vocabulary)``, float32: what the model gave. Equals ``.logits[step]``.
    attentions, cross_attentions, hidden_states : tuple of torch.Tensor, optional
        As for :class:`~genscope.kernel_side.streaming.outputs.StepOutput`, of all rows.
    """

    step: int
    length: int
    seconds: float
    candidate_tokens: torch.Tensor
    candidate_parents: torch.Tensor
    candidate_scores: torch.Tensor
    candidate_stops: torch.Tensor
    live: torch.Tensor
    live_scores: torch.Tensor
    finished: torch.Tensor
    finished_scores: torch.Tensor
    finished_steps: torch.Tensor
    finished_candidates: torch.Tensor
    scores: torch.Tensor | None = None
    logits: torch.Tensor | None = None
    attentions: tuple[torch.Tensor, ...] | None = None
    cross_attentions: tuple[torch.Tensor, ...] | None = None
    hidden_states: tuple[torch.Tensor, ...] | None = None

    @property
    def live_tokens(self) -> torch.Tensor:
        """The last token of each live hypothesis, shape ``(batch, beams)``."""
        return self.candidate_tokens.gather(1, self.live)

    @property
    def live_parents(self) -> torch.Tensor:
        """The row that each live hypothesis continues, shape ``(batch, beams)``: how the cache is reordered."""
        return self.candidate_parents.gather(1, self.live)


@dataclass(frozen=True, slots=True)
class BeamResult:
    """What a beam search chose, after its last step. Now the tokens are final.

    ``rows`` are ``batch * num_return_sequences``, the best sequence of each prompt first.

    Attributes
    ----------
    prompt_length : int
    sequences : torch.Tensor
        Shape ``(rows, length)``, int64: what ``generate`` returns, prompt and padding included.
    lengths : torch.Tensor
        Shape ``(rows,)``, int64: generated tokens of each row, padding left out.
    scores : torch.Tensor
        Shape ``(rows,)``, float32: equals ``.sequences_scores``.
    beam_indices : torch.Tensor
        Shape ``(rows, generated)``, int32: the row of each step that the token was chosen from, -1 behind the end.
        Equals ``.beam_indices``.
    steps, candidates : torch.Tensor
        Shape ``(rows,)``, int64: where each sequence ended, for :func:`trace`. After a generation that was stopped
        from outside they name live hypotheses of the last step. -1 where there was no hypothesis for a row, which
        happens when the processors leave fewer tokens than there are beams; its length is 0.
    """

    prompt_length: int
    sequences: torch.Tensor
    lengths: torch.Tensor
    scores: torch.Tensor
    beam_indices: torch.Tensor
    steps: torch.Tensor
    candidates: torch.Tensor


class Trace(NamedTuple):
    """A hypothesis: its generated tokens, and the row of each step that the token was chosen from."""

    tokens: list[int]
    rows: list[int]


def trace(steps: Sequence[BeamStepOutput], prompt: int, step: int, candidate: int) -> Trace:
    """Follow a candidate back to the prompt.

    Parameters
    ----------
    steps : sequence of BeamStepOutput
        All steps from the first to ``step`` at least.
    prompt : int
        Which prompt of the batch.
    step : int
        The step of the candidate.
    candidate : int
        Its place among the candidates of that step.

    Returns
    -------
    Trace
        Both lists have ``step + 1`` entries.
    """
    tokens: list[int] = []
    rows: list[int] = []
    for at in range(step, -1, -1):
        output = steps[at]
        row = int(output.candidate_parents[prompt, candidate])
        tokens.append(int(output.candidate_tokens[prompt, candidate]))
        rows.append(row)
        if at:
            before = steps[at - 1].live
            candidate = int(before[prompt, row - prompt * before.shape[1]])
    return Trace(tokens[::-1], rows[::-1])
