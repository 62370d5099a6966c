"""Taps a decoding loop of ``transformers`` without changing the model or the loop.

The library's own loop runs, with three stand-ins handed to it: the list of processors (sees raw logits go in and scores
come out), the list of stopping criteria (called once a step with the new tokens: the commit), and the model (a
delegating proxy that sees the forward's outputs). Each step becomes one step output at its commit.

Here is what all loops share, and the tap of greedy decoding and sampling. ``tap_beams`` and ``tap_assisted`` are the
others, ``tap_prompt`` looks at what goes in, and ``dispatch`` picks. Every private name of ``transformers`` that
genscope relies on for this is in these files, and the tests name the versions they were run with
(:data:`TESTED_TRANSFORMERS`). Not here: what is observed and who reads it (``observe``).
"""

from __future__ import annotations

import contextlib
import copy
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import torch
from transformers import (
    GenerationConfig,
    LogitsProcessorList,
    PreTrainedModel,
    PreTrainedTokenizerBase,
    StoppingCriteriaList,
)

from ..streaming.outputs import Field, Step, StepOutput

__all__ = [
    "TESTED_TRANSFORMERS",
    "Call",
    "LoopTap",
    "Tap",
    "TappedCriteria",
    "TappedModel",
    "TappedProcessors",
    "UnobservableError",
    "run_sample",
]

TESTED_TRANSFORMERS = ("5.24",)
"""Minor versions of ``transformers`` that the parity tests were run with."""


class UnobservableError(ValueError):
    """What was asked of ``generate`` cannot be observed; the message says what to do."""


@dataclass(frozen=True, slots=True)
class Call:
    """What ``generate`` prepared and hands to a ``custom_generate`` callable, and whatever drafts for it."""

    model: PreTrainedModel
    input_ids: torch.Tensor
    logits_processor: LogitsProcessorList
    stopping_criteria: StoppingCriteriaList
    generation_config: GenerationConfig
    model_kwargs: dict[str, Any]
    inputs_tensor: torch.Tensor | None = None
    assistant_model: PreTrainedModel | None = None
    tokenizer: PreTrainedTokenizerBase | None = None
    assistant_tokenizer: PreTrainedTokenizerBase | None = None
    held: int = 0
    """Columns of the prompt that the cache holds already."""


class LoopTap:
    """Collects what one decoding loop does and commits it step by step: what the taps of all loops share.

    Parameters
    ----------
    fields : frozenset of str
        What a step output carries beside its tokens.
    commit : callable
        Gets each step output; returns True to end the loop for all rows after this step.
    draws : context manager, optional
        Entered around the choice of each token, see :class:`~.randomness.SeededDraws`.
    hidden_layers : tuple of int, optional
        Which hidden states a step output carries, counted from 0, the embeddings; None for all.
    """

    def __init__(
        self,
        fields: frozenset[Field],
        commit: Callable[[Step], bool],
        draws: contextlib.AbstractContextManager[object] | None = None,
        hidden_layers: tuple[int, ...] | None = None,
    ) -> None:
        self.fields = fields
        self._hidden_layers = hidden_layers
        self._commit = commit
        self._draws = draws
        self._choosing = contextlib.ExitStack()
        self._parts: dict[str, Any] = {}
        self._step = 0

    def ask(self, config: GenerationConfig, model_kwargs: dict[str, Any]) -> None:
        """Ask the forward passes for what a step output carries.

        Asked of them alone: what a loop accumulates stays as the caller of ``generate`` wants it.
        """
        if "attentions" in self.fields:
            model_kwargs["output_attentions"] = True
        if "hidden_states" in self.fields:
            returned = config.return_dict_in_generate and config.output_hidden_states
            # A list of layers keeps the others from being held at all, by models that know of it (transformers 5.24).
            every = self._hidden_layers is None or returned
            model_kwargs["output_hidden_states"] = True if every else list(self._hidden_layers or ())

    def begin_choice(self) -> None:
        """Draw from this run's generator from here on."""
        if self._draws is not None:
            self._choosing.enter_context(self._draws)

    def close(self) -> None:
        """Leave the draws, also when the loop was left by an exception between two taps."""
        self._choosing.close()

    def on_forward(self, outputs: Any) -> None:
        """Take what the forward pass behind the next token gave (logits come with the processors)."""
        for name, value in self._states(outputs):
            self._parts[name] = value

    def _states(self, outputs: Any) -> Iterable[tuple[str, Any]]:
        # An encoder-decoder model names the decoder's own, and has a third kind.
        prefix = "decoder_" if hasattr(outputs, "decoder_hidden_states") else ""
        for field in ("attentions", "hidden_states"):
            if field in self.fields:
                value: Any = getattr(outputs, prefix + field, None)  # a model without attention may not even name it
                if field == "hidden_states" and self._hidden_layers is not None:
                    value = tuple(value[layer] for layer in self._hidden_layers)
                yield field, value
        if prefix and "attentions" in self.fields:
            yield "cross_attentions", outputs.cross_attentions

    def _take_parts(self) -> dict[str, Any]:
        """Hand out what this step gave, never again with the next."""
        parts, self._parts = self._parts, {}
        self._step += 1
        return parts


