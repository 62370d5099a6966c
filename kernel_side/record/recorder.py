"""Turns step outputs into rows of records, and of the tables of rounds and beam steps: measures, texts, times.

A streamer like any other, so that ``observe(Recorder(...))`` records a plain ``generate`` call. It decides nothing
about the generation. How one sequence is written is in ``row_writer``, how a beam search is in ``search``.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Protocol, TypeVar

import torch
from transformers import PreTrainedTokenizerBase

from ..streaming.assisted_outputs import AssistedStepOutput
from ..streaming.base import StepStreamer
from ..streaming.beam_outputs import BeamResult, BeamStepOutput
from ..streaming.outputs import Field, Output, PromptOutput, StepOutput
from .measures import Measures, measure
from .record import Record
from .rounds import Draft, Round
from .row_writer import RowWriter
from .search import Search
from .table import Table

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
    """Records a generation.

    Of a beam search no token is final before its end: then the sequences are recorded, each token with the measures
    that it had in its step, and with that step's time. The tokens of an assisted round come at one moment: the first
    has the round's time, the others none.

    Parameters
    ----------
    tokenizer : PreTrainedTokenizerBase
    rows : int
        How many of the sequences that ``generate`` returns are recorded, from the first on.
    sources : int
        How many prompts of an encoder-decoder model have what its encoder reads recorded.
    alternatives : int
        Candidates recorded at each position.
    prompt_probabilities : bool
        Whether prompt tokens are measured too; costs one more prefill.
    scores_are_logits : bool
        Whether tokens are chosen from the softmax of the scores; False (contrastive search) leaves the probability that
        a token was chosen with unknown.
    clock : Clock, optional
        By default one that starts now.

    Attributes
    ----------
    clock : Clock
        For the times of the tokens.
    records : tuple of Record
        One a row; they grow while the generation runs. Left padding is no token of theirs.
    sources : tuple of Record
        What the encoder read, one a prompt.
    rounds : Table of Round
    beams : Table of BeamStep
    choices : Table of BeamChoice
        See :class:`~.recording.Recording`.
    busy : float
        Seconds spent in here so far.
    steps : int
        Steps so far.
    first, last : float or None
        Seconds by the clock at the first step and at the last one.
    reused : sequence of int, or None
        How many tokens of each row's prompt come from a prefix cache; None without one. Set before the prompt is put.
    sources_reused : sequence of bool, or None
        Whether what the encoder read of each prompt does.
    over : bool
        Whether the last step ended all rows; of a beam search, which may end by its own estimate too, all candidates.
    """

    def __init__(
        self,
        tokenizer: PreTrainedTokenizerBase,
        *,
        rows: int = 1,
        sources: int = 0,
        alternatives: int = 10,
        prompt_probabilities: bool = False,
        scores_are_logits: bool = True,
        clock: Clock | None = None,
    ) -> None:
        fields: list[Field] = ["scores", "logits"]
        self.fields = frozenset([*fields, "prompt_logits"] if prompt_probabilities else fields)
        self.clock: Clock = clock or _StartedNow()
        self.rounds: Table[Round] = Table()
        self.busy = 0.0
        self.steps = 0
        self.first: float | None = None
        self.last: float | None = None
        self.over = False
        self.reused: Sequence[int] | None = None
        self.sources_reused: Sequence[bool] | None = None
        self._writers = [RowWriter(tokenizer) for _ in range(rows)]
        self._sources = [RowWriter(tokenizer) for _ in range(sources)]
        self._alternatives = alternatives
        self._scores_are_logits = scores_are_logits
        # Logits of the last position of a slice predict the first token of the next one.
        self._pending_logits: torch.Tensor | None = None
        self._rows = rows  # of the batch
        self._search = Search(self._writers)
        self.beams, self.choices = self._search.steps, self._search.choices

    @property
    def records(self) -> tuple[Record, ...]:
        """The tokens so far, a record a row."""
        return tuple(writer.record for writer in self._writers)

    @property
    def record(self) -> Record:
        """The tokens of the first row so far."""
        return self._writers[0].record

    @property
    def sources(self) -> tuple[Record, ...]:
        """What the encoder read."""
        return tuple(writer.record for writer in self._sources)

    def put(self, output: Output) -> None:
        """Record the prompt, tokens, or a step of a search."""
        began = time.perf_counter()
        if isinstance(output, PromptOutput):
            self._put_prompt(output)
        elif isinstance(output, BeamStepOutput):
            logits, scores = _distributions(output.logits, output.scores)
            tokens, parents = output.candidate_tokens.flatten(), output.candidate_parents.flatten()
            measures = self._measure(logits[parents], scores[parents], tokens)
            self.over = bool(output.candidate_stops.all())
            self._search.step(output, measures, self._lap(output.seconds), self._rows)
        elif isinstance(output, BeamResult):
            self._search.end(output)
        elif isinstance(output, AssistedStepOutput):
            self._put_round(output)
        else:
            self._put_step(output)
        self.busy += time.perf_counter() - began

    def end(self, error: BaseException | None = None) -> None:  # noqa: ARG002 - a record is kept all the same
        """Complete the texts. The records keep what they have, however the generation ended."""
        for writer in (*self._writers, *self._sources):
            writer.end()

    def _put_prompt(self, output: PromptOutput) -> None:
        self._rows = len(output.tokens)
        source = output.source
        if source is not None and source.tokens is not None:
            known: Sequence[bool | None] = self.sources_reused or [None] * len(self._sources)
            for writer, cached, tokens, real in zip(
                self._sources, known, *_rows_of(source.tokens, source.attention_mask), strict=False
            ):
                given = tokens[real].tolist()
                writer.extend(given, "prompt", [cached] * len(given))
        pending, self._pending_logits = self._pending_logits, None if output.logits is None else output.logits[:, -1:]
        for row, (writer, tokens, real) in enumerate(
            zip(self._writers, *_rows_of(output.tokens, output.attention_mask), strict=False)
        ):
            at, reused = len(writer.record), None if self.reused is None else self.reused[row]
            if output.logits is None:
                given = tokens[real].tolist()
                hits = [None if reused is None else place < reused for place in range(at, at + len(given))]
                writer.extend(given, "prompt", hits)
                continue
            before = output.logits[row, :-1]
            if pending is not None:
                before = torch.cat([pending[row], before])
            first = len(tokens) - len(before)  # 1 at the very start: nothing predicts the first token
            measures: list[Measures | None] = [None] * len(tokens)
            if len(before):
                measures[first:] = measure(before, None, tokens[first:], self._alternatives)
            for token, kept, numbers in zip(tokens.tolist(), real.tolist(), measures, strict=True):
                if kept:
                    # Behind left padding the first real token was predicted from padding: no measure of it.
                    hit = None if reused is None else at < reused
                    writer.append(token, "prompt", numbers if at else None, cached=hit)
                    at += 1
        if self._pending_logits is not None:
            self._pending_logits = self._pending_logits.clone()  # a view would keep the whole slice

    def _put_step(self, output: StepOutput) -> None:
        logits, scores = _distributions(output.logits, output.scores)
        seconds = self._lap(output.seconds)
        self.over = bool(output.finished.all())
        rows = output.active[: len(self._writers)].nonzero()[:, 0]
        if not len(rows):
            return
        if len(rows) < len(logits):
            # One tensor handed out twice stays one, so that measure does its work once.
            of_rows = logits[rows]
            logits, scores = of_rows, of_rows if scores is logits else scores[rows]
        tokens = output.tokens[rows]
        for row, token, numbers in zip(
            rows.tolist(), tokens.tolist(), self._measure(logits, scores, tokens), strict=True
        ):
            self._writers[row].append(token, "generated", numbers, seconds)

    def _put_round(self, output: AssistedStepOutput) -> None:
        logits, scores = _distributions(output.logits, output.scores)
        tokens = output.tokens[0]
        seconds = self._lap(output.seconds)
        self.over = bool(output.finished.all())
        [writer] = self._writers
        self.rounds.append(
            Round(
                step=output.step,
                position=len(writer.record),
                drafts=self._drafts(output, writer),
                accepted=output.accepted,
                bonus=output.bonus,
                seconds=seconds,
            )
        )
        measures = self._measure(torch.cat(logits), torch.cat(scores), tokens)
        for index, (token, numbers) in enumerate(zip(tokens.tolist(), measures, strict=True)):
            writer.append(token, "generated", numbers, 0.0 if index else seconds)

    @staticmethod
    def _drafts(output: AssistedStepOutput, writer: RowWriter) -> tuple[Draft, ...]:
        ids = output.drafted[0]
        if not len(ids) or output.check_scores is None:
            return ()
        target = _logprobs(output.check_scores[0, : len(ids)], ids)
        drafted: list[float] | list[None] = [None] * len(ids)
        if output.draft_scores is not None:
            drafted = _logprobs(output.draft_scores[0], ids)
        tokens = ids.tolist()
        texts = writer.texts_of(tokens)
        return tuple(Draft(*draft) for draft in zip(tokens, texts, drafted, target, strict=True))

    def _measure(self, logits: torch.Tensor, scores: torch.Tensor, tokens: torch.Tensor) -> list[Measures]:
        return measure(logits, scores if self._scores_are_logits else None, tokens, self._alternatives)

    def _lap(self, seconds: float) -> float:
        moment = self.clock.since_start(seconds)
        lap = moment - (self.last or 0.0)
        self.first = moment if self.first is None else self.first
        self.last = moment
        self.steps += 1
        return lap


def _rows_of(tokens: torch.Tensor, mask: torch.Tensor | None) -> tuple[torch.Tensor, torch.Tensor]:
    """Return tokens and, of the same shape, which of them are not padding."""
    return tokens, torch.ones_like(tokens, dtype=torch.bool) if mask is None else mask.bool()


def _logprobs(scores: torch.Tensor, tokens: torch.Tensor) -> list[float]:
    """Return the natural-log probability of each token in its row of scores."""
    logprobs = scores.float().log_softmax(dim=-1).gather(1, tokens[:, None].to(scores.device))
    return [float(value) for value in logprobs[:, 0]]


Distribution = TypeVar("Distribution", torch.Tensor, tuple[torch.Tensor, ...])


def _distributions(logits: Distribution | None, scores: Distribution | None) -> tuple[Distribution, Distribution]:
    if logits is None or scores is None:
        msg = "a step without logits and scores cannot be recorded"
        raise ValueError(msg)
    return logits, scores
