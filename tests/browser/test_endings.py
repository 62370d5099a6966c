"""What a scope does in a real JupyterLab when its kernel is shut down, or its notebook is closed."""

from __future__ import annotations

import pytest
from playwright.sync_api import expect

from live_jupyter import Notebook, Open, until

CELL = """
import time
from tiny import tiny_model, tiny_tokenizer
from genscope.widget import Scope
model, tokenizer = tiny_model("llama", "sdpa"), tiny_tokenizer()
forward = model.forward
def slow(*args, **kwargs):
    time.sleep(0.03)
    return forward(*args, **kwargs)
slow.__signature__ = __import__("inspect").signature(forward)
model.forward = slow
scope = Scope(model, tokenizer, prompt="the cat", strategy="sample", seed=3, max_new_tokens=400, stop_at_eos=False)
scope
"""
# Longer than the front end waits before it asks a silent run.
SILENCE_MS = 8000


def start(page: Notebook, errors: list[str]) -> None:
    # Whoever threw it: JupyterLab's own comm does, on our behalf.
    page.page.on("pageerror", lambda error: errors.append(error.message))
    page.run_cell(0)
    page.scope.get_by_role("button", name="Generate").click()
    until(lambda: page.scope.locator("[data-i]").count() > 25, what="for tokens")


@pytest.mark.parametrize("living", [True, False], ids=["during-a-run", "after-it"])
def test_a_shutdown_is_said_and_what_came_is_kept(notebook: Open, living: bool) -> None:
    page, errors = notebook(CELL), list[str]()
    start(page, errors)
    if not living:
        page.scope.get_by_role("button", name="Stop").click()
        until(lambda: page.ask("scope.run.over"))
    page.command("kernelmenu:shutdown")
    expect(page.scope.get_by_role("status")).to_have_text("kernel gone")
    expect(page.scope.get_by_role("button", name="Generate")).to_be_disabled()
    page.scope.locator("textarea").first.fill("typed to nobody")
    page.scope.get_by_role("radio", name="Rank").click()
    page.page.wait_for_timeout(SILENCE_MS)
    assert page.scope.locator("[data-i]").count() > 25
    assert [error for error in errors if "send" in error] == []


def test_a_closed_notebook_leaves_nothing_that_asks_for_its_run(notebook: Open) -> None:
    page, errors = notebook(CELL), list[str]()
    start(page, errors)
    page.save()
    page.command("application:close")
    expect(page.page.locator(".genscope")).to_have_count(0)
    page.page.wait_for_timeout(SILENCE_MS)
    assert [error for error in errors if "send" in error] == []
