"""What a person asks for: one validated settings schema for code, form, magics and docs.

Each decoding strategy is one pydantic class that carries all settings of a run, flat, so that the same names work
as keyword arguments, as options of ``%%generate``, as fields of the form and as keys of a trait. A new strategy is
a new class in :data:`Settings`; its JSON Schema draws the controls and no JavaScript changes.

This module does not know models: what depends on one (context length, special tokens) is checked by the engine.
"""

from __future__ import annotations

import difflib
import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal, cast, get_args

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    StringConstraints,
    TypeAdapter,
    ValidationError,
)

__all__ = [
    "ChatMessage",
    "Greedy",
    "Observable",
    "Problem",
    "Prompt",
    "Request",
    "Sample",
    "Settings",
    "SettingsError",
    "make_settings",
    "settings_schema",
]

Observable = Literal["scores", "logits", "hidden_states", "attentions"]
"""Step outputs that a run can keep in its final output, by the library's names."""


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that is wrong with what was asked for.

    Attributes
    ----------
    field : str
        Name of the setting, ``"prompt"``, or ``"strategy"``.
    value : object
        The value as it was given.
    message : str
        What is wrong with it, with the value in it.
    way_out : str
        What to do instead.
    """

    field: str
    value: object
    message: str
    way_out: str

    def __str__(self) -> str:
        return f"{self.field}: {self.message}. {self.way_out}".rstrip()


class SettingsError(ValueError):
    """What was asked for cannot run; names each field, its value and the way out.

    Attributes
    ----------
    problems : tuple of Problem
        At least one.
    """

    def __init__(self, problems: Sequence[Problem]) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join(str(problem) for problem in self.problems))


def _setting(default: Any, *, group: str, way_out: str, step: float | None = None, **constraints: Any) -> Any:
    """Make a field whose schema also says where the form shows it and what to do about a wrong value."""
    extra: dict[str, Any] = {"group": group, "wayOut": way_out}
    if step is not None:
        extra["step"] = step
    return Field(default, json_schema_extra=extra, **constraints)


def _lines_to_list(value: object) -> object:
    """Accept one stop string where a list of them is meant."""
    return [value] if isinstance(value, str) else value


class _Common(BaseModel):
    """Settings that every strategy has."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False, title="Settings")

    repetition_penalty: float = _setting(
        1.0,
        gt=0,
        le=10,
        step=0.05,
        group="strategy",
        title="Repetition penalty",
        description="Divides the logits of tokens that were already used; 1 changes nothing (arXiv:1909.05858).",
        way_out="Use a number above 0 and up to 10; 1 switches it off, 1.1 to 1.3 are usual.",
    )
    no_repeat_ngram_size: int = _setting(
        0,
        ge=0,
        le=100,
        group="strategy",
        title="No repeated n-gram",
        description="No n-gram of this size occurs twice, the prompt's included; 0 allows all.",
        way_out="Use 0 to switch it off, or a whole number up to 100; 3 is usual.",
    )
    max_new_tokens: int = _setting(
        128,
        ge=1,
        le=1_000_000,
        group="length",
        title="New tokens, at most",
        description="The run ends after this many generated tokens.",
        way_out="Use a whole number of at least 1.",
    )
    min_new_tokens: int = _setting(
        0,
        ge=0,
        le=1_000_000,
        group="length",
        title="New tokens, at least",
        description="The end-of-sequence token is not allowed before this many tokens.",
        way_out="Use 0 or a whole number up to max_new_tokens.",
    )
    stop_at_eos: bool = _setting(
        True,
        group="length",
        title="Stop at end of sequence",
        description="Ends the run when the model gives one of its end-of-sequence tokens.",
        way_out="Use true or false.",
    )
    stop_strings: Annotated[
        list[Annotated[str, StringConstraints(min_length=1)]], BeforeValidator(_lines_to_list)
    ] = _setting(
        [],
        max_length=16,
        group="length",
        title="Stop strings",
        description="The run ends when the generated text contains one of them.",
        way_out="Use a list of up to 16 texts that are not empty.",
    )
    seed: int | None = _setting(
        None,
        ge=0,
        le=2**53 - 1,  # what JavaScript's numbers hold exactly
        group="randomness",
        title="Seed",
        description="The same seed gives the same tokens; empty draws a new one, which the run reports.",
        way_out="Leave it empty, or use a whole number from 0 to 9007199254740991.",
    )
    alternatives: int = _setting(
        10,
        ge=0,
        le=100,
        group="observe",
        title="Alternatives a token",
        description="How many of the most probable candidates are recorded at each position.",
        way_out="Use a whole number from 0 to 100.",
    )
    prompt_probabilities: bool = _setting(
        False,
        group="observe",
        title="Probabilities of the prompt",
        description="Measures the prompt's tokens too; costs one more prefill.",
        way_out="Use true or false.",
    )
    keep: list[Observable] = _setting(
        [],
        group="observe",
        title="Keep in run.output",
        description="Step outputs kept for the final output, in full: memory grows with each token.",
        way_out="Use a list of 'scores', 'logits', 'hidden_states', 'attentions'.",
    )

    def generate_kwargs(self) -> dict[str, Any]:
        """Return the arguments of ``model.generate`` that mean the same as these settings.

        Every setting of ours is passed in full, so that a default in the model's own generation config cannot
        change what the form shows. Stop strings and seed are not among them: ``generate`` takes no seed, and its
        stop strings also match text of the prompt.

        Returns
        -------
        dict
            Keyword arguments for :meth:`transformers.GenerationMixin.generate`.
        """
        kwargs: dict[str, Any] = {
            "num_beams": 1,
            "num_return_sequences": 1,
            "max_new_tokens": self.max_new_tokens,
            "min_new_tokens": self.min_new_tokens or None,
            "repetition_penalty": self.repetition_penalty,
            "no_repeat_ngram_size": self.no_repeat_ngram_size,
        }
        if not self.stop_at_eos:
            kwargs["eos_token_id"] = None
        return kwargs


