"""What a run recorded as a pandas frame and as JSON, and back.

JSON holds all of it, needs neither torch nor pandas, and knows its version. A log-probability of minus infinity is
written as the text ``"-inf"``, since JSON has no such number; null is unknown, and NaN cannot occur.
"""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, get_args

from .beams import BeamCandidate, BeamChoice, BeamStep, FinishedBeam
from .record import Alternative, Origin, Record, Token
from .recording import Lane, Recording
from .rounds import Draft, Round
from .segments import Segment
from .table import Table

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["FRAME_DTYPES", "recording_from_json", "recording_to_json", "to_frame"]

SCHEMA = "genscope.record"
VERSION = 3
"""1 had one record; 2 has lanes, sources, rounds and beams; 3 has segments, and hits of the prefix cache."""

FRAME_DTYPES: dict[str, str] = {
    "lane": "int64",
    "position": "int64",
    "id": "int64",
    "text": "str",
    "bytes": "object",
    "group": "int64",
    "special": "bool",
    "origin": "category",
    "raw_logprob": "float64",
    "logprob": "float64",
    "probability": "float64",
    "surprisal": "float64",
    "entropy": "float64",
    "rank": "Int64",
    "seconds": "float64",
    "cached": "boolean",
    "alternatives": "object",
}
"""Columns of :func:`to_frame` and their dtypes, in order."""


def to_frame(records: Record | Sequence[Record]) -> pd.DataFrame:
    """Return a record, or those of several lanes, as a frame, one row a token.

    Returns
    -------
    pandas.DataFrame
        Columns and dtypes as :data:`FRAME_DTYPES`, with the meanings and units of
        :class:`~genscope.kernel_side.record.record.Token`; ``lane`` counts the records from 0; ``probability`` (0 to 1)
        and ``surprisal`` (bits) are of the model's own distribution. What is not known is NaN (``<NA>`` in ``rank`` and
        ``cached``).
        ``bytes`` holds bytes or None, ``alternatives`` a list of dicts with the keys of
        :class:`~genscope.kernel_side.record.record.Alternative`; a candidate that was cut has a ``logprob`` of
        ``-inf``.
    """
    import pandas as pd  # slow to import, and reading a record needs none of it

    lanes = [records] if isinstance(records, Record) else records
    rows = [
        {
            "lane": lane,
            **{name: getattr(token, name) for name in FRAME_DTYPES if name not in ("lane", "alternatives")},
            "alternatives": [_alternative_to_dict(alternative) for alternative in token.alternatives],
        }
        for lane, record in enumerate(lanes)
        for token in record[:]
    ]
    frame = pd.DataFrame(rows, columns=list(FRAME_DTYPES))
    frame["origin"] = pd.Categorical(frame["origin"], categories=list(get_args(Origin)))
    return frame.astype(FRAME_DTYPES | {"origin": frame["origin"].dtype})


def _alternative_to_dict(alternative: Alternative) -> dict[str, Any]:
    return {name: getattr(alternative, name) for name in ("id", "text", "raw_logprob", "logprob")}


def recording_to_json(recording: Recording, about: Mapping[str, Any] | None = None) -> str:
    """Write a recording as JSON.

    Parameters
    ----------
    recording : Recording
    about : mapping, optional
        What to keep beside it (settings, model name); must be JSON data.

    Returns
    -------
    str
        Strict JSON (no NaN or infinity), one object.
    """
    sources = recording.sources
    places = {id(source): place for place, source in enumerate(sources)}
    document = {
        "schema": SCHEMA,
        "version": VERSION,
        "about": dict(about or {}),
        "lanes": [
            {
                "prompt": lane.prompt,
                "sequence": lane.sequence,
                "prompt_tokens": lane.prompt_tokens,
                "source": None if lane.source is None else places[id(lane.source)],
                "record": _record_to_json(lane.record),
            }
            for lane in recording.lanes
        ],
        "sources": [_record_to_json(source) for source in sources],
        "rounds": [_round_to_json(one) for one in recording.rounds[:]],
        "beams": [dataclasses.asdict(step) for step in recording.beams[:]],
        "choices": [dataclasses.asdict(choice) for choice in recording.choices[:]],
        "segmented": recording.segmented,
        "segments": [dataclasses.asdict(segment) for segment in recording.segments[:]],
    }
    return json.dumps(document, ensure_ascii=False, allow_nan=False)


