"""Answers the calls in a model's last segment: the segment that comes behind it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch

from .chat import Chat
from .history import TextHistory
from .new_tokens import text_after
from .tags import Tags
from .tools import answer_of, cut

__all__ = ["answer_segment"]


def answer_segment(
    history: TextHistory,
    way: Tags | Chat,
    tools: Mapping[str, Callable[..., Any]],
    most: int,
    room: int | None = None,
    timeout: float | None = None,
    stopped: Callable[[], bool] | None = None,
) -> tuple[str, torch.Tensor] | None:
    """Call the tools that the last segment of a history asks for.

    Parameters
    ----------
    history : TextHistory
    way : Tags or Chat
        How calls and answers are written.
    tools : mapping of str to callable
    most : int
        Characters of each answer.
    room : int, optional
        Tokens of the segment; what is beyond is cut off.
    timeout, stopped
        As for :func:`~.tools.answer_of`.

    Returns
    -------
    (str, torch.Tensor) or None
        Text and ids of the segment; None where there is none: the run was stopped, or there is no room.
    """
    calls = way.calls(history.last_text_segment)
    answers = []
    for call in calls:
        answer = answer_of(call, tools, timeout, stopped)
        if answer is None:
            return None
        answers.append(cut(answer, most))
    text, ids = way.answer(int(history.tokens[-1]), calls, answers)
    if room is not None and len(ids) > room:
        ids = ids[: max(0, room)]
        text = text_after(way.tokenizer, history.tokens.tolist(), ids)
    return (text, torch.tensor(ids, dtype=torch.int64)) if ids else None
