"""Runs the decoder layers of a step through one function, which can be compiled once for all of them.

A compiled function is guarded by what its code read. Layers differ in nothing that theirs reads but their place in the
cache, which each module holds as a number: were it read, there would be a graph a layer. So in the step's own view of
the model every layer takes itself for the first, and gets a cache that holds nothing but its own keys and values, which
are taken from the real place before and put back there after.

Not here: what compiles (``compiled``), and the step around the layers (``step``), which runs as Python.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from transformers import Cache, DynamicCache, EncoderDecoderCache
from transformers.modeling_layers import GradientCheckpointingLayer

from .few_rows import Sums
from .situation import CannotError
from .step import Step, _Joining

__all__ = ["run_layer", "through"]

Held = tuple[torch.Tensor, torch.Tensor] | None
"""Keys and values of one layer; None where there are none yet."""


def through(step: Step, run: Callable[..., Any]) -> None:
    """Have the layers of a step run through a function.

    Parameters
    ----------
    step : Step
        Its view of the model is changed; the model is not.
    run : callable
        :func:`run_layer`, or what a compiler made of it.

    Raises
    ------
    CannotError
        Where the model has no layers of a known kind.
    """
    layers = [one for one in step.model.modules() if isinstance(one, GradientCheckpointingLayer)]
    if not layers:
        raise CannotError(f"the layers of {type(step.model).__name__} are not known")
    for layer in layers:
        placed = [one for one in layer.modules() if isinstance(getattr(one, "layer_idx", None), int)]
        places = {int(vars(one)["layer_idx"]) for one in placed}
        if len(places) > 1:
            raise CannotError(f"a {type(layer).__name__} has several places in the cache")
        for one in placed:
            vars(one)["layer_idx"] = 0
        vars(layer)["forward"] = functools.partial(_forward, run, layer, next(iter(places), 0))
    inside = {id(one) for layer in layers for one in layer.modules()}
    for module in step.model.modules():
        if isinstance(module, Sums) and id(module) not in inside:  # the head: sums are slow where nobody compiles them
            vars(module)["forward"] = functools.partial(_forward, run, module, 0)


def _forward(run: Callable[..., Any], layer: nn.Module, place: int, *args: Any, **named: Any) -> Any:
    """Stand in for the forward of a layer."""
    given: dict[Any, Any] = {**dict(enumerate(args)), **named}
    at = next((at for at, value in given.items() if isinstance(value, Cache)), None)
    if at is None:
        return run(layer, None, (), args, named)[0]
    cache: Any = given[at]
    crossing = isinstance(cache, EncoderDecoderCache)
    both = (cache.self_attention_cache, cache.cross_attention_cache) if crossing else (cache,)
    real = [one.layers[place] for one in both]
    held = tuple((one.keys, one.values) if one.is_initialized else None for one in real)
    # The function makes a cache of its own: this one would be guarded, and is another in each pass.
    args = tuple(None if value is cache else value for value in args)
    named = {name: None if value is cache else value for name, value in named.items()}
    output, written = run(layer, at, held, args, named)
    for one, (keys, values) in zip(real, written, strict=True):
        one.hold(keys, values)
    if crossing:
        cache.is_updated[place] = True
    return output


def run_layer(
    layer: nn.Module, at: int | str | None, held: tuple[Held, ...], args: tuple[Any, ...], named: dict[str, Any]
) -> tuple[Any, list[tuple[torch.Tensor, torch.Tensor]]]:
    """Run one layer, a pure function of tensors and weights.

    Parameters
    ----------
    layer : nn.Module
    at : int or str, optional
        Which of the arguments the cache is; None where the layer takes none.
    held : tuple
        Keys and values of self attention, and of cross attention where there is one.
    args, named
        The other arguments.

    Returns
    -------
    output
        What the layer returns.
    written : list
        Keys and values of each attention, of all positions.
    """
    caches: list[Any] = [_cache_of(one) for one in held]
    if at is not None:
        cache: Any = caches[0]
        if len(caches) == 2:
            cache = EncoderDecoderCache(*caches)
            cache.is_updated = {0: held[1] is not None}
        if isinstance(at, int):
            args = (*args[:at], cache, *args[at + 1 :])
        else:
            named = {**named, at: cache}
    output = type(layer).forward(layer, *args, **named)
    return output, [(one.layers[0].keys, one.layers[0].values) for one in caches]


def _cache_of(held: Held) -> DynamicCache:
    cache = DynamicCache()
    layer = _Joining(_go_on)
    if held is not None:
        layer.hold(*held)
    cache.layers = [layer]
    return cache


def _go_on() -> None:
    """Never cancel: nothing may be asked while a compiler follows the layer."""
