"""Taps the library's assisted decoding: a draft model (also with another tokenizer), prompt lookup, early exit.

The loop makes a generator of drafts for each run; its two methods, called before and after the checking forward pass,
give the drafts and the scores. The commit is at the stopping criteria, once a round.
"""

from __future__ import annotations

import contextlib
import copy
import time
from collections.abc import Callable
from typing import Any

import torch
from transformers.generation.utils import _split_model_outputs

from ..streaming.assisted_outputs import AssistedStepOutput
from ..streaming.outputs import Field, Step
from .quiet import drafting_quietly
from .tap import Call, LoopTap, TappedCriteria, TappedModel, UnobservableError

__all__ = ["AssistedTap", "check_assistance", "run_assisted"]


class AssistedTap(LoopTap):
    """The tap of assisted decoding; see :class:`~.tap.LoopTap`."""

    def __init__(
        self,
        fields: frozenset[Field],
        commit: Callable[[Step], bool],
        draws: contextlib.AbstractContextManager[object] | None = None,
        hidden_layers: tuple[int, ...] | None = None,
    ) -> None:
        super().__init__(fields, commit, draws, hidden_layers)
        self._length = 0  # before the round
        self._drafted = torch.zeros(1, 0, dtype=torch.long)
        self._logits: torch.Tensor | None = None
        self._positions = 0  # with the drafts, and with what a cache held before the run

    def on_drafts(self, length: int, candidates: torch.Tensor, draft_scores: torch.Tensor | None) -> None:
        """Take the sequence ``(1, length + drafts)`` that will be checked, and what the drafts were chosen from."""
        self._length = length
        self._drafted = candidates[:, length:]
        if "scores" in self.fields:
            self._parts["draft_scores"] = draft_scores

    def on_check(self, outputs: Any) -> None:
        """Take the checking pass before its logits are processed, in place; the choice comes next."""
        if "logits" in self.fields:
            drafts = self._drafted.shape[1]
            self._logits = outputs.logits[:, -drafts - 1 :].to(dtype=torch.float32, copy=True)
        if "attentions" in self.fields:
            self._positions = int(outputs.cache.get_seq_length())  # now: the cache is cropped to the kept drafts next
        self.begin_choice()

    def on_choice(self, scores: torch.Tensor, accepted: int) -> None:
        """Take the processed scores ``(1, drafts + 1, vocabulary)`` once the tokens are chosen."""
        self.close()
        if "scores" in self.fields:
            self._parts["check_scores"] = scores
        for field, value in (("scores", scores), ("logits", self._logits)):
            if field in self.fields and value is not None:
                self._parts[field] = tuple(value[:, index, :] for index in range(accepted + 1))

    def on_forward(self, outputs: Any) -> None:
        """Leave it to :meth:`on_round`, which knows how many tokens there are."""

    def on_round(self, outputs: Any, tokens: int) -> None:
        """Take the states of the checking pass, split among the round's tokens as the library does and as is right."""
        is_first = self._step == 0
        for name, value in self._states(outputs):
            added = self._length + tokens if is_first else tokens
            decoder = {"is_decoder_attention": True} if name == "attentions" else {}
            split = _split_model_outputs(() if is_first else ((),), value, self._length, added, **decoder)
            given = split if is_first else split[1:]
            self._parts[name] = given
            self._parts[f"own_{name}"] = tuple(
                tuple(self._own_rows(layer, theirs, index, name) for layer, theirs in zip(value, of_token, strict=True))
                for index, of_token in enumerate(given)
            )

    def _own_rows(self, value: torch.Tensor, theirs: torch.Tensor, index: int, name: str) -> torch.Tensor:
        """Return the rows of a layer that the token with this index in the round was decided by.

        ``theirs`` are those that the library takes for them; where they are the same, it is the same tensor.
        """
        is_prompt = self._step == 0 and index == 0
        drafts = self._drafted.shape[1]
        stop = value.shape[-2] - drafts + index  # the last row is the last draft's, whatever was cached before
        start = 0 if is_prompt else stop - 1
        width = value.shape[-1]
        if name == "attentions":
            # Of the keys, too, the last is the last draft's: a sliding window has dropped some in front. Only a static
            # cache has more of them than there are positions, behind.
            width = min(width, self._positions) - drafts + index
        own = value[..., start:stop, :width]
        return theirs if (is_prompt or self._step) and own.shape == theirs.shape else own

    def on_tokens(self, sequences: torch.Tensor, done: Callable[[], torch.Tensor]) -> torch.Tensor:
        """Commit a round; see :meth:`.tap.Tap.on_tokens`."""
        finished = done()
        tokens = sequences[:, self._length :]
        compared = min(tokens.shape[1], self._drafted.shape[1])
        same = tokens[:, :compared] == self._drafted[:, :compared].to(tokens.device)
        output = AssistedStepOutput(
            step=self._step,
            length=sequences.shape[1],
            seconds=time.perf_counter(),
            tokens=tokens,
            drafted=self._drafted,
            # Counted here: the library's count takes the last token for the bonus, also where the sequence ended
            # within the draft.
            accepted=int(same.cumprod(dim=1).sum()),
            finished=finished,
            **self._take_parts(),
        )
        return torch.ones_like(finished) if self._commit(output) else finished


