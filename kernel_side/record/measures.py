"""Numbers about tokens, from one small pass over a step's logits on the model's device.

Probability, entropy, rank and the most probable candidates, before and after the processors. No text, no times and no
storage here; nothing leaves the device but the numbers.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch

__all__ = ["Candidate", "Measures", "NonFiniteLogitsError", "measure"]

_BLOCK = 64
"""Rows measured at once."""


class NonFiniteLogitsError(ArithmeticError):
    """The model gave NaN where probabilities were to be measured."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """A token that could have been chosen.

    Attributes
    ----------
    id : int
    raw_logprob : float
        Natural-log probability in the model's own distribution; ``-inf`` is a probability of exactly 0.
    logprob : float or None
        The same after all processors; ``-inf`` when a processor cut it, None when there were no scores (the prompt).
    """

    id: int
    raw_logprob: float
    logprob: float | None


@dataclass(frozen=True, slots=True)
class Measures:
    """What is measured about one token.

    Attributes
    ----------
    raw_logprob : float
        Natural-log probability of the token in the model's own distribution.
    logprob : float or None
        The same in the distribution that it was chosen from, after all processors.
    entropy : float
        Entropy of the model's own distribution, in bits.
    rank : int
        1 + how many tokens the model's own distribution holds more probable.
    candidates : tuple of Candidate
        Most probable first, by the better of raw and processed probability; ties in no particular order.
    """

    raw_logprob: float
    logprob: float | None
    entropy: float
    rank: int
    candidates: tuple[Candidate, ...]


def measure(logits: torch.Tensor, scores: torch.Tensor | None, tokens: torch.Tensor, candidates: int) -> list[Measures]:
    """Measure tokens against the distributions they came from.

    Parameters
    ----------
    logits : torch.Tensor
        Shape ``(rows, vocabulary)``, any float dtype: before the processors.
    scores : torch.Tensor or None
        Shape ``(rows, vocabulary)``: after the processors; None where there were none to speak of (a prompt).
    tokens : torch.Tensor
        Shape ``(rows,)``, int64.
    candidates : int
        How many candidates a row, at most the vocabulary.

    Returns
    -------
    list of Measures
        One a row.

    Raises
    ------
    NonFiniteLogitsError
        When a row has no distribution (NaN, or nothing but ``-inf``).
    """
    if len(tokens) > _BLOCK:  # a prompt; in blocks, the temporaries below stay small
        blocks = range(0, len(tokens), _BLOCK)
        parts = [(logits[at : at + _BLOCK], tokens[at : at + _BLOCK], slice(at, at + _BLOCK)) for at in blocks]
        return [
            numbers
            for part, ids, rows in parts
            for numbers in measure(part, None if scores is None else scores[rows], ids, candidates)
        ]
    chosen = tokens.unsqueeze(1)
    same = scores is logits
    logits = logits.float()
    raw = torch.log_softmax(logits, dim=-1)
    # Without processors the library hands out one tensor twice; the work is then done once.
    processed = raw if scores is None or same else torch.log_softmax(scores.float(), dim=-1)
    # 0 * -inf is NaN; the clamp makes impossible tokens count 0.
    entropy = -(raw.exp() * raw.clamp_min(torch.finfo(raw.dtype).min)).sum(dim=-1, keepdim=True) / math.log(2)
    raw_chosen = raw.gather(1, chosen)
    rank = (logits > logits.gather(1, chosen)).sum(dim=-1, keepdim=True) + 1
    best = raw if processed is raw else torch.maximum(raw, processed)
    top = best.topk(min(candidates, best.shape[1]), dim=-1).indices
    # One transfer for all numbers: float64 holds ids and ranks exactly.
    columns = (
        raw_chosen,
        processed.gather(1, chosen),
        entropy,
        rank,
        raw.gather(1, top),
        processed.gather(1, top),
        top,
    )
    rows = torch.cat([column.double() for column in columns], dim=1).tolist()
    return [_unpack(row, top.shape[1], with_scores=scores is not None) for row in rows]


def _unpack(row: list[float], width: int, *, with_scores: bool) -> Measures:
    raw_chosen, processed_chosen, entropy, rank = row[:4]
    raw_top, processed_top, top = (row[4 + part * width : 4 + (part + 1) * width] for part in range(3))
    if math.isnan(entropy) or math.isnan(processed_chosen):
        msg = "the model's logits are not numbers (NaN or all -inf); try float32 instead of a smaller number format"
        raise NonFiniteLogitsError(msg)
    return Measures(
        raw_logprob=raw_chosen,
        logprob=processed_chosen if with_scores else None,
        entropy=max(0.0, entropy),  # in this order, which makes -0.0 0.0
        rank=int(rank),
        candidates=tuple(
            Candidate(int(token), raw, processed if with_scores else None)
            for token, raw, processed in zip(top, raw_top, processed_top, strict=True)
        ),
    )
