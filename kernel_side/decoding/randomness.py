"""A generator of its own for each run, under a ``generate`` that takes none.

``generate`` draws with the process-wide generator, so two threads mix their draws. Here draws made inside a ``with``
block in this thread come from one seeded generator instead; other threads and the global generator notice nothing.
Covered are the two functions that the loops draw with: ``multinomial`` and, in speculative sampling, ``rand_like``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

__all__ = ["SeededDraws"]


class SeededDraws(TorchFunctionMode):
    """Make ``torch.multinomial`` and ``torch.rand_like`` in this thread draw from a generator of its own.

    The draws equal those after ``torch.manual_seed(seed)``, on the CPU and on accelerators, because a fresh generator
    with that seed starts in the same state as the global one. The mode is entered only around a loop's draws: inside,
    each call of a torch function takes a detour through Python, which a whole forward pass would feel.

    Parameters
    ----------
    seed : int
        As for :func:`torch.manual_seed`.

    Notes
    -----
    Modes are kept on a stack in thread-local storage (torch 2.13, ``torch/overrides.py``).
    """

    def __init__(self, seed: int) -> None:
        super().__init__()
        self._seed = seed
        self._generators: dict[torch.device, torch.Generator] = {}

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Sequence[type],
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        """Call ``func``, with our generator where it draws and was given none."""
        kwargs = kwargs or {}
        if func is torch.multinomial and kwargs.get("generator") is None:
            kwargs = kwargs | {"generator": self._generator(args[0].device)}
        if func is torch.rand_like and kwargs.get("generator") is None:
            # `rand_like` itself takes a generator since some torch after 2.6, the oldest that is supported.
            like: torch.Tensor = args[0]
            device = torch.device(kwargs.get("device") or like.device)
            kwargs = {"dtype": like.dtype} | kwargs | {"device": device, "generator": self._generator(device)}
            return torch.rand(like.shape, **kwargs)
        return func(*args, **kwargs)

    def _generator(self, device: torch.device) -> torch.Generator:
        if device not in self._generators:
            self._generators[device] = torch.Generator(device).manual_seed(self._seed)
        return self._generators[device]
