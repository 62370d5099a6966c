"""One turn of the model: generates for a batch of token rows, each up to its own end, on the KV of the turns before.

Rows of a batch do not change each other: padding is masked, each row has its own end and its own room. Which histories
take part, and what becomes of what they got, is in ``batches``; what KV there is, in ``prefixes``.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from transformers import PreTrainedTokenizerBase, StoppingCriteriaList

from ..caching.prefix_cache import PrefixCache
from ..decoding.model_view import view_of
from ..decoding.observe import observe
from ..decoding.own_loop import OwnLoop
from ..engines.inputs import context_of, pad_together
from ..streaming.base import StepStreamer
from .history import Reuse
from .new_tokens import closing_of
from .prefixes import TurnPrefixes
from .stopping import StringStoppingCriteria
from .watching import Outcome, Rooms

__all__ = ["Generated", "Turns"]

_OWN = {
    "assistant_input_ids", "attention_mask", "cache", "custom_generate", "decoder_attention_mask", "decoder_input_ids",
    "encoder_outputs", "input_ids", "inputs", "inputs_embeds", "past_key_values",
}  # fmt: skip
"""Arguments of ``generate`` that an environment makes itself."""
_RETURNED = {
    "output_attentions", "output_hidden_states", "output_logits", "output_scores", "return_dict_in_generate",
}  # fmt: skip
"""Arguments that would only hold memory: nobody would see what they return."""
_DEFAULT_NEW_TOKENS = 20
"""What ``generate`` gives where nothing says how many (transformers 5.24)."""
_DRAFTS = ("assistant_model", "prompt_lookup_num_tokens", "assistant_early_exit")
_SEED_STEP = 0x9E3779B97F4A7C15
"""Sets the seeds of a run's generations far apart."""


@dataclass(frozen=True, slots=True)
class Generated:
    """What a row got: its new tokens, and their logits where they were asked for."""

    tokens: list[int]
    logits: torch.Tensor | None


