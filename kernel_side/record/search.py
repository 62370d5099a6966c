"""Records a beam search: its steps as they come, its sequences once they are chosen.

No token of a search is final before its end. Until then each hypothesis is remembered with what was measured about its
tokens, as a chain that shares its beginning with others; what dies is forgotten. Measures nothing itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..streaming.beam_outputs import BeamResult, BeamStepOutput
from .beams import BeamCandidate, BeamChoice, BeamStep, FinishedBeam
from .measures import Measures
from .row_writer import RowWriter
from .table import Table

__all__ = ["Search"]

_NOTHING = -1e8
"""Scores of hypotheses below this stand for none: the library fills with -1e9."""


@dataclass(frozen=True, slots=True)
class _Link:
    """The last token of a hypothesis, and the hypothesis before it."""

    before: _Link | None
    token: int
    score: float | None
    measures: Measures
    seconds: float


class Search:
    """The record of one beam search.

    Parameters
    ----------
    writers : sequence of RowWriter
        Of the sequences that are recorded, the first ones of those that are returned.

    Attributes
    ----------
    steps : Table of BeamStep
        Of the prompts that a sequence is recorded of.
    choices : Table of BeamChoice
    """

    def __init__(self, writers: Sequence[RowWriter]) -> None:
        self.steps: Table[BeamStep] = Table()
        self.choices: Table[BeamChoice] = Table()
        self._writers = writers
        self._first: list[int] = []  # by prompt: its first sequence
        self._live: list[list[_Link | None]] = []  # by prompt and beam
        # By prompt: the hypotheses that may still be chosen, named by step and candidate.
        self._held: list[dict[tuple[int, int], _Link]] = []

    def step(self, output: BeamStepOutput, measures: Sequence[Measures], seconds: float, rows: int) -> None:
        """Record a step.

        Parameters
        ----------
        output : BeamStepOutput
        measures : sequence of Measures
            Of the candidates, prompt after prompt.
        seconds : float
            Time since the step before.
        rows : int
            Sequences that will be returned, of all prompts.
        """
        prompts, kept = output.candidate_tokens.shape
        beams = output.live.shape[1]
        if not self._live:
            self._first = [prompt * rows // prompts for prompt in range(prompts)]
            self._live = [[None] * beams for _ in range(prompts)]
            self._held = [{} for _ in range(prompts)]
        for prompt, first in enumerate(self._first):
            if first >= len(self._writers):
                break  # no sequence of this prompt is recorded
            candidates = _candidates(output, prompt, beams, self._writers[first])
            of_prompt = measures[prompt * kept : (prompt + 1) * kept]
            links = [
                _Link(self._live[prompt][one.beam], one.id, one.score, numbers, seconds)
                for one, numbers in zip(candidates, of_prompt, strict=True)
            ]
            newest = {(output.step, place): link for place, link in enumerate(links)}
            known = self._held[prompt] | newest
            pool = _pool(output, prompt)
            step = BeamStep(
                prompt=prompt,
                step=output.step,
                candidates=candidates,
                live=tuple(output.live[prompt].tolist()),
                live_scores=tuple(map(_score, output.live_scores[prompt].tolist())),
                finished=tuple(
                    FinishedBeam(*name, None if known[name].score is None else score) for name, score in pool.items()
                ),
            )
            self.steps.append(step)
            # A search that is stopped now may choose any candidate of this step.
            self._held[prompt] = {name: known[name] for name in pool} | newest
            self._live[prompt] = [links[index] for index in step.live]

    def end(self, output: BeamResult) -> None:
        """Record what was chosen."""
        for row, writer in enumerate(self._writers):
            prompt = max(index for index, first in enumerate(self._first) if first <= row)
            step, candidate = int(output.steps[row]), int(output.candidates[row])
            link = self._held[prompt].get((step, candidate))
            # A copy that the search fills up with has tokens, but no score.
            score = None if link is None or link.score is None else float(output.scores[row])
            self.choices.append(BeamChoice(lane=row, prompt=prompt, step=step, candidate=candidate, score=score))
            chain = []
            while link is not None:
                chain.append(link)
                link = link.before
            for one in reversed(chain):
                writer.append(one.token, "generated", one.measures, one.seconds)
        self._live, self._held = [], []


def _candidates(output: BeamStepOutput, prompt: int, beams: int, writer: RowWriter) -> tuple[BeamCandidate, ...]:
    columns = (output.candidate_tokens, output.candidate_parents, output.candidate_scores, output.candidate_stops)
    return tuple(
        BeamCandidate(token, writer.text_of(token), parent - prompt * beams, _score(score), stops)
        for token, parent, score, stops in zip(*(column[prompt].tolist() for column in columns), strict=True)
    )


def _pool(output: BeamStepOutput, prompt: int) -> dict[tuple[int, int], float]:
    """Return the scores in the pool, the best first, by step and candidate."""
    columns = (output.finished, output.finished_steps, output.finished_candidates, output.finished_scores)
    return {
        (step, candidate): score
        for taken, step, candidate, score in zip(*(column[prompt].tolist() for column in columns), strict=True)
        if taken
    }


def _score(score: float) -> float | None:
    return score if score > _NOTHING else None