class Greedy(_Common):
    """Takes the most probable token at every step."""

    model_config = ConfigDict(title="Greedy")

    strategy: Literal["greedy"] = "greedy"

    def generate_kwargs(self) -> dict[str, Any]:
        """See :meth:`_Common.generate_kwargs`; sampling settings of the model's own config are neutralised."""
        neutral = {"temperature": 1.0, "top_k": 50, "top_p": 1.0, "typical_p": 1.0, "min_p": None}
        return super().generate_kwargs() | {"do_sample": False} | neutral


class Sample(_Common):
    """Draws each token from the distribution, after the settings below have reshaped it."""

    model_config = ConfigDict(title="Sampling")

    strategy: Literal["sample"] = "sample"
    temperature: float = _setting(
        1.0,
        gt=0,
        le=100,
        step=0.05,
        group="strategy",
        title="Temperature",
        description="Divides the logits: below 1 sharpens the distribution, above 1 flattens it.",
        way_out="Use a number above 0 and up to 100; for no randomness choose the strategy 'greedy'.",
    )
    top_k: int = _setting(
        50,
        ge=0,
        le=1_000_000,
        group="strategy",
        title="Top-k",
        description="Keeps the k most probable tokens; 0 keeps all (arXiv:1805.04833).",
        way_out="Use 0 to keep all, or a whole number of at least 1.",
    )
    top_p: float = _setting(
        1.0,
        gt=0,
        le=1,
        step=0.01,
        group="strategy",
        title="Top-p",
        description="Keeps the smallest set of tokens whose probabilities reach p; 1 keeps all (arXiv:1904.09751).",
        way_out="Use a number above 0 and up to 1; 0.9 is usual, 1 switches it off.",
    )
    min_p: float = _setting(
        0.0,
        ge=0,
        le=1,
        step=0.01,
        group="strategy",
        title="Min-p",
        description="Cuts tokens below this share of the best one's probability; 0 keeps all (arXiv:2407.01082).",
        way_out="Use a number from 0 to 1; 0.05 is usual, 0 switches it off.",
    )
    typical_p: float = _setting(
        1.0,
        gt=0,
        le=1,
        step=0.01,
        group="strategy",
        title="Typical-p",
        description="Keeps tokens whose surprisal is close to the entropy; 1 keeps all (arXiv:2202.00666).",
        way_out="Use a number above 0 and up to 1; 1 switches it off.",
    )

    def generate_kwargs(self) -> dict[str, Any]:
        """See :meth:`_Common.generate_kwargs`."""
        return super().generate_kwargs() | {
            "do_sample": True,
            "temperature": self.temperature,
            "top_k": self.top_k,
            "top_p": self.top_p,
            "min_p": self.min_p or None,
            "typical_p": self.typical_p,
        }


