"""Print the JSON Schema of all messages, and of what travels as a trait, for the JavaScript types to be made from.

``python -m genscope.widget.wire_schema > js/wire.schema.json``; then ``npm run types`` in ``js/``. The output is
deterministic, so that a test can compare it with the committed file.
"""

import json
import sys
from typing import Any

from pydantic import TypeAdapter

from genscope.widget import wire


def wire_schema() -> dict[str, Any]:
    """Return one JSON Schema with a definition for each message and each part of one.

    Returns
    -------
    dict
        JSON Schema 2020-12; ``BackMessage`` and ``FrontMessage`` are the two unions, ``WireTwin`` is a trait.
    """
    names = ("BackMessage", "FrontMessage", "WireTwin")
    defs: dict[str, Any] = {}
    for name in names:
        schema = TypeAdapter(getattr(wire, name)).json_schema()
        defs |= schema.pop("$defs")
        defs[name] = schema
    for definition in defs.values():
        if definition.get("type") == "object":
            # Closed: json-schema-to-typescript would else add an index signature to each message.
            definition["additionalProperties"] = False
    return {
        "$defs": dict(sorted(defs.items())),
        "title": "Message",
        "anyOf": [{"$ref": f"#/$defs/{name}"} for name in names],
    }


if __name__ == "__main__":
    sys.stdout.write(json.dumps(wire_schema(), indent=2, sort_keys=True) + "\n")
