r"""Contrastive search: the next token is probable and unlike what was said before.

From the paper: Su, Lan, Wang, Yogatama, Kong, Collier, "A Contrastive Framework for Neural Text Generation", NeurIPS
2022, arXiv:2202.06417, equation 5. Of the ``k`` most probable tokens :math:`V^{(k)}`, the one is chosen with the
greatest

.. math:: (1 - \alpha) \, p(v \mid x_{<t}) - \alpha \max_{j < t} \cos(h_v, h_{x_j})

where :math:`h` is the model's last hidden state at a token, of :math:`v` after looking one step ahead.

It does not sample, and does not run on caches whose rows cannot be picked (static, recurrent).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from transformers import LogitsProcessorList, StoppingCriteriaList

from .forward import Forward, last_logits, process, select_rows
from .own_loop import OwnLoop, choose_tokens
from .tap import Tap

__all__ = ["ContrastiveSearch"]


@dataclass(frozen=True, slots=True)
class ContrastiveSearch(OwnLoop):
    """Contrastive search as a loop for ``observe`` or ``custom_generate``.

    The scores of a step are the formula's values, ``-inf`` outside the candidates. Its logits are the model's.

    Parameters
    ----------
    penalty_alpha : float
        Weight of the degeneration penalty, from 0 (greedy) to 1.
    top_k : int
        Candidates a step, each of which costs a row of a forward pass.

    Raises
    ------
    ValueError
        For settings out of their range; from ``generate`` (:class:`~.own_loop.LoopSettingsError`) for ``do_sample``,
        beams, a cache that is static or not empty, or a chunked prefill.

    Notes
    -----
    The probabilities are those after the processors; tokens that they forbid are never candidates. Padding on the left
    is no context. A returned cache also holds the last token, since the search has looked past it.

    Examples
    --------
    >>> loop = ContrastiveSearch(penalty_alpha=0.6, top_k=4)
    >>> model.generate(**inputs, **observe(streamer, loop=loop), max_new_tokens=64)  # doctest: +SKIP
    """

    penalty_alpha: float = 0.6
    top_k: int = 4
    scores_are_logits: ClassVar[bool] = False

    def __post_init__(self) -> None:
        if not 0 <= self.penalty_alpha <= 1:
            raise ValueError(f"penalty_alpha is {self.penalty_alpha}; it is a weight from 0 (greedy) to 1")
        if self.top_k < 1:
            raise ValueError(f"top_k is {self.top_k}; at least 1 candidate is needed")

    def check(self, forward: Forward) -> None:
        """Refuse what does not go with this loop."""
        self.refuse_beams(forward.config)
        self.refuse_sampling(forward.config)
        if forward.cached:
            given = f"the cache passed in holds {forward.cached} positions, without their hidden states"
            self.refuse("compares with every token of the prompt", given, "pass no cache")
        if forward.config.prefill_chunk_size is not None:
            given = f"prefill_chunk_size is {forward.config.prefill_chunk_size}"
            self.refuse("compares with every token of the prompt", given, "pass prefill_chunk_size=None")
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
        """Decode until all rows have ended."""
        search = _Search(self, forward, processors)
        return choose_tokens(tap, search.step, forward, input_ids, criteria, after=search.settle)


class _Search:
    """The state of one contrastive search.

    Between steps there is one row a sequence. Within a step there are ``top_k`` rows a sequence, one a candidate; once
    the token is chosen its row is kept, which has the forward pass behind the next token already.
    """

    def __init__(self, settings: ContrastiveSearch, forward: Forward, processors: LogitsProcessorList) -> None:
        self._alpha = settings.penalty_alpha
        self._top_k = settings.top_k
        self._forward = forward
        self._processors = processors
        forward.kwargs["output_hidden_states"] = True
        self._outputs: Any = None
        self._logits = torch.empty(0)
        self._context = torch.empty(0)  # (rows, positions, hidden): unit vectors
        self._real = torch.empty(0)  # (rows, positions): False on padding
        self._candidates = torch.empty(0)
        self._ahead: Any = None

    def step(self, input_ids: torch.Tensor) -> tuple[Any, torch.Tensor, torch.Tensor]:
        if self._outputs is None:
            self._begin(input_ids)
        scores = process(self._processors, input_ids, self._logits)
        top_k = min(self._top_k, scores.shape[-1])
        best, self._candidates = scores.topk(top_k, dim=-1)
        probabilities = scores.softmax(dim=-1).gather(1, self._candidates)
        penalty = self._look_ahead(input_ids)
        values = (1 - self._alpha) * probabilities - self._alpha * penalty
        values = values.masked_fill(best.isneginf(), -torch.inf)  # forbidden by a processor
        chosen_by = torch.full_like(scores, -torch.inf).scatter(1, self._candidates, values)
        return self._outputs, self._logits, chosen_by

    def _begin(self, input_ids: torch.Tensor) -> None:
        mask = self._forward.kwargs.get("attention_mask")
        self._outputs = self._forward(input_ids)
        self._logits = last_logits(self._outputs)
        self._context = _units(self._outputs.hidden_states[-1])
        self._real = torch.ones(self._context.shape[:2], dtype=torch.bool, device=self._context.device)
        if mask is not None:
            self._real &= mask.bool()

    def _look_ahead(self, input_ids: torch.Tensor) -> torch.Tensor:
        """Run the model on every candidate; return each one's greatest similarity to what came before."""
        rows, top_k = self._candidates.shape
        copies = torch.arange(rows, device=input_ids.device).repeat_interleave(top_k)
        self._forward.select(copies, rows)
        self._ahead = self._forward(torch.cat([input_ids[copies], self._candidates.reshape(-1, 1)], dim=1))
        units = _units(self._ahead.hidden_states[-1][:, -1]).view(rows, top_k, -1)
        similarity = units @ self._context.transpose(1, 2)  # (rows, candidates, positions)
        return similarity.masked_fill(~self._real[:, None], -torch.inf).amax(dim=-1)

    def settle(self, tokens: torch.Tensor) -> None:
        """Keep the rows of the tokens that were chosen (any row of a sequence that has ended and is padded)."""
        rows, top_k = self._candidates.shape
        which = (self._candidates == tokens[:, None]).int().argmax(dim=1)
        kept = torch.arange(rows, device=tokens.device) * top_k + which
        self._forward.select(kept, rows * top_k)
        self._outputs = select_rows(self._ahead, kept)
        self._logits = last_logits(self._outputs)
        self._context = torch.cat([self._context, _units(self._outputs.hidden_states[-1][:, -1:])], dim=1)
        self._real = torch.cat([self._real, self._real.new_ones(rows, 1)], dim=1)
        self._ahead = None


def _units(hidden: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.normalize(hidden.float(), dim=-1)
