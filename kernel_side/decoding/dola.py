r"""DoLa: the next token is what the last layer knows and an earlier one does not yet.

From the paper: Chuang, Xie, Luo, Kim, Glass, He, "DoLa: Decoding by Contrasting Layers Improves Factuality in Large
Language Models", ICLR 2024, arXiv:2309.03883. With :math:`q_j` the distribution that the model's output head gives on
the hidden state after layer :math:`j`, and :math:`N` the last layer:

- the premature layer is :math:`M = \arg\max_{j \in J} \mathrm{JSD}(q_N \| q_j)`, anew at each token (section 2.2);
- a token's score is :math:`\log q_N(x) - \log q_M(x)` where :math:`q_N(x) \ge \alpha \max_w q_N(w)`, and ``-inf``
  elsewhere (equations 4 and 5: the adaptive plausibility constraint).

As in the paper, an early hidden state goes into the head as it is, without the model's last norm. Unlike the authors'
code, the divergence is the paper's, and each row of a batch has a premature layer of its own. Not here: a head that
does more than project (soft-capping, scaling): early exits through it would not be comparable.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
from transformers import LogitsProcessorList, StoppingCriteriaList

from .forward import Forward, last_logits, process
from .own_loop import OwnLoop, choose_tokens
from .tap import Tap

__all__ = ["DoLa"]


@dataclass(frozen=True, slots=True)
class DoLa(OwnLoop):
    r"""Decoding by contrasting layers, as a loop for ``observe`` or ``custom_generate``.

    Greedy, or with ``do_sample=True`` sampling. The scores of a step are the contrast after the processors. Its logits
    are the last layer's.

    Parameters
    ----------
    layers : {"low", "high"} or sequence of int
        Candidates for the premature layer: every second layer of the lower or the upper half (of models of more than 40
        layers: of the first or the last 20), or those given, where 0 is the embeddings and ``n`` the output of the
        ``n``-th layer. The paper advises high layers for short answers, low ones for reasoning.
    plausibility : float
        The paper's alpha, from 0 (any token) to 1 (greedy): a token's least probability, relative to the greatest.

    Raises
    ------
    ValueError
        For settings out of their range; from ``generate`` (:class:`~.own_loop.LoopSettingsError`) for beams, layers
        that the model does not have, or a head that does more than project.

    Notes
    -----
    The paper adds a repetition penalty of 1.2: pass ``repetition_penalty=1.2`` to ``generate``. Where the processors
    forbid every plausible token of a row, its scores are the processed :math:`\log q_N` for that step. The embeddings
    of a model whose head is tied to them are no candidate of "low": they only know the token they encode.

    Examples
    --------
    >>> loop = DoLa(layers="high")
    >>> model.generate(**inputs, **observe(streamer, loop=loop), repetition_penalty=1.2)  # doctest: +SKIP
    """

    layers: Literal["low", "high"] | Sequence[int] = "high"
    plausibility: float = 0.1

    def __post_init__(self) -> None:
        if self.layers not in ("low", "high"):
            if isinstance(self.layers, str) or not all(isinstance(layer, int) for layer in self.layers):
                raise ValueError(f"layers is {self.layers!r}; choose 'low', 'high', or layers by number")
            object.__setattr__(self, "layers", tuple(self.layers))  # hashable, like all settings
            if not self.layers:
                raise ValueError("layers is empty; at least one candidate is needed")
        if not 0 <= self.plausibility <= 1:
            raise ValueError(f"plausibility is {self.plausibility}; it is a share from 0 (any token) to 1 (greedy)")

    def check(self, forward: Forward) -> None:
        """Refuse what does not go with this loop."""
        self.refuse_beams(forward.config)
        self.candidates(forward.model)

    def candidates(self, model: Any) -> tuple[int, ...]:
        """Return the layers that may be the premature one in this model.

        Raises
        ------
        LoopSettingsError
            When the model has no such layers.
        """
        config = model.config.get_text_config()
        count: int = config.num_hidden_layers
        if self.layers not in ("low", "high"):
            chosen = tuple(int(layer) for layer in self.layers)
            if wrong := [layer for layer in chosen if not 0 <= layer < count]:
                way_out = f"choose from 0 (the embeddings) to {count - 1}"
                self.refuse(f"contrasts layers below the last, {count}", f"layers has {wrong}", way_out)
            return chosen
        half = min(count // 2, 20) if self.layers == "low" else max(count // 2, count - 20)
        first = (2 if count > 2 else 1) if model.config.tie_word_embeddings else 0
        span = range(first, half, 2) if self.layers == "low" else range(half, count, 2)
        chosen = tuple(span) or (first,)
        if chosen[0] >= count:
            self.refuse("contrasts layers below the last", f"the model has {count}", "use another strategy")
        return chosen

    def decode(
        self,
        tap: Tap,
        forward: Forward,
        input_ids: torch.Tensor,
        processors: LogitsProcessorList,
        criteria: StoppingCriteriaList,
    ) -> Any:
        """Decode until all rows have ended."""
        layers, head = self.candidates(forward.model), forward.model.get_output_embeddings()
        forward.kwargs["output_hidden_states"] = True
        checked = False

        def step(input_ids: torch.Tensor) -> tuple[Any, torch.Tensor, torch.Tensor]:
            nonlocal checked
            outputs = forward(input_ids)
            logits = last_logits(outputs)
            if not checked:
                self._check_head(head, outputs, logits)
                checked = True
            early = torch.stack([head(outputs.hidden_states[layer][:, -1]).float() for layer in layers])
            last, contrast = contrast_layers(logits, early)
            plausible = last >= last.amax(dim=-1, keepdim=True) + torch.tensor(self.plausibility).log()
            scores = process(processors, input_ids, contrast.masked_fill(~plausible, -torch.inf))
            nothing_left = scores.isneginf().all(dim=-1, keepdim=True)
            if nothing_left.any():
                scores = torch.where(nothing_left, process(processors, input_ids, last), scores)
            return outputs, logits, scores

        return choose_tokens(tap, step, forward, input_ids, criteria)

    def _check_head(self, head: Any, outputs: Any, logits: torch.Tensor) -> None:
        projected = head(outputs.hidden_states[-1][:, -1]).float()
        # Rounding in the model's dtype moves logits by far less; a soft cap or a scale that matters, by more.
        if (projected - logits).abs().max() > 0.02 * logits.abs().max():
            given = "it does more (soft-capping or scaling, say)"
            self.refuse("needs an output head that only projects the last hidden state", given, "use another strategy")


def contrast_layers(logits: torch.Tensor, early: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Contrast the last layer with the early layer that differs most, row by row.

    Parameters
    ----------
    logits : torch.Tensor
        Shape ``(rows, vocabulary)``, float32.
    early : torch.Tensor
        Shape ``(layers, rows, vocabulary)``, float32: the head on the candidates.

    Returns
    -------
    last : torch.Tensor
        Log-probabilities of the last layer.
    contrast : torch.Tensor
        Those, less the log-probabilities of the row's premature layer.
    """
    last, others = logits.log_softmax(dim=-1), early.log_softmax(dim=-1)
    middle = torch.logaddexp(last, others) - torch.tensor(2.0).log()

    def divergence(log_p: torch.Tensor) -> torch.Tensor:
        return (log_p.exp() * (log_p - middle)).sum(dim=-1)

    premature = (divergence(last) + divergence(others)).argmax(dim=0)  # (rows,); twice the JSD
    return last, last - others[premature, torch.arange(len(premature), device=premature.device)]
