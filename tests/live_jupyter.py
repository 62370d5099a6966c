"""A real Jupyter server and notebooks in a real Chromium, for the browser tests and benchmarks.

It starts, opens, runs cells, asks the kernel, and takes screenshots; what is tested is in the tests.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import secrets
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Literal, Protocol

from jupyter_client.blocking.client import BlockingKernelClient
from playwright.sync_api import Browser, Locator, Page, Playwright

__all__ = ["App", "JupyterServer", "Notebook", "Open", "launch_chromium", "opened", "until"]

App = Literal["lab", "notebook"]
ROOT = Path(__file__).resolve().parents[1]
ARTEFACTS = ROOT / "artefacts" / "browser"
CHROMIUM_FLAGS = [
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync",
]  # fmt: skip


def until(condition: Callable[[], Any], seconds: float = 60, what: str = "") -> Any:
    """Wait for a condition to hold and return its value."""
    deadline = time.monotonic() + seconds
    while not (value := condition()):
        if time.monotonic() > deadline:
            raise AssertionError(f"waited {seconds} s in vain {what}")
        time.sleep(0.02)
    return value


def launch_chromium(playwright: Playwright) -> Browser:
    """Start Debian's Chromium; a missing one is an error that names the command."""
    path = shutil.which("chromium")
    if path is None:
        raise RuntimeError("the browser tests need Chromium: run `make chromium`, or `apt-get install chromium`")
    return playwright.chromium.launch(executable_path=path, args=CHROMIUM_FLAGS)


class JupyterServer:
    """JupyterLab and Notebook 7 on one server of their own: own settings, own folder, own port."""

    def __init__(self, environment: dict[str, str] | None = None) -> None:
        self.home = Path(tempfile.mkdtemp(prefix="genscope-jupyter-"))
        self.root = self.home / "work"
        self.root.mkdir()
        self.token = secrets.token_hex(8)
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        folders = {
            name: str(self.home / name.lower())
            for name in ("JUPYTER_CONFIG_DIR", "JUPYTER_DATA_DIR", "JUPYTER_RUNTIME_DIR", "IPYTHONDIR")
        }
        self.runtime = Path(folders["JUPYTER_RUNTIME_DIR"])
        # Or a question about news covers a corner of every page.
        quiet = self.home / "settings" / "@jupyterlab" / "apputils-extension" / "notification.jupyterlab-settings"
        quiet.parent.mkdir(parents=True)
        quiet.write_text('{"fetchNews": "false", "checkForUpdates": false}')
        self._log = (self.home / "log").open("w")
        self._process = subprocess.Popen(
            [
                sys.executable, "-m", "jupyterlab", "--no-browser", "--allow-root", "--ip=127.0.0.1",
                f"--port={self.port}", "--ServerApp.port_retries=0", f"--IdentityProvider.token={self.token}",
                f"--ServerApp.root_dir={self.root}", "--LabApp.expose_app_in_browser=True",
                "--JupyterNotebookApp.expose_app_in_browser=True", "--ServerApp.terminals_enabled=False",
                f"--LabApp.user_settings_dir={self.home / 'settings'}", f"--LabApp.workspaces_dir={self.home / 'workspaces'}",
            ],
            env=os.environ | {"JUPYTER_PREFER_ENV_PATH": "1"} | folders | (environment or {}),
            stdout=self._log,
            stderr=subprocess.STDOUT,
        )  # fmt: skip
        until(self._answers, 90, f"for JupyterLab; see {self.home / 'log'}")

    def _answers(self) -> bool:
        if self._process.poll() is not None:
            raise RuntimeError(f"JupyterLab ended:\n{(self.home / 'log').read_text()[-3000:]}")
        with contextlib.suppress(OSError):
            return bool(self.get("api/status"))
        return False

    def get(self, path: str) -> Any:
        """Ask the server's REST interface."""
        request = urllib.request.Request(
            f"http://127.0.0.1:{self.port}/{path}", headers={"Authorization": f"token {self.token}"}
        )
        with urllib.request.urlopen(request, timeout=10) as answer:
            return json.load(answer)

    def write(self, cells: Sequence[str], name: str) -> Path:
        """Write a notebook of code cells."""
        notebook = {
            "nbformat": 4,
            "nbformat_minor": 5,
            "metadata": {
                "kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"},
                "language_info": {"name": "python"},
            },
            "cells": [
                {
                    "id": f"cell{number}",
                    "cell_type": "code",
                    "source": source,
                    "metadata": {},
                    "outputs": [],
                    "execution_count": None,
                }
                for number, source in enumerate(cells)
            ],
        }
        path = self.root / f"{name}.ipynb"
        path.write_text(json.dumps(notebook))
        return path

    def close(self) -> None:
        """End the server and its kernels, and remove the folder."""
        self._process.terminate()
        try:
            self._process.wait(20)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._log.close()
        shutil.rmtree(self.home, ignore_errors=True)