class Tap(LoopTap):
    """The tap of greedy decoding and sampling, see :class:`LoopTap`."""

    def __init__(
        self,
        fields: frozenset[Field],
        commit: Callable[[Step], bool],
        draws: contextlib.AbstractContextManager[object] | None = None,
        hidden_layers: tuple[int, ...] | None = None,
    ) -> None:
        super().__init__(fields, commit, draws, hidden_layers)
        self._finished: torch.Tensor | None = None

    def on_logits(self, logits: torch.Tensor, scores: torch.Tensor) -> None:
        """Take logits ``(batch, vocabulary)`` before and after all processors; the draw comes next."""
        for field, value in (("logits", logits), ("scores", scores)):
            if field in self.fields:
                self._parts[field] = value
        self.begin_choice()

    def on_tokens(self, sequences: torch.Tensor, done: Callable[[], torch.Tensor]) -> torch.Tensor:
        """Commit a step.

        Parameters
        ----------
        sequences : torch.Tensor
            Shape ``(batch, length)``, with the new tokens.
        done : callable
            Evaluates the stopping criteria, bool of shape ``(batch,)``.

        Returns
        -------
        torch.Tensor
            Shape ``(batch,)``, bool: rows that end with this step.
        """
        self.close()
        ended = done()
        before = torch.zeros_like(ended) if self._finished is None else self._finished
        if self._finished is not None and bool(before.all()):
            # On Apple's MPS the library stops one step late and undoes that step: it was never committed.
            return ended
        self._finished = before | ended
        output = StepOutput(
            step=self._step,
            length=sequences.shape[1],
            tokens=sequences[:, -1],
            active=~before,
            finished=self._finished,
            seconds=time.perf_counter(),
            **self._take_parts(),
        )
        if self._commit(output):
            self._finished = torch.ones_like(ended)
        return self._finished


class TappedProcessors(LogitsProcessorList):
    """The prepared processors, as one list that shows what went in and what came out."""

    def __init__(self, processors: Iterable[Any], on_scores: Callable[[torch.Tensor, torch.Tensor], object]) -> None:
        super().__init__(processors)
        self._on_scores = on_scores

    def __call__(self, input_ids: Any, scores: Any, **kwargs: Any) -> torch.Tensor:
        # A processor may work in place; the copy keeps the raw logits raw, the returned ones included.
        processed: torch.Tensor = super().__call__(input_ids, scores.clone() if len(self) else scores, **kwargs)
        self._on_scores(scores, processed)
        return processed


class TappedCriteria(StoppingCriteriaList):
    """The prepared stopping criteria, which every loop calls exactly once a step, with the new tokens."""

    def __init__(
        self,
        criteria: Iterable[Any],
        on_tokens: Callable[[torch.Tensor, Callable[[], torch.Tensor]], torch.Tensor],
    ) -> None:
        super().__init__(criteria)
        self._on_tokens = on_tokens

    def __call__(self, input_ids: torch.Tensor, scores: Any, **kwargs: Any) -> torch.Tensor:
        return self._on_tokens(input_ids, lambda: super(TappedCriteria, self).__call__(input_ids, scores, **kwargs))


AnyTap = TypeVar("AnyTap", bound=LoopTap)


class TappedModel(Generic[AnyTap]):
    """Everything the user's model is, without touching it, plus a look at each forward's outputs.

    Parameters
    ----------
    model : PreTrainedModel
    tap : LoopTap
    held : int
        Columns of the prompt that the cache holds already: the first forward pass is fed the others. Left to
        themselves, the loops (transformers 5.24) do so for some: not in assisted decoding, not where all layers are
        recurrent, and behind an encoder only with a mask. Processors and criteria see the whole prompt.
    """

    def __init__(self, model: Any, tap: AnyTap, held: int = 0) -> None:
        self._model = model
        self._tap = tap
        self._held = held

    def __getattr__(self, name: str) -> Any:
        return getattr(self._model, name)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._model(*args, **kwargs)

    def _prefill(self, input_ids: Any, generation_config: Any, model_kwargs: Any, **kwargs: Any) -> Any:
        if not self._held:
            return self._model._prefill(input_ids, generation_config, model_kwargs, **kwargs)  # noqa: SLF001 - the tap
        if generation_config.prefill_chunk_size is not None:
            if all(model_kwargs["cache"].is_linear):  # one token is left, and the library would feed all
                generation_config = copy.copy(generation_config)
                generation_config.prefill_chunk_size = None
            else:
                self._held = 0  # cut off before it is cut into chunks
        loop: Any = type(self._model)
        return loop._prefill(self, input_ids, generation_config, model_kwargs, **kwargs)  # noqa: SLF001 - the tap

    def prepare_inputs_for_generation(
        self, input_ids: torch.Tensor, next_sequence_length: int | None = None, **kwargs: Any
    ) -> Any:
        """Return what the next forward pass is given, of the first one what the cache does not hold."""
        if self._held:
            next_sequence_length = input_ids.shape[1] - self._held
            self._held = 0
        return self._model.prepare_inputs_for_generation(input_ids, next_sequence_length=next_sequence_length, **kwargs)

    def _update_model_kwargs_for_generation(self, outputs: Any, *args: Any, **kwargs: Any) -> Any:
        self._tap.on_forward(outputs)
        return self._model._update_model_kwargs_for_generation(outputs, *args, **kwargs)  # noqa: SLF001 - the tap


def run_sample(call: Call, tap: Tap) -> Any:
    """Run the library's loop of greedy decoding and sampling, tapped; returns what it returns."""
    loop: Any = type(call.model)
    return loop._sample(  # noqa: SLF001 - the tap
        TappedModel(call.model, tap, call.held),
        call.input_ids,
        logits_processor=TappedProcessors(call.logits_processor, tap.on_logits),
        stopping_criteria=TappedCriteria(call.stopping_criteria, tap.on_tokens),
        generation_config=call.generation_config,
        **call.model_kwargs,
    )
