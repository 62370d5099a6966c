"""Picks the tap for a decoding strategy, and runs the library's own loop under it."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

from transformers.generation.configuration_utils import GenerationMode

from ..streaming.beam_outputs import BeamResult
from ..streaming.outputs import Field, Step
from .tap import Call, Tap, UnobservableError, run_sample
from .tap_assisted import AssistedTap, run_assisted
from .tap_beams import BeamTap, run_beams

__all__ = ["run_loop"]

_TAPS: dict[GenerationMode, type[Tap | BeamTap | AssistedTap]] = {
    GenerationMode.GREEDY_SEARCH: Tap,
    GenerationMode.SAMPLE: Tap,
    GenerationMode.BEAM_SEARCH: BeamTap,
    GenerationMode.BEAM_SAMPLE: BeamTap,
    GenerationMode.ASSISTED_GENERATION: AssistedTap,
}


def run_loop(
    call: Call,
    fields: frozenset[Field],
    commit: Callable[[Step], bool],
    conclude: Callable[[BeamResult], None],
    draws: contextlib.AbstractContextManager[object] | None = None,
    hidden_layers: tuple[int, ...] | None = None,
) -> Any:
    """Run the library's own loop for these settings, tapped.

    Parameters
    ----------
    call : Call
        What ``generate`` prepared.
    fields : frozenset of str
        What a step output carries beside its tokens.
    commit : callable
        Gets each step output; returns True to end the loop for all rows after this step.
    conclude : callable
        Gets what a beam search chose, once, when it has ended.
    draws : context manager, optional
        Entered around the choice of each token.
    hidden_layers : tuple of int, optional
        Which hidden states a step output carries; None for all.

    Returns
    -------
    transformers.utils.ModelOutput or torch.Tensor
        What the loop returns.

    Raises
    ------
    UnobservableError
        For a decoding strategy whose loop is not tapped.
    """
    tap = _tap_of(call)(fields, commit, draws, hidden_layers)
    tap.ask(call.generation_config, call.model_kwargs)
    try:
        if isinstance(tap, BeamTap):
            return run_beams(call, tap, conclude)
        return run_assisted(call, tap) if isinstance(tap, AssistedTap) else run_sample(call, tap)
    finally:
        tap.close()


def _tap_of(call: Call) -> type[Tap | BeamTap | AssistedTap]:
    """Return the tap for these settings."""
    mode = call.generation_config.get_generation_mode(call.assistant_model)
    if mode not in _TAPS:
        observed = ", ".join(str(known.value) for known in _TAPS)
        msg = f"the decoding strategy {mode.value!r} cannot be observed; observed are: {observed}"
        raise UnobservableError(msg)
    return _TAPS[mode]
