"""Turns a run and slices of its record into wire messages (``wire``). No threads, no sending, no pacing.

Work is proportional to the rows asked for: the table of strings grows with the record and remembers how long it was
after each row, so that any slice says which strings it is the first to need.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Protocol

from . import wire

if TYPE_CHECKING:
    from ..kernel_side.record.record import Record, Token

__all__ = ["Frames", "Streamed", "status_of"]


class Streamed(Protocol):
    """What is needed of a :class:`~genscope.kernel_side.run.Run`."""

    id: str
    record: Record

    @property
    def prompt_tokens(self) -> int: ...
    @property
    def settings(self) -> Any: ...
    @property
    def state(self) -> wire.RunState: ...
    @property
    def over(self) -> bool: ...
    def status(self) -> Any: ...


class Frames:
    """The wire messages of one run.

    Parameters
    ----------
    run : Streamed
    """

    def __init__(self, run: Streamed) -> None:
        self._run = run
        self._strings: list[str] = []
        self._index: dict[str, int] = {}
        self._ends: list[int] = []  # length of the strings after each row

    def begin(self) -> wire.Begin:
        """Return the message that starts the run in the front end."""
        run = self._run
        return {
            "kind": "begin",
            "run": run.id,
            "prompt_tokens": run.prompt_tokens,
            "settings": run.settings.model_dump(mode="json"),
            "status": status_of(run),
        }

    def data(self, start: int, stop: int) -> wire.Data:
        """Return rows ``start`` to ``stop`` of the record, which must have them."""
        tokens = self._run.record[start:stop]
        self._intern(stop)
        before = self._ends[start - 1] if start else 0
        return {
            "kind": "data",
            "run": self._run.id,
            "seq": start,
            "n": len(tokens),
            "strings_from": before,
            "strings": self._strings[before : self._ends[stop - 1]] if stop > start else [],
            "columns": self._columns(tokens),
            "status": status_of(self._run),
        }

    def beat(self) -> wire.Beat:
        """Return a sign of life."""
        return {"kind": "beat", "run": self._run.id, "n": len(self._run.record), "status": status_of(self._run)}

    def end(self) -> wire.End:
        """Return the message that ends the run; only right once it is over."""
        record = self._run.record
        return {
            "kind": "end",
            "run": self._run.id,
            "n": len(record),
            "tail": _sendable(record.tail),
            "status": status_of(self._run),
        }

    def _intern(self, stop: int) -> None:
        """Extend the strings by what rows up to ``stop`` need."""
        strings, index = self._strings, self._index
        for token in self._run.record[len(self._ends) : stop]:
            for text in (token.shown, *(entry.text for entry in token.alternatives)):
                if text not in index:
                    index[text] = len(strings)
                    strings.append(_sendable(text))
            self._ends.append(len(strings))

    def _columns(self, tokens: list[Token]) -> wire.Columns:
        index = self._index
        alternatives = [entry for token in tokens for entry in token.alternatives]
        return {
            "id": [token.id for token in tokens],
            "text": [index[token.shown] for token in tokens],
            "bytes": [None if token.bytes is None else token.bytes.hex() for token in tokens],
            "group": [token.group for token in tokens],
            "special": [int(token.special) for token in tokens],
            "generated": [int(token.origin == "generated") for token in tokens],
            "raw_logprob": _numbers(token.raw_logprob for token in tokens),
            "logprob": _numbers(token.logprob for token in tokens),
            "entropy": _numbers(token.entropy for token in tokens),
            "rank": [token.rank for token in tokens],
            "seconds": _numbers(token.seconds for token in tokens),
            "alt_n": [len(token.alternatives) for token in tokens],
            "alt_id": [entry.id for entry in alternatives],
            "alt_text": [index[entry.text] for entry in alternatives],
            "alt_raw_logprob": _numbers(entry.raw_logprob for entry in alternatives),
            "alt_logprob": _numbers(entry.logprob for entry in alternatives),
        }


def status_of(run: Streamed) -> wire.Status:
    """Return where a run stands, for the wire."""
    status = run.status()
    return {
        "state": status.state,
        "why": status.why,
        "error": None if status.error is None else _sendable(status.error),
        "generated": status.generated,
        "elapsed": None if status.elapsed is None else round(status.elapsed, 4),
        "first_token": _number(status.first_token),
        "tokens_per_second": _number(status.tokens_per_second),
        "observation_share": _number(status.observation_share),
        "queue_ahead": status.queue_ahead,
    }


def _numbers(values: Iterable[float | None]) -> list[float | None]:
    return [_number(value) for value in values]


def _number(value: float | None) -> float | None:
    """Keep 5 significant digits, so that a probability close to 1 keeps its distance from 1; no infinity, no NaN."""
    # Adding zero turns a negative zero, which would show its sign, into a plain one.
    return None if value is None or not math.isfinite(value) else float(f"{value:.5g}") + 0.0


def _sendable(text: str) -> str:
    """Replace lone surrogates, which UTF-8 cannot carry: one would cost the whole message."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-8", "replace").decode()
    return text
