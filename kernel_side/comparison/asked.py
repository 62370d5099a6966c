"""What a comparison is asked for, as lanes with a label each, and which of them can be rows of one batch.

Lanes that differ only in how a token is chosen share their forward passes: greedy decoding and sampling, with the
settings in :data:`OF_A_ROW` and their own seeds. All others run on their own, one after the other. Nothing is run here.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..problems import Problem, SettingsError
from ..request import Request, Settings, make_settings
from ..settings import Greedy, Sample

__all__ = ["MOST_LANES", "OF_A_ROW", "Asked", "asked_for", "batches", "request_of"]

MOST_LANES = 64
"""Lanes of a comparison: each is a row of a batch or a run, and a column on a page."""

OF_A_ROW = frozenset(
    {
        "strategy",
        "seed",
        "max_new_tokens",
        "min_new_tokens",
        "stop_at_eos",
        "stop_strings",
        "temperature",
        "top_k",
        "top_p",
        "min_p",
        "typical_p",
        "repetition_penalty",
        "no_repeat_ngram_size",
        "num_return_sequences",
    }
)
"""Settings in which rows of one batch may differ; all others are the batch's."""


@dataclass(frozen=True, slots=True)
class Asked:
    """One lane that was asked for.

    Attributes
    ----------
    label : str
        What tells it from the others: the settings in which they differ, and the seed.
    settings : Settings
        With a seed.
    group : int
        Which of the given settings these are.
    """

    label: str
    settings: Settings
    group: int


def asked_for(
    settings: Sequence[Settings | Mapping[str, Any]],
    seeds: int | Sequence[int] | None = None,
    base: Settings | Mapping[str, Any] | None = None,
) -> tuple[Asked, ...]:
    """Return the lanes of settings and seeds: all seeds of the first settings, then those of the next.

    Parameters
    ----------
    settings : sequence of (Settings or mapping)
        What differs, over ``base``.
    seeds : int or sequence of int, optional
        How many seeds are drawn, or which they are; each is used with all settings. Without, settings keep their own,
        and those that have none share one that is drawn. Settings with which nothing is drawn get one lane.
    base : Settings or mapping, optional
        What all have in common.

    Raises
    ------
    SettingsError
        Naming what is wrong, its value and the way out.
    """
    given: Any = settings  # whatever it is
    if isinstance(given, (str, Mapping)) or not isinstance(given, Sequence) or not given:
        raise _problem("settings", settings, "a comparison takes a list of settings", "Give [{...}, {...}].")
    made = []
    for number, one in enumerate(settings):
        try:
            changes = one if isinstance(one, Mapping) else one.model_dump()
            made.append(make_settings(base, **changes))
        except SettingsError as error:
            where = [
                Problem(each.field, each.value, f"{each.message} (settings {number + 1})", each.way_out)
                for each in error.problems
            ]
            raise SettingsError(where) from None
    drawn, shared = _seeds(seeds), secrets.randbits(32)
    lanes = []
    for group, (name, one) in enumerate(zip(_labels(made), made, strict=True)):
        own = drawn or [shared if one.seed is None else one.seed]
        # Where nothing is drawn, another seed gives the same tokens.
        seeded = own if _draws(one) else own[:1]
        lanes += [(name, one.model_copy(update={"seed": seed}), group) for seed in seeded]
    if len(lanes) > MOST_LANES:
        message = f"these are {len(lanes)} lanes, and {MOST_LANES} are the most"
        raise _problem("seeds", seeds, message, "Compare fewer settings, or fewer seeds.")
    with_seed = len({one.seed for _, one, _ in lanes}) > 1
    return tuple(Asked(_label(name, one, with_seed=with_seed), one, group) for name, one, group in lanes)


def batches(lanes: Sequence[Asked]) -> list[list[int]]:
    """Return the lanes by number, those together that can be rows of one batch, in order."""
    found: dict[str, list[int]] = {}
    for index, lane in enumerate(lanes):
        alone = not isinstance(lane.settings, (Greedy, Sample)) or lane.settings.sequences > 1
        key = str(index) if alone else lane.settings.model_dump_json(exclude=set(OF_A_ROW))
        found.setdefault(key, []).append(index)
    return list(found.values())


def request_of(prompt: object, lanes: Sequence[Asked]) -> Request:
    """Return the request that runs lanes which :func:`batches` put together.

    Raises
    ------
    SettingsError
        For a batch of prompts: a comparison is of one.
    """
    first = lanes[0].settings
    request = Request.make(prompt, first)
    if request.batched:
        raise _problem("prompt", None, "a comparison is of one prompt", "Give one text or one conversation.")
    if len(lanes) == 1:
        return request
    common = {name: value for name, value in first.model_dump().items() if name not in OF_A_ROW}
    longest = max(lane.settings.max_new_tokens for lane in lanes)
    # Nothing of it chooses a token: rows do. `sample` alone has several sequences.
    shared = make_settings(
        common,
        strategy="sample",
        num_return_sequences=len(lanes),
        max_new_tokens=longest,
        stop_at_eos=False,
        top_k=0,
        verify_cache=False,
    )
    return Request(request.prompts, shared, variants=tuple(lane.settings for lane in lanes))


def _seeds(seeds: int | Sequence[int] | None) -> list[int] | None:
    if seeds is None:
        return None
    if isinstance(seeds, bool) or (isinstance(seeds, int) and seeds < 1):
        raise _problem("seeds", seeds, f"{seeds!r} is no number of seeds", "Give 1 or more, or a list of seeds.")
    if isinstance(seeds, int):
        if seeds > MOST_LANES:
            raise _problem("seeds", seeds, f"{seeds} seeds are more than {MOST_LANES}", f"Use at most {MOST_LANES}.")
        return [secrets.randbits(32) for _ in range(seeds)]
    given = [make_settings(seed=seed).seed for seed in seeds]
    if not given or None in given:
        raise _problem("seeds", seeds, "it holds no seed", "Give whole numbers, such as [1, 2, 3].")
    return [seed for seed in given if seed is not None]


def _draws(settings: Settings) -> bool:
    return bool(settings.generate_kwargs()["do_sample"])


def _labels(settings: Sequence[Settings]) -> list[str]:
    """Return for each of some settings what tells it from the others."""
    if len(settings) == 1:
        return [settings[0].strategy]
    plain = [one.model_dump() for one in settings]
    names = list(dict.fromkeys(name for one in plain for name in one if name not in ("strategy", "seed")))
    several = len({one.strategy for one in settings}) > 1
    labels = []
    for own in plain:
        alike = [one for one in plain if one["strategy"] == own["strategy"]]
        differing = [name for name in names if name in own and any(one[name] != own[name] for one in alike)]
        parts = [f"{name} {_short(own[name])}" for name in differing]
        labels.append(", ".join([own["strategy"]] * (several or not parts) + parts))
    return labels


def _label(name: str, settings: Settings, *, with_seed: bool) -> str:
    return f"{name}, seed {settings.seed}" if with_seed and _draws(settings) else name


def _short(value: object) -> str:
    text = f"{value:g}" if isinstance(value, float) else str(value)
    return text if len(text) <= 24 else f"{text[:23]}…"


def _problem(field: str, value: object, message: str, way_out: str) -> SettingsError:
    return SettingsError([Problem(field, value, message, way_out)])
