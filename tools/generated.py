"""Check that the generated files are what their sources give, or write them anew.

``check`` leaves the working tree as it was. The files: the wire schema that Python prints, the JavaScript types made
from it, the settings' schema that the front end's tests and harness draw forms from, the tables of settings in the
documentation, and the front end's bundle.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import settings_tables

from genscope.kernel_side.request import settings_schema

ROOT = Path(__file__).resolve().parent.parent
JS = ROOT / "js"
SCHEMA = JS / "wire.schema.json"
SETTINGS = JS / "dev" / "settings.schema.json"
GENERATED = (
    SCHEMA,
    SETTINGS,
    JS / "src" / "wire.d.ts",
    ROOT / "widget" / "static" / "widget.js",
    ROOT / "widget/static/widget.css",
    *settings_tables.pages(),
)


def generate() -> None:
    """Write all generated files."""
    schema = subprocess.run(
        [sys.executable, "-m", "genscope.widget.wire_schema"], cwd=ROOT, check=True, capture_output=True
    )
    SCHEMA.write_bytes(schema.stdout)
    SETTINGS.write_text(json.dumps(settings_schema(), indent=2) + "\n", encoding="utf-8")
    settings_tables.write()
    for script in ("types", "build"):
        subprocess.run(["npm", "run", "--silent", script], cwd=JS, check=True, stdout=subprocess.DEVNULL)


def read(path: Path) -> bytes | None:
    """Return a file's content, or None where there is none."""
    return path.read_bytes() if path.exists() else None


def main(command: str) -> int:
    """Run a command; return an exit status."""
    before = {path: read(path) for path in GENERATED}
    try:
        generate()
    except subprocess.CalledProcessError as error:
        print(f"error: {' '.join(error.cmd)} failed\n{(error.stderr or b'').decode()}", file=sys.stderr)
        return 1
    finally:
        after = {path: read(path) for path in GENERATED}
        if command == "check":
            for path, content in before.items():
                if content is not None and content != after[path]:
                    path.write_bytes(content)
    stale = [str(path.relative_to(ROOT)) for path in GENERATED if before[path] != after[path]]
    if command == "check" and stale:
        print(f"error: not what the sources give: {', '.join(stale)}; run: make generate", file=sys.stderr)
        return 1
    if command == "write":
        print("\n".join(f"wrote {path}" for path in stale) or "nothing changed")
    return 0


if __name__ == "__main__":
    if sys.argv[1:] not in (["check"], ["write"]):
        sys.exit("usage: generated.py check|write")
    sys.exit(main(sys.argv[1]))
