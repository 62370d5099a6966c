"""What a person asks for: a prompt and settings, validated with errors that name field, value and the way out.

This module does not know models: what depends on one (context length, special tokens) is checked by the engine. The
settings themselves are declared in ``settings``.
"""

from __future__ import annotations

import difflib
import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal, cast, get_args

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, TypeAdapter, ValidationError

from .problems import Problem, SettingsError
from .settings import Observable, Settings

__all__ = [
    "Branch",
    "ChatMessage",
    "Observable",
    "Problem",
    "Prompt",
    "Request",
    "Settings",
    "SettingsError",
    "is_batch",
    "make_settings",
    "settings_schema",
]

_LONGEST_VALUE = 60
"""Characters of a value that an error quotes."""

_ADAPTER: TypeAdapter[Settings] = TypeAdapter(Annotated[Settings, Field(discriminator="strategy")])
_BY_NAME: dict[str, type[Settings]] = {cls.model_fields["strategy"].default: cls for cls in get_args(Settings)}


def make_settings(settings: Settings | Mapping[str, Any] | None = None, /, **changes: Any) -> Settings:
    """Validate settings, with clear errors.

    Parameters
    ----------
    settings : Settings or mapping, optional
        What to start from. When ``changes`` name another strategy, settings that it does not have are left behind.
    **changes
        Single settings, by name; ``strategy`` names the strategy (``"greedy"`` when nothing says otherwise).

    Returns
    -------
    Settings
        A frozen instance of the strategy's class.

    Raises
    ------
    SettingsError
        Naming each wrong field, its value and the way out.

    Examples
    --------
    >>> make_settings(strategy="sample", temperature=0.7).top_k
    50
    """
    base = dict(settings.model_dump() if isinstance(settings, BaseModel) else settings or {})
    name = changes.get("strategy", base.get("strategy", "greedy"))
    chosen = _BY_NAME.get(name) if isinstance(name, str) else None
    if chosen is None:
        raise SettingsError([_unknown_strategy(name)])
    if name != base.get("strategy", name):
        base = {field: value for field, value in base.items() if field in chosen.model_fields}
    given = base | changes | {"strategy": name}
    try:
        result = _ADAPTER.validate_python(given)
    except ValidationError as error:
        raise SettingsError([_problem(chosen, given, details) for details in error.errors()]) from None
    if problems := result.problems():
        raise SettingsError(problems)
    return result


def _unknown_strategy(name: object) -> Problem:
    known = ", ".join(repr(other) for other in _BY_NAME)
    return Problem("strategy", name, f"{name!r} is not a strategy", f"Choose one of {known}.")


def _problem(chosen: type[Settings], given: Mapping[str, Any], details: Mapping[str, Any]) -> Problem:
    """Turn one of pydantic's error records into a problem in our words."""
    field = str(details["loc"][1])  # a discriminated union puts the strategy's tag first
    value = given.get(field)
    if details["type"] == "extra_forbidden":
        return _unknown_field(chosen, field, value)
    extra = cast("dict[str, Any]", chosen.model_fields[field].json_schema_extra or {})
    return Problem(field, value, f"{_short(value)} is not allowed: it {_reason(value, details)}", extra["wayOut"])


_REASONS = {
    "greater_than": "must be above {gt}",
    "greater_than_equal": "must be at least {ge}",
    "less_than_equal": "must be at most {le}",
    "finite_number": "is not a number",
    "float_parsing": "is not a number",
    "float_type": "is not a number",
    "int_parsing": "is not a whole number",
    "int_parsing_size": "is too large",
    "int_from_float": "is not a whole number",
    "int_type": "is not a whole number",
    "bool_parsing": "is neither true nor false",
    "bool_type": "is neither true nor false",
    "list_type": "is no list",
    "string_type": "holds something that is no text",
    "string_too_short": "holds an empty text",
    "string_unicode": "holds half a character",
    "too_long": "has {actual_length} entries, and {max_length} are the most",
    "literal_error": "holds something else than {expected}",
}
"""What pydantic's errors mean to a person, as what follows "it"."""


