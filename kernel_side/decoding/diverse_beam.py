"""Diverse beam search: groups of beams, each kept from saying what the groups before it say.

From the paper: Vijayakumar, Cogswell, Selvaraju, Sun, Lee, Crandall, Batra, "Diverse Beam Search: Decoding Diverse
Solutions from Neural Sequence Models", AAAI 2018, arXiv:1610.02424 (2016), algorithm 1 with Hamming diversity. At each
step the groups choose one after the other. A group runs beam search on its own beams, after each token's
log-probability was lowered by ``diversity_penalty`` for every beam of an earlier group that took it in this step.

As in the authors' code, an EOS counts like any token, and what a token lost stays in the score of its hypothesis.
Within a group, finished hypotheses, length penalty and early stopping are those of the library's beam search
(transformers 5.24), so that one group gives its results. Not here: sampling; other measures of diversity; caches whose
rows cannot be picked (static, recurrent).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from transformers import GenerationConfig, LogitsProcessorList, StoppingCriteriaList

from .forward import Forward, last_logits, process
from .own_loop import OwnLoop, beam_fill
from .returned import Returned
from .tap import Tap

__all__ = ["DiverseBeamSearch"]

_NEVER = -1e9  # the score of what is not there, as in the library


@dataclass(frozen=True, slots=True)
class DiverseBeamSearch(OwnLoop):
    """Diverse beam search as a loop for ``observe`` or ``custom_generate``.

    ``num_beams`` (of all groups together), ``num_return_sequences``, ``length_penalty`` and ``early_stopping`` are
    arguments of ``generate``, as for its own beam search.

    A step output has one row a beam, ``num_beams`` a prompt, group after group. Its tokens are the last ones of the
    hypotheses that live on. Logits, scores, attentions and hidden states belong to the hypotheses before the step; the
    scores are log-probabilities after processors and diversity penalty. No token is final before the end.

    Parameters
    ----------
    num_beam_groups : int
        Must divide ``num_beams``. One group is plain beam search.
    diversity_penalty : float
        The paper's lambda; 0 lets the groups agree. The paper finds 0.2 to 0.8 good for many tasks.

    Raises
    ------
    ValueError
        For settings out of their range; from ``generate`` (:class:`~.own_loop.LoopSettingsError`) for ``do_sample``, a
        ``num_beams`` that the groups do not divide, or a cache that is static.

    Notes
    -----
    ``sequences`` and ``sequences_scores`` are the best of all groups. A generation that is stopped returns the best of
    what had finished and of what was still live.

    Examples
    --------
    >>> loop = DiverseBeamSearch(num_beam_groups=3, diversity_penalty=0.5)
    >>> model.generate(**inputs, **observe(streamer, loop=loop), num_beams=6, num_return_sequences=3)  # doctest: +SKIP
    """

    num_beam_groups: int = 2
    diversity_penalty: float = 0.5
    keeps_rows: ClassVar[bool] = False

    def __post_init__(self) -> None:
        if self.num_beam_groups < 1:
            raise ValueError(f"num_beam_groups is {self.num_beam_groups}; at least 1 group is needed")
        if not 0 <= self.diversity_penalty < float("inf"):
            raise ValueError(f"diversity_penalty is {self.diversity_penalty}; it is a number from 0 up")

    def check(self, forward: Forward) -> None:
        """Refuse what does not go with this loop."""
        self.refuse_sampling(forward.config)
        beams, groups = forward.config.num_beams or 1, self.num_beam_groups
        if beams % groups:
            given, way_out = f"num_beams is {beams}", f"pass num_beams={max(1, round(beams / groups)) * groups}"
            self.refuse(f"splits the beams into {groups} equal groups", given, way_out)
        if not forward.can_select():
            given = f"the cache is a {type(forward.kwargs['cache']).__name__}"
            self.refuse("picks rows of the cache", given, "use a dynamic cache, or pass use_cache=False")

    def decode(
        self,
        tap: Tap,
        forward: Forward,
        input_ids: torch.Tensor,
        processors: LogitsProcessorList,
        criteria: StoppingCriteriaList,
    ) -> Any:
        """Decode until all groups of all prompts have ended."""
        config, returned = forward.config, Returned(forward.config)
        rows, prompt = input_ids.shape
        shape = (rows // (config.num_beams or 1), self.num_beam_groups, (config.num_beams or 1) // self.num_beam_groups)
        own_rows = torch.arange(rows, device=input_ids.device).view(shape)
        prompts = input_ids.view(*shape, prompt)
        groups = [_Group(prompts[:, g], own_rows[:, g], config) for g in range(self.num_beam_groups)]
        while True:
            outputs = forward(input_ids)
            logits = last_logits(outputs)
            scores = process(processors, input_ids, logits.log_softmax(dim=-1))
            tap.on_forward(outputs)
            # Each group's part of `scores` is lowered in place when its turn comes.
            returned.add(outputs, logits, scores)
            del outputs
            by_group = scores.view(*shape, -1)
            taken = torch.zeros_like(by_group[:, 0, 0])  # (prompts, vocabulary): beams that took the token
            for index, group in enumerate(groups):
                if index:
                    by_group[:, index] -= self.diversity_penalty * taken[:, None]
                tokens = group.advance(by_group[:, index], criteria, returned.scores)
                # A group that had ended before takes no token any more.
                taken.scatter_add_(1, tokens, (~group.ended_before).to(taken.dtype)[:, None].expand_as(tokens))
            tap.on_logits(logits, scores)
            input_ids = torch.stack([group.live_ids for group in groups], dim=1).flatten(0, 2)
            forward.select(torch.stack([group.live_parents for group in groups], dim=1).flatten(), rows)
            ended = torch.stack([group.ended for group in groups], dim=1)
            if _commit(tap, input_ids, groups, ended[:, :, None].expand(shape).flatten()).all():
                break
        for group in groups:
            group.close()
        return returned.beams(*_best(groups, config, prompt), forward.kwargs.get("cache"))


class _Group:
    """The beams of one group, for all prompts: those that live and the pool of those that finished.

    Tensors begin with ``(prompts, beams of the group)``; sequences are as long as they can get.
    """

    def __init__(self, prompts: torch.Tensor, own_rows: torch.Tensor, config: GenerationConfig) -> None:
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
        self.live_scores = full(_NEVER)
        self.live_scores[:, 0] = 0  # all beams are the same at first: only one of them counts
        self.pool, self.pool_parents = self.live.clone(), self.parents.clone()
        self.pool_scores, self.pool_filled = full(_NEVER), full(False, dtype=torch.bool)
        self.ended = torch.zeros(batch, dtype=torch.bool, device=prompts.device)
        self.ended_before = self.ended

    @property
    def live_ids(self) -> torch.Tensor:
        return self.live[:, :, : self.length]

    @property
    def live_parents(self) -> torch.Tensor:
        return self.parents[:, :, self.length - self.prompt - 1]

    def advance(self, scores: torch.Tensor, criteria: StoppingCriteriaList, so_far: Any) -> torch.Tensor:
        """Take one step of beam search; return the tokens of the best hypotheses, whether they live on or finish.

        ``scores`` has shape ``(prompts, beams, vocabulary)``.
        """
        self.ended_before = self.ended
        totals = (scores + self.live_scores[:, :, None]).flatten(1)
        best, index = totals.topk(min(self.kept, totals.shape[1]))
        parent, token = index // scores.shape[-1], index % scores.shape[-1]
        ids, parents = _pick(self.live, parent), _pick(self.parents, parent)
        ids[:, :, self.length] = token
        parents[:, :, self.length - self.prompt] = self.own_rows.gather(1, parent).int()
        self.length += 1
        hits = criteria(ids[:, :, : self.length].flatten(0, 1), so_far).view_as(best)

        self._finish(ids, parents, best, hits)
        # Those that go on, the best first; then, where all has come to an end, the best of the others.
        alive = hits.int().argsort(dim=1, stable=True)[:, : self.width]
        self.live, self.parents = _pick(ids, alive), _pick(parents, alive)
        self.live_scores = (best + hits * _NEVER).gather(1, alive)
        self.ended = self.ended | hits.all(dim=1) | self._full() | ~self._can_improve()
        return token[:, : self.width]

    def close(self) -> None:
        """Put what lives into the pool, for prompts that were stopped before this group had ended."""
        self._pool(self.live, self.parents, self.live_scores, (self.live_scores > _NEVER / 2) & ~self.ended[:, None])

    def _finish(self, ids: torch.Tensor, parents: torch.Tensor, totals: torch.Tensor, hits: torch.Tensor) -> None:
        # Only the best `width` candidates may finish; the others are there to live on.
        leading = torch.arange(hits.shape[1], device=hits.device) < self.width
        self._pool(ids, parents, totals, hits & leading & ~self.ended[:, None])

    def _pool(self, ids: torch.Tensor, parents: torch.Tensor, totals: torch.Tensor, new: torch.Tensor) -> None:
        scores = (totals / (self.length - self.prompt) ** self.length_penalty).masked_fill(~new, _NEVER)
        scores = torch.cat([self.pool_scores, scores], dim=1)
        best = scores.topk(self.width).indices
        self.pool_scores = scores.gather(1, best)
        self.pool = _pick(torch.cat([self.pool, ids], dim=1), best)
        self.pool_parents = _pick(torch.cat([self.pool_parents, parents], dim=1), best)
        self.pool_filled = torch.cat([self.pool_filled, new], dim=1).gather(1, best)

    def _full(self) -> torch.Tensor:
        return self.pool_filled.all(dim=1) & (self.early_stopping is True)

    def _can_improve(self) -> torch.Tensor:
        """Whether a live hypothesis may still get better than the worst of the pool, by the library's estimate."""
        far = self.early_stopping == "never" and self.length_penalty > 0.0
        length = self.most if far else self.length - self.prompt
        hope = self.live_scores[:, :1] / length**self.length_penalty
        worst = torch.where(self.pool_filled, self.pool_scores.amin(dim=1, keepdim=True), _NEVER)
        improvable: torch.Tensor = (hope > worst).any(dim=1)
        return improvable


