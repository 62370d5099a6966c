"""A run on its way to the front end: what of it is sent, and which message is next. No threads, no clock.

There is one cursor a track and a table: rows behind it are sent. They take turns, a slice each, so that each of many
lanes moves. A pull sets cursors back, so its answer comes in order, with the live rows at its end, where the front end
can use them at last.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from . import wire
from .frames import Frames, Streamed
from .tables import TABLES, TableName, slice_end, table_of

__all__ = ["Stream"]

SLICE = 1000
"""Tokens a message, at most."""

_Key = int | TableName
"""A track, or a table."""


class Stream:
    """The cursors of one run.

    Parameters
    ----------
    run : Streamed

    Attributes
    ----------
    run : Streamed
    state : str or None
        The run's state as last sent.
    ended : bool
        Whether all is sent, the end included.
    """

    def __init__(self, run: Streamed) -> None:
        self.run = run
        self.state: wire.RunState | None = None
        self.ended = False
        self._frames = Frames(run)
        self._all: dict[_Key, Sequence[Any]] = {
            **dict(enumerate(self._frames.records)),
            **{name: table_of(run.recording, name) for name in TABLES},
        }
        self._keys = tuple(self._all)
        self._sent = dict.fromkeys(self._keys, 0)
        # All have their turn in a round, in order.
        self._turn = 0
        self._cut = False  # in this round a slice was smaller than what waited

    @property
    def waiting(self) -> bool:
        """Whether more rows wait than what comes while a run goes on: others than those sent last, or too many."""
        return self._cut or any(map(self._behind, self._keys[self._turn :]))

    def begin(self) -> wire.Begin:
        """Return the message that starts the run, and send everything behind it."""
        message = self._frames.begin()
        self._sent = dict.fromkeys(self._keys, 0)
        self._turn, self._cut = 0, False
        self.ended = False
        self.state = message["status"]["state"]
        return message

    def rewind(self, key: _Key, start: int) -> None:
        """Send rows of a track or of a table again, from one on; of one that does not exist, none."""
        if key in self._sent:
            self._sent[key] = min(self._sent[key], max(0, start))
            self.ended = False

    def next(self, *, beat: bool) -> wire.BackMessage | None:
        """Return the next slice, or the end, or a sign of life where the state has changed or one is due.

        Parameters
        ----------
        beat : bool
            Whether a sign of life is due.
        """
        if self.ended:
            return None
        over = self.run.over  # asked before the rows: none comes after
        state = self.run.state
        message = self._slice()
        if message is None and over:
            message = self._frames.end()
            self.ended = True
        elif message is None and (beat or state != self.state):
            message = self._frames.beat()
        self.state = state
        return message

    def _slice(self) -> wire.BackMessage | None:
        for turn in (*range(self._turn, len(self._keys)), *range(self._turn)):
            if self._behind(self._keys[turn]):
                break
        else:
            return None
        if turn < self._turn:
            self._cut = False
        self._turn = turn + 1
        key = self._keys[turn]
        rows, sent = self._all[key], self._sent[key]
        there = len(rows)
        if isinstance(key, int):
            stop = min(there, sent + SLICE)
            message: wire.BackMessage = self._frames.data(key, sent, stop)
        else:
            stop = slice_end(rows, sent)
            message = self._frames.rows(key, sent, stop)
        self._sent[key] = stop
        self._cut = self._cut or stop < there
        return message

    def _behind(self, key: _Key) -> bool:
        return len(self._all[key]) > self._sent[key]
