"""Records the generations of an environment, turn after turn, behind what the lanes of its run hold already.

How a generation is measured is in ``recorder``. What is appended between generations, and the table of segments, are
whoever's who plays the turns.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Sequence

from transformers import PreTrainedTokenizerBase

from ..streaming.assisted_outputs import AssistedStepOutput
from ..streaming.outputs import Output, PromptOutput, StepOutput
from .measures import Measures
from .record import Origin
from .recorder import Recorder
from .rounds import Round
from .row_writer import RowWriter
from .search import Search
from .table import Table

__all__ = ["TurnsRecorder"]


class TurnsRecorder(Recorder):
    """Records one generation after another, each of some of the lanes.

    A token is written when it is certain that its history keeps it: at once where a step makes one token, of a round
    that ended the generation and of a beam search once the turn is settled. The first token of a turn has the time
    since the turn began, so that the time of tools is nobody's.

    Parameters
    ----------
    tokenizer, alternatives, scores_are_logits
        As of :class:`~.recorder.Recorder`.
    lanes : int

    Attributes
    ----------
    writers : tuple of RowWriter
        One a lane.
    kept_rounds : Table of Round
        With positions in their lane's record, and counts of what was kept.
    """

    def __init__(
        self,
        tokenizer: PreTrainedTokenizerBase,
        *,
        lanes: int,
        alternatives: int = 10,
        scores_are_logits: bool = True,
    ) -> None:
        super().__init__(tokenizer, rows=0, alternatives=alternatives, scores_are_logits=scores_are_logits)
        self.writers = tuple(RowWriter(tokenizer) for _ in range(lanes))
        self.kept_rounds: Table[Round] = Table()
        self._all = [_HeldWriter(writer) for writer in self.writers]

    @property
    def generated(self) -> int:
        """Generated tokens of the lane that has the most."""
        return max(writer.written for writer in self._all)

    def begin(self, lanes: Sequence[int]) -> None:
        """Begin a turn of these lanes, in the order of the rows of its batch."""
        self._writers = [self._all[lane] for lane in lanes]
        self._search = Search(self._writers)
        self.over = False

    def put(self, output: Output) -> None:
        """Record a step; the prompt of a turn is there already."""
        if isinstance(output, PromptOutput):
            self._rows = len(output.tokens)
            if self.first is not None:
                self.last = self.clock.since_start(time.perf_counter())
            return
        super().put(output)
        if isinstance(output, StepOutput) or (isinstance(output, AssistedStepOutput) and not self.over):
            for writer in self._all:
                writer.write()
            self._keep_round()

    def settle(self, lane: int, tokens: Sequence[int]) -> None:
        """Write what is held back of a lane's turn, as far as the history kept it.

        Parameters
        ----------
        lane : int
        tokens : sequence of int
            The turn's segment. What was not measured of it is written without measures.
        """
        writer = self._all[lane]
        left = max(0, len(tokens) - writer.in_turn)
        held = writer.write(left)
        self._keep_round(held)
        for token in tokens[len(tokens) - left + held :]:
            writer.append(token, "generated")
        writer.write()
        writer.in_turn = 0

    def end(self, error: BaseException | None = None) -> None:
        """A turn's end is not that of the texts, see :meth:`close`."""

    def close(self) -> None:
        """Complete the texts."""
        for writer in self.writers:
            writer.end()

    def _keep_round(self, most: int | None = None) -> None:
        """Add the last round to the table, with counts of at most so many tokens."""
        if not len(self.rounds):
            return
        last = self.rounds[-1]
        self.rounds = Table()
        accepted = last.accepted if most is None else min(last.accepted, most)
        bonus = last.bonus if most is None else min(last.bonus, most - accepted)
        kept = dataclasses.replace(last, step=len(self.kept_rounds), accepted=accepted, bonus=bonus)
        self.kept_rounds.append(kept)


class _HeldWriter(RowWriter):
    """Writes for another writer, when it is told to.

    Attributes
    ----------
    written, in_turn : int
        Tokens so far, and those since the turn began.
    """

    def __init__(self, writer: RowWriter) -> None:
        self.record = writer.record
        self.written = self.in_turn = 0
        self._writer = writer
        self._held: list[tuple[int, Origin, Measures | None, float | None]] = []

    def append(
        self,
        token: int,
        origin: Origin,
        measures: Measures | None = None,
        seconds: float | None = None,
        *,
        cached: bool | None = None,  # noqa: ARG002 - the base's; nothing generated is cached
    ) -> None:
        """Hold a token."""
        self._held.append((token, origin, measures, seconds))

    def write(self, most: int | None = None) -> int:
        """Write what is held, at most so many tokens, and drop the rest; return how many were written."""
        held, self._held = self._held[:most], []
        for one in held:
            self._writer.append(*one)
        self.written += len(held)
        self.in_turn += len(held)
        return len(held)

    def text_of(self, token: int) -> str:
        """See the base; nothing is held while it is asked."""
        return self._writer.text_of(token)

    def texts_of(self, tokens: Sequence[int]) -> list[str]:
        """See the base; nothing is held while it is asked."""
        return self._writer.texts_of(tokens)
