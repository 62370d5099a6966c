"""Says whether a history is over, and why. Looks at what the model wrote, never at the prompt or at tools' answers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from .chat import Chat
from .history import TextHistory
from .tags import Tags

__all__ = ["Ending"]


@dataclass(frozen=True, slots=True)
class Ending:
    """When a history is over.

    Parameters
    ----------
    way : Tags or Chat
        How tools are called.
    limit : int or None
        Tokens of a history.
    limited_by : str
        What says so.
    eos_ids : set of int
    stopped : callable
        Whether the run was stopped.
    """

    way: Tags | Chat
    limit: int | None
    limited_by: str
    eos_ids: set[int]
    stopped: Callable[[], bool]

    def of(self, history: TextHistory, *, model_turn: bool) -> tuple[str | None, bool]:
        """Return why a history is over, None where it is not, and whether it is cut short.

        Parameters
        ----------
        history : TextHistory
        model_turn : bool
            Whether the last segment is the model's. A first segment counts as the model's where nothing is behind it.
        """
        left = None if self.limit is None else self.limit - len(history.tokens)
        if left is not None and left < 0:
            return self.limited_by, True
        why = None
        if model_turn and not (history.system_spans[-1] and len(history.system_spans) > 1):
            begin = history.token_spans[-1][0]
            written = history.tokens[begin:][history.token_masks[begin:].bool()].tolist()
            why = self.way.end(history.last_text_segment, eos=not self.eos_ids.isdisjoint(written))
        if why in (None, "no call") and left == 0:
            return self.limited_by, True
        if why == "no call" and self.stopped():
            return "stopped", True
        return why, False
