"""The engine that runs a ``transformers`` model in this process.

It turns a request into token ids and ``generate`` arguments, checks both against the model, and runs the observed
``generate`` with a recorder. Threads and states: ``run``. How a loop is observed: ``decoding``.
"""

from __future__ import annotations

import dataclasses
import secrets
import threading
import weakref
from collections.abc import Callable
from typing import Any, get_args

import torch
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from ..decoding.observe import observe
from ..decoding.tap_prompt import attention_implementation
from ..record.record import Record
from ..record.recorder import Clock, Recorder
from ..request import Observable, Problem, Request, SettingsError
from .base import Outcome
from .turnstile import Turnstile

__all__ = ["InProcessEngine"]

_turnstiles: weakref.WeakKeyDictionary[PreTrainedModel, Turnstile] = weakref.WeakKeyDictionary()
_turnstiles_lock = threading.Lock()


class InProcessEngine:
    """Executes requests on a model in this process.

    Parameters
    ----------
    model : PreTrainedModel
        A decoder-only language model. Never changed.
    tokenizer : PreTrainedTokenizerBase

    Attributes
    ----------
    turnstile : Turnstile
        Shared by all engines on this model object.
    """

    def __init__(self, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> None:
        if model.config.is_encoder_decoder:
            msg = f"{type(model).__name__} is an encoder-decoder model; give a decoder-only language model"
            raise ValueError(msg)
        self.model: Any = model  # its generate() has no usable type
        self.tokenizer = tokenizer
        with _turnstiles_lock:
            self.turnstile = _turnstiles.setdefault(model, Turnstile())

    @property
    def context(self) -> int | None:
        """Tokens that fit into the model's context, None when its config does not say."""
        return getattr(self.model.config.get_text_config(), "max_position_embeddings", None)

    @property
    def chat(self) -> bool:
        """Whether the tokenizer has a chat template."""
        return bool(self.tokenizer.chat_template)

    def prepare(self, request: Request) -> InProcessJob:
        """Check a request against the model, and tokenize its prompt.

        Parameters
        ----------
        request : Request

        Returns
        -------
        InProcessJob
            Ready to execute; its request has a seed.

        Raises
        ------
        SettingsError
            When the prompt gives no tokens, has one that the model does not know, does not fit, or needs a chat
            template that is not there; when fewer tokens fit behind it than were asked for; when the model gives no
            attentions that were to be kept.
        """
        settings = request.settings
        ids = self._tokenize(request)
        self._check_ids(request, ids)
        self._check_length(request, len(ids))
        if "attentions" in settings.keep and attention_implementation(self.model) != "eager":
            raise SettingsError(
                [
                    Problem(
                        "keep",
                        settings.keep,
                        f"attentions are not given by the attention implementation "
                        f"{attention_implementation(self.model)!r}",
                        "Leave them out, or call model.set_attn_implementation('eager') first.",
                    )
                ]
            )
        if settings.seed is None:
            # 32 bits are enough to tell runs apart, and easy to read and to type again.
            settings = settings.model_copy(update={"seed": secrets.randbits(32)})
        return InProcessJob(self, dataclasses.replace(request, settings=settings), ids)

    def eos_ids(self) -> set[int]:
        """Return the token ids that end a sequence."""
        eos = self.model.generation_config.eos_token_id
        return set() if eos is None else set(torch.as_tensor(eos).reshape(-1).tolist())

    def _tokenize(self, request: Request) -> list[int]:
        prompt = request.prompt
        if isinstance(prompt, str):
            ids = list(self.tokenizer(prompt)["input_ids"])
        else:
            if not self.chat:
                message = "the tokenizer has no chat template, so it cannot take chat messages"
                raise SettingsError([Problem("prompt", prompt, message, "Give the prompt as text.")])
            messages = [message.model_dump() for message in prompt]
            try:
                # To ids at once: rendering to text and tokenizing that would give a second BOS.
                encoded: Any = self.tokenizer.apply_chat_template(
                    messages, add_generation_prompt=True, return_dict=True
                )
                ids = encoded["input_ids"]
            except Exception as error:  # a template is a program of the model's author and may raise anything
                message = f"the chat template refuses these messages: {error}"
                raise SettingsError([Problem("prompt", prompt, message, "Change the roles or their order.")]) from error
        if not ids:
            raise SettingsError([Problem("prompt", prompt, "the prompt gives no tokens", "Type some text.")])
        return ids

    def _check_ids(self, request: Request, ids: list[int]) -> None:
        """Refuse ids that the model does not have: on a GPU, looking one up breaks all later work too."""
        size, largest = self.model.get_input_embeddings().weight.shape[0], max(ids)
        if largest >= size:
            token = self.tokenizer.decode([largest])
            message = f"its token {token!r} has the id {largest}, but the model knows {size} tokens"
            way_out = "Use the model's own tokenizer, or call model.resize_token_embeddings(len(tokenizer)) first."
            raise SettingsError([Problem("prompt", request.prompt, message, way_out)])

    def _check_length(self, request: Request, length: int) -> None:
        context, wanted = self.context, request.settings.max_new_tokens
        if context is None or length + wanted <= context:
            return
        if length >= context:
            message = f"the prompt has {length} tokens, but the model's context holds {context}"
            way_out = f"Shorten it to at most {context - 1} tokens."
            raise SettingsError([Problem("prompt", request.prompt, message, way_out)])
        room = context - length
        message = f"{wanted} do not fit: the prompt takes {length} of the {context} tokens of the model's context"
        raise SettingsError([Problem("max_new_tokens", wanted, message, f"Use at most {room}, or shorten the prompt.")])


class InProcessJob:
    """A request that fits the model. See :class:`~genscope.kernel_side.engines.base.Job`."""

    def __init__(self, engine: InProcessEngine, request: Request, prompt_ids: list[int]) -> None:
        self.request = request
        self.prompt_ids = prompt_ids
        self._engine = engine
        settings = request.settings
        self._recorder = Recorder(
            engine.tokenizer,
            alternatives=settings.alternatives,
            prompt_probabilities=settings.prompt_probabilities,
        )

    @property
    def record(self) -> Record:
        """The tokens so far."""
        return self._recorder.record

    @property
    def busy(self) -> float:
        """Seconds that measuring and recording took so far."""
        return self._recorder.busy

    def execute(self, clock: Clock, checkpoint: Callable[[], bool]) -> Outcome:
        """Generate, in this thread. See :meth:`~genscope.kernel_side.engines.base.Job.execute`."""
        settings = self.request.settings
        self._recorder.clock = clock
        stop_string = _StopStrings(settings.stop_strings, self.record)
        told_to_stop = False

        def stop() -> bool:
            nonlocal told_to_stop
            found = stop_string.look()  # before a pause: the step that found it needs no further one
            told_to_stop = not found and checkpoint()
            return found or told_to_stop

        output = self._engine.model.generate(
            **self._inputs(),
            **settings.generate_kwargs(),
            **{f"output_{field}": field in settings.keep for field in get_args(Observable)},
            return_dict_in_generate=True,
            **observe(self._recorder, seed=settings.seed, stop=stop),
        )
        # A run is kept for as long as somebody looks at it; its KV would be kept with it, and fill the device.
        output.cache = None
        if told_to_stop:
            return Outcome(None, output)
        return Outcome(stop_string.why or self._why(), output)

    def _inputs(self) -> dict[str, Any]:
        ids = torch.tensor([self.prompt_ids], device=self._engine.model.device)
        inputs: dict[str, Any] = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
        if self._engine.model.generation_config.pad_token_id is None:
            inputs["pad_token_id"] = 0  # one row is never padded; naming any token keeps the library from warning
        return inputs

    def _why(self) -> str:
        ended = self.request.settings.stop_at_eos and self.record[-1].id in self._engine.eos_ids()
        return "eos" if ended else "length"


class _StopStrings:
    """Looks for stop strings in the generated text alone, so that none is found across the prompt's end.

    The library's ``StopStringCriteria`` (transformers 5.24) also matches what the prompt began, and takes seconds to
    build for a large vocabulary.
    """

    def __init__(self, strings: list[str], record: Record) -> None:
        self._strings = strings
        self._record = record
        self._kept = max(map(len, strings), default=0) - 1
        self._text = ""
        self.why: str | None = None

    def look(self) -> bool:
        """Look at the text with the last token; True when it holds a stop string."""
        if not self._strings:
            return False
        self._text += self._record[-1].text
        self.why = next((f"stop string {string!r}" for string in self._strings if string in self._text), None)
        self._text = self._text[-self._kept :] if self._kept else ""
        return self.why is not None