def _reason(value: object, details: Mapping[str, Any]) -> str:
    if value is None or value == "":
        return "is empty"
    reason = _REASONS.get(details["type"])
    if reason is None:
        return f"does not fit ({details['msg']})"
    limits = details.get("ctx", {}).items()
    return reason.format_map(
        {name: int(at) if isinstance(at, float) and at.is_integer() else at for name, at in limits}
    )


def _short(value: object) -> str:
    """Write a value as Python does, a long one with its middle left out."""
    text = repr(value)
    return text if len(text) <= _LONGEST_VALUE else f"{text[: _LONGEST_VALUE // 2]}…{text[-_LONGEST_VALUE // 4 :]}"


def _unknown_field(chosen: type[Settings], field: str, value: object) -> Problem:
    elsewhere = [name for name, cls in _BY_NAME.items() if field in cls.model_fields]
    strategy = chosen.model_fields["strategy"].default
    if elsewhere:
        message = f"the strategy {strategy!r} has no setting of this name (given {value!r})"
        return Problem(field, value, message, f"Leave it out, or choose the strategy {elsewhere[0]!r}.")
    names = sorted({name for cls in _BY_NAME.values() for name in cls.model_fields})
    close = difflib.get_close_matches(field, names, n=1, cutoff=0.5)
    way_out = f"Did you mean {close[0]!r}?" if close else f"Known settings: {', '.join(names)}."
    return Problem(field, value, f"there is no setting of this name (given {value!r})", way_out)


@functools.cache
def settings_schema() -> dict[str, Any]:
    """Return the JSON Schema of :data:`Settings`, which draws the form.

    Returns
    -------
    dict
        JSON Schema 2020-12 with one definition a strategy under ``$defs``, its own settings first. Beside the standard
        keywords a definition may have ``when`` (settings that count only while another one, a switch, is on), and each
        property has ``group`` (``"strategy"``, ``"length"``, ``"randomness"``, ``"cache"`` or ``"observe"``),
        ``wayOut`` (what to do about a wrong value) and, for numbers on a slider, ``step``. Treat it as read-only.
    """
    schema = _ADAPTER.json_schema()
    for chosen in _BY_NAME.values():
        properties = schema["$defs"][chosen.__name__]["properties"]
        schema["$defs"][chosen.__name__]["properties"] = {name: properties[name] for name in _in_order(chosen)}
        schema["$defs"][chosen.__name__].setdefault("when", {})["verify_cache"] = "prefix_cache"
    return schema


def _in_order(chosen: type[Settings]) -> list[str]:
    """Return the fields of a strategy, its own before those that it shares; pydantic gives the shared ones first."""
    names: list[str] = []
    for cls in chosen.__mro__:
        names += [name for name in vars(cls).get("__annotations__", ()) if name in chosen.model_fields]
    return list(dict.fromkeys(names))


class ChatMessage(BaseModel):
    """One message of a conversation, for the model's chat template."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    role: Annotated[str, StringConstraints(min_length=1)]
    content: str


Prompt = str | list[ChatMessage]
"""A prompt: text as it is, or messages that go through the tokenizer's chat template."""

_MOST_PROMPTS = 256
"""Prompts of a batch."""
_MOST_SEQUENCES = 1024
"""Sequences of a run: each is a row of the batch, a record, and a lane on a page."""


@dataclass(frozen=True, slots=True)
class Branch:
    """Where a run branches off from another one.

    Attributes
    ----------
    run : str
        The other run's id.
    lane : int
    position : int
        How many tokens of that lane, from the first on, stay.
    added : int
        Tokens behind them that were given.
    kind : {"branch", "reply"}
        ``"reply"`` where these are the next turn of a conversation.
    rewritten : bool
        Of a reply: whether the chat template wrote earlier turns anew, from ``position`` on.
    """

    run: str
    lane: int
    position: int
    added: int
    kind: Literal["branch", "reply"] = "branch"
    rewritten: bool = False


