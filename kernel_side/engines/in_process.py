"""The engine that runs a ``transformers`` model in this process.

It checks requests against its model. How prompts become ids is in ``inputs``, how a strategy runs in ``plan``, running
in ``job``. Threads and states: ``run``. How a loop is observed: ``decoding``.
"""

from __future__ import annotations

import dataclasses
import secrets
import threading
import weakref
from collections.abc import Sequence
from typing import Any

import torch
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from ..caching.prefix_cache import PrefixCache
from ..caching.savings import PrefillRate
from ..observation.costs import Cost, measure_costs
from ..observation.lens import LogitLens
from ..record.record import Token
from ..request import Problem, Prompt, Request, SettingsError
from ..settings import Guidance, Settings
from .continuing import ids_behind, next_turn
from .inputs import check_ids, context_of, tokenize
from .job import InProcessJob
from .plan import Draft, make_plan, unavailable
from .turnstile import Turnstile

__all__ = ["InProcessEngine"]

_turnstiles: weakref.WeakKeyDictionary[PreTrainedModel, Turnstile] = weakref.WeakKeyDictionary()
_turnstiles_lock = threading.Lock()


class InProcessEngine:
    """Executes requests on a model in this process.

    Parameters
    ----------
    model : PreTrainedModel
        A decoder-only language model, or an encoder-decoder one that reads text. Never changed.
    tokenizer : PreTrainedTokenizerBase
    assistant : PreTrainedModel or tuple of PreTrainedModel and PreTrainedTokenizerBase, optional
        Drafts for the strategy ``"assisted"``; with its tokenizer where that is another one.
    prefix_cache : PrefixCache, optional
        What runs compute for their prompts and reuse; without, each computes its own. May serve several engines.

    Attributes
    ----------
    prefill_rate : PrefillRate
        What a prompt token costs, as its runs tell.
    turnstile : Turnstile
        Shared by all engines on this model object.
    """

    def __init__(
        self,
        model: PreTrainedModel,
        tokenizer: PreTrainedTokenizerBase,
        assistant: PreTrainedModel | tuple[PreTrainedModel, PreTrainedTokenizerBase] | None = None,
        prefix_cache: PrefixCache | None = None,
    ) -> None:
        self.model: Any = model  # its generate() has no usable type
        self.tokenizer = tokenizer
        self.draft = (
            None if assistant is None else Draft(*(assistant if isinstance(assistant, tuple) else (assistant,)))
        )
        self.prefix_cache = prefix_cache
        self.prefill_rate = PrefillRate()
        self._lens: LogitLens | None = None
        self._costs: dict[str, Cost] | None = None
        with _turnstiles_lock:
            self.turnstile = _turnstiles.setdefault(model, Turnstile())

    @property
    def context(self) -> int | None:
        """Tokens that fit into the model's context, None when its config does not say."""
        return context_of(self.model)

    @property
    def chat(self) -> bool:
        """Whether the tokenizer has a chat template."""
        return bool(self.tokenizer.chat_template)

    @property
    def lens(self) -> LogitLens:
        """Reads hidden states as the model's head does. Raises ``UnseenError`` where the head is not understood."""
        if self._lens is None:
            self._lens = LogitLens(self.model)
        return self._lens

    def unavailable(self) -> dict[str, str]:
        """Return the strategies that this model cannot run, and why, for a person."""
        return unavailable(self.model, self.draft)

    def costs(self) -> dict[str, Cost]:
        """Measure, once, what observing costs on this model: by the setting that switches it on.

        Waits for the runs that are queued, and takes a second or so.
        """
        if self._costs is None:
            ticket = self.turnstile.join()
            try:
                self.turnstile.wait(ticket, lambda: False)
                self._costs = measure_costs(self.model)
            finally:
                self.turnstile.leave(ticket)
        return self._costs

    def prepare(self, request: Request) -> InProcessJob:
        """Check a request against the model, and tokenize its prompts.

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
            When a prompt gives no tokens, has one that the model does not know, does not fit, or needs a chat template
            that is not there; when fewer tokens fit behind it than were asked for; when the strategy, or something else
            that was asked for, cannot be had of this model.
        """
        if request.ids is not None:
            check_ids(request.ids, self.tokenizer, self.model)
        if request.ids is None or self.model.config.is_encoder_decoder:
            ids = [tokenize(prompt, self.tokenizer, self.model) for prompt in request.prompts]
        else:
            ids = [list(request.ids)]
        self._check_length(request, max(map(len, ids)))
        self._check_negative(request)
        plan = make_plan(request, self.model, self.draft)
        seeded = dataclasses.replace(
            request, settings=_seeded(request.settings), variants=tuple(map(_seeded, request.variants))
        )
        return InProcessJob(self, seeded, ids, plan)

    def eos_ids(self) -> set[int]:
        """Return the token ids that end a sequence."""
        eos = self.model.generation_config.eos_token_id
        return set() if eos is None else set(torch.as_tensor(eos).reshape(-1).tolist())

    def decoder_start(self, request: Request) -> list[int]:
        """Return what the decoder of an encoder-decoder model begins with."""
        if request.ids is not None:
            return list(request.ids)
        config = self.model.generation_config
        start = config.bos_token_id if config.decoder_start_token_id is None else config.decoder_start_token_id
        return [int(torch.as_tensor(start).reshape(-1)[0])]

    def beginning(self) -> list[int]:
        """Return the id of BOS, as far as there is one. See :class:`~.base.Continuing`."""
        known = (self.model.generation_config.bos_token_id, self.tokenizer.bos_token_id)
        return next(([int(bos)] for bos in known if bos is not None), [])

    def ids_behind(self, before: Sequence[int], text: str) -> list[int]:
        """See :class:`~.base.Continuing`."""
        return ids_behind(self.tokenizer, before, text)

    def next_turn(self, tokens: Sequence[Token], messages: Prompt) -> tuple[int, list[int]]:
        """See :class:`~.base.Continuing`."""
        return next_turn(self.tokenizer, tokens, messages)

    def pad_id(self) -> int:
        """Return the id that fills rows: the model's own, the tokenizer's, or, since it is masked, any."""
        known = (self.model.generation_config.pad_token_id, self.tokenizer.pad_token_id, *sorted(self.eos_ids()), 0)
        return next(int(pad) for pad in known if pad is not None)

    def _check_length(self, request: Request, length: int) -> None:
        """Check the longest prompt; of an encoder-decoder model it does not share the context with what follows."""
        context, wanted = self.context, request.settings.max_new_tokens
        if context is None:
            return
        apart = self.model.config.is_encoder_decoder
        if length > context - (not apart):
            message = f"the prompt has {length} tokens, but the model's context holds {context}"
            way_out = f"Shorten it to at most {context - (not apart)}."
            raise SettingsError([Problem("prompt", request.plain_prompt(), message, way_out)])
        taken = len(self.decoder_start(request)) if apart else length
        if taken + wanted > context:
            message = f"{wanted} do not fit: the prompt takes {taken} of the {context} tokens of the model's context"
            way_out = f"Use at most {context - taken}{'' if apart else ', or shorten the prompt'}."
            raise SettingsError([Problem("max_new_tokens", wanted, message, way_out)])

    def _check_negative(self, request: Request) -> None:
        """Check the negative prompt: what is generated goes on behind it, too."""
        settings = request.settings
        if not isinstance(settings, Guidance) or not settings.negative_prompt:
            return
        length, context = len(tokenize(settings.negative_prompt, self.tokenizer, self.model)), self.context
        if context is not None and length + settings.max_new_tokens > context:
            message = f"it has {length} tokens, and with {settings.max_new_tokens} behind them they do not fit: the "
            message += f"model's context holds {context}"
            way_out = "Shorten it, or lower max_new_tokens."
            raise SettingsError([Problem("negative_prompt", settings.negative_prompt, message, way_out)])


def _seeded(settings: Settings) -> Settings:
    """Return settings with a seed; 32 bits are enough to tell runs apart, and easy to read and to type again."""
    return settings if settings.seed is not None else settings.model_copy(update={"seed": secrets.randbits(32)})
