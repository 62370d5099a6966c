"""Turns a run and slices of what it recorded into wire messages (``wire``). No threads, no sending, no pacing.

Work is proportional to the rows asked for: each track's table of strings grows with its record and remembers how long
it was after each row, so that any slice says which strings it is the first to need.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any, Protocol, cast

from . import wire
from .plain import number, numbers, sendable
from .tables import TableName, table_of, wire_rows

if TYPE_CHECKING:
    from ..kernel_side.caching.reuse import PromptReuse
    from ..kernel_side.observation.looks import Looks
    from ..kernel_side.record.record import Record, Token
    from ..kernel_side.record.recording import Recording
    from ..kernel_side.request import Request
    from ..kernel_side.tracing.use import ExecutionStatus

    _Rows = wire.RoundRows | wire.BeamRows | wire.ChoiceRows | wire.SegmentRows

__all__ = ["Frames", "Streamed", "status_of"]


class Streamed(Protocol):
    """What is needed of a :class:`~genscope.kernel_side.run.Run`, or of a comparison, which also has ``compared``."""

    id: str
    request: Request
    recording: Recording

    @property
    def whys(self) -> tuple[str | None, ...]: ...
    @property
    def looks(self) -> Looks | None: ...
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

    Attributes
    ----------
    records : tuple of Record
        By track: the lanes' records, then the sources.
    """

    def __init__(self, run: Streamed) -> None:
        self._run = run
        recording = run.recording
        self.records = (*(lane.record for lane in recording.lanes), *recording.sources)
        self._tracks = [_Track(record) for record in self.records]

    def begin(self) -> wire.Begin:
        """Return the message that starts the run in the front end."""
        run = self._run
        recording = run.recording
        sources = {id(source): len(recording.lanes) + place for place, source in enumerate(recording.sources)}
        settings, looks, branch = run.settings, run.looks, run.request.branch
        return {
            "kind": "begin",
            "run": run.id,
            "lanes": [
                {
                    "prompt": lane.prompt,
                    "sequence": lane.sequence,
                    "prompt_tokens": lane.prompt_tokens,
                    "source": None if lane.source is None else sources[id(lane.source)],
                    "label": sendable(lane.label),
                }
                for lane in recording.lanes
            ],
            "tracks": len(self.records),
            # In an environment each turn is a search, and none is recorded beside its tokens.
            "beams": _shape(settings) if settings.searches and not recording.segmented else None,
            "branch": None if branch is None else cast("wire.WireBranch", dataclasses.asdict(branch)),
            "compared": _compared(run),
            "environment": recording.segmented,
            "observed": [] if looks is None else list(looks.observed),
            "settings": settings.model_dump(mode="json"),
            "status": status_of(run),
        }

    def data(self, track: int, start: int, stop: int) -> wire.Data:
        """Return rows ``start`` to ``stop`` of a track, which must have them."""
        tokens = self.records[track][start:stop]
        strings_from, strings, columns = self._tracks[track].slice(start, stop, tokens)
        return {
            "kind": "data",
            "run": self._run.id,
            "track": track,
            "seq": start,
            "n": len(tokens),
            "strings_from": strings_from,
            "strings": strings,
            "columns": columns,
            "status": status_of(self._run),
        }

    def rows(self, table: TableName, start: int, stop: int) -> _Rows:
        """Return rows ``start`` to ``stop`` of a table, which must have them."""
        message: Any = {
            "kind": "rows",
            "run": self._run.id,
            "table": table,
            "seq": start,
            "rows": wire_rows(table, table_of(self._run.recording, table)[start:stop]),
            "status": status_of(self._run),
        }
        return cast("_Rows", message)

    def beat(self) -> wire.Beat:
        """Return a sign of life."""
        return {"kind": "beat", "run": self._run.id, "counts": self._counts(), "status": status_of(self._run)}

    def end(self) -> wire.End:
        """Return the message that ends the run; only right once it is over."""
        run = self._run
        lanes = len(run.recording.lanes)
        return {
            "kind": "end",
            "run": run.id,
            "counts": self._counts(),
            "tails": [sendable(record.tail) for record in self.records],
            # A run that failed, or never left the queue, has none.
            "whys": [None if why is None else sendable(why) for why in run.whys or (None,) * lanes],
            "status": status_of(run),
        }

    def _counts(self) -> wire.Counts:
        recording = self._run.recording
        return {
            "tracks": [len(record) for record in self.records],
            "rounds": len(recording.rounds),
            "beams": len(recording.beams),
            "choices": len(recording.choices),
            "segments": len(recording.segments),
        }