class Turns:
    """Generates turns with the same model and arguments.

    Parameters
    ----------
    model : PreTrainedModel
    tokenizer : PreTrainedTokenizerBase
    generation_kwargs : mapping
        Arguments of ``generate``, and those of ``observe`` for a draft model. Not changed.
    prefixes : PrefixCache, optional
        What is computed is kept there, and taken from there.
    keep_logits : bool
        As of :class:`~genscope.kernel_side.environment.environment.TextEnvironment`.

    Attributes
    ----------
    closing : list of int
        What closes the input of an encoder: it stands behind the whole of what is read, and is no part of a history.

    Raises
    ------
    ValueError
        For arguments that an environment makes itself or that do not go with it.
    """

    def __init__(
        self,
        model: Any,
        tokenizer: PreTrainedTokenizerBase,
        generation_kwargs: Mapping[str, Any],
        *,
        prefixes: PrefixCache | None = None,
        keep_logits: bool = False,
    ) -> None:
        self.model = model
        self.prefixes = prefixes
        self.tokenizer = tokenizer
        self.closing = closing_of(tokenizer) if model.config.is_encoder_decoder else []
        given = dict(generation_kwargs)
        self._config = given.pop("generation_config", None)
        layers = [model.generation_config.to_dict(), {} if self._config is None else self._config.to_dict(), given]
        self.asked = {name: value for layer in layers for name, value in layer.items() if value is not None}
        self._check(given, keep_logits)
        self._criteria = list(given.pop("stopping_criteria", None) or ())
        self._drafting: dict[str, Any] = {
            name: given.pop(name) for name in ("assistant_model", "assistant_tokenizer") if name in given
        }
        if self._drafting.get("assistant_tokenizer") is not None:
            self._drafting["tokenizer"] = tokenizer
        self._loop: OwnLoop | None = given.pop("custom_generate", None)
        given.pop("stop_strings", None)
        strings = self.asked.get("stop_strings", ())
        self.stop_strings = [strings] if isinstance(strings, str) else list(strings)
        left_out = {"max_length", "max_new_tokens", "seed", "streamer", "tokenizer", *_RETURNED}
        self._kwargs = {name: value for name, value in given.items() if name not in left_out}
        self._keep_logits = keep_logits

    def _check(self, given: Mapping[str, Any], keep_logits: bool) -> None:
        own_loop = {"custom_generate"} if isinstance(given.get("custom_generate"), OwnLoop) else set()
        for name in sorted(_OWN.intersection(given) - own_loop):
            msg = f"generation_kwargs have {name!r}, which the environment makes itself; leave it out"
            raise ValueError(msg)
        if given.get("streamer") is not None:
            msg = (
                "generation_kwargs have a streamer, and one serves a single generation; give watch= to the environment"
            )
            raise ValueError(msg)
        returned = self.asked.get("num_return_sequences", 1)
        if returned > 1:
            msg = (
                f"generation_kwargs have num_return_sequences={returned}; a history goes on in one way: repeat queries"
            )
            raise ValueError(msg)
        special = next((name for name in _DRAFTS if self.asked.get(name) is not None), None)
        special = f"num_beams={self.asked['num_beams']}" if self.asked.get("num_beams", 1) > 1 else special
        if keep_logits and special is not None:
            msg = f"keep_logits goes with greedy decoding and sampling; leave {special} out of generation_kwargs"
            raise ValueError(msg)

    @property
    def eos_ids(self) -> set[int]:
        """The ids that end a model's segment: what ``generate`` ends at, and the tokenizer's."""
        eos = self.asked.get("eos_token_id")
        ids = set() if eos is None else set(torch.as_tensor(eos).reshape(-1).tolist())
        return ids | ({self.tokenizer.eos_token_id} - {None})

    @property
    def pad_id(self) -> int:
        """The id that fills rows: what was asked for, the tokenizer's, or, since it is masked, any."""
        known = (self.asked.get("pad_token_id"), self.tokenizer.pad_token_id, *sorted(self.eos_ids), 0)
        return next(int(pad) for pad in known if pad is not None)

    def limit(self, max_length: int | None) -> tuple[int | None, str]:
        """Return how long a history may get, and what says so: ``"max_length"`` or ``"context"``.

        Parameters
        ----------
        max_length : int or None
            That of the environment. Where ``generate`` was asked for a whole length, that counts too.
        """
        lengths = [max_length, None if "max_new_tokens" in self.asked else self.asked.get("max_length")]
        limits = [(length, "max_length") for length in lengths if length is not None]
        context = context_of(self.model)
        if context is not None:
            limits.append((context - len(self.closing), "context"))
        return min(limits, default=(None, ""))

    def room(self, length: int, max_length: int | None = None) -> int:
        """Return how many new tokens a row of a length may have."""
        limit, _ = self.limit(max_length)
        left = None if limit is None else max(0, limit - length)
        wanted: Any = self.asked.get("max_new_tokens", left if "max_length" in self.asked else _DEFAULT_NEW_TOKENS)
        return int(wanted if left is None else min(wanted, left))

    def generate(
        self,
        rows: Sequence[list[int]],
        rooms: Sequence[int],
        stopping: StringStoppingCriteria,
        *,
        on_reuse: Callable[[Sequence[Reuse]], object] | None = None,
        seed: int | None = None,
        number: int = 0,
        stop: Callable[[], bool] | None = None,
        watch: StepStreamer | None = None,
    ) -> list[Generated]:
        """Generate once for each row.

        Parameters
        ----------
        rows : sequence of list of int
            What each continues; of an encoder-decoder model what the encoder reads, without what closes it.
        rooms : sequence of int
            How many new tokens each may have, at least 1.
        stopping : StringStoppingCriteria
            Ends each row.
        on_reuse : callable, optional
            Gets what each row reuses, before the model runs.
        seed : int, optional
            Of the run.
        number : int
            Of this generation in its run: each draws with a seed of its own.
        stop : callable, optional
            True ends all rows after the step.
        watch : StepStreamer, optional
            Sees each step.
        """
        encoder: bool = self.model.config.is_encoder_decoder
        read = [[*row, *self.closing] for row in rows]
        ids, mask = pad_together(read, self.pad_id, left=not encoder)
        device = self.model.device
        prompt = 1 if encoder else ids.shape[1]
        stopping.reset(prompt)
        inputs: dict[str, Any] = {"input_ids": ids.to(device), "attention_mask": mask.to(device)}
        outcome = Outcome(len(rows), logits=self._keep_logits)
        criteria = StoppingCriteriaList([stopping, Rooms(rooms, prompt), *self._criteria])
        model = self.model
        if (
            model.generation_config.stop_strings is not None
        ):  # they are ours to look for; `generate` would want a tokenizer
            model = view_of(model, stop_strings=None)
        with TurnPrefixes(self.prefixes, model, rows, inputs, self.asked, max(rooms), self._loop) as known:
            if on_reuse is not None:
                on_reuse(known.reuses)
            observed = observe(
                *((outcome,) if watch is None else (outcome, watch)),
                seed=None if seed is None else (seed + number * _SEED_STEP) % 2**63,
                stop=stop,
                loop=self._loop,
                held=known.held,
                **self._drafting,
            )
            arguments = self._arguments({**inputs, **known.inputs, "max_new_tokens": max(rooms)})
            sequences = model.generate(**arguments, stopping_criteria=criteria, **observed).tolist()
            results = []
            for index, (row, room) in enumerate(zip(rows, rooms, strict=True)):
                tokens = sequences[index][prompt : prompt + outcome.length(index)]
                results.append(tokens[: min(room, stopping.count(tokens, () if encoder else row))])
            known.store(results)
        return [Generated(tokens, outcome.logits_of(index, len(tokens))) for index, tokens in enumerate(results)]

    def _arguments(self, own: Mapping[str, Any]) -> dict[str, Any]:
        own = {**own, "return_dict_in_generate": False, "pad_token_id": self.pad_id}
        if self._config is None:
            return self._kwargs | own
        # A copy: `generate` takes settings beside a config no more (transformers 5.24).
        config = copy.deepcopy(self._config)
        config.max_length = None
        unused: dict[str, Any] = config.update(**{"stop_strings": None, **self._kwargs, **own})
        return unused | {"generation_config": config}
