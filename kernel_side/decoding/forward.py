"""The forward passes of a decoding loop of our own.

They are what the library's loops would run: the same inputs, prepared by the same methods. Not here: compiled forward
passes, and encoder-decoder models.
"""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import torch
from transformers import GenerationConfig, LogitsProcessorList

from .tap import LoopTap

__all__ = ["Forward", "last_logits", "process", "select_rows"]


class Forward:
    """The forward passes of one run; carries mask, positions and cache from one to the next.

    Attributes
    ----------
    model, config
        As ``generate`` handed them over.
    kwargs : dict
        What the next forward pass is given beside the ids.
    """

    def __init__(self, model: Any, config: GenerationConfig, model_kwargs: dict[str, Any], tap: LoopTap) -> None:
        self.model = model
        self.config = config
        self.kwargs = dict(model_kwargs)
        tap.ask(config, self.kwargs)
        self._begun = False

    @property
    def cached(self) -> int:
        """How many positions the cache holds that ``generate`` was given."""
        cache = self.kwargs.get("cache")
        return 0 if cache is None else int(cache.get_seq_length())

    def __call__(self, input_ids: torch.Tensor) -> Any:
        """Run the model on the whole sequences so far: on the prompt first, then (with a cache) on the last token."""
        if self._begun:
            length = 1 if self.kwargs["use_cache"] else None
            inputs = self.model.prepare_inputs_for_generation(input_ids, next_sequence_length=length, **self.kwargs)
            outputs = self.model(**inputs, return_dict=True)
        else:
            outputs = self.model._prefill(input_ids, self.config, self.kwargs)  # noqa: SLF001 - see the module
            self._begun = True
        self.kwargs = self.model._update_model_kwargs_for_generation(outputs, self.kwargs)  # noqa: SLF001 - the same
        return outputs

    def can_select(self) -> bool:
        """Whether rows of the cache can be picked: not of a static one, nor of a recurrent state."""
        cache = self.kwargs.get("cache")
        return cache is None or all(hasattr(layer, "batch_select_indices") for layer in cache.layers)

    def select(self, rows: torch.Tensor, batch: int) -> None:
        """Go on with these of the ``batch`` rows, in this order; a row may be picked more than once."""
        for name, value in self.kwargs.items():
            if isinstance(value, torch.Tensor):
                dim = 1 if name == "position_ids" and value.ndim == 3 else 0
                if value.shape[dim] == batch:
                    self.kwargs[name] = value.index_select(dim, rows)
        if self.kwargs.get("cache") is not None:
            self.kwargs["cache"].batch_select_indices(rows)


def last_logits(outputs: Any) -> torch.Tensor:
    """Return the logits of the last position, as the library's own loops take them: a copy in float32."""
    logits: torch.Tensor = outputs.logits[:, -1].to(copy=True, dtype=torch.float32)
    return logits


def select_rows(outputs: Any, rows: torch.Tensor) -> Any:
    """Return logits, attentions and hidden states of these rows of a forward pass."""

    def picked(values: Sequence[torch.Tensor | None] | None) -> tuple[torch.Tensor | None, ...] | None:
        return None if values is None else tuple(None if value is None else value[rows] for value in values)

    return SimpleNamespace(
        logits=outputs.logits[rows],
        attentions=picked(outputs.get("attentions")),
        hidden_states=picked(outputs.get("hidden_states")),
    )


def process(processors: LogitsProcessorList, input_ids: Any, values: torch.Tensor) -> torch.Tensor:
    """Apply the prepared processors to a copy: some work in place."""
    processed: torch.Tensor = processors(input_ids, values.clone() if len(processors) else values)
    return processed
