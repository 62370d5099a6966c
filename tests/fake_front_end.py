"""A front end that only keeps what the kernel sends it."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from typing import Any

ALTERNATIVES = ("alt_id", "alt_text", "alt_raw_logprob", "alt_logprob")
TABLES = ("rounds", "beams", "choices", "segments")


class Track:
    """What is known of one record."""

    def __init__(self) -> None:
        self.strings: list[str] = []
        self.columns: dict[str, list[Any]] = {}

    @property
    def n(self) -> int:
        return len(self.columns.get("id", []))

    def take(self, message: dict[str, Any]) -> bool:
        """Take rows; False where rows before them are missing."""
        skip = self.n - message["seq"]
        if skip < 0:
            return False
        if skip >= message["n"]:
            return True
        held = len(self.strings) - message["strings_from"]
        assert held >= 0, "strings are missing although no rows are"
        self.strings += message["strings"][held:]
        columns = message["columns"]
        alternatives = sum(columns["alt_n"][:skip])
        for name, values in columns.items():
            of_alternatives = name in ALTERNATIVES
            assert len(values) == (sum(columns["alt_n"]) if of_alternatives else message["n"])
            self.columns.setdefault(name, []).extend(values[alternatives if of_alternatives else skip :])
        return True

    def rows(self) -> list[dict[str, Any]]:
        """Return the rows as ``fake_rows.wire_rows`` gives them of a record."""
        at, rows = 0, []
        for index in range(self.n):
            row = {name: values[index] for name, values in self.columns.items() if name not in ALTERNATIVES}
            row["text"] = self.strings[row["text"]]
            stop = at + row["alt_n"]
            row["alternatives"] = [
                (self.columns["alt_id"][k], self.strings[self.columns["alt_text"][k]], self.columns["alt_raw_logprob"][k],
                 self.columns["alt_logprob"][k])
                for k in range(at, stop)
            ]  # fmt: skip
            at = stop
            rows.append(row)
        return rows


class FakeFrontEnd:
    """Follows the protocol of ``wire.py`` as a front end must, and notes what it would have pulled.

    Every message must be strict JSON: it goes through ``json`` first. ``pull``, where given, is called with what a
    front end would ask for.
    """

    def __init__(self, pull: Callable[[dict[str, Any]], None] | None = None) -> None:
        self.pull = pull
        self.messages: list[dict[str, Any]] = []
        self.begin: dict[str, Any] | None = None
        self.tracks: list[Track] = []
        self.tables: dict[str, list[dict[str, Any]]] = {}
        self.gaps: list[dict[str, Any]] = []
        self.end: dict[str, Any] | None = None
        self.lock = threading.Lock()

    def receive(self, message: Any) -> None:
        message = json.loads(json.dumps(message, allow_nan=False))
        with self.lock:
            self.messages.append(message)
            kind = message["kind"]
            if kind == "begin":
                self._begin(message)
            elif kind not in ("data", "rows", "beat", "end"):
                return
            elif self.begin is None or message["run"] != self.begin["run"]:
                self._miss({"start": 0})
            elif kind == "data":
                track = self.tracks[message["track"]]
                if not track.take(message):
                    self._miss({"track": message["track"], "start": track.n})
            elif kind == "rows":
                self._rows(message)
            else:
                self._count(message["counts"])
                if kind == "end":
                    self.end = message

    def _begin(self, message: dict[str, Any]) -> None:
        if self.begin is None or self.begin["run"] != message["run"]:
            self.begin, self.end = message, None
            self.tracks = [Track() for _ in range(message["tracks"])]
            self.tables = {name: [] for name in TABLES}

    def _rows(self, message: dict[str, Any]) -> None:
        held = self.tables[message["table"]]
        skip = len(held) - message["seq"]
        if skip < 0:
            self._miss({"table": message["table"], "start": len(held)})
        else:
            held += message["rows"][skip:]

    def _count(self, counts: dict[str, Any]) -> None:
        for index, (track, count) in enumerate(zip(self.tracks, counts["tracks"], strict=True)):
            if count > track.n:
                self._miss({"track": index, "start": track.n})
        for name in TABLES:
            if counts[name] > len(self.tables[name]):
                self._miss({"table": name, "start": len(self.tables[name])})

    def _miss(self, gap: dict[str, Any]) -> None:
        self.gaps.append(gap)
        if self.pull is not None:
            self.pull(gap)

    @property
    def n(self) -> int:
        """Rows of the first track."""
        return self.tracks[0].n if self.tracks else 0

    def rows(self, track: int = 0) -> list[dict[str, Any]]:
        """Return the rows of a track, see :meth:`Track.rows`."""
        return self.tracks[track].rows() if self.tracks else []

    def of_kind(self, kind: str) -> list[dict[str, Any]]:
        with self.lock:
            return [message for message in self.messages if message["kind"] == kind]
