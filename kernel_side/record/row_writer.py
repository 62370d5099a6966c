"""Writes one sequence into its record: texts of tokens, and what was measured about them. Measures nothing itself."""

from __future__ import annotations

from collections.abc import Sequence

from transformers import PreTrainedTokenizerBase

from .detokenize import Detokenizer
from .measures import Measures
from .record import Alternative, Origin, Record, Token

__all__ = ["RowWriter"]


class RowWriter:
    """Appends tokens to a record of its own.

    Attributes
    ----------
    record : Record
    """

    def __init__(self, tokenizer: PreTrainedTokenizerBase) -> None:
        self.record = Record()
        self._detokenizer = Detokenizer(tokenizer)
        self._peeked: dict[int, str] = {}

    def append(
        self,
        token: int,
        origin: Origin,
        measures: Measures | None = None,
        seconds: float | None = None,
        *,
        cached: bool | None = None,
    ) -> None:
        """Add a token, with what is known about it."""
        alternatives: tuple[Alternative, ...] = ()
        if measures is not None:
            alternatives = tuple(
                Alternative(entry.id, self._detokenizer.peek(entry.id), entry.raw_logprob, entry.logprob)
                for entry in measures.candidates
            )
        piece = self._detokenizer.push(token)
        self._peeked.clear()
        self.record.append(
            Token(
                position=len(self.record),
                id=token,
                text=piece.text,
                shown=piece.shown,
                bytes=piece.bytes,
                group=piece.group,
                special=piece.special,
                origin=origin,
                raw_logprob=None if measures is None else measures.raw_logprob,
                logprob=None if measures is None else measures.logprob,
                entropy=None if measures is None else measures.entropy,
                rank=None if measures is None else measures.rank,
                seconds=seconds,
                alternatives=alternatives,
                cached=cached,
            )
        )

    def extend(self, tokens: Sequence[int], origin: Origin, cached: Sequence[bool | None]) -> None:
        """Add tokens of which nothing was measured: a prompt of thousands stands before a run's first step."""
        self._peeked.clear()
        push = self._detokenizer.push
        rows = []
        for position, (token, hit) in enumerate(zip(tokens, cached, strict=True), len(self.record)):
            piece = push(token)
            rows.append(
                Token(
                    position,
                    token,
                    piece.text,
                    piece.shown,
                    piece.bytes,
                    piece.group,
                    piece.special,
                    origin,
                    cached=hit,
                )
            )
        self.record.extend(rows)

    def end(self) -> None:
        """Complete the text."""
        self.record.tail = self._detokenizer.tail()

    def text_of(self, token: int) -> str:
        r"""Return what a token would add to the text here, lone bytes as ``\xE2``."""
        text = self._peeked.get(token)
        if text is None:
            text = self._peeked[token] = self._detokenizer.peek(token)
        return text

    def texts_of(self, tokens: Sequence[int]) -> list[str]:
        """Return what tokens would add to the text here, one after the other."""
        ahead = self._detokenizer.fork()
        texts = []
        for token in tokens:
            texts.append(ahead.peek(token))
            ahead.push(token)
        return texts
