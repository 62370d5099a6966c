"""What the scope's traits may hold: each checked value, from Python or from the front end, passes through here."""

from __future__ import annotations

import reprlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

import traitlets
from pydantic import ValidationError

from ..kernel_side.request import ChatMessage, Problem, Request, SettingsError, is_batch, make_settings
from . import wire

__all__ = ["CHECKS", "MEASURES", "Checked", "InvalidValueError", "brief", "flat", "wire_problems"]

MEASURES = ("probability", "surprisal", "entropy", "rank", "latency", "cache")

_repr = reprlib.Repr()
_repr.maxstring = _repr.maxother = 80


def brief(value: object) -> str:
    """Return the ``repr`` of a value of any size, shortened."""
    return _repr.repr(value)


class InvalidValueError(SettingsError, traitlets.TraitError):
    """A settings error that traitlets takes as its own, and so leaves the old value."""


def check_settings(value: object) -> dict[str, Any]:
    """Return complete, flat settings."""
    if not isinstance(value, Mapping):
        message = f"settings cannot be a {type(value).__name__}"
        raise InvalidValueError([Problem("settings", value, message, "Give a dict of settings.")])
    try:
        return make_settings(value).model_dump(mode="json")
    except SettingsError as error:
        raise InvalidValueError(error.problems) from None


def check_prompt(value: object) -> Any:
    """Return a text, plain chat messages, or a batch of them; an empty one may stand here, it only cannot run."""
    if is_batch(value):
        return [_check_one(prompt) for prompt in cast("Sequence[object]", value)]
    return _check_one(value)


def _check_one(value: object) -> str | list[dict[str, str]]:
    if isinstance(value, str):
        return value
    reason = f"a prompt cannot be a {type(value).__name__}"
    if isinstance(value, Sequence) and not isinstance(value, bytes):
        try:
            return [ChatMessage.model_validate(message).model_dump() for message in value]
        except ValidationError as error:
            reason = f"a chat message is not right: {error.errors()[0]['msg']}"
    way_out = (
        "Give a text, or a list of chat messages like {'role': 'user', 'content': '...'}, or a list of such prompts."
    )
    raise InvalidValueError([Problem("prompt", value, reason, way_out)])


def check_measure(value: object) -> str:
    """Return the name of a measure."""
    if isinstance(value, str) and value in MEASURES:
        return value
    way_out = f"Choose one of {', '.join(map(repr, MEASURES))}."
    raise InvalidValueError([Problem("measure", value, f"{value!r} is not a measure", way_out)])


def check_whitespace(value: object) -> bool:
    """Return whether white space is marked."""
    if isinstance(value, bool):
        return value
    raise InvalidValueError(
        [Problem("whitespace", value, f"{value!r} is neither true nor false", "Use true or false.")]
    )


CHECKS: dict[str, Callable[[object], Any]] = {
    "settings": check_settings,
    "prompt": check_prompt,
    "measure": check_measure,
    "whitespace": check_whitespace,
}
"""By trait: those that both sides set."""


class Checked(traitlets.TraitType[Any, Any]):
    """A trait whose values pass through a check, while notifications are held too.

    Parameters
    ----------
    name : str
        Key in :data:`CHECKS`.
    default_value : object
    """

    def __init__(self, name: str, default_value: Any = traitlets.Undefined) -> None:
        self._check = CHECKS[name]
        super().__init__(default_value)

    def validate(self, obj: Any, value: Any) -> Any:  # noqa: ARG002 - traitlets gives it
        """Return the value as the trait holds it."""
        return self._check(value)


def flat(request: Request) -> dict[str, Any]:
    """Return the settings of a request as the trait holds them."""
    return request.settings.model_dump(mode="json")


def wire_problems(problems: Sequence[Problem]) -> list[wire.WireProblem]:
    """Return problems as the front end takes them."""
    return [
        {
            "field": problem.field,
            "value": brief(problem.value),
            "message": problem.message,
            "way_out": problem.way_out,
        }
        for problem in problems
    ]
