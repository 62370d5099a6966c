"""The demo notebook, executed as ``make demo-run`` does it, shows what a reader without a kernel needs."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import nbformat
import pytest

ROOT = Path(__file__).resolve().parent.parent
pytestmark = [pytest.mark.slow, pytest.mark.kernel, pytest.mark.timeout(900)]


def htmls(notebook: Any) -> list[str]:
    return [
        "".join(output["data"]["text/html"])
        for cell in notebook.cells
        for output in cell.get("outputs", [])
        if "text/html" in output.get("data", {})
    ]


def test_it_executes_and_leaves_static_copies_of_its_runs() -> None:
    target = ROOT / "artefacts" / "demo.ipynb"
    subprocess.run(
        [sys.executable, "tools/notebook.py", "run", "demo.ipynb", str(target)], cwd=ROOT, check=True, timeout=800
    )
    notebook = nbformat.read(target, as_version=4)
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert [cell.execution_count for cell in code] == list(range(1, len(code) + 1))
    static = [html for html in htmls(notebook) if "genscope-static-" in html]
    displays = [
        output
        for cell in code
        for output in cell.outputs
        if "application/vnd.jupyter.widget-view+json" in output.get("data", {})
    ]
    assert len(displays) >= 6
    assert len(static) == len(displays), "each scope has its static copy"
    saved = [html for html in htmls(nbformat.read(ROOT / "demo.ipynb", as_version=4)) if "genscope-static-" in html]
    assert len(saved) == len(static), "demo.ipynb is saved with its outputs"
