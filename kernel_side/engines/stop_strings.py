"""Ends rows whose generated text holds a stop string. Looks at the generated text alone, and changes none of it.

The library's ``StopStringCriteria`` (transformers 5.24) also matches what the prompt began, and takes seconds to build
for a large vocabulary. How strings are found is in ``record.string_search``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from transformers import PreTrainedTokenizerBase, StoppingCriteria

from ..record.record import Record
from ..record.string_search import SearchedRows

__all__ = ["StopStrings", "found_in"]


class StopStrings(StoppingCriteria):
    """A stopping criterion for any loop: rows may be sequences, or hypotheses that move between rows.

    Parameters
    ----------
    tokenizer : PreTrainedTokenizerBase
    strings : sequence of str
        Not empty, nor is any of them.
    prompt : int
        Columns of the ids that are the prompt, padding included.
    """

    def __init__(self, tokenizer: PreTrainedTokenizerBase, strings: Sequence[str], prompt: int) -> None:
        self._prompt = prompt
        self._rows = SearchedRows(tokenizer, strings)

    def __call__(self, input_ids: torch.Tensor, scores: Any, **kwargs: Any) -> torch.Tensor:  # noqa: ARG002 - the base's
        """Return which rows hold a stop string: shape ``(rows,)``, bool."""
        found = [search.ended for search in self._rows.update(input_ids, self._prompt)]
        return torch.tensor(found, dtype=torch.bool, device=input_ids.device)


def found_in(record: Record, strings: Sequence[str]) -> str | None:
    """Return the first of the strings that the generated text of a record holds."""
    if not strings:
        return None
    text = "".join(token.text for token in record[:] if token.origin == "generated")
    return next((string for string in strings if string in text), None)
