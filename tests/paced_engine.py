"""An engine that makes tokens at a given pace and notes when. The kernels of ``browser.py`` import it."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from typing import Any

from genscope.kernel_side.engines.base import Checkpoint, Outcome, PausableClock, Progress
from genscope.kernel_side.engines.turnstile import Turnstile
from genscope.kernel_side.record.record import Alternative, Record, Token
from genscope.kernel_side.record.recording import Lane, Recording
from genscope.kernel_side.request import Request

WORDS = (
    " the",
    " of",
    " quick",
    "ly",
    ".",
    " and",
    "\n",
    " measure",
    "ment",
    " light",
    ",",
    " a",
    " wave",
    " sea",
    " 7",
)


class PacedEngine:
    """Makes tokens with ten alternatives each, in as many lanes as are asked for.

    Parameters
    ----------
    stretches : sequence of (int, float)
        Tokens a lane to make, and how many a second; an infinite rate makes them at once.

    Attributes
    ----------
    made : list of float
        ``time.time()`` at which each token was in the record of each lane.
    """

    chat = False
    context = None

    def __init__(self, *stretches: tuple[int, float]) -> None:
        self.turnstile = Turnstile()
        self.stretches: Sequence[tuple[int, float]] = stretches
        self.made: list[float] = []

    def prepare(self, request: Request) -> _Job:
        """Accept any request."""
        return _Job(self, request)


class _Job:
    busy = 0.0
    looks = None
    reuse = None
    execution = None

    def __init__(self, engine: PacedEngine, request: Request) -> None:
        self._engine, self.request = engine, request
        self.recording = Recording(
            tuple(
                Lane(prompt, sequence, Record(), None, 0)
                for prompt in range(len(request.prompts))
                for sequence in range(request.settings.sequences)
            )
        )

    @property
    def progress(self) -> Progress:
        """How far it is."""
        made = len(self.recording.lanes[0].record)
        return Progress(made, 0.001, made * 0.05) if made else Progress()

    def execute(self, clock: PausableClock, checkpoint: Checkpoint) -> Outcome:
        """Make the tokens."""
        for count, rate in self._engine.stretches:
            began = time.perf_counter()
            for number in range(count):
                ahead = began + number / rate - time.perf_counter()
                if ahead > 0:
                    time.sleep(ahead)
                for lane in self.recording.lanes:
                    lane.record.append(_token(len(lane.record)))
                self._engine.made.append(time.time())
                if checkpoint():
                    return Outcome((None,) * len(self.recording.lanes), None)
        return Outcome(("length",) * len(self.recording.lanes), None)


def _token(position: int) -> Token:
    # Spread over all buckets of every measure, the same in every run.
    spread = (position * 7919) % 1000 / 1000
    logprob = -8 * spread
    alternatives: list[Any] = [
        Alternative(
            entry, WORDS[(position + entry) % len(WORDS)], logprob - entry, logprob - entry if entry < 5 else -math.inf
        )
        for entry in range(10)
    ]
    text = WORDS[position % len(WORDS)]
    return Token(
        position=position,
        id=position % len(WORDS),
        text=text,
        shown=text,
        bytes=text.encode(),
        group=position,
        special=False,
        origin="generated",
        raw_logprob=logprob,
        logprob=logprob / 2,
        entropy=6 * spread,
        rank=1 + int(spread * 300),
        seconds=0.001 + spread / 10,
        alternatives=tuple(alternatives),
    )
