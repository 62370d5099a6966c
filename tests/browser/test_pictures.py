"""The demo model in a real JupyterLab, photographed: light and dark, 700 and 1,200 pixels wide. Pictures are kept."""

from __future__ import annotations

import pytest
from playwright.sync_api import expect

from live_jupyter import Open, until
from scope_page import generate, photograph, ready, wait_over

CELL = """
from genscope import Scope
scope = Scope("demo", prompt="In 1969, the first human", strategy="sample", temperature=0.7, seed=14, max_new_tokens=90)
scope
"""


@pytest.mark.slow
def test_pictures_of_the_scope(notebook: Open) -> None:
    page = notebook(CELL, width=1500)
    page.run_cell(0)
    ready(page)
    generate(page)
    until(lambda: page.ask("scope.run is not None and len(scope.run.record) > 30"), 120)
    page.screenshot("live-light-1200")
    wait_over(page)
    page.scope.locator("[data-i]").nth(18).click()
    photograph(page, "scope", whole=True)
    expect(page.scope.locator(".gs-kicker b").first).to_have_text("18")
