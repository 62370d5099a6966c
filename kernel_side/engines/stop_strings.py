"""Ends rows whose generated text holds a stop string. Looks at the generated text alone, and changes none of it.

The library's ``StopStringCriteria`` (transformers 5.24) also matches what the prompt began, and takes seconds to build
for a large vocabulary.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from transformers import PreTrainedTokenizerBase, StoppingCriteria

from ..record.detokenize import Detokenizer
from ..record.record import Record

__all__ = ["StopStrings", "found_in"]

_CONTEXT = 8
"""Tokens read before those that are searched, so that these do not begin inside a character."""
_TOKENS_A_CHARACTER = 4
"""At most: the bytes of a character of UTF-8."""


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
        self._tokenizer = tokenizer
        self._strings = tuple(strings)
        self._prompt = prompt
        self._longest = _TOKENS_A_CHARACTER * max(map(len, strings))
        self._before, self._length = prompt, prompt  # with the last step but one, and with the last

    def __call__(self, input_ids: torch.Tensor, scores: Any, **kwargs: Any) -> torch.Tensor:  # noqa: ARG002 - the base's
        """Return which rows hold a stop string that ends with the last step: shape ``(rows,)``, bool."""
        if input_ids.shape[1] > self._length:  # some loops ask several times a step
            self._before, self._length = self._length, input_ids.shape[1]
        searched = max(self._prompt, self._before - self._longest)
        first = max(0, searched - _CONTEXT)
        found = [self._holds(row, searched - first) for row in input_ids[:, first:].tolist()]
        return torch.tensor(found, dtype=torch.bool, device=input_ids.device)

    def _holds(self, ids: list[int], context: int) -> bool:
        detokenizer = Detokenizer(self._tokenizer)
        text = "".join([detokenizer.push(token).text for token in ids][context:])
        return any(string in text for string in self._strings)


def found_in(record: Record, strings: Sequence[str]) -> str | None:
    """Return the first of the strings that the generated text of a record holds."""
    if not strings:
        return None
    text = "".join(token.text for token in record[:] if token.origin == "generated")
    return next((string for string in strings if string in text), None)
