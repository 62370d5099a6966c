"""Beam search on the beams of one group of a diverse beam search.

Rules of ends, length penalty and early stopping are those of the library's beam search (transformers 5.24). Not here:
what groups have to do with each other (``diverse_beam``).
"""

from __future__ import annotations

from typing import Any

import torch
from transformers import GenerationConfig, StoppingCriteriaList

from .own_loop import beam_fill

__all__ = ["NEVER", "BeamGroup", "pick"]

NEVER = -1e9
"""The score of what is not there, as in the library."""


class BeamGroup:
    """The beams of one group, for all prompts: those that live and the pool of those that finished.

    Tensors begin with ``(prompts, beams of the group)``; sequences are as long as they can get.

    Parameters
    ----------
    index : int
        Which group it is. Candidates are counted through all groups, one after the other.
    prompts : torch.Tensor
        Shape ``(prompts, beams of the group, length)``.
    own_rows : torch.Tensor
        Shape ``(prompts, beams of the group)``: the rows of its beams in the batch.
    config : GenerationConfig
    """

    def __init__(self, index: int, prompts: torch.Tensor, own_rows: torch.Tensor, config: GenerationConfig) -> None:
        self.index = index
        batch, self.width, self.prompt = prompts.shape
        self.length = self.prompt
        self.length_penalty, self.early_stopping = config.length_penalty, config.early_stopping
        self.own_rows = own_rows
        self.fill, stops = beam_fill(config)
        self.kept = max(2, 1 + stops) * self.width  # enough for `width` to live on whatever finishes

        def full(value: float, *size: int, dtype: torch.dtype = torch.float) -> torch.Tensor:
            return torch.full((batch, self.width, *size), value, dtype=dtype, device=prompts.device)

        self.most = config.max_length - self.prompt
        self.live = full(self.fill, config.max_length, dtype=torch.int64)
        self.live[:, :, : self.prompt] = prompts
        self.parents = full(-1, self.most, dtype=torch.int32)
        self.live_scores = full(NEVER)
        self.live_scores[:, 0] = 0  # all beams are the same at first: only one of them counts
        self.pool, self.pool_parents = self.live.clone(), self.parents.clone()
        self.pool_scores, self.pool_filled = full(NEVER), full(False, dtype=torch.bool)
        self.pool_labels = full(-1, 2, dtype=torch.int64)  # the step and the candidate that ended there
        self.live_labels = self.pool_labels
        self.ended = torch.zeros(batch, dtype=torch.bool, device=prompts.device)
        self.ended_before = self.ended

    @property
    def live_ids(self) -> torch.Tensor:
        return self.live[:, :, : self.length]

    @property
    def live_parents(self) -> torch.Tensor:
        return self.parents[:, :, self.length - self.prompt - 1]

    def advance(self, scores: torch.Tensor, criteria: StoppingCriteriaList, so_far: Any) -> dict[str, torch.Tensor]:
        """Take one step of beam search.

        Parameters
        ----------
        scores : torch.Tensor
            Shape ``(prompts, beams of the group, vocabulary)``.
        criteria, so_far
            What ends a hypothesis, and the scores that it may want to see.

        Returns
        -------
        dict
            This group's part of the fields of a :class:`~genscope.kernel_side.streaming.beam_outputs.BeamStepOutput`.
        """
        self.ended_before = self.ended
        totals = (scores + self.live_scores[:, :, None]).flatten(1)
        best, index = totals.topk(min(self.kept, totals.shape[1]))
        parent, token = index // scores.shape[-1], index % scores.shape[-1]
        ids, parents = pick(self.live, parent), pick(self.parents, parent)
        ids[:, :, self.length] = token
        rows = self.own_rows.gather(1, parent)
        parents[:, :, self.length - self.prompt] = rows.int()
        labels = self._labels(best)
        self.length += 1
        hits = criteria(ids[:, :, : self.length].flatten(0, 1), so_far).view_as(best)

        self._finish(ids, parents, best, labels, hits)
        # Those that go on, the best first; places that are left over hold nothing.
        running = best + hits * NEVER
        alive = running.topk(self.width).indices
        self.live, self.parents, self.live_labels = (pick(values, alive) for values in (ids, parents, labels))
        self.live_scores = running.gather(1, alive)
        self.ended = self.ended | hits.all(dim=1) | self._full() | ~self._can_improve()
        return {
            "candidate_tokens": token,
            "candidate_parents": rows,
            "candidate_scores": best,
            "candidate_stops": hits,
            "live": self.live_labels[..., 1],
            "live_scores": self.live_scores,
            "finished": self.pool_filled,
            "finished_scores": self.pool_scores,
            "finished_steps": self.pool_labels[..., 0],
            "finished_candidates": self.pool_labels[..., 1],
        }

    def close(self) -> None:
        """Put what lives into the pool, for prompts that were stopped before this group had ended."""
        new = (self.live_scores > NEVER / 2) & ~self.ended[:, None]
        self._pool(self.live, self.parents, self.live_scores, self.live_labels, new)

    def _labels(self, candidates: torch.Tensor) -> torch.Tensor:
        """Label candidates with this step and their place, shape ``(prompts, candidates, 2)``."""
        batch, kept = candidates.shape
        place = torch.arange(kept, device=candidates.device) + self.index * kept
        step = torch.full_like(place, self.length - self.prompt)
        return torch.stack([step, place], dim=-1).expand(batch, kept, 2)

    def _finish(
        self,
        ids: torch.Tensor,
        parents: torch.Tensor,
        totals: torch.Tensor,
        labels: torch.Tensor,
        hits: torch.Tensor,
    ) -> None:
        # Only the best `width` candidates may finish; the others are there to live on.
        leading = torch.arange(hits.shape[1], device=hits.device) < self.width
        # Where processors leave fewer tokens than there are beams, some candidates are no hypotheses.
        there = totals > NEVER / 2
        self._pool(ids, parents, totals, labels, hits & leading & there & ~self.ended[:, None])

    def _pool(
        self,
        ids: torch.Tensor,
        parents: torch.Tensor,
        totals: torch.Tensor,
        labels: torch.Tensor,
        new: torch.Tensor,
    ) -> None:
        scores = (totals / (self.length - self.prompt) ** self.length_penalty).masked_fill(~new, NEVER)
        scores = torch.cat([self.pool_scores, scores], dim=1)
        best = scores.topk(self.width).indices
        self.pool_scores = scores.gather(1, best)
        self.pool = pick(torch.cat([self.pool, ids], dim=1), best)
        self.pool_parents = pick(torch.cat([self.pool_parents, parents], dim=1), best)
        self.pool_labels = pick(torch.cat([self.pool_labels, labels], dim=1), best)
        self.pool_filled = torch.cat([self.pool_filled, new], dim=1).gather(1, best)

    def _full(self) -> torch.Tensor:
        return self.pool_filled.all(dim=1) & (self.early_stopping is True)

    def _can_improve(self) -> torch.Tensor:
        """Whether a live hypothesis may still get better than the worst of the pool, by the library's estimate."""
        far = self.early_stopping == "never" and self.length_penalty > 0.0
        length = self.most if far else self.length - self.prompt
        hope = self.live_scores[:, :1] / length**self.length_penalty
        worst = torch.where(self.pool_filled, self.pool_scores.amin(dim=1, keepdim=True), NEVER)
        improvable: torch.Tensor = (hope > worst).any(dim=1)
        return improvable


def pick(values: torch.Tensor, beams: torch.Tensor) -> torch.Tensor:
    """Pick ``values[prompt, beams[prompt, i]]``, a copy."""
    return values.gather(1, beams[:, :, None].expand(-1, -1, values.shape[2]))
