"""Taps a decoding loop of ``transformers`` without changing the model or the loop.

The library's own loop runs, with three stand-ins handed to it: the list of processors (sees raw logits go in and scores
come out), the list of stopping criteria (called once a step with the new tokens: the commit), and the model (a
delegating proxy that sees the forward's outputs). Each step becomes one :class:`StepOutput` at its commit.

Every private name of ``transformers`` that genscope relies on for this is in this file, and the tests name the versions
it was run with (:data:`TESTED_TRANSFORMERS`). Not here: what is observed and who reads it (``observe``).
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch
from transformers import GenerationConfig, LogitsProcessorList, PreTrainedModel, StoppingCriteriaList
from transformers.generation.configuration_utils import GenerationMode

from ..streaming.outputs import Field, StepOutput

__all__ = ["TESTED_TRANSFORMERS", "Tap", "UnobservableError", "run_loop"]

TESTED_TRANSFORMERS = ("5.24",)
"""Minor versions of ``transformers`` that the parity tests were run with."""

_LOOPS = {GenerationMode.GREEDY_SEARCH: "_sample", GenerationMode.SAMPLE: "_sample"}


class UnobservableError(ValueError):
    """What was asked of ``generate`` cannot be observed; the message says what to do."""


class Tap:
    """Collects what one decoding loop does and commits it step by step.

    Parameters
    ----------
    fields : frozenset of str
        What a step output carries beside its tokens.
    commit : callable
        Gets each :class:`StepOutput`; returns True to end the loop for all rows after this step.
    draws : context manager, optional
        Entered around the choice of each token, see :class:`~.randomness.SeededDraws`.
    """

    def __init__(
        self,
        fields: frozenset[Field],
        commit: Callable[[StepOutput], bool],
        draws: contextlib.AbstractContextManager[object] | None = None,
    ) -> None:
        self.fields = fields
        self._commit = commit
        self._draws = draws
        self._choosing = contextlib.ExitStack()
        self._parts: dict[str, Any] = {}
        self._finished: torch.Tensor | None = None
        self._step = 0

    def close(self) -> None:
        """Leave the draws, also when the loop was left by an exception between two taps."""
        self._choosing.close()

    def on_forward(self, outputs: Any) -> None:
        """Take what the forward pass behind the next token gave (logits come with the processors)."""
        for field in ("attentions", "hidden_states"):
            if field in self.fields:
                self._parts[field] = getattr(outputs, field)

    def on_logits(self, logits: torch.Tensor, scores: torch.Tensor) -> None:
        """Take logits ``(batch, vocabulary)`` before and after all processors; the draw comes next."""
        for field, value in (("logits", logits), ("scores", scores)):
            if field in self.fields:
                self._parts[field] = value
        if self._draws is not None:
            self._choosing.enter_context(self._draws)

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
        self._choosing.close()
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
            **self._parts,
        )
        self._step += 1
        self._parts = {}
        if self._commit(output):
            self._finished = torch.ones_like(ended)
        return self._finished


class _TappedProcessors(LogitsProcessorList):
    """The prepared processors, as one list that shows what went in and what came out."""

    def __init__(self, processors: Iterable[Any], tap: Tap) -> None:
        super().__init__(processors)
        self._tap = tap

    def __call__(self, input_ids: Any, scores: Any, **kwargs: Any) -> torch.Tensor:
        # A processor may work in place; the copy keeps the raw logits raw, the returned ones included.
        processed: torch.Tensor = super().__call__(input_ids, scores.clone() if len(self) else scores, **kwargs)
        self._tap.on_logits(scores, processed)
        return processed


class _TappedCriteria(StoppingCriteriaList):
    """The prepared stopping criteria, which every loop calls exactly once a step, with the new tokens."""

    def __init__(self, criteria: Iterable[Any], tap: Tap) -> None:
        super().__init__(criteria)
        self._tap = tap

    def __call__(self, input_ids: torch.Tensor, scores: Any, **kwargs: Any) -> torch.Tensor:
        return self._tap.on_tokens(
            input_ids, lambda: super(_TappedCriteria, self).__call__(input_ids, scores, **kwargs)
        )


class _TappedModel:
    """Everything the user's model is, without touching it, plus a look at each forward's outputs."""

    def __init__(self, model: Any, tap: Tap) -> None:
        self._model = model
        self._tap = tap

    def __getattr__(self, name: str) -> Any:
        return getattr(self._model, name)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._model(*args, **kwargs)

    def _update_model_kwargs_for_generation(self, outputs: Any, *args: Any, **kwargs: Any) -> Any:
        self._tap.on_forward(outputs)
        return self._model._update_model_kwargs_for_generation(outputs, *args, **kwargs)  # noqa: SLF001 - the tap


def run_loop(
    tap: Tap,
    model: PreTrainedModel,
    input_ids: torch.Tensor,
    logits_processor: LogitsProcessorList,
    stopping_criteria: StoppingCriteriaList,
    generation_config: GenerationConfig,
    **model_kwargs: Any,
) -> Any:
    """Run the library's own loop for these settings, tapped.

    Takes what ``generate`` hands to a ``custom_generate`` callable and returns what the loop returns.

    Raises
    ------
    UnobservableError
        For a decoding strategy whose loop is not tapped here.
    """
    for field in ("attentions", "hidden_states"):
        if field in tap.fields:
            # Asked of the forward pass only: what the loop accumulates stays as the caller wants it.
            model_kwargs[f"output_{field}"] = True
    loop = getattr(type(model), _loop_name(generation_config))
    try:
        return loop(
            _TappedModel(model, tap),
            input_ids,
            logits_processor=_TappedProcessors(logits_processor, tap),
            stopping_criteria=_TappedCriteria(stopping_criteria, tap),
            generation_config=generation_config,
            **model_kwargs,
        )
    finally:
        tap.close()


def _loop_name(generation_config: GenerationConfig) -> str:
    mode = generation_config.get_generation_mode()
    if mode not in _LOOPS:
        observed = ", ".join(str(known.value) for known in _LOOPS)
        msg = f"the decoding strategy {mode.value!r} cannot be observed; observed are: {observed}. Use num_beams=1"
        raise UnobservableError(msg)
    return _LOOPS[mode]


def prompt_logits(
    model: PreTrainedModel, input_ids: torch.Tensor, model_kwargs: dict[str, Any], chunk: int = 512
) -> Iterator[tuple[int, torch.Tensor]]:
    """Give the logits of each position of a prompt, from a prefill of its own.

    The run's own prefill is left as it is: it computes logits for the last position only, and asking it for all of them
    would change that position's last bits.

    Parameters
    ----------
    model : PreTrainedModel
    input_ids : torch.Tensor
        Shape ``(batch, length)``.
    model_kwargs : dict
        As ``generate`` prepared them; the cache in it is not used.
    chunk : int
        Positions a forward pass, so that logits of a long prompt are never all held at once by the model. Prompts up to
        this length take one pass, as do all prompts of recurrent models.

    Yields
    ------
    start : int
        Position of the slice's first token.
    logits : torch.Tensor
        Shape ``(batch, positions, vocabulary)``, consecutive slices.
    """
    length = input_ids.shape[1]
    if model._is_stateful:  # noqa: SLF001 - a recurrent state cannot take several tokens at once (transformers 5.24)
        chunk = length
    mask = model_kwargs.get("attention_mask")
    positions = model_kwargs.get("position_ids")
    cache = None
    for start in range(0, length, chunk):
        stop = min(start + chunk, length)
        # With a cache also when one pass is enough: without, gpt2 lays tensors out otherwise and the last bits move.
        inputs: dict[str, Any] = {"input_ids": input_ids[:, start:stop], "use_cache": True}
        if mask is not None:
            inputs["attention_mask"] = mask[:, :stop]
        if positions is not None:
            inputs["position_ids"] = positions[:, start:stop]
        if cache is not None:
            inputs["cache"] = cache
        outputs = model(**inputs, return_dict=True)
        cache = outputs.get("cache")
        yield start, outputs.logits
