"""How each strategy runs on a model in this process: by which loop, with which draft model, on which view of the model.

What a strategy cannot do is said here, before a run. The settings' own arguments of ``generate`` are theirs
(``settings``).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, get_args

from transformers import PreTrainedModel, PreTrainedTokenizerBase

from ..decoding.contrastive import ContrastiveSearch
from ..decoding.diverse_beam import DiverseBeamSearch
from ..decoding.dola import DoLa
from ..decoding.early_exit import can_exit_early
from ..decoding.model_view import view_of
from ..decoding.own_loop import LoopSettingsError, OwnLoop
from ..decoding.tap import UnobservableError
from ..decoding.tap_prompt import attention_implementation, is_recurrent
from ..request import Problem, Request, Settings, SettingsError
from ..settings import Assisted, Contrastive, DiverseBeam, Dola, EarlyExit, Guidance

__all__ = ["Draft", "Plan", "make_plan", "unavailable"]

_ONLY_DECODERS = (Contrastive, Dola, DiverseBeam, Guidance, EarlyExit)


@dataclass(frozen=True, slots=True)
class Draft:
    """A model that drafts.

    Attributes
    ----------
    model : PreTrainedModel
    tokenizer : PreTrainedTokenizerBase or None
        Its own, where it differs from that of the model that checks.
    """

    model: PreTrainedModel
    tokenizer: PreTrainedTokenizerBase | None = None


@dataclass(frozen=True, slots=True)
class Plan:
    """How a request runs.

    Attributes
    ----------
    loop : OwnLoop or None
        In place of the library's.
    draft : Draft or None
    view : dict or None
        What a view of the model must have changed, see :func:`~genscope.kernel_side.decoding.model_view.view_of`; None
        where the model itself will do.
    draft_view : dict
        The same of the draft model.
    """

    loop: OwnLoop | None = None
    draft: Draft | None = None
    view: dict[str, Any] | None = None
    draft_view: dict[str, Any] = field(default_factory=dict)


def unavailable(model: Any, draft: Draft | None) -> dict[str, str]:
    """Return the strategies that this model cannot run, and why, for a person.

    Parameters
    ----------
    model : PreTrainedModel
    draft : Draft or None
    """
    reasons = {
        chosen.model_fields["strategy"].default: _reason_against(chosen, model, draft) for chosen in get_args(Settings)
    }
    return {name: reason for name, reason in reasons.items() if reason is not None}


def _reason_against(chosen: type[Settings], model: Any, draft: Draft | None) -> str | None:
    if model.config.is_encoder_decoder and chosen in _ONLY_DECODERS:
        return f"needs a decoder-only model, and {type(model).__name__} has an encoder"
    if is_recurrent(model) and (chosen.drafts or chosen in (Contrastive, DiverseBeam)):
        return f"needs a cache that can go back, and {type(model).__name__} is recurrent"
    if chosen is EarlyExit and not can_exit_early(model):
        return f"needs a model that can leave out its last layers, which {type(model).__name__} cannot"
    return _unfit(model, draft) if chosen is Assisted else None


def _unfit(model: Any, draft: Draft | None) -> str | None:
    if draft is None:
        return "needs a draft model: give a small one with the same tokenizer as assistant="
    has_encoder, name = draft.model.config.is_encoder_decoder, type(draft.model).__name__
    if has_encoder != model.config.is_encoder_decoder:
        which = "has an encoder, which this model has not" if has_encoder else "has no encoder, which this model has"
        return f"needs a draft model of the same kind, and {name} {which}"
    if is_recurrent(draft.model):
        return f"needs a draft model with a cache that can go back, and {name} is recurrent"
    own, other = (one.config.get_text_config().vocab_size for one in (model, draft.model))
    if draft.tokenizer is None and own != other:
        return (
            f"needs a draft model with the same tokens: this one has {other} and the model {own}. Give one with the "
            "same tokenizer, or assistant=(draft model, its tokenizer)"
        )
    return None


def make_plan(request: Request, model: Any, draft: Draft | None) -> Plan:
    """Say how a request runs on a model.

    Raises
    ------
    SettingsError
        When it cannot.
    """
    settings = request.settings
    reason = _reason_against(type(settings), model, draft)  # of the others, one takes a pass of the model to tell
    if reason is not None:
        way_out = "Choose another strategy."
        raise SettingsError([Problem("strategy", settings.strategy, f"{settings.strategy!r} {reason}", way_out)])
    problems = list(_problems(request, model))
    if problems:
        raise SettingsError(problems)
    view = _view(settings, model)
    if view:  # its attention is another one: whether it can be is found out here, not in the run
        try:
            view_of(model, **view)
        except UnobservableError as error:
            name = "attention" if settings.attention else "keep"
            way_out = "Or switch it off."
            raise SettingsError([Problem(name, getattr(settings, name), str(error), way_out)]) from error
    if isinstance(settings, Assisted):
        return Plan(draft=draft, view=view, draft_view=_drafting(settings))
    if isinstance(settings, EarlyExit):
        # On a view: the library lowers the model's own layer count while it drafts.
        return Plan(view=(view or {}) | _drafting(settings))
    return Plan(loop=_loop(settings, model), view=view)


def _view(settings: Settings, model: Any) -> dict[str, Any] | None:
    """Return what a run that looks into the model needs changed.

    Always a view: on a model whose states are asked for, transformers 5.24 leaves hooks behind.
    """
    kept = {"attentions", "hidden_states"}.intersection(settings.keep)
    by_loop = isinstance(settings, (Contrastive, Dola))  # which compare hidden states themselves
    if not by_loop and not kept and not settings.attention and not settings.logit_lens:
        return None
    switched = (settings.attention or "attentions" in kept) and attention_implementation(model) != "eager"
    return {"attention": "eager"} if switched else {}


def _problems(request: Request, model: Any) -> list[Problem]:
    settings, problems = request.settings, []
    if settings.drafts and len(request.prompts) > 1:
        message = f"the strategy {settings.strategy!r} follows one prompt, and {len(request.prompts)} were given"
        problems.append(Problem("prompt", None, message, "Give one prompt, or choose another strategy."))
    if isinstance(settings, EarlyExit):
        layers = model.config.get_text_config().num_hidden_layers
        if settings.assistant_early_exit >= layers:
            message = f"{settings.assistant_early_exit} are not fewer than the model's {layers} layers"
            way_out = f"Use a number from 1 to {layers - 1}."
            problems.append(Problem("assistant_early_exit", settings.assistant_early_exit, message, way_out))
    if settings.prompt_probabilities and model.config.is_encoder_decoder:
        message = "an encoder-decoder model has no probabilities of its prompt, which its encoder reads"
        problems.append(Problem("prompt_probabilities", True, message, "Switch it off."))
    return problems


def _drafting(settings: Assisted | EarlyExit) -> dict[str, Any]:
    """Return what the library reads from the drafting model's own generation config (transformers 5.24)."""
    # What a run leaves unset it takes from there, too: a stop string, say, or another decoding loop.
    unset = {name: None for name, value in settings.generate_kwargs().items() if value is None}
    return unset | {
        "num_assistant_tokens": settings.num_assistant_tokens,
        "assistant_confidence_threshold": settings.assistant_confidence_threshold,
        "num_assistant_tokens_schedule": "constant",
    }


def _loop(settings: Settings, model: Any) -> OwnLoop | None:
    if isinstance(settings, Contrastive):
        return ContrastiveSearch(settings.penalty_alpha, settings.contrastive_top_k)
    if isinstance(settings, DiverseBeam):
        return DiverseBeamSearch(settings.num_beam_groups, settings.diversity_penalty)
    if not isinstance(settings, Dola):
        return None
    loop = DoLa(settings.dola_layers, settings.plausibility)
    try:
        loop.candidates(model)
    except LoopSettingsError as error:
        problem = Problem("dola_layers", settings.dola_layers, str(error), "Choose another strategy.")
        raise SettingsError([problem]) from error
    return loop
