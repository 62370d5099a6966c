"""An engine that generates made-up tokens.

The runs are real ones; only the model is missing, so that thousands of tokens come at once, or exactly when a test says.
What a request asks for shapes them: a lane for each prompt and sequence, rounds where the strategy drafts, steps where
it searches.
"""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any

import fake_rows
from fake_rows import make_choice, make_round, make_step, make_token
from genscope.kernel_side.caching.reuse import PromptReuse
from genscope.kernel_side.engines.base import Outcome, Progress
from genscope.kernel_side.engines.turnstile import Turnstile
from genscope.kernel_side.record.record import Record
from genscope.kernel_side.record.recording import Lane, Recording
from genscope.kernel_side.request import Request
from genscope.kernel_side.tracing.use import Use

DRAFTS = 4
"""Drafted tokens a round."""
LAYERS, HEADS = 2, 3


class FakeEngine:
    """Generates ``count`` tokens a lane as fast as it can; with a gate, a step for each ``gate.release()``.

    Parameters
    ----------
    count : int
    prompt : int
        Tokens of each prompt.
    gate : threading.Semaphore, optional
    fail_at : int, optional
        Step that raises.
    source : int
        Tokens that an encoder read of each prompt; 0 for no encoder.
    ragged : bool
        Whether each lane ends a token before the one above it.
    """

    chat = False
    context = None

    def __init__(
        self,
        count: int,
        *,
        prompt: int = 3,
        gate: threading.Semaphore | None = None,
        fail_at: int | None = None,
        source: int = 0,
        ragged: bool = False,
    ) -> None:
        self.turnstile = Turnstile()
        self.count, self.prompt, self.gate, self.fail_at = count, prompt, gate, fail_at
        self.source, self.ragged = source, ragged

    def prepare(self, request: Request) -> FakeJob:
        return FakeJob(self, request)


class FakeJob:
    busy = 0.0
    reuse: PromptReuse | None = None
    execution: Use | None = None

    def __init__(self, engine: FakeEngine, request: Request) -> None:
        self.engine, self.request = engine, request
        sequences = request.settings.sequences
        sources = [Record() if engine.source else None for _ in request.prompts]
        self.recording = Recording(
            tuple(
                Lane(prompt, sequence, Record(), source, engine.prompt)
                for prompt, source in enumerate(sources)
                for sequence in range(sequences)
            )
        )
        # Typed as what a job has: the real ones need a model.
        self.looks: Any = FakeLooks(self)
        self.steps = 0

    @property
    def progress(self) -> Progress:
        searching = self.request.settings.searches and not self.recording.choices
        generated = self.steps if searching else max(lane.generated for lane in self.recording.lanes)
        return Progress(generated, 0.01, generated / 100) if generated else Progress()

    def execute(self, clock: Any, checkpoint: Any) -> Outcome:
        engine, lanes = self.engine, self.recording.lanes
        for source in self.recording.sources:
            for position in range(engine.source):
                source.append(make_token(position, "prompt", lane=7))
        for index, lane in enumerate(lanes):
            for position in range(engine.prompt):
                lane.record.append(make_token(position, "prompt", lane=index))
        stopped = False
        while not stopped and self._longest() < engine.count:
            while engine.gate is not None and not engine.gate.acquire(timeout=0.01):
                if checkpoint():
                    return self._end(stopped=True)
            if self.steps == engine.fail_at:
                raise RuntimeError("out of memory, say")
            self._step()
            self.steps += 1
            stopped = checkpoint()
        return self._end(stopped=stopped)

    def _longest(self) -> int:
        return self.steps if self.request.settings.searches else self.recording.lanes[0].generated

    def _step(self) -> None:
        settings: Any = self.request.settings
        if settings.searches:
            for prompt in range(len(self.request.prompts)):
                self.recording.beams.append(make_step(self.steps, prompt, settings.num_beams))
        elif settings.drafts:
            room = self.engine.count - self._longest()
            accepted = min(self.steps % (DRAFTS + 1), room)
            bonus = int(accepted < room)
            position = len(self.recording.lanes[0].record)
            self.recording.rounds.append(make_round(self.steps, position, DRAFTS, accepted, bonus))
            self._grow(accepted + bonus)
        else:
            self._grow(1)

    def _grow(self, tokens: int) -> None:
        for index, lane in enumerate(self.recording.lanes):
            most = self.engine.count - (index if self.engine.ragged else 0)
            for _ in range(min(tokens, most - lane.generated)):
                lane.record.append(make_token(len(lane.record), lane=index))

    def _end(self, *, stopped: bool) -> Outcome:
        recording = self.recording
        if self.request.settings.searches and self.steps:
            self._grow(self.steps)
            for index, lane in enumerate(recording.lanes):
                recording.choices.append(make_choice(index, lane.prompt, lane.generated - 1))
        ended = [lane.generated < recording.lanes[0].generated for lane in recording.lanes]
        return Outcome(tuple("eos" if early else None if stopped else "length" for early in ended), None)


class FakeLooks:
    """What can be looked at of a fake run: numbers that say where they belong."""

    def __init__(self, job: FakeJob) -> None:
        self._job = job
        self.nbytes = 1000

    @property
    def observed(self) -> tuple[str, ...]:
        settings = self._job.request.settings
        kinds = ("attention", "cross", "encoder") if self._job.engine.source else ("attention",)
        return kinds * settings.attention + ("lens",) * settings.logit_lens

    def clear(self) -> None:
        self.nbytes = 0

    def attention(
        self, position: int, lane: int = 0, *, of: str = "self", layer: int | None = None, head: int | None = None
    ) -> Any:
        self._check("attention", lane, position)
        weights = [1 / 3 + (lane + (layer or 0) + (head or 0)) / 100] * (
            position if of == "self" else self._job.engine.source
        )
        return SimpleNamespace(weights=weights, layers=LAYERS, heads=HEADS)

    def matrix(
        self, position: int, lane: int = 0, *, of: str = "self", layer: int | None = None, head: int | None = None
    ) -> Any:
        first = max(1, position - 2)
        rows = [self.attention(at, lane, of=of, layer=layer, head=head).weights for at in range(first, position + 1)]
        return SimpleNamespace(position=first, rows=rows, layers=LAYERS, heads=HEADS)

    def lens(self, position: int, lane: int = 0, top: int = 5) -> Any:
        self._check("lens", lane, position)
        return [
            SimpleNamespace(
                layer=layer,
                candidates=[
                    SimpleNamespace(
                        id=10 * layer + k,
                        text=f"{fake_rows.TEXTS[(5 * layer + k) % len(fake_rows.TEXTS)]}\ud800",
                        logprob=-k - 1 / 3,
                    )
                    for k in range(top)
                ],
                logprob=-1 / 3,
                rank=layer + 1,
            )
            for layer in range(LAYERS + 1)
        ]

    def _check(self, what: str, lane: int, position: int) -> None:
        if what not in self.observed:
            raise LookupError(f"This run did not keep the {what}.")
        if not self.nbytes:
            raise LookupError("It was dropped when the next run began.")
        if position > len(self._job.recording.lanes[lane].record):
            raise LookupError(f"There is no token at position {position}.")
