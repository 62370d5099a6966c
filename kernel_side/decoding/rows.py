"""Several ways to choose tokens as rows of one batch, each with its own processors, criteria and generator.

Lanes that differ in nothing but how a token is chosen share their forward passes: the library's sampling loop runs
once, over as many rows, with stand-ins that treat each row as its own call would. What a row's own call would do is not
imitated: ``generate`` itself prepares its processors and criteria, and hands them over before it decodes
(:func:`prepare`). So a row gets the tokens that it gets alone, as far as a batched forward pass gives it the same
logits: kernels for several rows round otherwise in the last bits, and where two tokens are that close texts may part.

Rows of the same settings are processed together. Those that have ended are not processed at all. Not here: which
settings can share a batch (``comparison``), and what is observed (``observe``).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, cast

import torch
from torch.overrides import TorchFunctionMode
from transformers import LogitsProcessor, LogitsProcessorList, StoppingCriteria, StoppingCriteriaList

from .tap import Call

__all__ = ["Row", "Rows", "Way", "prepare"]


@dataclass(frozen=True, slots=True)
class Way:
    """How rows of the same settings choose, as ``generate`` prepared it.

    Attributes
    ----------
    processors : LogitsProcessorList
    criteria : StoppingCriteriaList
    draws : bool
        Whether tokens are drawn; else the best one is taken.
    """

    processors: LogitsProcessorList
    criteria: StoppingCriteriaList
    draws: bool


@dataclass(frozen=True, slots=True)
class Row:
    """One row of the batch.

    Attributes
    ----------
    way : Way
        The same object for rows of the same settings.
    seed : int
        As for :func:`torch.manual_seed`.
    stopped : callable
        Asked after each step: whether somebody wants this row to end.
    """

    way: Way
    seed: int
    stopped: Callable[[], bool] = field(default=lambda: False)


def prepare(model: Any, inputs: Mapping[str, Any], arguments: Mapping[str, Any], criteria: Sequence[Any] = ()) -> Way:
    """Have ``generate`` prepare one row's call, without decoding.

    Parameters
    ----------
    model : PreTrainedModel
    inputs : mapping
        Ids and mask of the one prompt, as the batch gets them.
    arguments : mapping
        The settings as arguments of ``generate``.
    criteria : sequence of StoppingCriteria
        Further ones.

    Notes
    -----
    ``custom_generate`` with a callable is public in transformers 5.24.
    """

    def grab(
        model: Any,  # noqa: ARG001 - generate looks at the names
        input_ids: Any,  # noqa: ARG001
        logits_processor: Any,
        stopping_criteria: Any,
        generation_config: Any,
        **_: Any,
    ) -> Any:
        return Way(logits_processor, stopping_criteria, bool(generation_config.do_sample))

    # No cache is made for a call that decodes nothing.
    own = {**arguments, "use_cache": False, "cache_implementation": None, "num_return_sequences": 1}
    given = model.generate(
        **inputs, **own, stopping_criteria=StoppingCriteriaList(criteria), custom_generate=grab, disable_compile=True
    )
    return cast("Way", given)


class Rows:
    """Stands in for the processors, the criteria and the draws of one batch.

    Parameters
    ----------
    rows : sequence of Row
    """

    def __init__(self, rows: Sequence[Row]) -> None:
        self.rows = tuple(rows)
        self.draws = _Draws(self)
        self.ended = [False] * len(self.rows)
        self.scores: torch.Tensor | None = None
        """What the next choice is made from, ``(rows, vocabulary)``."""

    def call(self, call: Call) -> Call:
        """Return what ``generate`` prepared for the batch with the rows' own processors and criteria in it."""
        return replace(
            call,
            logits_processor=LogitsProcessorList([_Processor(self)]),
            stopping_criteria=StoppingCriteriaList([_Criterion(self)]),
        )

    def going(self) -> list[tuple[Way, list[int]]]:
        """Return which rows go on, by the way in which they choose."""
        found: dict[int, tuple[Way, list[int]]] = {}
        for index, row in enumerate(self.rows):
            if not self.ended[index]:
                found.setdefault(id(row.way), (row.way, []))[1].append(index)
        return list(found.values())


class _Processor(LogitsProcessor):
    """Processes each row as its own call does."""

    def __init__(self, rows: Rows) -> None:
        self._rows = rows

    def __call__(self, input_ids: torch.LongTensor, scores: torch.FloatTensor) -> torch.FloatTensor:
        for way, indices in self._rows.going():
            if len(way.processors):
                own = way.processors(cast("Any", input_ids[indices]), cast("Any", scores[indices]))
                scores[indices] = own.to(scores.dtype)
        self._rows.scores = scores
        return scores


class _Criterion(StoppingCriteria):
    """Ends each row as its own call does, or when it is told to."""

    def __init__(self, rows: Rows) -> None:
        self._rows = rows
        ends = [getattr(one, "eos_token_id", None) for row in rows.rows for one in row.way.criteria]
        if any(one is not None for one in ends):
            # The loop looks for this name alone, and then fills rows that have ended (transformers 5.24).
            self.eos_token_id = next(one for one in ends if one is not None)

    def __call__(self, input_ids: torch.LongTensor, scores: Any, **kwargs: Any) -> Any:
        rows = self._rows
        for way, indices in rows.going():
            done = way.criteria(cast("Any", input_ids[indices]), scores, **kwargs).tolist()
            for index, over in zip(indices, done, strict=True):
                rows.ended[index] = bool(over)
        for index, row in enumerate(rows.rows):
            rows.ended[index] = rows.ended[index] or row.stopped()
        return torch.tensor(rows.ended, dtype=torch.bool, device=input_ids.device)


class _Draws(TorchFunctionMode):
    """Makes ``torch.multinomial`` draw each row with its own generator, see :class:`~.randomness.SeededDraws`."""

    def __init__(self, rows: Rows) -> None:
        super().__init__()
        self._rows = rows
        self._generators: dict[int, torch.Generator] = {}

    def __torch_function__(
        self, func: Callable[..., Any], types: Sequence[type], args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        """Call ``func``; where it draws, choose for each row that goes on."""
        if func is not torch.multinomial:
            return func(*args, **kwargs or {})
        probabilities: torch.Tensor = args[0]
        scores = self._rows.scores
        assert scores is not None  # it was processed before
        chosen = torch.zeros(len(probabilities), 1, dtype=torch.int64, device=probabilities.device)
        for way, indices in self._rows.going():
            if not way.draws:
                chosen[indices] = scores[indices].argmax(dim=-1, keepdim=True)
                continue
            for index in indices:
                own = probabilities[index : index + 1]
                chosen[index] = torch.multinomial(own, num_samples=1, generator=self._generator(index, own.device))[0]
        return chosen

    def _generator(self, index: int, device: torch.device) -> torch.Generator:
        if index not in self._generators:
            self._generators[index] = torch.Generator(device).manual_seed(self._rows.rows[index].seed)
        return self._generators[index]
