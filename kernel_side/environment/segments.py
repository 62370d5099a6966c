"""What is told of a run while it goes on: its segments, in the order in which they came."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from .history import Reuse, TextHistory

__all__ = ["Segment", "SegmentLog"]


@dataclass(frozen=True, slots=True)
class Segment:
    """What has just come to a history.

    Attributes
    ----------
    kind : {"prompt", "model", "system", "end", "reward"}
        A segment, of whom; ``"end"`` once when a history is complete, with :attr:`TextHistory.why` as its text;
        ``"reward"`` last.
    index : int
        Which query of the run.
    turn : int
        0 for the prompt, 1 for the model's first segment and the answer to it, and so on.
    text : str
    tokens : tuple of int
        Empty for what is no segment.
    history : TextHistory
        As a whole; it grows.
    reuse : Reuse or None
        Of a model's segment.
    called : tuple of str
        Of an answer the names of the tools.
    """

    kind: Literal["prompt", "model", "system", "end", "reward"]
    index: int
    turn: int
    text: str
    tokens: tuple[int, ...]
    history: TextHistory
    reuse: Reuse | None = None
    called: tuple[str, ...] = ()


class SegmentLog:
    """Tells what is new in the histories of a run.

    Parameters
    ----------
    histories : sequence of TextHistory
    """

    def __init__(self, histories: Sequence[TextHistory]) -> None:
        self._histories = histories
        self._told = [0] * len(histories)
        self._ended = [False] * len(histories)
        self._rewarded = [False] * len(histories)

    def new(self) -> Iterator[Segment]:
        """Yield what came since the last call."""
        for index, history in enumerate(self._histories):
            for place in range(self._told[index], len(history.text_spans)):
                self._told[index] = place + 1
                yield _segment(index, history, place)
            if history.completed and not self._ended[index]:
                self._ended[index] = True
                yield Segment("end", index, history.turns, history.why or "", (), history)
            if history.rewarded and not self._rewarded[index]:
                self._rewarded[index] = True
                yield Segment("reward", index, history.turns, "", (), history)


def _segment(index: int, history: TextHistory, place: int) -> Segment:
    system = history.system_spans[place]
    turn = history.system_spans[: place + 1].count(False)
    return Segment(
        kind="model" if not system else "system" if place else "prompt",
        index=index,
        turn=turn,
        text=history.text[slice(*history.text_spans[place])],
        tokens=tuple(history.tokens[slice(*history.token_spans[place])].tolist()),
        history=history,
        # Segments that something else appended have none.
        reuse=None if system or turn > len(history.reuses) else history.reuses[turn - 1],
        called=history.called[turn - 1] if system and place and turn <= len(history.called) else (),
    )
