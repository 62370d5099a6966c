"""A record as a pandas frame and as JSON, and back.

JSON holds the whole record, needs neither torch nor pandas, and knows its version. A log-probability of minus infinity
is written as the text ``"-inf"``, since JSON has no such number; null is unknown, and NaN cannot occur.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from .record import Alternative, Record, Token

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["FRAME_DTYPES", "record_from_json", "record_to_json", "to_frame"]

SCHEMA = "genscope.record"
VERSION = 1

FRAME_DTYPES: dict[str, str] = {
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
    "alternatives": "object",
}
"""Columns of :func:`to_frame` and their dtypes, in order."""


def to_frame(record: Record) -> pd.DataFrame:
    """Return the record as a frame, one row a token.

    Returns
    -------
    pandas.DataFrame
        Columns and dtypes as :data:`FRAME_DTYPES`, with the meanings and units of
        :class:`~genscope.kernel_side.record.record.Token`; ``probability`` (0 to 1) and ``surprisal`` (bits) are of the
        model's own distribution. What is not known is NaN (``<NA>`` in ``rank``). ``bytes`` holds bytes or None,
        ``alternatives`` a list of dicts with the keys of :class:`~genscope.kernel_side.record.record.Alternative`;
        a candidate that was cut has a ``logprob`` of ``-inf``.
    """
    import pandas as pd  # slow to import, and reading a record needs none of it

    rows = [
        {
            **{name: getattr(token, name) for name in FRAME_DTYPES if name != "alternatives"},
            "alternatives": [_alternative_to_dict(alternative) for alternative in token.alternatives],
        }
        for token in record[:]
    ]
    frame = pd.DataFrame(rows, columns=list(FRAME_DTYPES))
    frame["origin"] = pd.Categorical(frame["origin"], categories=["prompt", "generated"])
    return frame.astype(FRAME_DTYPES | {"origin": frame["origin"].dtype})


def _alternative_to_dict(alternative: Alternative) -> dict[str, Any]:
    return {name: getattr(alternative, name) for name in ("id", "text", "raw_logprob", "logprob")}


def record_to_json(record: Record, about: Mapping[str, Any] | None = None) -> str:
    """Write a record as JSON.

    Parameters
    ----------
    record : Record
    about : mapping, optional
        What to keep beside it (settings, model name); must be JSON data.

    Returns
    -------
    str
        Strict JSON (no NaN or infinity), one object.
    """
    document = {
        "schema": SCHEMA,
        "version": VERSION,
        "about": dict(about or {}),
        "tail": record.tail,
        "tokens": [_token_to_json(token) for token in record[:]],
    }
    return json.dumps(document, ensure_ascii=False, allow_nan=False)


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


def record_from_json(text: str) -> tuple[Record, dict[str, Any]]:
    """Read what :func:`record_to_json` wrote.

    Returns
    -------
    record : Record
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
    return Record([_token_from_json(row) for row in document["tokens"]], document["tail"]), document["about"]


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
