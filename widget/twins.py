"""A twin as its trait holds it, and who keeps that up to date while the two runs go.

What is compared, and how, is the kernel side's (``kernel_side.twin``); the shape is ``wire.WireTwin``.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from . import wire
from .frames import status_of
from .plain import number, sendable

if TYPE_CHECKING:
    from ..kernel_side.record.record import Token
    from ..kernel_side.run import Run
    from ..kernel_side.twin import Difference, Twin, TwinReport

__all__ = ["TOKENS", "TwinWatch", "wire_twin"]

_log = logging.getLogger(__name__)

TOKENS = 400
"""Tokens of each side that the trait holds at most: the first ones, or those around the first difference."""
_CANDIDATES = 6
"""Most probable candidates of each side that are told at the first difference."""
_DIGITS = 9
"""Of their log-probabilities: where two executions differ, two candidates are often that close."""
_PAUSE = 0.25
"""Seconds between two states of a twin that goes on, at least."""
_SHARE = 50
"""And so many times what making one takes: watching must not slow what is compared."""


class TwinWatch:
    """Tells how a twin stands, in a thread of its own, until both of its runs are over or it is told to stop.

    Parameters
    ----------
    twin : Twin
    tell : callable
        Called with each state, the last one when both runs are over.
    """

    def __init__(self, twin: Twin, tell: Callable[[wire.WireTwin], object]) -> None:
        self._twin, self._tell = twin, tell
        self._wake = threading.Event()
        self._closed = False
        for run in (twin.eager, twin.other):
            run.add_done_callback(lambda _: self._wake.set())
        threading.Thread(target=self._work, name="genscope-twin", daemon=True).start()

    def close(self) -> None:
        """Tell nothing any more."""
        self._closed = True
        self._wake.set()

    def _work(self) -> None:
        over = False
        while not over and not self._closed:
            self._wake.clear()
            over = self._twin.over  # asked before the state, which is the last one then
            began = time.perf_counter()
            try:
                state = wire_twin(self._twin)
            except Exception:  # noqa: BLE001 - of a model's output, of any kind; the runs themselves go on
                _log.exception("genscope: a twin could not be compared")
                return
            if not self._closed:
                self._tell(state)
            if not over:
                self._wake.wait(max(_PAUSE, _SHARE * (time.perf_counter() - began)))


def wire_twin(twin: Twin) -> wire.WireTwin:
    """Return how a twin stands, as the front end takes it.

    Notes
    -----
    Texts are those of one lane: of the first difference, or the first lane. More than :data:`TOKENS` of them are cut;
    the counts are of all lanes and all tokens.
    """
    over = twin.over
    report = twin.report()
    difference = report.difference
    lane = 0 if difference is None else difference.lane
    begin = twin.eager.lanes[lane].prompt_tokens
    start = 0 if difference is None else max(0, difference.position - begin - TOKENS // 2)
    if max(run.lanes[lane].generated for run in (twin.eager, twin.other)) <= TOKENS:
        start = 0
    return {
        "execution": twin.other.settings.execution,
        "eager": _side(twin.eager, lane, start, report.per_token[0]),
        "other": _side(twin.other, lane, start, report.per_token[1]),
        "lane": lane,
        "lanes": len(twin.eager.lanes),
        "start": start,
        "compared": report.compared,
        "agreeing": report.agreeing,
        "difference": None if difference is None else _difference(difference, difference.position - begin),
        "largest_gap": number(report.largest_gap),
        "gap_over": _gap_over(twin, report) if over else None,
        "pays_off_after": report.pays_off_after,
        "over": over,
    }


def _side(run: Run, lane: int, start: int, per_token: float | None) -> wire.WireTwinSide:
    record = run.lanes[lane].record
    first = run.lanes[lane].prompt_tokens + start
    tokens = record[first : first + TOKENS]
    return {
        "run": run.id,
        "status": status_of(run),
        "generated": run.lanes[lane].generated,
        "id": [token.id for token in tokens],
        "text": [sendable(token.shown) for token in tokens],
        "per_token": number(per_token),
    }


def _difference(difference: Difference, generated: int) -> wire.WireTwinDifference:
    sides = [token for token in (difference.eager, difference.other) if token is not None]
    wanted = {entry.id for token in sides for entry in token.alternatives[:_CANDIDATES]} | {one.id for one in sides}
    return {
        "lane": difference.lane,
        "position": difference.position,
        "generated": generated,
        "eager": _choice(difference.eager, wanted),
        "other": _choice(difference.other, wanted),
    }


def _choice(token: Token | None, wanted: set[int]) -> wire.WireTwinChoice | None:
    """Return what one side chose, with the probabilities that it recorded of what either chose between."""
    if token is None:
        return None
    found = [(entry.id, entry.text, entry.raw_logprob) for entry in token.alternatives if entry.id in wanted]
    if token.id not in {one for one, _, _ in found} and token.raw_logprob is not None:
        found.append((token.id, token.text, token.raw_logprob))
    return {
        "id": token.id,
        "text": sendable(token.text),
        "alt_id": [one for one, _, _ in found],
        "alt_text": [sendable(text) for _, text, _ in found],
        "alt_logprob": [number(logprob, _DIGITS) for _, _, logprob in found],
    }


def _gap_over(twin: Twin, report: TwinReport) -> str:
    """Say which choices the largest gap of a logit was looked for in, or why in none; of a twin that is over."""
    if report.largest_gap is None:
        if twin.eager.settings.searches:
            return "a beam search's rows of logits are not those of its sequences"
        return "the two runs did not both keep logits"
    if report.difference is None:
        return f"over all {report.agreeing} choices" if report.agreeing > 1 else "over the one choice"
    if len(twin.eager.lanes) > 1:
        return "up to the first difference of each sequence"
    # The choice that differs still comes from the same tokens on both sides.
    count = report.agreeing + 1
    return (
        f"over the {count} choices up to the first difference" if count > 1 else "over the first choice, which differs"
    )
