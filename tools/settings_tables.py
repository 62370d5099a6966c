"""Write the tables of settings in the documentation from the settings' JSON Schema. Called by ``generated.py``.

A page holds its table between two comments. The page of a strategy lists the settings that the form shows with it; the
others, which all strategies have, are in ``docs/strategies.md``, once. The text around the tables is written by hand.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from genscope.kernel_side.request import settings_schema

DOCS = Path(__file__).resolve().parent.parent / "docs"
INDEX = DOCS / "strategies.md"
BEGIN, END = "<!-- settings: written by make generate -->", "<!-- end of settings -->"
HEADING = "| setting | default | values | |\n|---|---|---|---|\n"


def pages() -> dict[Path, str]:
    """Return each page that has a table, and the table that belongs there."""
    by_name = definitions()
    found = {DOCS / "strategies" / f"{name}.md": _table(definition, own=True) for name, definition in by_name.items()}
    return found | {INDEX: _table(by_name["greedy"], own=False)}


def definitions() -> dict[str, dict[str, Any]]:
    """Return the schema of each strategy's settings, by the strategy's name."""
    return {one["properties"]["strategy"]["const"]: one for one in settings_schema()["$defs"].values()}


def replaced(text: str, table: str) -> str:
    """Return a page with its table replaced.

    Raises
    ------
    ValueError
        When the page has no place for one.
    """
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        msg = f"the page has no place for its table; write {BEGIN} and {END} where it belongs"
        raise ValueError(msg)
    return f"{before}{BEGIN}\n\n{table}\n{END}{after}"


def write() -> None:
    """Write all tables anew."""
    for path, table in pages().items():
        path.write_text(replaced(path.read_text(encoding="utf-8"), table), encoding="utf-8")


def _table(definition: dict[str, Any], *, own: bool) -> str:
    when = definition.get("when", {})
    rows = [
        f"| `{name}` | {_default(field)} | {_values(field)} | {_description(field, when.get(name))} |\n"
        for name, field in definition["properties"].items()
        if name != "strategy" and (field["group"] == "strategy") == own
    ]
    return HEADING + "".join(rows)


def _default(field: dict[str, Any]) -> str:
    return "none" if field["default"] is None else _python(field["default"])


def _python(value: object) -> str:
    return f"`{json.dumps(value) if isinstance(value, str) else value}`"


def _values(field: dict[str, Any]) -> str:
    """Say which values a setting takes: of a list each entry's, of what may be empty those that it may have else."""
    if "anyOf" in field:
        (field,) = (one for one in field["anyOf"] if one["type"] != "null")
    if field["type"] == "array":
        most = f", up to {field['maxItems']}" if "maxItems" in field else ""
        return f"list of {_values(field['items'])}{most}"
    if "enum" in field:
        return ", ".join(map(_python, field["enum"]))
    if field["type"] == "boolean":
        return f"{_python(True)}, {_python(False)}"
    if field["type"] == "string":
        return "text"
    low = field.get("minimum", field.get("exclusiveMinimum"))
    return f"{'above ' if 'exclusiveMinimum' in field else ''}{low:,} to {field['maximum']:,}"


def _description(field: dict[str, Any], switch: str | None) -> str:
    return f"{field['description']} Counts with `{switch}`." if switch else str(field["description"])
