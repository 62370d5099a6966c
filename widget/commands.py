"""Reads the front end's messages: their shape is checked here, their meaning is the scope's."""

from __future__ import annotations

import logging
from typing import Annotated, Any

from pydantic import ConfigDict, Field, TypeAdapter, ValidationError

from ..kernel_side.request import Problem
from . import wire
from .values import brief

__all__ = ["read"]

_log = logging.getLogger(__name__)

_ADAPTER: TypeAdapter[wire.FrontMessage] = TypeAdapter(
    Annotated[wire.FrontMessage, Field(discriminator="kind")], config=ConfigDict(strict=True)
)
_ANSWERED: tuple[str, ...] = ("generate", "twin", "compare", "branch", "reply", "settings")
"""Kinds that a ``problems`` message answers."""


def read(content: object) -> wire.FrontMessage | list[Problem] | None:
    """Read a message from the front end.

    Parameters
    ----------
    content : object
        What came, of any type.

    Returns
    -------
    FrontMessage, list of Problem or None
        The message; or what is wrong with it, where the front end waits for an answer; or None where the message is
        not one of ours, or not right, which is logged.
    """
    kind = content.get("kind") if isinstance(content, dict) else None
    if isinstance(kind, str) and kind.startswith("anywidget"):
        return None  # anywidget's own commands travel on the same comm
    try:
        return _ADAPTER.validate_python(content)
    except ValidationError as error:
        if kind in _ANSWERED:
            return [_problem(details) for details in error.errors()]
        _log.warning("genscope: ignored a message from the front end: %s", brief(content))
        return None


def _problem(details: Any) -> Problem:
    # The discriminated union puts the kind first.
    path = [str(part) for part in details["loc"]][1:]
    field = path[0] if path else "prompt"
    return Problem(field, details["input"], f"the front end sent a wrong message: {details['msg']}", "Reload the page.")
