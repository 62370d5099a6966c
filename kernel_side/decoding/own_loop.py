"""What the decoding loops of our own have in common: how they are called, and how they choose token after token.

A loop of our own is for a strategy that ``transformers`` 5.24 no longer runs itself. It is a frozen dataclass of its
settings and, being callable, a ``custom_generate``: alone in ``model.generate(..., custom_generate=loop)``, observed in
``model.generate(..., **observe(streamer, loop=loop))``. Settings that ``generate`` has a name for, in the same sense,
stay its arguments (lengths, EOS, processors, ``num_beams``, ``do_sample``); the rest are the loop's.

Private names of ``transformers`` that the loops rely on are in this file and in ``forward`` only. Not here: the
strategies themselves; encoder-decoder models.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any, ClassVar, NoReturn

import torch
from transformers import GenerationConfig, LogitsProcessorList, PreTrainedModel, StoppingCriteriaList

from ..streaming.beam_outputs import BeamResult
from ..streaming.outputs import Field, Step
from .forward import Forward
from .returned import Returned
from .tap import Call, LoopTap, Tap

__all__ = ["LoopSettingsError", "OwnLoop", "beam_fill", "choose_tokens"]


class LoopSettingsError(ValueError):
    """Settings that do not go together with a loop; the message says what to do."""


class OwnLoop:
    """A decoding loop of our own, with its settings.

    Attributes
    ----------
    scores_are_logits : bool
        Whether a step's token comes from the softmax of its scores; False where they are values of another kind.
    """

    scores_are_logits: ClassVar[bool] = True

    def __call__(
        self,
        model: PreTrainedModel,
        input_ids: torch.Tensor,
        logits_processor: LogitsProcessorList,
        stopping_criteria: StoppingCriteriaList,
        generation_config: GenerationConfig,
        **model_kwargs: Any,
    ) -> Any:
        """Decode unobserved, as a ``custom_generate`` of ``model.generate``."""
        call = Call(model, input_ids, logits_processor, stopping_criteria, generation_config, model_kwargs)
        return self.run(call, frozenset(), lambda _: False, lambda _: None)

    def run(
        self,
        call: Call,
        fields: frozenset[Field],
        commit: Callable[[Step], bool],
        conclude: Callable[[BeamResult], None],
        draws: contextlib.AbstractContextManager[object] | None = None,
        hidden_layers: tuple[int, ...] | None = None,
    ) -> Any:
        """Decode in place of a loop of the library's, see :func:`~.dispatch.run_loop`.

        Raises
        ------
        LoopSettingsError
            For settings or a model that this loop cannot work with.
        """
        model, config = call.model, call.generation_config
        if model.config.is_encoder_decoder:
            self.refuse("needs a decoder-only model", f"{type(model).__name__} has an encoder", "use another strategy")
        if config.use_mtp or config.prompt_lookup_num_tokens is not None or config.assistant_early_exit is not None:
            self.refuse("cannot be assisted", "an assistant was set", "drop the assistant's arguments")
        tap = self.make_tap(fields, commit, conclude, draws, hidden_layers)
        forward = Forward(model, config, call.model_kwargs, tap)
        self.check(forward)
        try:
            return self.decode(tap, forward, call.input_ids, call.logits_processor, call.stopping_criteria)
        finally:
            tap.close()

    def make_tap(
        self,
        fields: frozenset[Field],
        commit: Callable[[Step], bool],
        conclude: Callable[[BeamResult], None],  # noqa: ARG002 - for searches
        draws: contextlib.AbstractContextManager[object] | None,
        hidden_layers: tuple[int, ...] | None,
    ) -> LoopTap:
        """Make what :meth:`decode` tells of each forward pass, choice and step."""
        return Tap(fields, commit, draws, hidden_layers)

    def check(self, forward: Forward) -> None:
        """Refuse what does not go with this loop, before the first forward pass."""
        raise NotImplementedError  # abstract

    def decode(
        self,
        tap: Any,
        forward: Forward,
        input_ids: torch.Tensor,
        processors: LogitsProcessorList,
        criteria: StoppingCriteriaList,
    ) -> Any:
        """Decode with settings that were checked, telling the tap that :meth:`make_tap` made."""
        raise NotImplementedError  # abstract

    def refuse(self, rule: str, given: str, way_out: str) -> NoReturn:
        """Raise :class:`LoopSettingsError`."""
        raise LoopSettingsError(f"{type(self).__name__} {rule}, but {given}; {way_out}")

    def refuse_beams(self, config: GenerationConfig) -> None:
        """Refuse ``num_beams``."""
        if config.num_beams not in (None, 1):
            self.refuse("follows one sequence a prompt", f"num_beams is {config.num_beams}", "pass num_beams=1")

    def refuse_sampling(self, config: GenerationConfig) -> None:
        """Refuse ``do_sample``, which may also come from the model's own generation config."""
        if config.do_sample:
            self.refuse("draws nothing", "do_sample is True", "pass do_sample=False")


def choose_tokens(
    tap: Tap,
    step: Callable[[torch.Tensor], tuple[Any, torch.Tensor, torch.Tensor]],
    forward: Forward,
    input_ids: torch.Tensor,
    criteria: StoppingCriteriaList,
    after: Callable[[torch.Tensor], None] | None = None,
) -> Any:
    """Append a token to each row until all rows have ended.

    Parameters
    ----------
    tap : Tap
    step : callable
        Gets the ids so far; returns the outputs of the forward pass behind the next token, the last position's raw
        logits in float32, and the scores that the token is chosen by.
    forward : Forward
    input_ids : torch.Tensor
    criteria : StoppingCriteriaList
    after : callable, optional
        Gets the tokens of each step once it is committed.
    """
    config, returned = forward.config, Returned(forward.config)
    pads = any(hasattr(criterion, "eos_token_id") for criterion in criteria)
    pad: Any = config._pad_token_tensor  # noqa: SLF001 - see the module
    ended = torch.zeros(input_ids.shape[0], dtype=torch.bool, device=input_ids.device)
    while not ended.all():
        outputs, logits, scores = step(input_ids)
        tap.on_forward(outputs)
        returned.add(outputs, logits, scores)
        del outputs  # holds the logits of a long prompt
        tap.on_logits(logits, scores)
        if config.do_sample:
            tokens = torch.multinomial(scores.softmax(dim=-1), num_samples=1).squeeze(1)
        else:
            tokens = scores.argmax(dim=-1)
        if pads:
            tokens = torch.where(ended, pad.to(tokens.device), tokens)
        input_ids = torch.cat([input_ids, tokens[:, None]], dim=-1)
        ended = _commit(tap, input_ids, criteria, returned)
        if after is not None:
            after(tokens)
    return returned.tokens(input_ids, forward.kwargs.get("cache"))


def _commit(tap: Tap, input_ids: torch.Tensor, criteria: StoppingCriteriaList, returned: Returned) -> torch.Tensor:
    # The tap remembers the rows that had ended before.
    return tap.on_tokens(input_ids, lambda: criteria(input_ids, returned.scores))


def beam_fill(config: GenerationConfig) -> tuple[int, int]:
    """Return what the library's beam search puts after the end of a hypothesis, and how many EOS tokens there are."""
    pad, eos = config._pad_token_tensor, config._eos_token_tensor  # noqa: SLF001 - see the module
    if eos is None:
        return -1, 0
    # The library writes `pad or eos`, by which a pad token 0 counts as none.
    return int(pad if pad is not None and int(pad) else eos[0]), len(eos)
