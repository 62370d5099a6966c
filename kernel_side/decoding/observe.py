"""One helper that makes any ``model.generate(...)`` call observable and reproducible.

``model.generate(**inputs, **observe(streamer))`` runs the library's own loop and hands each step to the streamer. It
knows streamers and steps; how a loop is tapped is in ``tap``.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch.overrides import TorchFunctionMode
from transformers import (
    GenerationConfig,
    LogitsProcessorList,
    PreTrainedModel,
    PreTrainedTokenizerBase,
    StoppingCriteriaList,
)

from ..streaming.base import StepStreamer
from ..streaming.outputs import Field, Output, PromptOutput, Step
from .dispatch import run_loop
from .own_loop import OwnLoop
from .randomness import SeededDraws
from .rows import Rows
from .tap import Call
from .tap_prompt import check_fields_of_model, hidden_layers_of, prompt_logits, prompt_of, source_of

__all__ = ["observe"]


def observe(
    *streamers: StepStreamer,
    seed: int | None = None,
    stop: Callable[[], bool] | None = None,
    assistant_model: PreTrainedModel | None = None,
    tokenizer: PreTrainedTokenizerBase | None = None,
    assistant_tokenizer: PreTrainedTokenizerBase | None = None,
    loop: OwnLoop | None = None,
    hidden_layers: Sequence[int] | None = None,
    held: int = 0,
    rows: Rows | None = None,
) -> dict[str, Any]:
    """Return the argument that makes a ``model.generate(...)`` call observable.

    The tokens, and everything that ``generate`` returns, are what they are without it. The model object is not
    touched. What a streamer asks for is computed for it; what ``generate`` accumulates and returns stays what *its*
    arguments say, so without ``return_dict_in_generate`` memory stays constant however much is streamed.

    Greedy decoding and sampling give a :class:`~genscope.kernel_side.streaming.outputs.StepOutput` a step, beam search
    and beam sampling a :class:`~genscope.kernel_side.streaming.beam_outputs.BeamStepOutput` and in the end a
    :class:`~genscope.kernel_side.streaming.beam_outputs.BeamResult`, assisted decoding an
    :class:`~genscope.kernel_side.streaming.assisted_outputs.AssistedStepOutput` a round.

    Parameters
    ----------
    *streamers : StepStreamer
        Each gets the prompt, then every step, then the result of a beam search, in the generating thread. A generation
        that fails ends them with its error. All having hung up stops the generation.
    seed : int, optional
        Draws from a generator of this run's own: the tokens equal those after ``torch.manual_seed(seed)``, in any
        thread, and the global generator is left alone.
    stop : callable, optional
        Called after each step, in the generating thread; True ends the generation after that step. It may block, which
        pauses the generation. (``threading.Event().is_set`` is one.) A beam search that is stopped returns the best of
        its finished and live hypotheses.
    assistant_model : PreTrainedModel, optional
        Drafts tokens that the model checks, several a forward pass. Give it here and not to ``generate`` itself, which
        would drop it silently. The model must have the same vocabulary, or both tokenizers must be given.
    tokenizer, assistant_tokenizer : PreTrainedTokenizerBase, optional
        Of the model and of the draft model, where they differ: the draft's text is tokenized anew (universal assisted
        decoding). Where tokens are drawn, such drafts have no probabilities, and the draws are not those that
        ``generate`` would make, whose way of drawing is not sound: see ``decoding.tap_assisted.run_assisted``.
    loop : OwnLoop, optional
        A decoding loop that transformers does not have, to run in place of the library's: ``ContrastiveSearch``,
        ``DoLa`` or ``DiverseBeamSearch``, with its settings.
    hidden_layers : sequence of int, optional
        Which hidden states a step output carries, in this order: 0 is the embeddings, ``n`` the output of the ``n``-th
        layer, ``-1`` the last one's. All by default. What ``generate`` returns, and what an encoder gives once, stays
        whole.
    held : int
        Columns of the prompt that the ``cache=`` holds which ``generate`` is given, beside the whole ids: they are not
        computed again, whatever the strategy. See ``caching.lease``.
    rows : Rows, optional
        Of greedy decoding and sampling: how each row of the batch chooses its tokens, in place of what ``generate`` was
        told, of ``seed`` and of its length. The batch must draw (``do_sample=True``).

    Returns
    -------
    dict
        ``{"custom_generate": ...}``, and ``assistant_model``, for one or more calls of ``generate``.

    Raises
    ------
    ValueError
        For ``hidden_layers`` that are none or no integers, and for tokenizers without each other or a draft model.
    UnobservableError
        From ``generate``: for a decoding strategy that is not observed, attentions asked of a model whose attention
        implementation does not return them (see :func:`~.model_view.view_of`), layers that the model does not have,
        prompt logits asked of an encoder-decoder model, or a draft model with another vocabulary and no tokenizers.

    Notes
    -----
    ``custom_generate`` with a callable is public in transformers 5.24; it makes ``generate`` drop ``streamer=``,
    ``assistant_model=``, and ``tokenizer=`` (so pass stop strings as a ``StopStringCriteria``).

    Early exit (``assistant_early_exit=``) lowers the model's own layer count while it drafts. Where other threads use
    the model, run it on a view, ``view_of(model).generate(...)``; the count is restored also when drafting fails.

    When ``generate`` raises before it decodes (a bad argument), streamers are ended once the returned dict is gone.
    Where something keeps it, as a notebook keeps its last error, only a reader's ``timeout`` helps.
    """
    if (tokenizer is None) != (assistant_tokenizer is None) or (tokenizer is not None and assistant_model is None):
        msg = "tokenizer and assistant_tokenizer are for a draft model with another tokenizer; give both, and it"
        raise ValueError(msg)
    observation = _Observation(streamers, seed, stop, loop, _check_layers(hidden_layers), rows)

    # A plain function: generate looks at its signature.
    def custom_generate(
        model: PreTrainedModel,
        input_ids: torch.Tensor,
        logits_processor: LogitsProcessorList,
        stopping_criteria: StoppingCriteriaList,
        generation_config: GenerationConfig,
        inputs_tensor: torch.Tensor | None = None,
        **model_kwargs: Any,
    ) -> Any:
        return observation.decode(
            Call(
                model,
                input_ids,
                logits_processor,
                stopping_criteria,
                generation_config,
                model_kwargs,
                inputs_tensor,
                assistant_model,
                tokenizer,
                assistant_tokenizer,
                held,
            )
        )

    # When generate raises before it decodes (a bad argument), nobody would ever end the streamers.
    weakref.finalize(custom_generate, observation.abandon)
    if assistant_model is None:
        return {"custom_generate": custom_generate}
    # `generate` itself prepares (a cache that can be cropped) for what it takes the strategy to be.
    return {"custom_generate": custom_generate, "assistant_model": assistant_model}


class _Observation:
    """The streamers, seed, stop, loop and rows of one :func:`observe`."""

    def __init__(
        self,
        streamers: Iterable[StepStreamer],
        seed: int | None,
        stop: Callable[[], bool] | None,
        loop: OwnLoop | None,
        hidden_layers: tuple[int, ...] | None,
        rows: Rows | None,
    ) -> None:
        self._rows = rows
        self._streamers = tuple(streamers)
        self._seed = seed
        self._stop = stop
        self._loop = loop
        self._hidden_layers = hidden_layers
        self._used = False

    def decode(self, call: Call) -> Any:
        self._used = True
        fields = frozenset().union(*(streamer.fields for streamer in self._streamers))
        error: BaseException | None = None
        try:
            check_fields_of_model(call.model, fields)
            layers = hidden_layers_of(call.model, self._hidden_layers)
            self._put_prompt(call, fields)
            draws: TorchFunctionMode | None = None if self._seed is None else SeededDraws(self._seed)
            if self._rows is not None:
                call, draws = self._rows.call(call), self._rows.draws
            run = run_loop if self._loop is None else self._loop.run
            return run(call, fields, self._commit, self._put, draws, layers)
        except BaseException as caught:  # whoever reads must learn of it, KeyboardInterrupt included
            error = caught
            raise
        finally:
            self._end(error)

    def abandon(self) -> None:
        """End the streamers of a generation that never began."""
        if not self._used:
            self._end(RuntimeError("generate() ended before it began to decode; see the error that it raised"))

    def _commit(self, output: Step) -> bool:
        self._put(output)
        hung_up = bool(self._streamers) and all(streamer.closed for streamer in self._streamers)
        return hung_up or (self._stop is not None and self._stop())

    def _put(self, output: Output) -> None:
        for streamer in self._streamers:
            streamer.put(output)

    def _put_prompt(self, call: Call, fields: frozenset[Field]) -> None:
        prompt, positions = prompt_of(call)
        whole = replace(prompt, source=source_of(call, fields))
        wanting = [streamer for streamer in self._streamers if "prompt_logits" in streamer.fields]
        for streamer in self._streamers:
            if streamer not in wanting:
                streamer.put(whole)
        if not wanting:
            return
        tokens, mask = prompt.tokens, prompt.attention_mask
        for start, logits in prompt_logits(call.model, tokens, mask, positions):
            part = slice(start, start + logits.shape[1])
            output = PromptOutput(tokens[:, part], None if mask is None else mask[:, part], start, logits)
            for streamer in wanting:
                streamer.put(output)

    def _end(self, error: BaseException | None) -> None:
        failures: list[BaseException] = []
        for streamer in self._streamers:
            try:
                streamer.end(error)
            except BaseException as failure:  # noqa: BLE001 - the others' readers wait for their end
                failures.append(failure)
        if failures:
            raise failures[0]


def _check_layers(layers: Sequence[int] | None) -> tuple[int, ...] | None:
    if layers is None:
        return None
    chosen: tuple[Any, ...] = tuple(layers)
    if not chosen or not all(isinstance(layer, int) and not isinstance(layer, bool) for layer in chosen):
        msg = f"hidden_layers is {layers!r}; give layers by number, such as [-1] for the last one, or None for all"
        raise ValueError(msg)
    return chosen
