"""Taps the library's beam search, which beam sampling is too.

What a step considered and kept is spread over four methods that the loop calls on the model: the stand-in for the model
looks at each. Which candidate became which live or finished hypothesis is not told by the library; a label that rides
along behind the candidates' tokens, through the library's own selection, tells it.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from typing import Any

import torch

from ..streaming.beam_outputs import BeamResult, BeamStepOutput
from ..streaming.outputs import Field, Step
from .tap import Call, LoopTap, TappedModel, TappedProcessors

__all__ = ["BeamTap", "run_beams"]


class BeamTap(LoopTap):
    """The tap of beam search; see :class:`~.tap.LoopTap`. A stop makes the live hypotheses the finished ones."""

    def __init__(
        self,
        fields: frozenset[Field],
        commit: Callable[[Step], bool],
        draws: contextlib.AbstractContextManager[object] | None = None,
        hidden_layers: tuple[int, ...] | None = None,
    ) -> None:
        super().__init__(fields, commit, draws, hidden_layers)
        self.stopped = False
        self._finished_labels: torch.Tensor | None = None
        self._pool: tuple[torch.Tensor, torch.Tensor] | None = None  # scores, beam indices

    def on_forward(self, outputs: Any) -> None:
        """Take the logits too: what the processors are given are log-probabilities."""
        super().on_forward(outputs)
        if "logits" in self.fields:
            self._parts["logits"] = outputs.logits[:, -1, :].to(copy=True, dtype=torch.float32)

    def on_scores(self, _: torch.Tensor, scores: torch.Tensor) -> None:
        """Take the log-probabilities after all processors."""
        if "scores" in self.fields:
            self._parts["scores"] = scores

    def on_candidates(
        self, scores: torch.Tensor, sequences: torch.Tensor, beam_indices: torch.Tensor, length: int, prompt_length: int
    ) -> None:
        """Take the candidates, ``length`` being that without their new tokens."""
        self._parts |= {
            "length": length + 1,
            "candidate_tokens": sequences[:, :, length],
            "candidate_parents": beam_indices[:, :, length - prompt_length].long(),
            "candidate_scores": scores,
        }

    def on_live(self, choose: Callable[..., Any], topk_running_sequences: torch.Tensor, **kwargs: Any) -> Any:
        """Let the library choose the live hypotheses, and note which candidates they are."""
        labels = self._candidate_labels(topk_running_sequences)[..., 1:]
        labelled = torch.cat([topk_running_sequences, labels], dim=-1)
        sequences, scores, beam_indices = choose(topk_running_sequences=labelled, **kwargs)
        self._parts |= {"live": sequences[..., -1], "live_scores": scores}
        return sequences[..., :-1], scores, beam_indices

    def on_finished(
        self,
        choose: Callable[..., Any],
        sequences: torch.Tensor,
        topk_running_sequences: torch.Tensor,
        next_token_hits_stopping_criteria: torch.Tensor,
        **kwargs: Any,
    ) -> Any:
        """Let the library choose the pool of finished hypotheses, and commit the step."""
        if self._finished_labels is None:
            self._finished_labels = sequences.new_full((*sequences.shape[:2], 2), -1)
        pool = torch.cat([sequences, self._finished_labels], dim=-1)
        candidates = torch.cat([topk_running_sequences, self._candidate_labels(topk_running_sequences)], dim=-1)

        def choose_with(stops: torch.Tensor) -> tuple[Any, ...]:
            kwargs_now = kwargs | {"next_token_hits_stopping_criteria": stops}
            return tuple(choose(sequences=pool, topk_running_sequences=candidates, **kwargs_now))

        chosen = choose_with(next_token_hits_stopping_criteria)
        labels = chosen[0][..., -2:]
        output = BeamStepOutput(
            step=self._step,
            seconds=time.perf_counter(),
            candidate_stops=next_token_hits_stopping_criteria,
            finished=chosen[3],
            finished_scores=chosen[1],
            finished_steps=labels[..., 0],
            finished_candidates=labels[..., 1],
            **self._take_parts(),
        )
        if self._commit(output):
            # As where the length limit ends all candidates at once.
            self.stopped = True
            chosen = choose_with(torch.ones_like(next_token_hits_stopping_criteria))
        self._finished_labels = chosen[0][..., -2:]
        self._pool = (chosen[1], chosen[2])
        return chosen[0][..., :-2], *chosen[1:]

    def result(self, sequences: torch.Tensor, prompt_length: int, returned: int) -> BeamResult:
        """Describe the returned sequences, the first ``returned`` of each prompt's pool."""
        if self._pool is None or self._finished_labels is None:
            raise RuntimeError("the beam search ended without a step")
        scores, beam_indices = (part[:, :returned].flatten(0, 1) for part in self._pool)
        labels = self._finished_labels[:, :returned].flatten(0, 1)
        lengths = (beam_indices >= 0).sum(dim=1)
        return BeamResult(
            prompt_length=prompt_length,
            sequences=sequences,
            lengths=lengths,
            scores=scores,
            beam_indices=beam_indices[:, : int(lengths.max())],
            steps=labels[:, 0],
            candidates=labels[:, 1],
        )

    def _candidate_labels(self, candidates: torch.Tensor) -> torch.Tensor:
        """Label each candidate with this step and its place, shape ``(batch, kept, 2)``."""
        batch, kept = candidates.shape[:2]
        step = candidates.new_full((batch, kept), self._step)
        place = torch.arange(kept, device=candidates.device).expand(batch, kept)
        return torch.stack([step, place], dim=-1)


class _BeamModel(TappedModel[BeamTap]):
    """The stand-in for the model; the methods are those that ``_beam_search`` of transformers 5.24 calls."""

    def _get_top_k_continuations(self, **kwargs: Any) -> Any:
        self._tap.begin_choice()
        scores, sequences, beam_indices = self._model._get_top_k_continuations(**kwargs)  # noqa: SLF001 - the tap
        self._tap.close()
        self._tap.on_candidates(scores, sequences, beam_indices, kwargs["cur_len"], kwargs["decoder_prompt_len"])
        return scores, sequences, beam_indices

    def _get_running_beams_for_next_iteration(self, **kwargs: Any) -> Any:
        return self._tap.on_live(self._model._get_running_beams_for_next_iteration, **kwargs)  # noqa: SLF001 - the tap

    def _update_finished_beams(self, **kwargs: Any) -> Any:
        return self._tap.on_finished(self._model._update_finished_beams, **kwargs)  # noqa: SLF001 - the tap

    def _beam_search_has_unfinished_sequences(self, *args: Any) -> Any:
        unfinished = self._model._beam_search_has_unfinished_sequences(*args)  # noqa: SLF001 - the tap
        return torch.zeros_like(unfinished) if self._tap.stopped else unfinished


def run_beams(call: Call, tap: BeamTap, conclude: Callable[[BeamResult], None]) -> Any:
    """Run the library's beam search, tapped; returns what it returns, after telling ``conclude`` what it chose."""
    loop: Any = type(call.model)
    output = loop._beam_search(  # noqa: SLF001 - the tap
        _BeamModel(call.model, tap, call.held),
        call.input_ids,
        logits_processor=TappedProcessors(call.logits_processor, tap.on_scores),
        stopping_criteria=call.stopping_criteria,
        generation_config=call.generation_config,
        **call.model_kwargs,
    )
    sequences = output if isinstance(output, torch.Tensor) else output.sequences
    returned = call.generation_config.num_return_sequences or 1
    conclude(tap.result(sequences, call.input_ids.shape[1], returned))
    return output
