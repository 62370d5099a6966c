"""Turns step outputs into rows of a record: measures, texts, times.

A streamer like any other, for one row of a batch, so that ``observe(Recorder(...))`` records a plain ``generate`` call.
It decides nothing about the generation.
"""

from __future__ import annotations

import time
from typing import Protocol

import torch
from transformers import PreTrainedTokenizerBase

from ..streaming.base import StepStreamer
from ..streaming.outputs import Field, PromptOutput, StepOutput
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

    Parameters
    ----------
    tokenizer : PreTrainedTokenizerBase
    alternatives : int
        Candidates recorded at each position.
    prompt_probabilities : bool
        Whether prompt tokens are measured too; costs one more prefill.
    row : int
        Which row of the batch.
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

    def put(self, output: PromptOutput | StepOutput) -> None:
        """Record the prompt, or a token."""
        began = time.perf_counter()
        if isinstance(output, PromptOutput):
            self._put_prompt(output)
        elif bool(output.active[self._row]):
            self._put_step(output)
        self.busy += time.perf_counter() - began

    def end(self, error: BaseException | None = None) -> None:  # noqa: ARG002 - a record is kept all the same
        """Complete the text. The record keeps what it has, however the generation ended."""
        self.record.tail = self._detokenizer.tail()

    def _put_prompt(self, output: PromptOutput) -> None:
        tokens = output.tokens[self._row]
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
        if output.logits is None or output.scores is None:
            msg = "a step without logits and scores cannot be recorded"
            raise ValueError(msg)
        row = slice(self._row, self._row + 1)
        # One tensor handed out twice stays one, so that measure does its work once.
        logits = output.logits[row]
        scores = logits if output.scores is output.logits else output.scores[row]
        [numbers] = measure(logits, scores, output.tokens[row], self._alternatives)
        moment = self.clock.since_start(output.seconds)
        self._append(int(output.tokens[self._row]), "generated", numbers, moment - self._last_moment)
        self._last_moment = moment

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
