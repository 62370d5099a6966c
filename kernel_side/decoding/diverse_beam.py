"""Diverse beam search: groups of beams, each kept from saying what the groups before it say.

From the paper: Vijayakumar, Cogswell, Selvaraju, Sun, Lee, Crandall, Batra, "Diverse Beam Search: Decoding Diverse
Solutions from Neural Sequence Models", AAAI 2018, arXiv:1610.02424 (2016), algorithm 1 with Hamming diversity. At each
step the groups choose one after the other. A group runs beam search on its own beams, after each token's
log-probability was lowered by ``diversity_penalty`` for every beam of an earlier group that took it in this step.

As in the authors' code, an EOS counts like any token, and what a token lost stays in the score of its hypothesis. What
happens within a group is in ``beam_group``, by the rules of the library's beam search, so that one group gives its
results. Not here: sampling; other measures of diversity; caches whose rows cannot be picked (static, recurrent).
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from transformers import GenerationConfig, LogitsProcessorList, StoppingCriteriaList

from ..streaming.beam_outputs import BeamResult, BeamStepOutput
from ..streaming.outputs import Field, Step
from .beam_group import BeamGroup, pick
from .forward import Forward, last_logits, process
from .own_loop import OwnLoop
from .returned import Returned
from .tap import LoopTap

__all__ = ["DiverseBeamSearch"]


@dataclass(frozen=True, slots=True)
class DiverseBeamSearch(OwnLoop):
    """Diverse beam search as a loop for ``observe`` or ``custom_generate``.

    ``num_beams`` (of all groups together), ``num_return_sequences``, ``length_penalty`` and ``early_stopping`` are
    arguments of ``generate``, as for its own beam search.

    Each step gives a :class:`~genscope.kernel_side.streaming.beam_outputs.BeamStepOutput`, the end a
    :class:`~genscope.kernel_side.streaming.beam_outputs.BeamResult`, as the library's beam search does. Rows,
    candidates, live hypotheses and pools are there group after group, in each group the best first. Scores are
    log-probabilities after processors and diversity penalty. A group that has ended goes on being listed while others
    search; it changes nothing any more.

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

    def make_tap(
        self,
        fields: frozenset[Field],
        commit: Callable[[Step], bool],
        conclude: Callable[[BeamResult], None],
        draws: contextlib.AbstractContextManager[object] | None,
        hidden_layers: tuple[int, ...] | None,
    ) -> LoopTap:
        """Make the tap of a search."""
        return _GroupsTap(fields, commit, conclude, draws, hidden_layers)

    def decode(
        self,
        tap: _GroupsTap,
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
        groups = [BeamGroup(g, prompts[:, g], own_rows[:, g], config) for g in range(self.num_beam_groups)]
        stopped = ended = False
        while not (stopped or ended):
            outputs = forward(input_ids)
            logits = last_logits(outputs)
            scores = process(processors, input_ids, logits.log_softmax(dim=-1))
            tap.on_forward(outputs)
            # Each group's part of `scores` is lowered in place when its turn comes.
            returned.add(outputs, logits, scores)
            del outputs
            by_group = scores.view(*shape, -1)
            taken = torch.zeros_like(by_group[:, 0, 0])  # (prompts, vocabulary): beams that took the token
            parts: list[dict[str, torch.Tensor]] = []
            for index, group in enumerate(groups):
                if index:
                    by_group[:, index] -= self.diversity_penalty * taken[:, None]
                parts.append(group.advance(by_group[:, index], criteria, returned.scores))
                tokens = parts[-1]["candidate_tokens"][:, : group.width]
                # A group that had ended before takes no token any more.
                taken.scatter_add_(1, tokens, (~group.ended_before).to(taken.dtype)[:, None].expand_as(tokens))
            stopped = tap.on_step(groups[0].length, logits, scores, parts)
            input_ids = torch.stack([group.live_ids for group in groups], dim=1).flatten(0, 2)
            forward.select(torch.stack([group.live_parents for group in groups], dim=1).flatten(), rows)
            ended = all(bool(group.ended.all()) for group in groups)
        for group in groups:
            group.close()
        best = _best(groups, config, prompt)
        tap.conclude(best)
        return returned.beams(best.sequences, best.scores, best.beam_indices, forward.kwargs.get("cache"))


class _GroupsTap(LoopTap):
    """The tap of diverse beam search; see :class:`~.tap.LoopTap`."""

    def __init__(
        self,
        fields: frozenset[Field],
        commit: Callable[[Step], bool],
        conclude: Callable[[BeamResult], None],
        draws: contextlib.AbstractContextManager[object] | None,
        hidden_layers: tuple[int, ...] | None,
    ) -> None:
        super().__init__(fields, commit, draws, hidden_layers)
        self.conclude = conclude

    def on_step(
        self, length: int, logits: torch.Tensor, scores: torch.Tensor, groups: list[dict[str, torch.Tensor]]
    ) -> bool:
        """Commit a step of all groups; return whether the search is to stop."""
        for field, value in (("logits", logits), ("scores", scores)):
            if field in self.fields:
                self._parts[field] = value
        beams: dict[str, Any] = {name: torch.cat([group[name] for group in groups], dim=1) for name in groups[0]}
        step = self._step
        output = BeamStepOutput(step=step, length=length, seconds=time.perf_counter(), **self._take_parts(), **beams)
        return self._commit(output)


def _best(groups: list[BeamGroup], config: GenerationConfig, prompt: int) -> BeamResult:
    """Choose the best sequences of all groups."""
    scores = torch.cat([group.pool_scores for group in groups], dim=1)
    scores, best = scores.topk(config.num_return_sequences or 1)
    pools = ([getattr(group, name) for group in groups] for name in ("pool", "pool_parents", "pool_labels"))
    ids, parents, labels = (pick(torch.cat(pool, dim=1), best).flatten(0, 1) for pool in pools)
    missing = ~torch.cat([group.pool_filled for group in groups], dim=1).gather(1, best).flatten()
    ids[missing, prompt:] = groups[0].fill
    parents[missing] = labels[missing] = -1
    lengths = (parents >= 0).sum(dim=1)
    longest = int(lengths.max())
    return BeamResult(
        prompt_length=prompt,
        sequences=ids[:, : prompt + longest],
        lengths=lengths,
        scores=scores.flatten(),
        beam_indices=parents[:, :longest],
        steps=labels[:, 0],
        candidates=labels[:, 1],
    )
