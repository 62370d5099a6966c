"""All that is recorded of one run: a lane a sequence, and the rounds or steps of strategies that have such.

Plain data; needs neither torch nor a model.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from .beams import BeamChoice, BeamStep
from .record import Record
from .rounds import Round
from .segments import Segment
from .table import Table

__all__ = ["Lane", "Recording"]


@dataclass(frozen=True, slots=True)
class Lane:
    """One sequence of a run.

    Attributes
    ----------
    prompt : int
        Which prompt of the batch it continues.
    sequence : int
        Which of the prompt's sequences it is; of a beam search 0 is the best.
    record : Record
        Its tokens. Of an encoder-decoder model the decoder's own.
    source : Record or None
        What the encoder read, shared by the lanes of one prompt; None without an encoder.
    prompt_tokens : int
        How many rows of the record are the prompt.
    label : str
        Of a comparison: what tells it from the other lanes; else ``""``.
    """

    prompt: int
    sequence: int
    record: Record
    source: Record | None
    prompt_tokens: int
    label: str = ""

    @property
    def generated(self) -> int:
        """How many tokens came behind the prompt so far; in an environment's run those of tools too."""
        return max(0, len(self.record) - self.prompt_tokens)

    @property
    def text(self) -> str:
        """The generated text so far, special tokens left out; a stop string that ended the lane is part of it."""
        tail = self.record.tail  # read first: it is set after the last token
        parts = [token.text for token in self.record[:] if token.origin == "generated" and not token.special]
        return "".join(parts) + tail


@dataclass(frozen=True, slots=True)
class Recording:
    """What a run has recorded so far. Everything in it only grows.

    Attributes
    ----------
    lanes : tuple of Lane
        Prompt after prompt, each with its sequences.
    rounds : Table of Round
        Of an assisted run; else empty.
    beams : Table of BeamStep
        Of a beam search, step after step and in each step prompt after prompt; else empty. Until the search has ended
        no token is final, so the lanes hold their prompts alone.
    choices : Table of BeamChoice
        Of a beam search that has ended, one a lane.
    segments : Table of Segment
        Of an environment's run, in the order in which they came; else empty.
    segmented : bool
        Whether it is an environment's run, which is known before the first segment.
    """

    lanes: tuple[Lane, ...]
    rounds: Table[Round] = field(default_factory=Table)
    beams: Table[BeamStep] = field(default_factory=Table)
    choices: Table[BeamChoice] = field(default_factory=Table)
    segments: Table[Segment] = field(default_factory=Table)
    segmented: bool = False

    @property
    def sources(self) -> tuple[Record, ...]:
        """What the encoder read, one a prompt; empty without an encoder."""
        return tuple({id(lane.source): lane.source for lane in self.lanes if lane.source is not None}.values())
