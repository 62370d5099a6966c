"""One helper that makes any ``model.generate(...)`` call observable and reproducible.

``model.generate(**inputs, **observe(streamer))`` runs the library's own loop and hands each step to the streamer. It
knows streamers and steps; how a loop is tapped is in ``tap``.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable
from typing import Any

import torch
from transformers import GenerationConfig, LogitsProcessorList, PreTrainedModel, StoppingCriteriaList

from ..streaming.base import StepStreamer
from ..streaming.outputs import PromptOutput, StepOutput
from .own_loop import OwnLoop
from .randomness import SeededDraws
from .tap import Tap, UnobservableError, prompt_logits, run_loop

__all__ = ["observe"]


def observe(
    *streamers: StepStreamer,
    seed: int | None = None,
    stop: Callable[[], bool] | None = None,
    loop: OwnLoop | None = None,
) -> dict[str, Any]:
    """Return the argument that makes a ``model.generate(...)`` call observable.

    The tokens, and everything that ``generate`` returns, are what they are without it. The model object is not
    touched. What a streamer asks for is computed for it; what ``generate`` accumulates and returns stays what *its*
    arguments say, so without ``return_dict_in_generate`` memory stays constant however much is streamed.

    Parameters
    ----------
    *streamers : StepStreamer
        Each gets the prompt and then every step, in the generating thread. A generation that fails ends them with its
        error. All having hung up stops the generation.
    seed : int, optional
        Draws from a generator of this run's own: the tokens equal those after ``torch.manual_seed(seed)``, in any
        thread, and the global generator is left alone.
    stop : callable, optional
        Called after each step, in the generating thread; True ends the generation after that step. It may block, which
        pauses the generation. (``threading.Event().is_set`` is one.)
    loop : OwnLoop, optional
        A decoding loop that transformers does not have, to run in place of the library's: ``ContrastiveSearch``,
        ``DoLa`` or ``DiverseBeamSearch``, with its settings.

    Returns
    -------
    dict
        ``{"custom_generate": ...}``, for one or more calls of ``generate``.

    Raises
    ------
    UnobservableError
        From ``generate``: for a decoding strategy that is not observed, or attentions asked of a model whose attention
        implementation does not return them.

    Notes
    -----
    ``custom_generate`` with a callable is public in transformers 5.24; it makes ``generate`` drop ``streamer=``,
    ``assistant_model=``, and ``tokenizer=`` (so pass stop strings as a ``StopStringCriteria``).

    When ``generate`` raises before it decodes (a bad argument), streamers are ended once the returned dict is gone.
    Where something keeps it, as a notebook keeps its last error, only a reader's ``timeout`` helps.
    """
    observation = _Observation(streamers, seed, stop, loop)

    # A plain function: generate looks at its signature.
    def custom_generate(
        model: PreTrainedModel,
        input_ids: torch.Tensor,
        logits_processor: LogitsProcessorList,
        stopping_criteria: StoppingCriteriaList,
        generation_config: GenerationConfig,
        **model_kwargs: Any,
    ) -> Any:
        return observation.decode(
            model, input_ids, logits_processor, stopping_criteria, generation_config, model_kwargs
        )

    # When generate raises before it decodes (a bad argument), nobody would ever end the streamers.
    weakref.finalize(custom_generate, observation.abandon)
    return {"custom_generate": custom_generate}


class _Observation:
    """The streamers, seed, stop and loop of one :func:`observe`."""

    def __init__(
        self,
        streamers: Iterable[StepStreamer],
        seed: int | None,
        stop: Callable[[], bool] | None,
        loop: OwnLoop | None,
    ) -> None:
        self._streamers = tuple(streamers)
        self._seed = seed
        self._stop = stop
        self._loop = loop
        self._used = False

    def decode(
        self,
        model: PreTrainedModel,
        input_ids: torch.Tensor,
        logits_processor: LogitsProcessorList,
        stopping_criteria: StoppingCriteriaList,
        generation_config: GenerationConfig,
        model_kwargs: dict[str, Any],
    ) -> Any:
        self._used = True
        fields = frozenset().union(*(streamer.fields for streamer in self._streamers))
        error: BaseException | None = None
        try:
            if "attentions" in fields:
                _check_attentions(model)
            self._put_prompt(model, input_ids, model_kwargs)
            tap = Tap(fields, self._commit, None if self._seed is None else SeededDraws(self._seed))
            if self._loop is not None:
                return self._loop.run(
                    tap, model, input_ids, logits_processor, stopping_criteria, generation_config, model_kwargs
                )
            return run_loop(
                tap, model, input_ids, logits_processor, stopping_criteria, generation_config, **model_kwargs
            )
        except BaseException as caught:  # whoever reads must learn of it, KeyboardInterrupt included
            error = caught
            raise
        finally:
            self._end(error)

    def abandon(self) -> None:
        """End the streamers of a generation that never began."""
        if not self._used:
            self._end(RuntimeError("generate() ended before it began to decode; see the error that it raised"))

    def _commit(self, output: StepOutput) -> bool:
        self._put(output)
        hung_up = bool(self._streamers) and all(streamer.closed for streamer in self._streamers)
        return hung_up or (self._stop is not None and self._stop())

    def _put(self, output: StepOutput) -> None:
        for streamer in self._streamers:
            streamer.put(output)

    def _put_prompt(self, model: PreTrainedModel, input_ids: torch.Tensor, model_kwargs: dict[str, Any]) -> None:
        mask = model_kwargs.get("attention_mask")
        wanting = [streamer for streamer in self._streamers if "prompt_logits" in streamer.fields]
        for streamer in self._streamers:
            if streamer not in wanting:
                streamer.put(PromptOutput(input_ids, mask))
        if not wanting:
            return
        for start, logits in prompt_logits(model, input_ids, model_kwargs):
            part = slice(start, start + logits.shape[1])
            output = PromptOutput(input_ids[:, part], None if mask is None else mask[:, part], start, logits)
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


def _check_attentions(model: PreTrainedModel) -> None:
    """Refuse what the library answers with silent empty tuples (transformers 5.24)."""
    implementation = model.config._attn_implementation
    if implementation != "eager":
        msg = (
            f"attentions cannot be observed with the attention implementation {implementation!r}, which returns none; "
            "call model.set_attn_implementation('eager') first"
        )
        raise UnobservableError(msg)