def _commit(tap: Tap, input_ids: torch.Tensor, groups: list[_Group], ended: torch.Tensor) -> torch.Tensor:
    """Commit a step, with the tokens of groups that had ended before shown as filled, and return who ends."""
    before = torch.stack([group.ended_before for group in groups], dim=1)[:, :, None]
    shown = input_ids.clone()
    shown[before.expand(-1, -1, groups[0].width).flatten(), -1] = groups[0].fill
    return tap.on_tokens(shown, lambda: ended)


def _best(
    groups: list[_Group], config: GenerationConfig, prompt: int
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return the best sequences of all groups, with their scores and beam indices."""
    scores = torch.cat([group.pool_scores for group in groups], dim=1)
    scores, best = scores.topk(config.num_return_sequences or 1)
    parents = _pick(torch.cat([group.pool_parents for group in groups], dim=1), best).flatten(0, 1)
    ids = _pick(torch.cat([group.pool for group in groups], dim=1), best).flatten(0, 1)
    longest = int((parents >= 0).sum(dim=1).max())
    return ids[:, : prompt + longest], scores.flatten(), parents[:, :longest]


def _pick(values: torch.Tensor, beams: torch.Tensor) -> torch.Tensor:
    """Pick ``values[prompt, beams[prompt, i]]``, a copy."""
    return values.gather(1, beams[:, :, None].expand(-1, -1, values.shape[2]))
