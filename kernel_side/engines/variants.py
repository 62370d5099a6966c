"""Sequences of one prompt that choose their tokens differently, in one batch: their rows, and the prompt they share.

Not here: which settings can be such sequences (``comparison``), and how rows are kept apart (``decoding.rows``).
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING, Any

from ..decoding.observe import observe
from ..decoding.rows import Row, Rows, Way, prepare
from ..settings import Greedy, Settings
from .prefixes import is_off, lease_for

if TYPE_CHECKING:
    from ..caching.hits import RowHit
    from ..caching.prefix_cache import PrefixCache
    from .plan import Plan

__all__ = ["read_once", "rows_of"]


def rows_of(
    variants: Sequence[Settings],
    model: Any,
    inputs: dict[str, Any],
    criteria: Callable[[Settings], Sequence[Any]],
    stopped: Collection[int],
) -> Rows:
    """Return how each sequence chooses its tokens.

    Parameters
    ----------
    variants : sequence of Settings
        One a sequence, with its seed.
    model : PreTrainedModel
        The one that runs.
    inputs : dict
        What ``generate`` is given.
    criteria : callable
        Makes further stopping criteria, for some settings.
    stopped : collection of int
        Sequences that are told to end; looked into after each step.
    """
    ways: dict[str, Way] = {}
    rows = []
    for index, settings in enumerate(variants):
        alike = settings.model_copy(update={"seed": None}).model_dump_json()
        if alike not in ways:
            ways[alike] = prepare(model, inputs, settings.generate_kwargs(), criteria(settings))
        assert settings.seed is not None  # the engine saw to it
        rows.append(Row(ways[alike], settings.seed, functools.partial(stopped.__contains__, index)))
    return Rows(rows)


def read_once(
    prefixes: PrefixCache,
    model: Any,
    settings: Settings,
    plan: Plan,
    prompt: Sequence[int],
    inputs: dict[str, Any],
    sources: Sequence[Sequence[int]] | None,
) -> tuple[RowHit, ...]:
    """Have a prompt read by one row, so that all sequences begin with its keys and values.

    Where nothing of the model can be reused each sequence reads the prompt itself.

    Parameters
    ----------
    prefixes : PrefixCache
        Knows the prompt afterwards.
    model, settings, plan, inputs, sources
        Of the run, see :class:`~.prefixes.PrefixUse`.
    prompt : sequence of int
        What the decoder begins with.

    Returns
    -------
    tuple of RowHit
        What was known of it before.
    """
    with lease_for(prefixes, model, settings, plan, [prompt], sources, 1) as lease:
        arguments = {} if is_off(settings, model) else lease.arguments(inputs)
        # Of what is known all but the last token is reused; of a prompt of one token there is nothing to share.
        if arguments and lease.columns < len(prompt) - 1:
            one = Greedy(max_new_tokens=1).generate_kwargs()
            model.generate(**one | inputs | arguments, **observe(held=lease.columns))
            lease.store([prompt])
        return lease.rows
