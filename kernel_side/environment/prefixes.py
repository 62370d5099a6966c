"""What one turn takes from a prefix cache, and what it leaves there for the next one.

A history only grows, so what a turn computed is the beginning of what the next one reads. Not here: the cache itself
(``caching``), and generating (``turn``).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any, Self

import torch

from ..caching.hits import RowHit
from ..caching.prefix_cache import PrefixCache
from ..decoding.contrastive import ContrastiveSearch
from ..decoding.own_loop import OwnLoop
from ..decoding.tap_prompt import is_recurrent
from .history import Reuse

__all__ = ["TurnPrefixes"]


class TurnPrefixes:
    """The prefix cache in one generation; a context manager around it, after which nothing is pinned.

    Left by an exception it stores the prompts, as far as they were computed.

    Parameters
    ----------
    prefixes : PrefixCache or None
    model : PreTrainedModel
        The one that runs, which may be a view.
    rows : sequence of list of int
        The histories.
    inputs : mapping
        What ``generate`` is given of them.
    asked : mapping
        Arguments of ``generate`` that are in effect.
    room : int
        Tokens that it may add.
    loop : OwnLoop, optional
        That runs in place of the library's.

    Attributes
    ----------
    inputs : dict
        What ``generate`` is given beside.
    held : int
        Columns that its cache holds, for ``observe``.
    reuses : list of Reuse
        One a row.
    """

    def __init__(
        self,
        prefixes: PrefixCache | None,
        model: Any,
        rows: Sequence[list[int]],
        inputs: Mapping[str, Any],
        asked: Mapping[str, Any],
        room: int,
        loop: OwnLoop | None = None,
    ) -> None:
        self.inputs: dict[str, Any] = {}
        self.held = 0
        self._rows, self._lease = rows, None
        self._searches: bool = asked.get("num_beams", 1) > 1
        if prefixes is None or asked.get("use_cache") is False:
            why = "use_cache is off" if prefixes is None else "generation_kwargs say use_cache=False"
            self.reuses = [Reuse(0, len(row), why) for row in rows]
            return
        encoder: bool = model.config.is_encoder_decoder
        prompts = [_decoder_start(asked)] * len(rows) if encoder else rows
        read = [row[: int(mask.sum())] for row, mask in _read(inputs)] if encoder else None
        self._lease = prefixes.lease(
            model,
            prompts,
            copies=asked.get("num_beams", 1),
            kind=asked.get("cache_implementation", "dynamic"),
            length=max(map(len, prompts)) + room,
            sources=read,
            only_store=_why_not(model, loop),
        )
        try:
            self.inputs = self._lease.arguments(inputs)
            if encoder and self.inputs:
                self.inputs["decoder_input_ids"] = torch.tensor(prompts, device=model.device)
        except BaseException:
            self._lease.close()
            raise
        self.held, self._prompts = self._lease.columns, prompts
        hits = self._lease.rows
        self.reuses = (
            [_of_encoder(hit, len(row), reused=self._lease.knows_sources) for hit, row in zip(hits, rows, strict=True)]
            if encoder
            else [
                Reuse(hit.reused, hit.tokens - hit.reused, None if hit.reused else hit.end.message, hit) for hit in hits
            ]
        )

    def store(self, results: Sequence[list[int]]) -> None:
        """Make known what was computed.

        Parameters
        ----------
        results : sequence of list of int
            What became of each row. Of a search only the prompts are known: its cache holds the live hypotheses.
        """
        if self._lease is not None:
            rows = None if self._searches else [[*row, *new] for row, new in zip(self._prompts, results, strict=True)]
            self._lease.store(rows)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._lease is None:
            return
        try:
            if error is not None:
                self._lease.store(failed=True)
        finally:
            self._lease.close()


def _of_encoder(hit: RowHit, tokens: int, *, reused: bool) -> Reuse:
    """Say it of a history that an encoder reads, as a whole or not at all."""
    if reused:
        return Reuse(tokens, 0, None, hit)
    why = "another row of its batch was not read before" if hit.source else hit.end.message
    return Reuse(0, tokens, why, hit)


def _why_not(model: Any, loop: OwnLoop | None) -> str | None:
    """Return why a turn computes all, None where it need not."""
    if isinstance(loop, ContrastiveSearch):
        return "contrastive search compares hidden states of all tokens, which no cache holds"
    if loop is not None and is_recurrent(model):
        return f"{type(loop).__name__} begins a recurrent model with the whole prompt"
    return None


def _decoder_start(asked: Mapping[str, Any]) -> list[int]:
    start = asked.get("decoder_start_token_id", asked.get("bos_token_id"))
    return [int(torch.as_tensor(start).reshape(-1)[0])]


def _read(inputs: Mapping[str, Any]) -> list[tuple[list[int], torch.Tensor]]:
    return list(zip(inputs["input_ids"].tolist(), inputs["attention_mask"], strict=True))
