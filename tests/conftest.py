"""What all tests share: nothing of the user's is touched, and no test reaches the network."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import hypothesis
import pytest

if TYPE_CHECKING:
    from genscope.kernel_side.models import LoadedModel

ROOT = Path(__file__).resolve().parent.parent
# A busy machine is no failure: no deadlines, and slow first draws are fine.
hypothesis.settings.register_profile(
    "genscope", deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow], print_blob=True
)
hypothesis.settings.load_profile("genscope")

_HOME = tempfile.mkdtemp(prefix="genscope-tests-")

# Here and not in a fixture: libraries read these when they are imported, and kernels and servers inherit them.
os.environ["HF_HUB_OFFLINE"] = "1"
os.environ.setdefault("GENSCOPE_CACHE", str(ROOT / "build" / "cache"))
os.environ["JUPYTER_PREFER_ENV_PATH"] = "1"
os.environ["JUPYTER_PLATFORM_DIRS"] = "1"
for _name in (
    "JUPYTER_CONFIG_DIR",
    "JUPYTER_DATA_DIR",
    "JUPYTER_RUNTIME_DIR",
    "JUPYTERLAB_SETTINGS_DIR",
    "JUPYTERLAB_WORKSPACES_DIR",
    "IPYTHONDIR",
):
    os.environ[_name] = str(Path(_HOME, _name.lower()))
    Path(os.environ[_name]).mkdir(mode=0o700)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    # Last: Playwright keeps an event loop running in this thread, in which pytest-asyncio can start none.
    items.sort(key=lambda item: item.path.is_relative_to(ROOT / "tests" / "browser"))
    for item in items:
        if "demo" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.slow)


_parity: Counter[str] = Counter()
"""Cases and tensors that were compared, in all processes."""


def _count_parity() -> None:
    compare = sys.modules.get("compare")
    if compare is not None:
        _parity.update(compare.COUNTS)


def pytest_sessionfinish(session: pytest.Session) -> None:
    _count_parity()
    worker = getattr(session.config, "workeroutput", None)
    if worker is not None:
        worker["parity"] = dict(_parity)


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:  # of pytest-xdist
    _parity.update(getattr(node, "workeroutput", {}).get("parity", {}))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if _parity:
        counts = ", ".join(f"{count:,} {what}" for what, count in _parity.items())
        terminalreporter.write_line(f"parity with plain generate(): {counts}")


def pytest_unconfigure() -> None:
    shutil.rmtree(_HOME, ignore_errors=True)


@pytest.fixture(scope="session")
def demo() -> LoadedModel:
    """The demo model and its tokenizer; what uses it is marked slow. Do not change either."""
    from genscope.kernel_side.models import load_model

    return load_model("demo", progress=None)
