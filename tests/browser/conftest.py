"""One Jupyter server and one Chromium for all browser tests."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, expect, sync_playwright

from live_jupyter import App, JupyterServer, Notebook, Open, launch_chromium, opened

# A busy machine is no failure; what must be quick is measured where it is tested.
expect.set_options(timeout=30_000)
FAILED = pytest.StashKey[bool]()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    for item in items:
        if item.path.is_relative_to(here):
            item.add_marker(pytest.mark.browser)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, Any, Any]:
    report = yield
    item.stash[FAILED] = item.stash.get(FAILED, False) or report.failed
    return report


@pytest.fixture(scope="session")
def chromium() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        browser = launch_chromium(playwright)
        yield browser
        browser.close()


@pytest.fixture(scope="session")
def server() -> Iterator[JupyterServer]:
    # The kernels find the tests' tiny models and made-up engines. One thread each: torch's threads wait for each other
    # by spinning, and where Chromium needs the same cores a step takes many times as long.
    path = [str(Path(__file__).resolve().parents[1]), *filter(None, [os.environ.get("PYTHONPATH")])]
    server = JupyterServer({"PYTHONPATH": os.pathsep.join(path), "OMP_NUM_THREADS": "1"})
    yield server
    server.close()


@pytest.fixture
def notebook(server: JupyterServer, chromium: Browser, request: pytest.FixtureRequest) -> Iterator[Open]:
    """Open a notebook of the given cells, named after the test."""
    name = request.node.name.removeprefix("test_").translate(str.maketrans("[]/", "---")).strip("-")
    with contextlib.ExitStack() as stack:

        def open_(*cells: str, app: App = "lab", width: int = 1300) -> Notebook:
            page = stack.enter_context(opened(server, chromium, cells, name, app=app, width=width))
            stack.callback(lambda: request.node.stash.get(FAILED, False) and page.screenshot(f"failed-{name}"))
            return page

        yield open_