class _AssistedModel(TappedModel[AssistedTap]):
    """The stand-in for the model; the methods are those that ``_assisted_decoding`` of transformers 5.24 calls."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        outputs = self._model(*args, **kwargs)
        self._tap.on_check(outputs)
        return outputs

    def get_compiled_call(self, compile_config: Any) -> Any:
        """Return what the loop calls instead of the model where it compiles the forward pass."""
        forward = self._model.get_compiled_call(compile_config)

        def call(*args: Any, **kwargs: Any) -> Any:
            outputs = forward(*args, **kwargs)
            self._tap.on_check(outputs)
            return outputs

        return call

    def _update_model_kwargs_for_generation(self, outputs: Any, *args: Any, **kwargs: Any) -> Any:
        self._tap.on_round(outputs, kwargs["num_new_tokens"])
        return super()._update_model_kwargs_for_generation(outputs, *args, **kwargs)

    def _get_candidate_generator(self, *, generation_config: Any, **kwargs: Any) -> Any:
        if kwargs["assistant_tokenizer"] is not None and generation_config.do_sample:
            # What the library would make here is not sound, see `run_assisted`.
            generation_config = copy.copy(generation_config)
            generation_config.do_sample = False
        kwargs["generation_config"] = generation_config
        drafter = self._model._get_candidate_generator(**kwargs)  # noqa: SLF001 - the tap
        if drafter.requires_model_outputs:
            msg = (
                f"drafts by {type(drafter).__name__} cannot be observed; use a draft model or prompt_lookup_num_tokens"
            )
            raise UnobservableError(msg)
        # The generator is this run's own. Its methods are replaced on the object rather than it by a stand-in: the
        # loop asks for its class.
        get_candidates, update_strategy = drafter.get_candidates, drafter.update_candidate_strategy
        tap, model = self._tap, self._model

        def tapped_get_candidates(input_ids: torch.Tensor, **more: Any) -> Any:
            config = model.config.get_text_config()
            layers = config.num_hidden_layers
            tap.begin_choice()  # drafts are drawn too
            try:
                with drafting_quietly():
                    candidates, scores = get_candidates(input_ids, **more)
            finally:
                tap.close()
                if config.num_hidden_layers != layers:  # left so by early exit, when drafting failed
                    config.num_hidden_layers = layers
            tap.on_drafts(input_ids.shape[1], candidates, scores)
            return candidates, scores

        def tapped_update_strategy(input_ids: torch.Tensor, scores: torch.Tensor, num_matches: int) -> None:
            tap.on_choice(scores, int(num_matches))
            update_strategy(input_ids, scores, num_matches)

        drafter.get_candidates = tapped_get_candidates
        drafter.update_candidate_strategy = tapped_update_strategy
        return drafter


def check_assistance(call: Call) -> None:
    """Refuse what ``generate`` would refuse, had it been handed the draft model itself.

    Raises
    ------
    ValueError
        What the library says.
    UnobservableError
        For a draft model with a vocabulary of another size, without both tokenizers.
    """
    model: Any = call.model
    assistant = call.assistant_model
    if assistant is None:
        return
    handed: dict[str, Any] = {"assistant_model": assistant}
    own, other = (one.config.get_text_config().vocab_size for one in (model, assistant))
    if own != other:
        if call.assistant_tokenizer is None:
            msg = (
                f"drafts by a model with {other} tokens for a model with {own} need both tokenizers; pass tokenizer= "
                "and assistant_tokenizer= to observe(), or use a draft model with the same tokenizer, or "
                "prompt_lookup_num_tokens"
            )
            raise UnobservableError(msg)
        # Only then: the library takes vocabularies of one size for one vocabulary, and refuses tokenizers.
        handed |= {"tokenizer": call.tokenizer, "assistant_tokenizer": call.assistant_tokenizer}
    mode = call.generation_config.get_generation_mode(assistant)
    model._validate_generation_mode(mode, call.generation_config, handed)  # noqa: SLF001 - the tap


def run_assisted(call: Call, tap: AssistedTap) -> Any:
    """Run the library's assisted decoding, tapped; returns what it returns.

    A draft model with another tokenizer drafts text, which is tokenized anew. Where tokens are drawn, too, its drafts
    have no probabilities here, like those of a look-up: each token is drawn from the model's own distribution, and a
    draft is kept where it is the token that was drawn. The library (transformers 5.24) would choose its
    ``UniversalSpeculativeDecodingGenerator``, which is not sound: it prunes head and embeddings of the draft model
    itself, for good, and keeps that for the next draft model of these tokenizers; and it hands the draft's
    probabilities to the model's tokens in the order of ids, having computed them in the order of ``get_vocab()``.
    """
    check_assistance(call)
    loop: Any = type(call.model)
    return loop._assisted_decoding(  # noqa: SLF001 - the tap
        _AssistedModel(call.model, tap, call.held),
        call.input_ids,
        logits_processor=call.logits_processor,
        stopping_criteria=TappedCriteria(call.stopping_criteria, tap.on_tokens),
        generation_config=call.generation_config,
        inputs_tensor=call.inputs_tensor,
        assistant_model=call.assistant_model,
        tokenizer=call.tokenizer,
        assistant_tokenizer=call.assistant_tokenizer,
        **call.model_kwargs,
    )
