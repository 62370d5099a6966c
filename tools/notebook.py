"""Execute a notebook without a browser, or check that its saved form is fit to be shown.

notebook.py run NOTEBOOK OUTPUT     execute in this environment; OUTPUT may be NOTEBOOK itself, to renew its outputs
notebook.py check NOTEBOOK          executed in order, without errors, with outputs, naming no path of a machine
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import sys
import tempfile
from pathlib import Path
from typing import Any

import nbformat
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError

SECONDS_A_CELL = 600
KERNELSPEC = {"display_name": "Python 3", "language": "python", "name": "python3"}
# Absolute paths that only some machine has; a warning's traceback brings them in unseen.
MACHINE_PATH = re.compile(r"(?<![\w.:/])/(?:home|root|Users|tmp|work|var|private)/[\w.-]+")


def run(source: Path, target: Path) -> int:
    """Execute every cell; return an exit status."""
    notebook = nbformat.read(source, as_version=4)
    with tempfile.TemporaryDirectory(prefix="genscope-notebook-") as home:
        for name in ("JUPYTER_CONFIG_DIR", "JUPYTER_DATA_DIR", "JUPYTER_RUNTIME_DIR", "IPYTHONDIR"):
            os.environ[name] = str(Path(home, name.lower()))  # nothing of the user's is read or written
        os.environ["JUPYTER_PREFER_ENV_PATH"] = "1"
        client = NotebookClient(
            notebook,
            timeout=SECONDS_A_CELL,
            kernel_name="python3",
            # The front end's code once a scope, and no run in it: what shows without a kernel is the static copy.
            store_widget_state=False,
            # ipykernel warns that it speaks TCP without encryption, to this process alone.
            extra_arguments=["--log-level=ERROR"],
            on_cell_execute=lambda cell, cell_index: print(
                f"cell {cell_index + 1} of {len(notebook.cells)}: {next(iter(cell.source.splitlines()), '')[:80]}",
                flush=True,
            ),
            resources={"metadata": {"path": str(source.parent)}},
        )
        try:
            asyncio.run(client.async_execute())
        except CellExecutionError as error:
            print(f"error: a cell of {source} failed\n{error}", file=sys.stderr)
            return 1
        finally:
            notebook.metadata["kernelspec"] = KERNELSPEC
            target.parent.mkdir(parents=True, exist_ok=True)
            if source != target:
                nbformat.write(notebook, target)
    for cell in notebook.cells:
        cell.metadata.pop("execution", None)  # times of day, which would change with every run
    nbformat.write(notebook, target)
    cells = sum(cell.cell_type == "code" for cell in notebook.cells)
    print(f"{source}: {cells} code cells executed, saved as {target}")
    return 0


def problems(notebook: Any) -> list[str]:
    """Return what makes a saved notebook unfit to be shown."""
    found = []
    if notebook.metadata.get("kernelspec", {}).get("name") != "python3":
        found.append("its metadata names no kernelspec 'python3', so JupyterLab would ask for a kernel")
    code = [cell for cell in notebook.cells if cell.cell_type == "code" and cell.source.strip()]
    if [cell.execution_count for cell in code] != list(range(1, len(code) + 1)):
        found.append("its cells were not executed once, in order")
    if not any(cell.outputs for cell in code):
        found.append("it has no outputs")
    for number, cell in enumerate(code, 1):
        if any(output.output_type == "error" for output in cell.outputs):
            found.append(f"code cell {number} shows an error")
        if path := MACHINE_PATH.search(json.dumps(cell.outputs).replace("\\n", "\n")):
            found.append(f"the output of code cell {number} names a path of a machine ({path[0]})")
    return found


def check(source: Path) -> int:
    """Check a saved notebook; return an exit status."""
    if not source.exists():
        print(f"error: there is no {source}", file=sys.stderr)
        return 1
    notebook = nbformat.read(source, as_version=4)
    nbformat.validate(notebook)
    found = problems(notebook)
    for problem in found:
        print(f"error: {source}: {problem}", file=sys.stderr)
    if found:
        print(
            f"To execute it anew and save its outputs: python tools/notebook.py run {source} {source}", file=sys.stderr
        )
    return bool(found)


def main(arguments: list[str]) -> int:
    """Run a command; return an exit status."""
    match arguments:
        case ["run", source, target]:
            return run(Path(source), Path(target))
        case ["check", source]:
            return check(Path(source))
    print(__doc__, file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
