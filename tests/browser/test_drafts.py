"""Assisted decoding in a real JupyterLab: what was kept, what was dropped, and that what was dropped is no text."""

from __future__ import annotations

from typing import Any

import pytest
from playwright.sync_api import expect

from live_jupyter import Notebook, Open, until
from scope_page import generate, lanes, photograph, ready, wait_over

DEMO = """
import replay
from genscope import Scope
scope = Scope("demo", prompt={prompt!r}, strategy={strategy!r}, max_new_tokens={tokens}, **{options})
scope
"""
POTATOES = (
    "One potato, two potato, three potato, four. Five potato, six potato, seven potato, more. One potato, two potato,"
)

SHOWN = """() => {
  const text = document.querySelector('.genscope .gs-text');
  const at = (selector) => [...text.querySelectorAll(selector)].map((span) => Number(span.dataset.i));
  const next = (element) => {
    while (element && !element.matches('[data-i]')) element = element.nextElementSibling;
    return element ? Number(element.dataset.i) : text.querySelectorAll('[data-i]').length;
  };
  return {
    accepted: at('.gs-accepted'),
    rounds: at('.gs-round'),
    rejected: [...text.querySelectorAll('.gs-rejected')].map((draft) => [draft.dataset.text, next(draft)]),
    status: document.querySelector('.genscope .gs-drafted').textContent,
  };
}"""


def origin(page: Notebook, index: int) -> str:
    """Pin a token, and return what the inspector says of where it is from."""
    page.scope.locator(f"[data-i='{index}']").click()
    expect(page.scope.locator(".gs-kicker b").first).to_have_text(str(index))
    return page.scope.locator(".gs-origin").inner_text()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("strategy", "prompt", "tokens", "options"),
    [("prompt_lookup", POTATOES, 40, {}), ("early_exit", "The capital of France is", 24, {"assistant_early_exit": 20})],
    ids=["prompt_lookup", "early_exit"],
)
def test_drafts_of_the_demo_model_are_those_of_its_rounds(
    notebook: Open, strategy: str, prompt: str, tokens: int, options: dict[str, int]
) -> None:
    page = notebook(DEMO.format(strategy=strategy, prompt=prompt, tokens=tokens, options=options), width=1500)
    page.run_cell(0)
    ready(page)
    generate(page)
    wait_over(page)
    expected: dict[str, Any] = page.ask("replay.drafts(scope.run)")
    until(lambda: page.page.evaluate(SHOWN)["rounds"] == expected["rounds"], what="for all rounds")
    shown = page.page.evaluate(SHOWN)
    assert expected["accepted"], "no draft was kept: no test of it"
    assert len(expected["rejected"]) > 5, "hardly a draft was dropped: no test of it"
    own = expected.pop("own")
    assert shown == expected
    assert page.scope.locator("[data-i]:not(.gs-in):not(.gs-accepted)").count() == len(own)
    assert origin(page, expected["accepted"][0]).startswith("accepted draft")
    assert origin(page, own[0]) == "the model’s own"
    page.page.keyboard.press("Escape")
    photograph(page, f"drafts-{strategy}")

    text = "".join(page.ask("[token.shown for token in scope.run.record]"))
    assert "".join(lanes(page)[0]["tokens"]) == text
    page.scope.locator(".gs-text").first.focus()
    page.page.keyboard.press("Control+a")
    # A selection gives a break of lines at the end of the block.
    assert page.page.evaluate("() => getSelection().toString()").rstrip("\n") == text.rstrip("\n")
    page.page.keyboard.press("Control+c")
    assert page.page.evaluate("() => navigator.clipboard.readText()") == text

    drafts = page.scope.get_by_role("button", name="Drafts")
    expect(drafts).to_have_attribute("aria-pressed", "true")
    expect(page.scope.locator(".gs-rejected").first).to_be_visible()
    drafts.click()
    expect(page.scope.locator(".gs-rejected").first).to_be_hidden()
    expect(page.scope.locator(".gs-accepted").first).to_have_css("border-top-width", "0px")
    drafts.click()
    expect(page.scope.locator(".gs-rejected").first).to_be_visible()
