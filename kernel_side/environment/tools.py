"""Calls tools and makes text of whatever they do: return, raise, take too long.

What a call looks like in a model's text, and what an answer looks like, is in ``tags`` and ``chat``.
"""

from __future__ import annotations

import contextvars
import json
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

__all__ = ["Call", "answer_of", "cut", "tools_by_name"]

Tool = Callable[..., Any]

_POLL = 0.02
"""Seconds between looks at whether a run was stopped while a tool works."""


class Call(NamedTuple):
    """What a model asks for.

    Attributes
    ----------
    tool : str or None
        The name; None where no call can be read.
    arguments : tuple
    keywords : dict
    text : str
        The call as it was written.
    """

    tool: str | None
    arguments: tuple[Any, ...]
    keywords: dict[str, Any]
    text: str


def tools_by_name(tools: Sequence[Tool] | Mapping[str, Tool] | None) -> dict[str, Tool]:
    """Return the tools by the names that a model calls them by.

    Parameters
    ----------
    tools : mapping of str to callable, or sequence of callable, or None
        Those of a sequence are called by the name of the function, and other objects by that of their class.

    Raises
    ------
    ValueError
        For two of one name, and for a name that cannot be written in a call.
    TypeError
        For a tool that cannot be called.
    """
    if tools is None:
        return {}
    named: list[tuple[str, Any]] = (
        list(tools.items()) if isinstance(tools, Mapping) else [(_name(one), one) for one in tools]
    )
    found: dict[str, Tool] = {}
    for name, tool in named:
        if not callable(tool):
            msg = f"the tool {name!r} is a {type(tool).__name__}, which cannot be called; give a function"
            raise TypeError(msg)
        if not name or any(character in name for character in "<>\n"):
            msg = f"{name!r} is no name for a tool; give the tools as a dict with names of your own"
            raise ValueError(msg)
        if name in found:
            msg = f"two tools are named {name!r}; give the tools as a dict with names of your own"
            raise ValueError(msg)
        found[name] = tool
    return found


def _name(tool: Tool) -> str:
    return str(getattr(tool, "__name__", None) or type(tool).__name__)


def answer_of(
    call: Call,
    tools: Mapping[str, Tool],
    timeout: float | None = None,
    stopped: Callable[[], bool] | None = None,
) -> str | None:
    """Call a tool and return its answer as text; whatever goes wrong is said in the answer.

    Parameters
    ----------
    call : Call
    tools : mapping of str to callable
    timeout : float, optional
        Seconds. A tool that takes longer is left behind in its thread, since Python cannot end it.
    stopped : callable, optional
        Asked while the tool works; True leaves it behind.

    Returns
    -------
    str or None
        None when it was stopped.
    """
    if call.tool is None:
        return f"Unknown tool call: {call.text}"
    tool = tools.get(call.tool)
    if tool is None:
        return f"Unknown tool {call.tool}."
    if timeout is None and stopped is None:
        return _answer(tool, call)
    return _answer_in_time(tool, call, timeout, stopped or (lambda: False))


def _answer(tool: Tool, call: Call) -> str:
    try:
        return _text(tool(*call.arguments, **call.keywords))
    except Exception as error:  # noqa: BLE001 - a tool is anybody's code, and the model shall learn of it
        return f"Tool error: {_said(error)}"


def _answer_in_time(tool: Tool, call: Call, timeout: float | None, stopped: Callable[[], bool]) -> str | None:
    answers: list[str] = []
    failures: list[BaseException] = []
    done = threading.Event()

    def work() -> None:
        try:
            answers.append(_answer(tool, call))
        except BaseException as failure:  # noqa: BLE001 - SystemExit and the like belong to the caller's thread
            failures.append(failure)
        finally:
            done.set()

    context = contextvars.copy_context()
    threading.Thread(target=context.run, args=(work,), name=f"tool {call.tool}", daemon=True).start()
    end = None if timeout is None else time.monotonic() + timeout
    while not done.is_set():
        if stopped():
            return None
        left = _POLL if end is None else end - time.monotonic()
        if left <= 0:
            return f"Tool error: no answer within {timeout:g} s"
        done.wait(min(left, _POLL))
    if failures:
        raise failures[0]
    return answers[0]


def _said(error: Exception) -> str:
    return str(error) or type(error).__name__


def _text(value: Any) -> str:
    """Return a text as it is, lists and dicts as JSON, anything else as ``str`` gives it."""
    if isinstance(value, str):
        text = value
    elif isinstance(value, (dict, list, tuple)):
        try:
            text = json.dumps(value, ensure_ascii=False)
        except (TypeError, ValueError):  # holds what JSON has no word for, or itself
            text = str(value)
    else:
        text = str(value)
    # Half a character cannot be encoded, and tokenizers refuse it.
    return text.encode("utf-8", "replace").decode()


def cut(text: str, limit: int) -> str:
    """Return a text of at most ``limit`` characters; one that was cut ends in three dots."""
    if len(text) <= limit:
        return text
    return text[: limit - 3] + "..." if limit > 3 else "..."[:limit]
