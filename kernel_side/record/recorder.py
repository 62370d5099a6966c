"""Turns step outputs into rows of a record: measures, texts, times.

A streamer like any other, for one row of a batch, so that ``observe(Recorder(...))`` records a plain ``generate`` call.
It decides nothing about the generation.
"""

from __future__ import annotations

import time
from typing import Protocol, TypeVar

import torch
from transformers import PreTrainedTokenizerBase

from ..streaming.assisted_outputs import AssistedStepOutput
from ..streaming.base import StepStreamer
from ..streaming.beam_outputs import BeamResult, BeamStepOutput
from ..streaming.outputs import Field, Output, PromptOutput, StepOutput
from .detokenize import Detokenizer
from .measures import Measures, measure
from .record import Alternative, Origin, Record, Token

__all__ = ["Clock", "Recorder"]


class Clock(Protocol):
    """Where times come from."""

    def since_start(self, moment: float) -> float:
        """Return seconds from the start to a ``perf_counter`` moment, pauses left out."""


class _StartedNow:
    """A clock that started when it was made and never pauses."""

    def __init__(self) -> None:
        self._start = time.perf_counter()

    def since_start(self, moment: float) -> float:
        return moment - self._start


class Recorder(StepStreamer):
    """Records one row of a generation.

    Of a beam search no token is final before its end: then the row's sequence is recorded, each token with the measures
    that it had in its step, and with that step's time. The tokens of an assisted round come at one moment: the first
    has the round's time, the others none.

    Parameters
    ----------
    tokenizer : PreTrainedTokenizerBase
    alternatives : int
        Candidates recorded at each position.
    prompt_probabilities : bool
        Whether prompt tokens are measured too; costs one more prefill.
    row : int
        Which of the sequences that ``generate`` returns.
    clock : Clock, optional
        By default one that starts now.

    Attributes
    ----------
    clock : Clock
        For the times of the tokens.
    record : Record
        Grows while the generation runs. Left padding is no token of it.
    busy : float
        Seconds spent in here so far.
    """

    follows_rows = True

    def __init__(
        self,
        tokenizer: PreTrainedTokenizerBase,
        *,
        alternatives: int = 10,
        prompt_probabilities: bool = False,
        row: int = 0,
        clock: Clock | None = None,
    ) -> None:
        fields: list[Field] = ["scores", "logits"]
        self.fields = frozenset([*fields, "prompt_logits"] if prompt_probabilities else fields)
        self.record = Record()
        self.busy = 0.0
        self._alternatives = alternatives
        self._row = row
        self.clock: Clock = clock or _StartedNow()
        self._detokenizer = Detokenizer(tokenizer)
        self._last_moment = 0.0
        # Logits of the last position of a slice predict the first token of the next one.
        self._pending_logits: torch.Tensor | None = None
        self._rows = 1
        # Of each step of a beam search: its time, and the measures of its candidates by row and token.
        self._beam_steps: list[tuple[float, dict[tuple[int, int], Measures]]] = []

    def put(self, output: Output) -> None:
        """Record the prompt, or tokens."""
        began = time.perf_counter()
        if isinstance(output, PromptOutput):
            self._put_prompt(output)
        elif isinstance(output, BeamStepOutput):
            self._put_beam_step(output)
        elif isinstance(output, BeamResult):
            self._put_beam_result(output)
        elif isinstance(output, AssistedStepOutput):
            self._put_round(output)
        elif bool(output.active[self._row]):
            self._put_step(output)
        self.busy += time.perf_counter() - began

    def end(self, error: BaseException | None = None) -> None:  # noqa: ARG002 - a record is kept all the same
        """Complete the text. The record keeps what it has, however the generation ended."""
        self.record.tail = self._detokenizer.tail()

    def _put_prompt(self, output: PromptOutput) -> None:
        tokens = output.tokens[self._row]
        self._rows = len(output.tokens)
        measures: list[Measures | None] = [None] * len(tokens)
        if output.logits is not None:
            logits = output.logits[self._row]
            before = logits[:-1] if self._pending_logits is None else torch.cat([self._pending_logits, logits[:-1]])
            first = len(tokens) - len(before)  # 1 at the very start: nothing predicts the first token
            if len(before):
                measures[first:] = measure(before, None, tokens[first:], self._alternatives)
            self._pending_logits = logits[-1:].clone()  # a view would keep the whole slice
        real = (
            [True] * len(tokens) if output.attention_mask is None else output.attention_mask[self._row].bool().tolist()
        )
        for token, kept, numbers in zip(tokens.tolist(), real, measures, strict=True):
            if kept:
                # Behind left padding the first real token was predicted from padding: no measure of it.
                self._append(token, "prompt", numbers if len(self.record) else None, None)

    def _put_step(self, output: StepOutput) -> None:
        logits, scores = _distributions(output.logits, output.scores)
        row = slice(self._row, self._row + 1)
        # One tensor handed out twice stays one, so that measure does its work once.
        of_row = logits[row]
        [numbers] = measure(of_row, of_row if scores is logits else scores[row], output.tokens[row], self._alternatives)
        self._append(int(output.tokens[self._row]), "generated", numbers, self._lap(output.seconds))

    def _put_round(self, output: AssistedStepOutput) -> None:
        logits, scores = _distributions(output.logits, output.scores)
        tokens = output.tokens[0]
        seconds = self._lap(output.seconds)
        measures = measure(torch.cat(logits), torch.cat(scores), tokens, self._alternatives)
        for index, (token, numbers) in enumerate(zip(tokens.tolist(), measures, strict=True)):
            self._append(token, "generated", numbers, 0.0 if index else seconds)

    def _put_beam_step(self, output: BeamStepOutput) -> None:
        logits, scores = _distributions(output.logits, output.scores)
        prompt = self._row // (self._rows // len(output.candidate_tokens))
        tokens, parents = output.candidate_tokens[prompt], output.candidate_parents[prompt]
        measures = measure(logits[parents], scores[parents], tokens, self._alternatives)
        keys = zip(parents.tolist(), tokens.tolist(), strict=True)
        self._beam_steps.append((self._lap(output.seconds), dict(zip(keys, measures, strict=True))))

    def _put_beam_result(self, output: BeamResult) -> None:
        length = int(output.lengths[self._row])
        tokens = output.sequences[self._row, output.prompt_length :].tolist()[:length]
        parents = output.beam_indices[self._row].tolist()[:length]
        for token, parent, (seconds, measures) in zip(tokens, parents, self._beam_steps, strict=False):
            self._append(token, "generated", measures[parent, token], seconds)
        self._beam_steps.clear()

    def _lap(self, seconds: float) -> float:
        moment = self.clock.since_start(seconds)
        lap, self._last_moment = moment - self._last_moment, moment
        return lap

    def _append(self, token: int, origin: Origin, numbers: Measures | None, seconds: float | None) -> None:
        alternatives = (
            ()
            if numbers is None
            else tuple(
                Alternative(entry.id, self._detokenizer.peek(entry.id), entry.raw_logprob, entry.logprob)
                for entry in numbers.candidates
            )
        )
        piece = self._detokenizer.push(token)
        self.record.append(
            Token(
                position=len(self.record),
                id=token,
                text=piece.text,
                shown=piece.shown,
                bytes=piece.bytes,
                group=piece.group,
                special=piece.special,
                origin=origin,
                raw_logprob=None if numbers is None else numbers.raw_logprob,
                logprob=None if numbers is None else numbers.logprob,
                entropy=None if numbers is None else numbers.entropy,
                rank=None if numbers is None else numbers.rank,
                seconds=seconds,
                alternatives=alternatives,
            )
        )


Distribution = TypeVar("Distribution", torch.Tensor, tuple[torch.Tensor, ...])


def _distributions(logits: Distribution | None, scores: Distribution | None) -> tuple[Distribution, Distribution]:
    if logits is None or scores is None:
        msg = "a step without logits and scores cannot be recorded"
        raise ValueError(msg)
    return logits, scores
