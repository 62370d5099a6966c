"""One run of an environment, recorded as it goes: a lane a query, and the segments that each is made of.

What is written is final, so a token comes when it is certain: the model's step by step (of a beam search turn by turn),
a tool's with its answer, a query's once the prefix cache was asked about it, which says of each token whether it is
reused. Of a tool's tokens that is known only a turn later; ``segments`` has the counts.

Not here: the environment itself (``environment``), and what of a request it takes (``environment_engine``).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from ..caching.hits import End, RowHit
from ..caching.reuse import PromptReuse
from ..environment.history import TextHistory
from ..environment.segments import Segment as Came
from ..problems import Problem
from ..record.recorder import Clock
from ..record.recording import Lane, Recording
from ..record.segments import Segment, SegmentKind
from ..record.turns_recorder import TurnsRecorder
from ..request import Prompt, Request, SettingsError
from ..streaming.base import StepStreamer
from ..streaming.beam_outputs import BeamResult
from ..streaming.outputs import Output, PromptOutput
from .base import Checkpoint, Outcome, Progress
from .plan import Plan

if TYPE_CHECKING:
    from ..observation.looks import Looks
    from ..tracing.use import Use
    from .environment_engine import EnvironmentEngine

__all__ = ["EnvironmentJob"]


class EnvironmentJob:
    """A request that fits the model and the environment. See :class:`~genscope.kernel_side.engines.base.Job`."""

    looks: Looks | None = None

    def __init__(self, engine: EnvironmentEngine, request: Request, plan: Plan) -> None:
        self.request = request
        self.reuse: PromptReuse | None = None
        self.execution: Use | None = None
        self._engine = engine
        self._environment = engine.make_environment(
            request, plan, stop=self._stopped, watch=self._watch, on_segment=self._on_segment
        )
        self._histories = [self._begun(prompt) for prompt in request.prompts]
        self._recorder = TurnsRecorder(
            engine.engine.tokenizer,
            lanes=len(self._histories),
            alternatives=request.settings.alternatives,
            scores_are_logits=plan.loop is None or plan.loop.scores_are_logits,
        )
        self._hits: list[list[RowHit]] = [[] for _ in self._histories]
        self._told_to_stop = False
        self._checkpoint: Checkpoint | None = None
        lanes = zip(self._histories, self._recorder.writers, strict=True)
        self.recording = Recording(
            tuple(Lane(at, 0, writer.record, None, len(history.tokens)) for at, (history, writer) in enumerate(lanes)),
            rounds=self._recorder.kept_rounds,
            segmented=True,
        )

    @property
    def busy(self) -> float:
        """Seconds that measuring and recording took so far."""
        return self._recorder.busy

    @property
    def progress(self) -> Progress:
        """How far the model is: what tools wrote does not count."""
        recorder = self._recorder
        return Progress(recorder.generated, recorder.first, recorder.last)

    def execute(self, clock: Clock, checkpoint: Checkpoint) -> Outcome:
        """Play all turns, in this thread. See :meth:`~genscope.kernel_side.engines.base.Job.execute`."""
        self._recorder.clock, self._checkpoint = clock, checkpoint
        try:
            output = self._environment.run(self._histories, **self._engine.rewards_kwargs)
        finally:
            for lane in range(len(self._histories)):
                self._write_prompt(lane)
            self._recorder.close()
        whys = (None if history.why == "stopped" else history.why for history in self._histories)
        return Outcome(tuple(whys), output)

    def _begun(self, prompt: Prompt) -> TextHistory:
        query = prompt if isinstance(prompt, str) else [message.model_dump() for message in prompt]
        try:
            return self._environment.begin(query)
        except ValueError as error:  # a query without tokens
            raise SettingsError([Problem("prompt", prompt, str(error), "Type some text.")]) from error

    # What the environment calls

    def _stopped(self) -> bool:
        assert self._checkpoint is not None
        self._told_to_stop = self._told_to_stop or self._checkpoint(step=False)
        return self._told_to_stop

    def _watch(self, lanes: tuple[int, ...]) -> StepStreamer:
        self._recorder.begin(lanes)
        return _Steps(self._recorder, lambda: self._look(lanes), self._step)

    def _step(self) -> None:
        assert self._checkpoint is not None
        self._told_to_stop = self._checkpoint() or self._told_to_stop

    def _look(self, lanes: Sequence[int]) -> None:
        """Take what the prefix cache said about the histories of a turn."""
        for lane in lanes:
            hit = self._histories[lane].reuses[-1].hit
            if hit is not None:
                self._hits[lane].append(hit)
            self._write_prompt(lane)
        if any(self._hits):
            looked_at = self._hits[: max(at for at, hits in enumerate(self._hits) if hits) + 1]
            source = False if self._engine.engine.model.config.is_encoder_decoder else None
            rows = [_together(hits) if hits else _no_turn(source) for hits in looked_at]
            self.reuse = PromptReuse.of(rows, self._engine.engine.tokenizer.decode)

    def _on_segment(self, came: Came) -> None:
        """Write what has come to a history."""
        lane, reuse, more = came.index, came.reuse, dict[str, Any]()
        writer = self._recorder.writers[lane]
        kind: SegmentKind = "tool" if came.kind == "system" else came.kind
        if kind == "prompt":
            return  # comes when something is known about it
        if kind == "model":
            self._recorder.settle(lane, came.tokens)
            if reuse is not None and reuse.hit is not None:
                more = {"reused": reuse.reused, "computed": reuse.computed, "text": reuse.why}
        elif kind == "tool":
            writer.extend(came.tokens, "tool", [None] * len(came.tokens))
            more = {"text": ", ".join(came.called) or None}
        elif kind == "end":
            self._write_prompt(lane)  # of a history that had no turn
            more = {"text": came.text or None}
        elif self._environment.reward_fn is not None:
            more = {"reward": _number(came.history.reward)}
        stop = len(writer.record)
        self.recording.segments.append(Segment(lane, kind, came.turn, stop - len(came.tokens), stop, **more))

    def _write_prompt(self, lane: int) -> None:
        writer, history = self._recorder.writers[lane], self._histories[lane]
        if len(writer.record):
            return
        ids = history.tokens[: self.recording.lanes[lane].prompt_tokens].tolist()
        reuse = history.reuses[0] if self._hits[lane] else None
        cached = [None if reuse is None else position < reuse.reused for position in range(len(ids))]
        writer.extend(ids, "prompt", cached)
        self.recording.segments.append(Segment(lane, "prompt", 0, 0, len(ids)))


class _Steps(StepStreamer):
    """Sees the steps of one turn: the look before them, the record, then whoever may pause or stop the run."""

    def __init__(self, recorder: TurnsRecorder, look: Callable[[], None], step: Callable[[], None]) -> None:
        self.fields = recorder.fields
        self._recorder, self._look, self._step = recorder, look, step

    def put(self, output: Output) -> None:
        """Take an output."""
        if isinstance(output, PromptOutput):
            self._look()
        self._recorder.put(output)
        if not isinstance(output, (PromptOutput, BeamResult)):
            self._step()

    def end(self, error: BaseException | None = None) -> None:
        """The run goes on."""


def _together(hits: Sequence[RowHit]) -> RowHit:
    """Add up the looks of a lane's turns; why no more was reused is said of the last one."""
    return dataclasses.replace(
        hits[-1],
        tokens=sum(hit.tokens for hit in hits),
        known=sum(hit.known for hit in hits),
        reused=sum(hit.reused for hit in hits),
        nbytes=sum(hit.nbytes for hit in hits),
    )


def _no_turn(source: bool | None) -> RowHit:
    """Return what keeps the place of a query that was over before its first turn."""
    return RowHit(0, 0, 0, source, 0, End("refused", 0, None, (), "it had no turn"))


def _number(reward: Any) -> float | None:
    """Return a reward as a number; None where it is none."""
    try:
        return float(reward)
    except (TypeError, ValueError, RuntimeError):
        return None