@dataclass(frozen=True, slots=True)
class Request:
    """One generation that a person asked for.

    Attributes
    ----------
    prompts : tuple of (str or list of ChatMessage)
        None of them empty; several are a batch.
    settings : Settings
        Validated.
    batched : bool
        Whether the prompts were given as a list of them; then there may still be only one.
    ids : tuple of int, or None
        Token ids to go on from, taken as they are in place of the only prompt's; of an encoder-decoder model those that
        its decoder begins with, while its encoder reads the prompt.
    answer : int or None
        Of a conversation whose ids are given: the position where the model's turn begins; None where the ids are no
        longer those of the messages.
    branch : Branch or None
        Where the ids come from.
    variants : tuple of Settings
        Of sequences that differ in how they choose their tokens: the settings of each sequence of the only prompt;
        ``settings`` are what they have in common. See ``comparison``. Empty where all are alike.
    """

    prompts: tuple[Prompt, ...]
    settings: Settings
    batched: bool = False
    ids: tuple[int, ...] | None = None
    answer: int | None = None
    branch: Branch | None = None
    variants: tuple[Settings, ...] = ()

    @property
    def prompt(self) -> Prompt | list[Prompt]:
        """The prompt, or the list of prompts, as it was asked for."""
        return list(self.prompts) if self.batched else self.prompts[0]

    def plain_prompt(self) -> Any:
        """Return :attr:`prompt` as JSON data, conversations as lists of dicts."""
        plain = [
            prompt if isinstance(prompt, str) else [message.model_dump() for message in prompt]
            for prompt in self.prompts
        ]
        return plain if self.batched else plain[0]

    @classmethod
    def make(cls, prompt: object, settings: Settings | Mapping[str, Any] | None = None, /, **changes: Any) -> Request:
        """Validate a prompt and settings together.

        Parameters
        ----------
        prompt : str, sequence of ChatMessage or of mappings with ``role`` and ``content``, or sequence of such prompts
            A text, a conversation, or a batch of texts and conversations.
        settings, **changes
            As for :func:`make_settings`.

        Raises
        ------
        SettingsError
            Naming each wrong field, its value and the way out.
        """
        made = make_settings(settings, **changes)
        if not is_batch(prompt):
            return cls((_make_prompt(prompt),), made)
        batch = cast("Sequence[object]", prompt)
        if len(batch) > _MOST_PROMPTS:
            message = f"the batch has {len(batch)} prompts, and {_MOST_PROMPTS} are the most"
            raise SettingsError([Problem("prompt", None, message, "Give fewer prompts at once.")])
        if len(batch) * made.sequences > _MOST_SEQUENCES:
            message = f"{made.sequences} for each of {len(batch)} prompts are more than {_MOST_SEQUENCES} in all"
            way_out = f"Use at most {_MOST_SEQUENCES // len(batch)}, or give fewer prompts at once."
            raise SettingsError([Problem("num_return_sequences", made.sequences, message, way_out)])
        return cls(tuple(_make_prompt(one) for one in batch), made, batched=True)


def is_batch(prompt: object) -> bool:
    """Return whether a prompt is a batch: a list that holds texts or lists, and not messages."""
    return (
        isinstance(prompt, Sequence)
        and not isinstance(prompt, (str, bytes))
        and len(prompt) > 0
        and all(isinstance(one, Sequence) and not isinstance(one, bytes) for one in prompt)
    )


def _make_prompt(prompt: object) -> Prompt:
    if isinstance(prompt, str):
        if not prompt:
            raise SettingsError([Problem("prompt", prompt, "the prompt is empty", "Type some text to continue from.")])
        try:
            prompt.encode()
        except UnicodeEncodeError as error:  # tokenizers refuse it, and it cannot be saved as UTF-8
            half = ascii(prompt[error.start])
            message = f"the prompt has half a character ({half}) at position {error.start}"
            raise SettingsError([Problem("prompt", prompt, message, "Delete it or type it anew.")]) from None
        return prompt
    if not isinstance(prompt, Sequence) or isinstance(prompt, bytes):
        message = f"a prompt cannot be a {type(prompt).__name__}"
        raise SettingsError([Problem("prompt", prompt, message, "Give a text or a list of chat messages.")])
    try:
        messages = [ChatMessage.model_validate(message) for message in prompt]
    except ValidationError as error:
        message = f"a chat message is not right: {error.errors()[0]['msg']}"
        way_out = "Each message is {'role': 'user', 'content': '...'}."
        raise SettingsError([Problem("prompt", prompt, message, way_out)]) from None
    if not any(message.content for message in messages):
        raise SettingsError([Problem("prompt", prompt, "the conversation is empty", "Write at least one message.")])
    return messages
