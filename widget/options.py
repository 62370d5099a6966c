r"""The options of ``%%generate``, made from the settings' JSON Schema. Values are checked by ``make_settings``.

Values stay text, which the schema's validation understands, so that a wrong one is reported in the same words as in
Python and in the form. In texts (stop strings, a negative prompt) ``\n``, ``\t`` and ``\\`` are as in Python.
"""

from __future__ import annotations

import argparse
import difflib
import re
import shlex
import textwrap
from collections.abc import Iterator
from typing import Any, NoReturn

from ..kernel_side.request import Problem, settings_schema

__all__ = ["OptionError", "explain", "help_text", "make_parser", "parse"]

_ESCAPES = {"\\n": "\n", "\\t": "\t", "\\r": "\r", "\\\\": "\\"}
_GROUPS = {
    "length": "Length",
    "randomness": "Randomness",
    "cache": "Prefix cache",
    "execution": "Execution",
    "observe": "Observation",
}
"""Of settings that are no strategy's own."""
_WIDTH = 100


class OptionError(ValueError):
    """The magic's line is not right; the message names the option and the way out."""


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise OptionError(f"{message[0].upper()}{message[1:]}. See: %generate --help")


def make_parser() -> argparse.ArgumentParser:
    """Return the parser of the magic's line; what is not given is not in its result."""
    parser = _Parser(prog="%%generate", add_help=False, allow_abbrev=False, argument_default=argparse.SUPPRESS)
    parser.add_argument("--model", metavar="NAME_OR_VARIABLE")
    parser.add_argument("--tokenizer", metavar="VARIABLE")
    parser.add_argument("--assistant", metavar="NAME_OR_VARIABLE")
    parser.add_argument("--into", metavar="NAME", default="run")
    parser.add_argument("--wait", action="store_true", default=False)
    parser.add_argument("--chat", action="store_true", default=False)
    parser.add_argument("--help", action="store_true", default=False)
    for name, field in _settings().items():
        option = _option(name)
        if _type(field) == "boolean":
            parser.add_argument(option, action=argparse.BooleanOptionalAction)
        elif _type(field) == "array":
            parser.add_argument(option, nargs="+", action="extend", type=_unescape)
        elif _is_text(field):
            parser.add_argument(option, type=_unescape)
        else:
            parser.add_argument(option)
    return parser


def parse(line: str) -> tuple[argparse.Namespace, dict[str, Any]]:
    """Parse the magic's line.

    Returns
    -------
    namespace : argparse.Namespace
        With ``into``, ``wait``, ``chat``, ``help`` and, if given, ``model``, ``tokenizer`` and ``assistant``.
    settings : dict
        The settings that were given, not yet checked.

    Raises
    ------
    OptionError
        For an option that does not exist or lacks its value, and for a quote that is not closed.
    """
    try:
        words = shlex.split(line)
    except ValueError:
        raise OptionError(f"A quote is not closed in: {line}") from None
    parser = make_parser()
    namespace, unknown = parser.parse_known_args(words)
    if unknown:
        known = [option for action in parser._actions for option in action.option_strings]  # noqa: SLF001 - no other way
        close = difflib.get_close_matches(unknown[0], known, n=1)
        hint = f"Did you mean {close[0]}?" if close else "The cell is the prompt; the line takes options only."
        raise OptionError(f"There is no option {unknown[0]}. {hint} See: %generate --help")
    settings = {name: getattr(namespace, name) for name in _settings() if hasattr(namespace, name)}
    return namespace, settings


def explain(problems: tuple[Problem, ...]) -> str:
    """Say what is wrong with settings in the words of the magic's line."""
    settings = _settings()
    lines = []
    for problem in problems:
        name = _option(problem.field) if problem.field in settings else problem.field
        lines.append(f"{name}: {problem.message}. {problem.way_out}".rstrip())
    return "\n".join(lines)


