"""One request on a model in this process, from its prepared ids to what ``generate`` returns, recorded on the way."""

from __future__ import annotations

import contextlib
import dataclasses
import logging
import sys
import time
from typing import TYPE_CHECKING, Any, get_args

import torch
from transformers import StoppingCriteriaList

from ..caching.prefix_cache import PrefixCache
from ..caching.reuse import PromptReuse
from ..decoding.model_view import view_of
from ..decoding.observe import observe
from ..observation.looks import Looks
from ..observation.states import States
from ..record.recorder import Recorder
from ..record.recording import Lane, Recording
from ..request import Observable, Request
from ..settings import Guidance, Settings
from ..tracing.shared import execution_of
from ..tracing.use import Use
from .base import Checkpoint, Outcome, PausableClock, Progress
from .inputs import pad_together, tokenize
from .plan import Plan
from .prefixes import FirstLogits, PrefixUse
from .stop_strings import StopStrings, found_in
from .variants import read_once, rows_of

if TYPE_CHECKING:
    from ..decoding.rows import Rows
    from .in_process import InProcessEngine

__all__ = ["InProcessJob"]

_log = logging.getLogger(__name__)


class InProcessJob:
    """A request that fits the model. See :class:`~genscope.kernel_side.engines.base.Job`.

    Parameters
    ----------
    engine : InProcessEngine
    request : Request
    prompts : list of list of int
        What the model reads: of an encoder-decoder model its encoder.
    plan : Plan

    Attributes
    ----------
    stopped_lanes : set of int
        Lanes that are told to end, of a request with variants.
    """

    def __init__(self, engine: InProcessEngine, request: Request, prompts: list[list[int]], plan: Plan) -> None:
        self.request = request
        self.engine = engine
        self.reuse: PromptReuse | None = None
        self.execution: Use | None = None
        self.stopped_lanes: set[int] = set()
        self._prompts = prompts
        self._plan = plan
        self._encoder: bool = engine.model.config.is_encoder_decoder
        # What stands before the first generated token.
        self._begun = [engine.decoder_start(request)] * len(prompts) if self._encoder else prompts
        settings = request.settings
        sequences = settings.sequences
        self._recorder = Recorder(
            engine.tokenizer,
            rows=len(prompts) * sequences,
            sources=len(prompts) if self._encoder else 0,
            alternatives=settings.alternatives,
            prompt_probabilities=settings.prompt_probabilities,
            scores_are_logits=plan.loop is None or plan.loop.scores_are_logits,
        )
        lanes = tuple(
            Lane(
                prompt=row // sequences,
                sequence=row % sequences,
                record=record,
                source=self._recorder.sources[row // sequences] if self._encoder else None,
                prompt_tokens=len(self._begun[row // sequences]),
            )
            for row, record in enumerate(self._recorder.records)
        )
        recorder = self._recorder
        self.recording = Recording(lanes, recorder.rounds, recorder.beams, recorder.choices)
        self._states: States | None = None
        if settings.attention or settings.logit_lens:
            self._states = States(len(lanes), attention=settings.attention, hidden=settings.logit_lens)
        self.looks = Looks(self._states, lanes, engine.tokenizer, lambda: engine.lens)

    @property
    def busy(self) -> float:
        """Seconds that measuring and recording took so far."""
        return self._recorder.busy + (0.0 if self._states is None else self._states.busy)

    @property
    def progress(self) -> Progress:
        """How far the generation is."""
        recorder = self._recorder
        searching = self.request.settings.searches and not len(self.recording.choices)
        longest = recorder.steps if searching else max(lane.generated for lane in self.recording.lanes)
        return Progress(longest, recorder.first, recorder.last)

    def execute(self, clock: PausableClock, checkpoint: Checkpoint) -> Outcome:
        """Generate, in this thread. See :meth:`~genscope.kernel_side.engines.base.Job.execute`."""
        settings, plan, recorder = self.request.settings, self._plan, self._recorder
        recorder.clock = clock
        told_to_stop = False

        def stop() -> bool:
            nonlocal told_to_stop
            # A generation that has ended by itself needs no further step, also when it is paused.
            told_to_stop = not recorder.over and checkpoint()
            return told_to_stop

        model = self.engine.model if plan.view is None else view_of(self.engine.model, **plan.view)
        inputs = self._inputs()
        running, executing = self._executing(model, clock, checkpoint)
        rows = self._rows(model, inputs)
        use, first = self._use_prefixes(model, inputs), FirstLogits()
        verified = use is not None and settings.verify_cache
        streamers = [one for one in (recorder, self._states, first if verified else None) if one is not None]
        began = clock.since_start(time.perf_counter())
        with use or contextlib.nullcontext(), executing:
            output = running.generate(
                **settings.generate_kwargs() | inputs | ({} if use is None else use.inputs),
                **{f"output_{field}": field in settings.keep for field in get_args(Observable)},
                return_dict_in_generate=True,
                stopping_criteria=StoppingCriteriaList(self._stopping(settings)),
                **observe(
                    *streamers,
                    seed=settings.seed,
                    stop=stop,
                    loop=plan.loop,
                    held=0 if use is None else use.held,
                    rows=rows,
                    **self._drafting(),
                ),
            )
        if use is not None:
            self._learn(use, began)
            if verified and not told_to_stop:  # reading the prompt once more may take long
                try:
                    use.verify(first, inputs, (recorder.first or began) - began)
                except Exception:  # noqa: BLE001 - no memory, say: what was generated is there all the same
                    _log.warning("genscope: the prefix cache could not be verified", exc_info=True)
                self.reuse = use.reuse
        # A run is kept for as long as somebody looks at it; its KV would be kept with it, and fill the device. Made
        # anew, since an output is a dict too, in which an attribute that is set to None stays.
        output = dataclasses.replace(output, cache=None)
        return Outcome(tuple(self._why(lane, told_to_stop) for lane in self.recording.lanes), output)

    def _executing(
        self, model: Any, clock: PausableClock, checkpoint: Checkpoint
    ) -> tuple[Any, contextlib.AbstractContextManager[None]]:
        """Return the model as the run's execution runs it, and what its run is counted in."""
        name = self.request.settings.execution
        if name == "eager":
            return model, contextlib.nullcontext()
        execution = execution_of(self.engine.model, name)
        self.execution = Use(name, pause=clock.stop, resume=clock.go, cancelled=lambda: checkpoint(step=False))
        return execution.attach(model), execution.used(self.execution)

    def _rows(self, model: Any, inputs: dict[str, Any]) -> Rows | None:
        """Return how each sequence chooses its tokens, where they differ."""
        variants = self.request.variants
        if not variants:
            return None
        return rows_of(variants, model, inputs, self._stopping, self.stopped_lanes)

    def _use_prefixes(self, model: Any, inputs: dict[str, Any]) -> PrefixUse | None:
        engine, recorder, request = self.engine, self._recorder, self.request
        prefixes = engine.prefix_cache if request.settings.prefix_cache else None
        sources = self._prompts if self._encoder else None
        found: PromptReuse | None = None
        if request.variants:
            # What the sequences share is computed once, whether or not runs share anything with each other.
            shared = prefixes or PrefixCache(sys.maxsize)
            hits = read_once(shared, model, request.settings, self._plan, self._begun[0], inputs, sources)
            found = None if prefixes is None else PromptReuse.of(hits, engine.tokenizer.decode)
        elif prefixes is None:
            return None
        else:
            shared = prefixes
        use = PrefixUse(
            shared,
            model,
            engine.tokenizer,
            self.request.settings,
            self._plan,
            prompts=self._begun,
            inputs=inputs,
            sources=sources,
            lanes=self.recording.lanes,
            rate=engine.prefill_rate,
        )
        if not request.variants:
            found = use.reuse
        if found is not None:
            self.reuse = found
            recorder.reused = [found.rows[lane.prompt].reused for lane in self.recording.lanes]
            recorder.sources_reused = [bool(row.source) for row in found.rows]
        return use

    def _learn(self, use: PrefixUse, began: float) -> None:
        """Note how long the prompt took, for estimates of what other runs save."""
        first, last, steps = self._recorder.first, self._recorder.last, self._recorder.steps
        if first is not None and last is not None and steps > 1 and not self.request.settings.drafts:
            self.engine.prefill_rate.note(use.computed, first - began, (last - first) / (steps - 1))

    def _inputs(self) -> dict[str, Any]:
        engine, settings = self.engine, self.request.settings
        device, pad = engine.model.device, engine.pad_id()
        ids, mask = pad_together(self._prompts, pad, left=not self._encoder)
        inputs: dict[str, Any] = {"input_ids": ids.to(device), "attention_mask": mask.to(device)}
        if engine.model.generation_config.pad_token_id is None:
            inputs["pad_token_id"] = pad
        if self._encoder and self.request.ids is not None:
            begun = torch.tensor(self._begun, device=device)
            inputs |= {"decoder_input_ids": begun, "decoder_attention_mask": torch.ones_like(begun)}
        if isinstance(settings, Guidance) and settings.negative_prompt:
            negative = [tokenize(settings.negative_prompt, engine.tokenizer, engine.model)] * len(self._prompts)
            negative_ids, negative_mask = pad_together(negative, pad, left=True)
            inputs["negative_prompt_ids"] = negative_ids.to(device)
            inputs["negative_prompt_attention_mask"] = negative_mask.to(device)
        return inputs

    def _stopping(self, settings: Settings) -> list[StopStrings]:
        strings, prompt = settings.stop_strings, max(map(len, self._begun))
        return [StopStrings(self.engine.tokenizer, strings, prompt)] if strings else []

    def _drafting(self) -> dict[str, Any]:
        draft = self._plan.draft
        if draft is None:
            return {}
        drafting: dict[str, Any] = {"assistant_model": view_of(draft.model, **self._plan.draft_view)}
        if draft.tokenizer is not None:
            drafting |= {"tokenizer": self.engine.tokenizer, "assistant_tokenizer": draft.tokenizer}
        return drafting

    def _why(self, lane: Lane, told_to_stop: bool) -> str | None:
        variants = self.request.variants
        settings = variants[lane.sequence] if variants else self.request.settings
        if told_to_stop and settings.searches:
            return None  # also where its best so far had ended: a better one might have come
        if lane.generated and settings.stop_at_eos and lane.record[-1].id in self.engine.eos_ids():
            return "eos"
        found = found_in(lane.record, settings.stop_strings)
        if found is not None:
            return f"stop string {found!r}"
        if lane.sequence in self.stopped_lanes and lane.generated < settings.max_new_tokens:
            return "stopped"
        if told_to_stop:
            return None
        return "length" if lane.generated else "no hypothesis"
