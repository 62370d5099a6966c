"""Ends rows at a string or an EOS token, and counts what each row generated. Nothing of the prompt is looked at.

Goes on from ``engines.stop_strings``, with the names and arguments of the class that TRL had.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import torch
from transformers import PreTrainedTokenizerBase, StoppingCriteria

from ..record.string_search import SearchedRows, StringSearch

__all__ = ["StringStoppingCriteria"]


class StringStoppingCriteria(StoppingCriteria):
    """Ends each row of a generation with the token that completes a stop string, or that is an EOS token.

    Exact across the borders of tokens and inside of them. A string that begins in the prompt does not count. One object
    serves any number of generations, one after the other; building it costs nothing.

    Parameters
    ----------
    stop_strings : sequence of str
        None of them empty. Without any, EOS alone ends a row.
    tokenizer : PreTrainedTokenizerBase
    eos_token_id : int or iterable of int, optional
        By default the tokenizer's.
    prompt_length : int, optional
        Columns of the ids that are the prompt, padding included. By default all but the last at the first call of a
        generation, which is right for every loop that makes one token a step: not for assisted decoding.

    Attributes
    ----------
    generated_tokens : list of int
        Of each row of the last call the number of tokens that are the model's: up to the one that ended it, that one
        included, and without the padding behind it.

    Raises
    ------
    ValueError
        For an empty stop string.

    Examples
    --------
    >>> stopping = StringStoppingCriteria(["<call>"], tokenizer)
    >>> model.generate(**inputs, stopping_criteria=StoppingCriteriaList([stopping]))  # doctest: +SKIP
    >>> stopping.generated_tokens  # doctest: +SKIP
    [7]
    """

    def __init__(
        self,
        stop_strings: Sequence[str],
        tokenizer: PreTrainedTokenizerBase,
        *,
        eos_token_id: int | Iterable[int] | None = None,
        prompt_length: int | None = None,
    ) -> None:
        strings = [stop_strings] if isinstance(stop_strings, str) else list(stop_strings)
        if not all(strings):
            msg = f"stop_strings is {stop_strings!r}; give texts that are not empty"
            raise ValueError(msg)
        self.stop_strings = strings
        self.tokenizer = tokenizer
        eos = tokenizer.eos_token_id if eos_token_id is None else eos_token_id
        self._eos = set() if eos is None else {eos} if isinstance(eos, int) else set(eos)
        self._given_length = prompt_length
        self.generated_tokens: list[int] = []
        self.reset()

    def reset(self, prompt_length: int | None = None) -> None:
        """Begin a new generation. Without it one is noticed by its prompt, or by being shorter than the last call.

        Parameters
        ----------
        prompt_length : int, optional
            As of the class, for this generation and the next ones.
        """
        if prompt_length is not None:
            self._given_length = prompt_length
        self._rows = SearchedRows(self.tokenizer, self.stop_strings, self._eos)
        self._prompt: torch.Tensor | None = None
        self._length = 0

    def __call__(self, input_ids: torch.Tensor, scores: Any, **kwargs: Any) -> torch.Tensor:  # noqa: ARG002 - the base's
        """Return which rows have ended: shape ``(rows,)``, bool."""
        if self._is_new(input_ids):
            self.reset()
            length = input_ids.shape[1] - 1 if self._given_length is None else self._given_length
            self._prompt = input_ids[:, :length].clone()
        assert self._prompt is not None
        self._length = input_ids.shape[1]
        searches = self._rows.update(input_ids, self._prompt.shape[1])
        self.generated_tokens = [search.length for search in searches]
        return torch.tensor([search.ended for search in searches], dtype=torch.bool, device=input_ids.device)

    def count(self, generated: Sequence[int], prompt: Sequence[int] = ()) -> int:
        """Return how many of a row's generated tokens are the model's: up to the one that ends it, all if none does."""
        search = StringSearch(self.tokenizer, self.stop_strings, prompt, self._eos)
        for token in generated:
            search.push(token)
        return search.length

    def _is_new(self, input_ids: torch.Tensor) -> bool:
        prompt = self._prompt
        if prompt is None or input_ids.shape[0] != prompt.shape[0] or input_ids.shape[1] < self._length:
            return True
        return not torch.equal(input_ids[:, : prompt.shape[1]], prompt.to(input_ids.device))