def help_text() -> str:
    """Return what ``--help`` prints."""
    lines = [
        "%%generate [options]: generate from the cell's text, and show each token in a scope.",
        "",
        *_entry("--model NAME_OR_VARIABLE", "A scope or model in a variable; or 'demo', a hub id, a folder, a GGUF "
                "file. By default the one used last."),
        *_entry("--tokenizer VARIABLE", "The tokenizer of a model in a variable."),
        *_entry("--assistant NAME_OR_VARIABLE", "A smaller model that drafts for --strategy assisted."),
        *_entry("--into NAME", "The variable that the run is put into; by default 'run'."),
        *_entry("--wait", "Wait until the run is over."),
        *_entry("--chat", "The cell is a user's message, and goes through the model's chat template."),
        *_entry("--help", "Print this."),
    ]  # fmt: skip
    fields = _settings()
    lines += ["", "Strategy", *_entry("--strategy NAME", _about(fields["strategy"]))]
    for name, what in _strategies().items():
        lines += _entry(name, what, indent=6)
    own: dict[str, list[str]] = {}
    for name, field in fields.items():
        if field["group"] == "strategy":
            own.setdefault(_whose(field), []).append(name)
    sections = own | {
        title: [name for name, field in fields.items() if field["group"] == group] for group, title in _GROUPS.items()
    }
    for title, names in sections.items():
        lines += ["", *textwrap.wrap(title, _WIDTH, subsequent_indent="  ")]
        for name in names:
            lines += _entry(_usage(name, fields[name]), _about(fields[name]))
            for choice, what in fields[name].get("choices", {}).items():
                lines += _entry(choice, what, indent=6)
    return "\n".join(lines)


def _whose(field: dict[str, Any]) -> str:
    """Name the strategies that have a setting, and those that have it only while a switch of theirs is on."""
    switches: dict[str | None, list[str]] = {}
    for strategy, switch in field["strategies"].items():
        switches.setdefault(switch, []).append(strategy)
    if set(switches) == {None} and len(field["strategies"]) == len(_strategies()):
        return "For all strategies"
    parts = [
        ", ".join(names) + ("" if switch is None else f" with {_option(switch)}")
        for switch, names in sorted(switches.items(), key=lambda entry: entry[0] or "")
    ]
    return f"For {'; '.join(parts)}"


def _definitions() -> dict[str, dict[str, Any]]:
    """Return the schema of each strategy, by name, in the order in which the form has them."""
    schema = settings_schema()
    definitions = [schema["$defs"][entry["$ref"].rsplit("/", 1)[-1]] for entry in schema["oneOf"]]
    return {definition["properties"]["strategy"]["const"]: definition for definition in definitions}


def _strategies() -> dict[str, str]:
    """Return what each strategy does."""
    return {name: definition["description"].partition("\n\n")[0] for name, definition in _definitions().items()}


def _settings() -> dict[str, dict[str, Any]]:
    """Return the schema of every setting of any strategy.

    Under ``strategies`` it has the strategies with the setting, and for each the switch that it counts with, or None.
    """
    fields: dict[str, dict[str, Any]] = {
        "strategy": {
            "type": "string",
            "enum": list(_definitions()),
            "description": "How each token is chosen.",
            "default": "greedy",
            "group": "",
        }
    }
    for strategy, definition in _definitions().items():
        when = definition.get("when", {})
        for name, field in definition["properties"].items():
            if name != "strategy":
                fields.setdefault(name, {**field, "strategies": {}})["strategies"][strategy] = when.get(name)
    return fields


def _parts(field: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield from (part for part in field.get("anyOf", [field]) if part.get("type") != "null")


def _type(field: dict[str, Any]) -> str:
    return str(next(_parts(field)).get("type", "string"))


def _is_text(field: dict[str, Any]) -> bool:
    return _type(field) == "string" and "enum" not in field


def _option(name: str) -> str:
    return "--" + name.replace("_", "-")


def _unescape(text: str) -> str:
    return re.sub(r"\\[ntr\\]", lambda match: _ESCAPES[match[0]], text)


def _usage(name: str, field: dict[str, Any]) -> str:
    option, kind = _option(name), _type(field)
    if kind == "boolean":
        return f"{option}, --no-{option[2:]}"
    value = {"integer": "WHOLE_NUMBER", "number": "NUMBER", "array": "TEXT [TEXT ...]"}.get(kind, "TEXT")
    return f"{option} {'|'.join(field['enum']) if 'enum' in field else value}"


def _about(field: dict[str, Any]) -> str:
    """Say what a setting does, its range and its default."""
    text = str(field.get("description", ""))
    part = next(_parts(field))
    limits = [
        f"{word} {part[key]}"
        for key, word in (
            ("minimum", "at least"),
            ("exclusiveMinimum", "above"),
            ("maximum", "at most"),
            ("exclusiveMaximum", "below"),
        )
        if key in part
    ]
    choices = part.get("items", {}).get("enum", [])
    facts = [*limits, *([f"of {', '.join(choices)}"] if choices else [])]
    default = field.get("default")
    if default not in (None, [], ""):
        facts.append(f"default {str(default).lower() if isinstance(default, bool) else default}")
    return f"{text} ({'; '.join(facts)})" if facts else text


def _entry(usage: str, about: str, indent: int = 2) -> list[str]:
    space = " " * (indent + 4)
    return [" " * indent + usage, *textwrap.wrap(about, _WIDTH, initial_indent=space, subsequent_indent=space)]
