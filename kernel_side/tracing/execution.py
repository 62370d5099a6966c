"""What all executions share: a forward that stands in for the model's own, and falls back to it, openly.

What an execution cannot serve runs eagerly, for that pass only, and is counted with its reason. A fifth execution is a
file with a subclass of :class:`Execution` (or of ``graphs.GraphExecution``), and a line in ``trace``.

Not here: graphs (``graphs``), who shares executions (``shared``), and what a run tells of one (``use``).
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import threading
import types
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch

from ..caching.key import Seen, why_not
from ..decoding.model_view import view_of
from .situation import CannotError
from .use import Use

__all__ = ["Cost", "Eager", "Execution", "PreparationError"]


class PreparationError(RuntimeError):
    """An execution cannot be prepared on this machine; the message says what to install or do. Eager runs on."""


@dataclass(frozen=True, slots=True)
class Cost:
    """What an execution has cost so far, in all runs.

    Attributes
    ----------
    seconds : float
        Spent preparing.
    graphs : tuple of str
        What there are graphs for.
    compared : int
        Passes that ran both ways.
    largest_difference : float
        Of logits from eager ones in these.
    """

    seconds: float = 0.0
    graphs: tuple[str, ...] = ()
    compared: int = 0
    largest_difference: float = 0.0


class Execution(ABC):
    """How the forward pass of one model runs.

    Parameters
    ----------
    model : PreTrainedModel
        Is not changed, and not kept: a view of it is, with the model's settings as they are now.

    Attributes
    ----------
    name : str
        As a person chooses it.
    model : PreTrainedModel
        The view.
    cost : Cost
    fallbacks : Counter of str
        Passes that ran eagerly, by reason.
    passes : int
        Passes that ran in it.
    lock : threading.RLock
        Held while something is prepared.
    """

    name: str

    def __init__(self, model: Any) -> None:
        self.model: Any = view_of(model)
        self.cost = Cost()
        self.fallbacks: Counter[str] = Counter()
        self.passes = 0
        self.lock = threading.RLock()
        self._closed = False
        self._here = threading.local()

    @abstractmethod
    def forward(self, model: Any, inputs: dict[str, Any]) -> Any:
        """Run a pass.

        Parameters
        ----------
        model : PreTrainedModel
            The view that was called.
        inputs : dict
            Its forward's keyword arguments.

        Returns
        -------
        ModelOutput
            Of the class that the model itself returns.

        Raises
        ------
        CannotError
            Where this pass is to run eagerly.
        """

    def prepare(self, ids: torch.Tensor, **generate: Any) -> None:
        """Prepare what a generation needs, by a short one of the same kind.

        Parameters
        ----------
        ids : torch.Tensor
            Shape ``(rows, tokens)``: any tokens.
        **generate
            Arguments of ``generate`` that decide which passes there are: ``num_beams``, ``attention_mask``,
            ``prompt_lookup_num_tokens`` and the like.
        """
        short = {"max_new_tokens": 6, "do_sample": False, "eos_token_id": None}
        self.attach(self.model).generate(ids, **short | generate)

    def close(self) -> None:
        """Let go of what was prepared, and of its memory. Views run eagerly from then on."""
        self._closed = True

    def attach(self, model: Any) -> Any:
        """Return a view of the model, or of a view of it, that runs in this way.

        It has all that the model has, ``generate`` included. Its generation config says that ``generate`` is not to
        compile anything by itself.
        """
        view = view_of(model, disable_compile=True)
        unfit = why_not(Seen(model))
        eager = type(model).forward
        replaced = vars(view).get("forward")  # as accelerate does

        @functools.wraps(eager)
        def forward(itself: Any, *args: Any, **inputs: Any) -> Any:
            if args:
                inputs |= inspect.signature(eager).bind_partial(itself, *args).arguments
                del inputs["self"]
            try:
                if unfit is not None:
                    raise CannotError(unfit)
                self._check(itself)
                return self.forward(itself, inputs)
            except CannotError as reason:
                self.fallbacks[str(reason)] += 1
                self.use.fell_back(str(reason))
            return eager(itself, **inputs) if replaced is None else replaced(**inputs)

        view.forward = types.MethodType(forward, view)
        return view

    def _check(self, model: Any) -> None:
        if self._closed:
            raise CannotError("the execution was dropped")
        if torch.is_grad_enabled():
            raise CannotError("gradients are wanted")
        if torch.is_autocast_enabled(model.device.type):
            raise CannotError("autocast is on")
        if _layers(model) != _layers(self.model):  # while early exit drafts (transformers 5.24)
            raise CannotError("fewer layers are run")

    def _ran(self) -> None:
        """Count a pass."""
        self.passes += 1
        self.use.passes += 1

    @property
    def use(self) -> Use:
        """Whoever generates in this thread."""
        found: Use | None = getattr(self._here, "use", None)
        if found is None:
            found = self._here.use = Use(self.name)
        return found

    @contextlib.contextmanager
    def used(self, use: Use) -> Iterator[None]:
        """Count what this thread's passes do for ``use``."""
        before, self._here.use = self.use, use
        try:
            yield
        finally:
            self._here.use = before


class Eager(Execution):
    """The model's own forward, for comparison: nothing to prepare."""

    name = "eager"

    def forward(self, model: Any, inputs: dict[str, Any]) -> Any:
        """Run the model's own code."""
        output = type(model).forward(model, **inputs)
        self._ran()
        return output


def _layers(model: Any) -> int:
    layers: int = model.config.get_text_config(decoder=True).num_hidden_layers
    return layers