Settings = Greedy | Sample
"""Settings of a run: one class a strategy. Validate with :func:`make_settings`."""

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
    if result.min_new_tokens > result.max_new_tokens:
        raise SettingsError(
            [
                Problem(
                    "min_new_tokens",
                    result.min_new_tokens,
                    f"{result.min_new_tokens} is more than max_new_tokens ({result.max_new_tokens})",
                    "Lower min_new_tokens or raise max_new_tokens.",
                )
            ]
        )
    return result


def _unknown_strategy(name: object) -> Problem:
    known = ", ".join(repr(other) for other in _BY_NAME)
    return Problem("strategy", name, f"{name!r} is not a strategy", f"Choose one of {known}.")


def _problem(chosen: type[Settings], given: Mapping[str, Any], details: Mapping[str, Any]) -> Problem:
    """Turn one of pydantic's error records into a problem in our words."""
    # A discriminated union puts the strategy's tag first in the location.
    location = [part for part in details["loc"] if part not in _BY_NAME]
    field = str(location[0]) if location else "strategy"
    value = given.get(field)
    if details["type"] == "extra_forbidden":
        return _unknown_field(chosen, field, value)
    extra = cast(dict[str, Any], chosen.model_fields[field].json_schema_extra or {})
    reason = str(details["msg"])
    return Problem(field, value, f"{value!r} is not allowed: {reason[0].lower()}{reason[1:]}", extra.get("wayOut", ""))


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
        JSON Schema 2020-12 with one definition a strategy under ``$defs``. Beside the standard keywords each
        property has ``group`` (``"strategy"``, ``"length"``, ``"randomness"`` or ``"observe"``), ``wayOut`` (what to
        do about a wrong value) and, for numbers on a slider, ``step``. Treat it as read-only.
    """
    return _ADAPTER.json_schema()


class ChatMessage(BaseModel):
    """One message of a conversation, for the model's chat template."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    role: Annotated[str, StringConstraints(min_length=1)]
    content: str


Prompt = str | list[ChatMessage]
"""A prompt: text as it is, or messages that go through the tokenizer's chat template."""


@dataclass(frozen=True, slots=True)
class Request:
    """One generation that a person asked for.

    Attributes
    ----------
    prompt : str or list of ChatMessage
        Not empty.
    settings : Settings
        Validated.
    """

    prompt: Prompt
    settings: Settings

    @classmethod
    def make(
        cls, prompt: object, settings: Settings | Mapping[str, Any] | None = None, /, **changes: Any
    ) -> Request:
        """Validate a prompt and settings together.

        Parameters
        ----------
        prompt : str, or sequence of ChatMessage or of mappings with ``role`` and ``content``
        settings, **changes
            As for :func:`make_settings`.

        Raises
        ------
        SettingsError
            Naming each wrong field, its value and the way out.
        """
        return cls(_make_prompt(prompt), make_settings(settings, **changes))


def _make_prompt(prompt: object) -> Prompt:
    if isinstance(prompt, str):
        if not prompt:
            raise SettingsError([Problem("prompt", prompt, "the prompt is empty", "Type some text to continue from.")])
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
