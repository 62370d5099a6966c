"""Answers the calls in a model's last segment, with the segment that comes behind it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch

from .chat import Chat
from .history import TextHistory
from .new_tokens import text_after
from .tags import Tags
from .tools import answer_of, cut

__all__ = ["answer_last"]


def answer_last(
    history: TextHistory,
    way: Tags | Chat,
    tools: Mapping[str, Callable[..., Any]],
    most: int,
    room: int | None = None,
    timeout: float | None = None,
    stopped: Callable[[], bool] | None = None,
) -> None:
    """Call the tools that the last segment of a history asks for, and append their answer.

    Nothing is appended where the run was stopped, or there is no room.

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
    """
    calls = way.calls(history.last_text_segment)
    answers = []
    for call in calls:
        answer = answer_of(call, tools, timeout, stopped)
        if answer is None:
            return
        answers.append(cut(answer, most))
    text, ids = way.answer(int(history.tokens[-1]), calls, answers)
    if room is not None and len(ids) > room:
        ids = ids[: max(0, room)]
        text = text_after(way.tokenizer, history.tokens.tolist(), ids)
    if ids:
        history.append_segment(text, torch.tensor(ids, dtype=torch.int64))
        history.called.append(tuple(call.tool for call in calls if call.tool is not None))