class _Track:
    """The strings of one record, in the order that its rows first need them."""

    def __init__(self, record: Record) -> None:
        self._record = record
        self._strings: list[str] = []
        self._index: dict[str, int] = {}
        self._ends: list[int] = []  # length of the strings after each row

    def slice(self, start: int, stop: int, tokens: list[Token]) -> tuple[int, list[str], wire.Columns]:
        """Return the first string that rows need first, those strings, and the columns."""
        self._intern(stop)
        before = self._ends[start - 1] if start else 0
        return before, self._strings[before : self._ends[stop - 1]] if stop > start else [], self._columns(tokens)

    def _intern(self, stop: int) -> None:
        """Extend the strings by what rows up to ``stop`` need."""
        strings, index = self._strings, self._index
        for token in self._record[len(self._ends) : stop]:
            for text in (token.shown, *(entry.text for entry in token.alternatives)):
                if text not in index:
                    index[text] = len(strings)
                    strings.append(sendable(text))
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
            "raw_logprob": numbers(token.raw_logprob for token in tokens),
            "logprob": numbers(token.logprob for token in tokens),
            "entropy": numbers(token.entropy for token in tokens),
            "rank": [token.rank for token in tokens],
            "seconds": numbers(token.seconds for token in tokens),
            "alt_n": [len(token.alternatives) for token in tokens],
            "alt_id": [entry.id for entry in alternatives],
            "alt_text": [index[entry.text] for entry in alternatives],
            "alt_raw_logprob": numbers(entry.raw_logprob for entry in alternatives),
            "alt_logprob": numbers(entry.logprob for entry in alternatives),
            "cached": [None if token.cached is None else int(token.cached) for token in tokens],
        }


def _compared(run: Streamed) -> list[wire.WireCompared] | None:
    lanes = getattr(run, "compared", None)  # a plain run has none
    if lanes is None:
        return None
    runs = list(dict.fromkeys(lane.run.id for lane in lanes))
    return [
        {
            "group": lane.group,
            "batch": runs.index(lane.run.id),
            "settings": lane.settings.model_dump(mode="json"),
        }
        for lane in lanes
    ]


def _shape(settings: Any) -> wire.BeamShape:
    return {"beams": settings.num_beams, "groups": getattr(settings, "num_beam_groups", 1)}


def status_of(run: Streamed) -> wire.Status:
    """Return where a run stands, for the wire."""
    status = run.status()
    drafts = status.drafts
    return {
        "state": status.state,
        "why": None if status.why is None else sendable(status.why),
        "error": None if status.error is None else sendable(status.error),
        "generated": status.generated,
        "elapsed": None if status.elapsed is None else round(status.elapsed, 4),
        "first_token": number(status.first_token),
        "tokens_per_second": number(status.tokens_per_second),
        "observation_share": number(status.observation_share),
        "queue_ahead": status.queue_ahead,
        "drafts": None
        if drafts is None
        else {
            "rounds": drafts.rounds,
            "drafted": drafts.drafted,
            "accepted": drafts.accepted,
            "generated": drafts.generated,
        },
        "reuse": None if status.reuse is None else _reuse(status.reuse),
        "execution": None if status.execution is None else _execution(status.execution),
    }


def _execution(use: ExecutionStatus) -> wire.WireExecution:
    fallbacks = sorted(use.fallbacks.items(), key=lambda one: -one[1])
    now = use.preparing
    return {
        "name": use.name,
        "passes": use.passes,
        "compared": use.compared,
        "fallbacks": [{"reason": sendable(reason), "passes": passes} for reason, passes in fallbacks],
        "prepared": use.prepared,
        "graphs": use.graphs,
        "recompilations": use.recompilations,
        "largest_difference": number(use.largest_difference),
        "preparing": None if now is None else {"what": now.what, "stage": now.stage, "seconds": now.seconds},
    }


def _reuse(reuse: PromptReuse) -> wire.WireReuse:
    at = reuse.worst
    end, verified = reuse.rows[at].end, reuse.verified
    return {
        "tokens": reuse.tokens,
        "reused": reuse.reused,
        "nbytes": reuse.nbytes,
        "sources_reused": reuse.sources_reused,
        "sources": None if reuse.sources_reused is None else len(reuse.rows),
        "end": {
            "prompt": at,
            "kind": end.kind,
            "position": end.position,
            "asked": sendable(reuse.asked[at]),
            "cached": [sendable(text) for text in reuse.cached[at]],
            "message": sendable(reuse.message()),
        },
        "saved": number(reuse.saved),
        "saved_measured": reuse.saved_measured,
        "verified": None
        if verified is None
        else {
            "difference": verified.difference,
            "largest": verified.largest,
            "agrees": verified.agrees,
        },
    }
