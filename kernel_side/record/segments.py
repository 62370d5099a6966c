"""What the stretches of a lane are in an environment's run: prompt, model, tool, and how it ended.

Plain data; needs neither torch nor a model. How an environment runs is in ``environment``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

__all__ = ["Segment", "SegmentKind"]

SegmentKind = Literal["prompt", "model", "tool", "end", "reward"]


@dataclass(frozen=True, slots=True)
class Segment:
    """A stretch of a lane, or what became of the lane.

    Attributes
    ----------
    lane : int
    kind : {"prompt", "model", "tool", "end", "reward"}
        ``"end"`` once when a lane is complete, ``"reward"`` last; they have no tokens.
    turn : int
        0 for the prompt, 1 for the model's first segment and the answer to it, and so on.
    start, stop : int
        Positions of its tokens in the lane: from ``start`` to before ``stop``.
    reused, computed : int or None
        Of a model's segment: tokens before it whose keys and values were reused, and those that were computed.
    text : str or None
        Of a model's segment why nothing was reused, of ``"tool"`` the names of the tools, of ``"end"`` why it ended.
    reward : float or None
        Of ``"reward"``; None where there is none.
    """

    lane: int
    kind: SegmentKind
    turn: int
    start: int
    stop: int
    reused: int | None = None
    computed: int | None = None
    text: str | None = None
    reward: float | None = None
