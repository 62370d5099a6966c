"""An engine that generates made-up tokens, and a front end that only keeps what the kernel sends it.

The runs are real ones; only the model is missing, so that thousands of tokens come at once, or exactly when a test says.
"""

from __future__ import annotations

import json
import math
import threading
from typing import Any

from genscope.kernel_side.engines.base import Outcome
from genscope.kernel_side.engines.turnstile import Turnstile
from genscope.kernel_side.record.record import Alternative, Origin, Record, Token
from genscope.kernel_side.request import Request

TEXTS = ("the", " cat", "", " sat", "é", "<script>alert(1)</script>", '"', "&", "<s>", "👩‍👩‍👧")


def make_token(position: int, origin: Origin = "generated", alternatives: int = 3) -> Token:
    """Make a row whose every value says which row it is."""
    text = TEXTS[position % len(TEXTS)]
    measured = origin == "generated"
    return Token(
        position=position,
        id=1000 + position,
        text=text,
        shown=text,
        bytes=text.encode() if position % 7 else None,
        group=position,
        special=position % 11 == 0,
        origin=origin,
        raw_logprob=-position / 1000 if measured else None,
        logprob=-position / 2000 if measured else None,
        entropy=position / 777 if measured else None,
        rank=1 + position % 5 if measured else None,
        seconds=0.01 if measured else None,
        alternatives=tuple(
            Alternative(
                k, f"{TEXTS[(position + k) % len(TEXTS)]}{position % 50}", -k - 0.5, -math.inf if k == 2 else -k - 0.25
            )
            for k in range(alternatives if measured else 0)
        ),
    )


class FakeEngine:
    """Generates ``count`` tokens as fast as it can; with a gate, one for each ``gate.release()``."""

    chat = False
    context = None

    def __init__(
        self, count: int, *, prompt: int = 3, gate: threading.Semaphore | None = None, fail_at: int | None = None
    ) -> None:
        self.turnstile = Turnstile()
        self.count, self.prompt, self.gate, self.fail_at = count, prompt, gate, fail_at

    def prepare(self, request: Request) -> FakeJob:
        return FakeJob(self, request)


class FakeJob:
    busy = 0.0

    def __init__(self, engine: FakeEngine, request: Request) -> None:
        self.engine, self.request = engine, request
        self.prompt_ids = [1000 + position for position in range(engine.prompt)]
        self.record = Record()

    def execute(self, clock: Any, checkpoint: Any) -> Outcome:
        engine = self.engine
        for position in range(engine.prompt):
            self.record.append(make_token(position, "prompt"))
        for step in range(engine.count):
            while engine.gate is not None and not engine.gate.acquire(timeout=0.01):
                if checkpoint():
                    return Outcome(None, None)
            if step == engine.fail_at:
                raise RuntimeError("out of memory, say")
            self.record.append(make_token(engine.prompt + step))
            if checkpoint():
                return Outcome(None, None)
        return Outcome("length", None)


class FakeFrontEnd:
    """Follows the protocol of ``wire.py`` as a front end must, and notes what it would have pulled.

    Every message must be strict JSON: it goes through ``json`` first.
    """

    def __init__(self) -> None:
        self.messages: list[dict[str, Any]] = []
        self.begin: dict[str, Any] | None = None
        self.strings: list[str] = []
        self.columns: dict[str, list[Any]] = {}
        self.gaps: list[int] = []
        self.end: dict[str, Any] | None = None
        self.lock = threading.Lock()

    def receive(self, message: Any) -> None:
        message = json.loads(json.dumps(message, allow_nan=False))
        with self.lock:
            self.messages.append(message)
            kind = message["kind"]
            if kind == "begin" and (self.begin is None or self.begin["run"] != message["run"]):
                self.begin, self.strings, self.columns, self.end = message, [], {}, None
            elif kind == "data" and self.begin and message["run"] == self.begin["run"]:
                self._data(message)
            elif kind in ("beat", "end") and self.begin and message["run"] == self.begin["run"]:
                if message["n"] > self.n:
                    self.gaps.append(self.n)
                if kind == "end":
                    self.end = message

    def _data(self, message: dict[str, Any]) -> None:
        skip = self.n - message["seq"]
        if skip < 0:
            self.gaps.append(self.n)
            return
        if skip >= message["n"]:
            return
        held = len(self.strings) - message["strings_from"]
        assert held >= 0, "strings are missing although no rows are"
        self.strings += message["strings"][held:]
        columns = message["columns"]
        alternatives = sum(columns["alt_n"][:skip])
        for name, values in columns.items():
            assert len(values) == (
                sum(columns["alt_n"]) if name.startswith("alt_") and name != "alt_n" else message["n"]
            )
            self.columns.setdefault(name, []).extend(values[alternatives if name in ALTERNATIVES else skip :])

    @property
    def n(self) -> int:
        return len(self.columns.get("id", []))

    def of_kind(self, kind: str) -> list[dict[str, Any]]:
        with self.lock:
            return [message for message in self.messages if message["kind"] == kind]

    def rows(self) -> list[dict[str, Any]]:
        """Return the rows as :func:`wire_rows` gives them of a record."""
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


ALTERNATIVES = ("alt_id", "alt_text", "alt_raw_logprob", "alt_logprob")


def wire_rows(record: Any) -> list[dict[str, Any]]:
    """Return what a front end must know of a record, computed the plain way."""

    def number(value: float | None) -> float | None:
        return None if value is None or not math.isfinite(value) else float(f"{value:.5g}") + 0.0

    return [
        {
            "id": token.id,
            "text": token.shown,
            "bytes": None if token.bytes is None else token.bytes.hex(),
            "group": token.group,
            "special": int(token.special),
            "generated": int(token.origin == "generated"),
            "raw_logprob": number(token.raw_logprob),
            "logprob": number(token.logprob),
            "entropy": number(token.entropy),
            "rank": token.rank,
            "seconds": number(token.seconds),
            "alt_n": len(token.alternatives),
            "alternatives": [
                (entry.id, entry.text, number(entry.raw_logprob), number(entry.logprob)) for entry in token.alternatives
            ],
        }
        for token in record
    ]