def _record_to_json(record: Record) -> dict[str, Any]:
    return {"tail": record.tail, "tokens": [_token_to_json(token) for token in record[:]]}


def _round_to_json(one: Round) -> dict[str, Any]:
    row = dataclasses.asdict(one)
    for draft in row["drafts"]:
        draft["draft_logprob"] = _to_json(draft["draft_logprob"])
        draft["target_logprob"] = _to_json(draft["target_logprob"])
    return row


def _token_to_json(token: Token) -> dict[str, Any]:
    row = {name: getattr(token, name) for name in Token.__slots__}
    row["bytes"] = None if token.bytes is None else token.bytes.hex()
    row["raw_logprob"] = _to_json(token.raw_logprob)
    row["logprob"] = _to_json(token.logprob)
    row["alternatives"] = [
        [entry.id, entry.text, _to_json(entry.raw_logprob), _to_json(entry.logprob)] for entry in token.alternatives
    ]
    return row


def _to_json(logprob: float | None) -> float | str | None:
    return "-inf" if logprob == -math.inf else logprob


def recording_from_json(text: str) -> tuple[Recording, dict[str, Any]]:
    """Read what :func:`recording_to_json` wrote.

    Returns
    -------
    recording : Recording
    about : dict

    Raises
    ------
    ValueError
        When it is not such a document, or one of a newer version.
    """
    document = json.loads(text)
    if not isinstance(document, dict) or document.get("schema") != SCHEMA:
        msg = f"not a saved record: the field 'schema' is not {SCHEMA!r}"
        raise ValueError(msg)
    if document["version"] > VERSION:
        msg = (
            f"saved by a newer genscope (record version {document['version']}, known up to {VERSION}); update genscope"
        )
        raise ValueError(msg)
    if document["version"] == 1:
        record = _record_from_json(document)
        return Recording((Lane(0, 0, record, None, len(record.ids("prompt"))),)), document["about"]
    sources = [_record_from_json(source) for source in document["sources"]]
    lanes = tuple(
        Lane(
            lane["prompt"],
            lane["sequence"],
            _record_from_json(lane["record"]),
            None if lane["source"] is None else sources[lane["source"]],
            lane["prompt_tokens"],
        )
        for lane in document["lanes"]
    )
    return Recording(
        lanes,
        Table([_round_from_json(row) for row in document["rounds"]]),
        Table([_step_from_json(row) for row in document["beams"]]),
        Table([BeamChoice(**row) for row in document["choices"]]),
        Table([Segment(**row) for row in document.get("segments", ())]),
        document.get("segmented", False),
    ), document["about"]


def _record_from_json(document: Mapping[str, Any]) -> Record:
    return Record([_token_from_json(row) for row in document["tokens"]], document["tail"])


def _round_from_json(row: dict[str, Any]) -> Round:
    drafts = tuple(
        Draft(draft["id"], draft["text"], _from_json(draft["draft_logprob"]), _from_json(draft["target_logprob"]))
        for draft in row["drafts"]
    )
    return Round(**(row | {"drafts": drafts}))


def _step_from_json(row: dict[str, Any]) -> BeamStep:
    changed = {
        "candidates": tuple(BeamCandidate(**candidate) for candidate in row["candidates"]),
        "live": tuple(row["live"]),
        "live_scores": tuple(row["live_scores"]),
        "finished": tuple(FinishedBeam(**finished) for finished in row["finished"]),
    }
    return BeamStep(**(row | changed))


def _token_from_json(row: dict[str, Any]) -> Token:
    changed = {
        "bytes": None if row["bytes"] is None else bytes.fromhex(row["bytes"]),
        "raw_logprob": _from_json(row["raw_logprob"]),
        "logprob": _from_json(row["logprob"]),
        "alternatives": tuple(
            Alternative(token, text, float(raw), _from_json(processed))
            for token, text, raw, processed in row["alternatives"]
        ),
    }
    return Token(**(row | changed))


def _from_json(logprob: float | str | None) -> float | None:
    return None if logprob is None else float(logprob)
