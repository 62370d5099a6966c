"""Turns rows of the tables beside the records into wire rows: rounds, steps and choices of a beam search, segments.

A row may hold many tokens, so slices are bounded by what their rows hold and not by their number.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, get_args

from ..kernel_side.record.beams import BeamChoice, BeamStep
from ..kernel_side.record.recording import Recording
from ..kernel_side.record.rounds import Round
from ..kernel_side.record.segments import Segment
from . import wire
from .plain import number, numbers, sendable

__all__ = ["TABLES", "TableName", "slice_end", "table_of", "wire_rows"]

TableName = Literal["rounds", "beams", "choices", "segments"]
TABLES: tuple[TableName, ...] = get_args(TableName)

ENTRIES = 4000
"""Entries of the lists of a slice's rows, at most, but for one row: about as many bytes as 500 tokens of a record."""


def table_of(recording: Recording, name: TableName) -> Sequence[Any]:
    """Return a table of a recording."""
    table: Sequence[Any] = getattr(recording, name)
    return table


def slice_end(table: Sequence[Any], start: int) -> int:
    """Return where a slice that starts here should end: at least one row behind, where there is one."""
    stop, entries = start, 0
    for row in table[start : start + ENTRIES]:
        entries += _entries(row)
        if stop > start and entries > ENTRIES:
            break
        stop += 1
    return stop


def _entries(row: Round | BeamStep | BeamChoice | Segment) -> int:
    if isinstance(row, Round):
        return 1 + len(row.drafts)
    if isinstance(row, BeamStep):
        return 1 + len(row.candidates) + len(row.live) + len(row.finished)
    return 1


def wire_rows(name: TableName, rows: Sequence[Any]) -> list[Any]:
    """Return rows of a table as the front end takes them."""
    make: Any = {"rounds": _round, "beams": _step, "choices": _choice, "segments": _segment}[name]
    return [make(row) for row in rows]


def _round(row: Round) -> wire.WireRound:
    return {
        "step": row.step,
        "position": row.position,
        "id": [draft.id for draft in row.drafts],
        "text": [sendable(draft.text) for draft in row.drafts],
        "draft_logprob": numbers(draft.draft_logprob for draft in row.drafts),
        "target_logprob": numbers(draft.target_logprob for draft in row.drafts),
        "accepted": row.accepted,
        "bonus": row.bonus,
        "seconds": number(row.seconds),
    }


def _step(row: BeamStep) -> wire.WireBeamStep:
    return {
        "prompt": row.prompt,
        "step": row.step,
        "id": [candidate.id for candidate in row.candidates],
        "text": [sendable(candidate.text) for candidate in row.candidates],
        "beam": [candidate.beam for candidate in row.candidates],
        "score": numbers(candidate.score for candidate in row.candidates),
        "stops": [int(candidate.stops) for candidate in row.candidates],
        "live": list(row.live),
        "live_score": numbers(row.live_scores),
        "finished": [
            {"step": place.step, "candidate": place.candidate, "score": number(place.score)} for place in row.finished
        ],
    }


def _choice(row: BeamChoice) -> wire.WireBeamChoice:
    return {
        "lane": row.lane,
        "prompt": row.prompt,
        "step": row.step,
        "candidate": row.candidate,
        "score": number(row.score),
    }


def _segment(row: Segment) -> wire.WireSegment:
    return {
        "lane": row.lane,
        "kind": row.kind,
        "turn": row.turn,
        "start": row.start,
        "stop": row.stop,
        "reused": row.reused,
        "computed": row.computed,
        "text": None if row.text is None else sendable(row.text),
        "reward": number(row.reward),
    }
