"""Write requirements/dev.txt: every package of the development environment, pinned.

Run by ``make lock``. Needs pip-tools, which the dev environment has. Local paths, index addresses and local version
labels (``torch 2.13.0+cpu``) are kept out, so that the file means the same on every machine.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LOCK = ROOT / "requirements" / "dev.txt"
HEAD = """\
# Every package of the development environment, pinned. Made by `make lock` from pyproject.toml; do not edit.
# The demo model's package is apart, in demo-model.txt: it must be installed with --no-deps.
"""
# torch is the one package whose builds differ by machine; the lock names the release and lets pip choose the build.
PINNED = "torch==2.13.0\n"


def main() -> int:
    """Resolve, clean and write; return an exit status."""
    with tempfile.TemporaryDirectory() as folder:
        constraint = Path(folder, "constraint.txt")
        constraint.write_text(PINNED)
        output = Path(folder, "dev.txt")
        if LOCK.exists() and "--upgrade" not in sys.argv:
            output.write_text(LOCK.read_text())  # pip-compile keeps the versions of an existing output
        command = [sys.executable, "-m", "piptools", "compile", "--quiet", "--extra=dev", "--strip-extras"]
        command += ["--no-header", "--no-annotate", "--no-emit-index-url", "--no-emit-trusted-host", "--allow-unsafe"]
        command += ["--no-emit-find-links", f"--constraint={constraint}", f"--output-file={output}", "pyproject.toml"]
        if "--upgrade" in sys.argv:
            command.append("--upgrade")
        status = subprocess.run(command, cwd=ROOT, check=False).returncode
        if status:
            return status
        lines = [line.split("#")[0].strip() for line in output.read_text().splitlines()]
    # pip comes with the environment; replacing it while it runs gains nothing.
    lines = [line for line in lines if not line.startswith("pip==")]
    pins = sorted({re.sub(r"\+\w+$", "", line) for line in lines if re.match(r"[\w.-]+==", line)}, key=str.lower)
    LOCK.write_text(HEAD + "\n".join(pins) + "\n")
    print(f"{LOCK.relative_to(ROOT)}: {len(pins)} packages")
    return 0


if __name__ == "__main__":
    sys.exit(main())
