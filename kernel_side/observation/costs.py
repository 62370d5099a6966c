"""Measures, on the model and machine at hand, what keeping states costs: time and memory a token.

Decodes a few random tokens with and without, in turns, so that whatever else slows the machine down meets both. Not
here: what the prompt costs (attention on a long prompt takes the square of its length), and what recording costs.
"""

from __future__ import annotations

import contextlib
import math
from dataclasses import dataclass
from itertools import pairwise
from statistics import median
from typing import Any

import torch
from transformers import PreTrainedModel

from ..decoding.model_view import view_of
from ..decoding.observe import observe
from ..decoding.tap import UnobservableError
from ..settings import Greedy
from ..streaming.base import OutputStreamer
from .states import States
from .unseen import UnseenError

__all__ = ["Cost", "measure_costs"]

_ROUNDS, _STEPS = 2, 8


@dataclass(frozen=True, slots=True)
class Cost:
    """What one setting costs.

    Attributes
    ----------
    time : float
        Time of a decoding step with it over that without.
    bytes_a_token : int
        Memory on the CPU that the states of a token take, at ``context``.
    context : int
        Tokens so far at which that was found; of attention memory grows with them.
    """

    time: float
    bytes_a_token: int
    context: int

    def text(self) -> str:
        """Return this as a line for a person."""
        # What two medians of a few steps cannot tell apart is called the same.
        times = "about the same time" if self.time < 1.05 else f"about {self.time:.1f} times the time"
        return f"{times} a token, {_size(self.bytes_a_token)} a token at {self.context} tokens (measured here)"


def measure_costs(model: PreTrainedModel, *, context: int = 64) -> dict[str, Cost]:
    """Measure what the settings ``attention`` and ``logit_lens`` cost, by greedy decoding behind random tokens.

    Parameters
    ----------
    model : PreTrainedModel
        Is not changed. Nothing else should run on it meanwhile.
    context : int
        Tokens before the measured steps, fewer where the model takes fewer; an encoder reads as many.

    Returns
    -------
    dict
        By setting; without those that this model cannot give.

    Notes
    -----
    Takes some 60 decoding steps. The time of a step is from its commit to the next, so it has the forward pass, with
    eager attention where that is what gives attention, and all that keeping takes.
    """
    inputs = _random_inputs(model, context)
    context = inputs["input_ids"].shape[1]
    # On a view also for hidden states: the library hangs hooks on a model that is asked for them.
    views: dict[str, PreTrainedModel] = {}
    sizes: dict[str, int] = {}
    for setting, implementation in (("attention", "eager"), ("logit_lens", None)):
        states = _states(setting)
        try:
            view = view_of(model, attention=implementation)
            _time_steps(view, inputs, 2, states)  # the first steps of a model are slow
            sizes[setting] = _bytes_a_token(states, setting, context)
        except (UnobservableError, UnseenError):
            continue  # which says that the model does not give them
        views[setting] = view
    _time_steps(model, inputs, 2)
    without: list[float] = []
    times: dict[str, list[float]] = {setting: [] for setting in views}
    for _ in range(_ROUNDS):
        without += _time_steps(model, inputs, _STEPS)
        for setting, view in views.items():
            times[setting] += _time_steps(view, inputs, _STEPS, _states(setting))
    return {setting: Cost(median(times[setting]) / median(without), sizes[setting], context) for setting in views}


def _states(setting: str) -> States:
    return States(1, attention=setting == "attention", hidden=setting == "logit_lens")


def _random_inputs(model: PreTrainedModel, context: int) -> dict[str, torch.Tensor]:
    """Make ids that the model knows, as few as leave room for the steps."""
    config = model.config.get_text_config()
    longest = getattr(config, "max_position_embeddings", None) or context + _STEPS + 4
    length = max(1, min(context, longest - _STEPS - 4))
    draws = torch.Generator().manual_seed(0)  # the global one is left alone
    ids = torch.randint(0, config.vocab_size, (1, length), generator=draws).to(model.device)
    inputs = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
    return inputs | {"decoder_input_ids": ids} if model.config.is_encoder_decoder else inputs


def _time_steps(model: Any, inputs: dict[str, torch.Tensor], steps: int, states: States | None = None) -> list[float]:
    """Decode; return the seconds of ``steps`` steps, without the first, which takes in the prompt."""
    moments: list[float] = []
    timer: OutputStreamer = OutputStreamer(lambda step: moments.append(step.seconds), fields=())
    settings = Greedy(max_new_tokens=steps + 2, stop_at_eos=False).generate_kwargs()
    observing = observe(timer) if states is None else observe(timer, states)
    model.generate(**inputs, **settings, **observing)
    return [after - before for before, after in pairwise(moments[1:])]


def _bytes_a_token(states: States, setting: str, context: int) -> int:
    """Return the bytes of a token whose choice saw ``context`` tokens, and as many of a source."""
    if setting == "logit_lens":
        hidden = states.hidden(0, context)
        return hidden.numel() * hidden.element_size()
    heads = [math.prod(states.shape("self"))]
    with contextlib.suppress(UnseenError):  # without an encoder
        heads.append(math.prod(states.shape("cross")))
    return sum(heads) * context * torch.float16.itemsize


def _size(count: int) -> str:
    for unit, bytes_of in (("MB", 1e6), ("kB", 1e3)):
        if count >= bytes_of:
            return f"{count / bytes_of:,.{0 if count >= 10 * bytes_of else 1}f} {unit}"
    return f"{count} bytes"