class Notebook:
    """A notebook in a page, and a line of our own to its kernel."""

    def __init__(self, server: JupyterServer, page: Page, path: Path, app: App = "lab") -> None:
        self.server, self.page, self.path, self.app = server, page, path, app
        self._client: BlockingKernelClient | None = None
        self.open()

    def open(self) -> None:
        """Open the notebook, or reload it."""
        kind = "lab/tree" if self.app == "lab" else "notebooks"
        reset = "&reset" if self.app == "lab" else ""
        self.page.goto(f"http://127.0.0.1:{self.server.port}/{kind}/{self.path.name}?token={self.server.token}{reset}")
        self.page.wait_for_function("() => window.jupyterapp")
        self.page.wait_for_selector(".jp-Notebook .jp-CodeCell", timeout=60_000)
        self.page.wait_for_function(
            """() => { const panel = window.jupyterapp.shell.currentWidget;
                       return panel?.sessionContext?.isReady && panel.sessionContext.session?.kernel?.status === 'idle'; }""",
            timeout=60_000,
        )

    def command(self, name: str, arguments: dict[str, Any] | None = None) -> Any:
        """Run a command of the application, without waiting for what it starts."""
        return self.page.evaluate(
            "([name, args]) => { window.jupyterapp.commands.execute(name, args); }", [name, arguments or {}]
        )

    def run_cell(self, index: int, *, wait: bool = True) -> Locator:
        """Run one cell as a user does, and return it."""
        cell = self.page.locator(".jp-Notebook .jp-CodeCell").nth(index)
        cell.scroll_into_view_if_needed()
        cell.locator(".cm-content").click()
        self.page.keyboard.press("Control+Enter")
        if wait:
            until(lambda: re.search(r"\[\d+\]", cell.locator(".jp-InputPrompt").inner_text()), what=f"for cell {index}")
        return cell

    def theme(self, name: Literal["light", "dark"]) -> None:
        """Switch the application's theme."""
        self.command("apputils:change-theme", {"theme": f"JupyterLab {name.capitalize()}"})
        self.page.wait_for_selector(f'body[data-jp-theme-light="{str(name == "light").lower()}"]', state="attached")
        self.page.wait_for_timeout(300)

    def save(self) -> None:
        """Save the notebook and wait until it is."""
        self.page.evaluate("() => window.jupyterapp.commands.execute('docmanager:save')")

    @property
    def scope(self) -> Locator:
        """The first scope in the page."""
        return self.page.locator(".genscope").first

    def screenshot(self, name: str, part: Locator | None = None) -> Path:
        """Keep a picture under ``artefacts/``."""
        path = ARTEFACTS / f"{name}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        (part or self.page).screenshot(path=path)
        return path

    # The kernel

    @property
    def kernel_id(self) -> str:
        """The id of the notebook's kernel."""
        [session] = [s for s in self.server.get("api/sessions") if s["path"] == self.path.name]
        return str(session["kernel"]["id"])

    @property
    def client(self) -> BlockingKernelClient:
        """A client of our own on the kernel."""
        if self._client is None:
            self._client = BlockingKernelClient(
                connection_file=str(self.server.runtime / f"kernel-{self.kernel_id}.json")
            )
            self._client.load_connection_file()
            self._client.start_channels()
            self._client.wait_for_ready(60)
        return self._client

    def ask(self, expression: str, seconds: float = 60) -> Any:
        """Return the JSON value of an expression in the kernel, asked behind the page's back."""
        reply = self.client.execute(
            "import json as _json", silent=True, reply=True, timeout=seconds,
            user_expressions={"value": f"_json.dumps({expression})"},
        )["content"]  # fmt: skip
        value = reply["user_expressions"]["value"]
        if value["status"] != "ok":
            raise RuntimeError(f"{expression}: {value['ename']}: {value['evalue']}")
        return json.loads(eval(value["data"]["text/plain"]))  # a Python string literal made by our own kernel

    def close(self) -> None:
        """End the page and the kernel."""
        if self._client is not None:
            self._client.stop_channels()
        with contextlib.suppress(Exception):
            kernel = self.kernel_id
            request = urllib.request.Request(
                f"http://127.0.0.1:{self.server.port}/api/kernels/{kernel}", method="DELETE",
                headers={"Authorization": f"token {self.server.token}"},
            )  # fmt: skip
            urllib.request.urlopen(request, timeout=20).close()
        self.page.context.close()


class Open(Protocol):
    """Opens a notebook of the given cells."""

    def __call__(self, *cells: str, app: App = "lab", width: int = 1300) -> Notebook: ...


@contextlib.contextmanager
def opened(
    server: JupyterServer, browser: Browser, cells: Sequence[str], name: str, *, app: App = "lab", width: int = 1300
) -> Iterator[Notebook]:
    """Open a notebook of these cells in a page of its own; its errors in the console fail the block."""
    context = browser.new_context(viewport={"width": width, "height": 1000})
    context.grant_permissions(["clipboard-read", "clipboard-write"])
    page = context.new_page()
    errors: list[str] = []
    page.on("pageerror", lambda error: errors.append(f"{error.message}\n{error.stack}"))
    notebook = Notebook(server, page, server.write(cells, name), app)
    try:
        yield notebook
        ours = [error for error in errors if "genscope" in error or "widget.js" in error]
        assert ours == []
    finally:
        notebook.close()
