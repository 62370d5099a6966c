"""Answers to ``look``: what a model attended to, and what its layers would have said, as wire messages.

Looking itself is the run's. What cannot be looked at is answered with the reason, whatever it is.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, cast

from . import wire
from .plain import number, numbers, sendable

if TYPE_CHECKING:
    from ..kernel_side.observation.looks import LensLook
    from ..kernel_side.run import Run

__all__ = ["look"]

_log = logging.getLogger(__name__)

_DIGITS = 4
"""Significant ones of a share of attention."""
_CANDIDATES = 5
"""Of each layer in the logit lens."""


def look(run: Run | None, message: wire.Look) -> wire.Seen:
    """Look at a run.

    Parameters
    ----------
    run : Run or None
        Of the id in the message; None where there is none.
    message : Look

    Returns
    -------
    SeenAttention, SeenMatrix, SeenLens or Unseen
    """
    try:
        return _seen(run, message)
    except Exception as error:  # noqa: BLE001 - of a model, of any kind
        reason = str(error)
        if not isinstance(error, LookupError) or isinstance(error, (IndexError, KeyError)):  # not written for a person
            _log.debug("genscope: looking into a run failed", exc_info=True)
            reason = f"{type(error).__name__}: {error}"
        return {
            "kind": "unseen",
            "run": message["run"],
            "lane": message["lane"],
            "position": message["position"],
            "what": message["what"],
            "message": sendable(reason),
        }


def _seen(run: Run | None, message: wire.Look) -> wire.Seen:
    lane, position, what = message["lane"], message["position"], message["what"]
    if run is None:
        raise LookupError("This run is not among the scope's; generate again.")
    looks = run.looks
    if looks is None:
        raise LookupError("What executes this run keeps nothing to look at.")
    if what == "lens":
        return {
            "kind": "lens",
            "run": run.id,
            "lane": lane,
            "position": position,
            "layers": [_layer(layer) for layer in looks.lens(position, lane, _CANDIDATES)],
        }
    of, layer, head = message.get("of", "self"), message.get("layer"), message.get("head")
    if what == "matrix":
        matrix = looks.matrix(position, lane, of=of, layer=layer, head=head)
        return {
            "kind": "matrix",
            "run": run.id,
            "lane": lane,
            "of": of,
            "layer": layer,
            "head": head,
            "layers": matrix.layers,
            "heads": matrix.heads,
            "position": matrix.position,
            "rows": [_shares(row) for row in matrix.rows],
        }
    if of == "encoder":
        raise LookupError("What the source's tokens attend to can be seen as a matrix only.")
    attention = looks.attention(position, lane, of=of, layer=layer, head=head)
    return {
        "kind": "attention",
        "run": run.id,
        "lane": lane,
        "position": position,
        "of": of,
        "layer": layer,
        "head": head,
        "layers": attention.layers,
        "heads": attention.heads,
        "weights": _shares(attention.weights),
    }


def _shares(weights: list[float]) -> list[float]:
    shares = numbers(weights, _DIGITS)
    if None in shares:  # never drawn as zero
        raise LookupError("The attention holds numbers that are none (NaN or infinity), as the model computed it.")
    return cast("list[float]", shares)


def _layer(layer: LensLook) -> wire.LensLayer:
    return {
        "layer": layer.layer,
        "id": [candidate.id for candidate in layer.candidates],
        "text": [sendable(candidate.text) for candidate in layer.candidates],
        "logprob": numbers((candidate.logprob for candidate in layer.candidates), _DIGITS),
        "chosen_logprob": number(layer.logprob, _DIGITS),
        "chosen_rank": layer.rank,
    }
