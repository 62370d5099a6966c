"""Strategies in the form, several sequences at once, and texts that are no markup, in a real JupyterLab."""

from __future__ import annotations

import json

import pytest
from playwright.sync_api import expect

from live_jupyter import Notebook, Open, until
from scope_page import generate, lanes, photograph, wait_over

TINY = """
import replay
from tiny import tiny_model, tiny_tokenizer
from genscope import Scope
scope = Scope(tiny_model("{kind}", "{attn}"), tiny_tokenizer(), {options})
scope
"""

EVIL = "<img src=x onerror=alert(1)>"
NASTY = f"""
import fake_rows
fake_rows.TEXTS = tuple({EVIL!r} if text.startswith("<script") else text for text in fake_rows.TEXTS)
from fake_engine import FakeEngine
from genscope import Scope
scope = Scope(FakeEngine(24), prompt="x", strategy={{strategy!r}}, max_new_tokens=24, {{options}})
scope
"""


def tiny(kind: str = "llama", attn: str = "sdpa", **options: object) -> str:
    return TINY.format(kind=kind, attn=attn, options=", ".join(f"{name}={value!r}" for name, value in options.items()))


def nasty(page_of: Open, strategy: str, **options: object) -> Notebook:
    """Run a model that says markup; a page that takes it for markup fails the test."""
    page = page_of(NASTY.format(strategy=strategy, options=", ".join(f"{k}={v!r}" for k, v in options.items())))
    page.page.on("dialog", lambda dialog: pytest.fail(f"a token ran as script: {dialog.message}"))
    page.run_cell(0)
    generate(page)
    wait_over(page)
    return page


def is_text(page: Notebook) -> None:
    """Check that the markup is read and does not act."""
    page.page.wait_for_timeout(300)
    assert page.scope.locator("img, script, s:not([aria-hidden])").count() == 0
    expect(page.scope.get_by_text(EVIL).first).to_be_attached()


def test_lanes_of_a_batch_are_named_and_hold_their_texts(notebook: Open) -> None:
    page = notebook(
        tiny(
            prompt=["the cat", "a hat and"], strategy="sample", num_return_sequences=2, seed=4,
            max_new_tokens=25, stop_at_eos=False,
        ),
        width=1500,
    )  # fmt: skip
    page.run_cell(0)
    generate(page)
    wait_over(page)
    texts = page.ask("replay.tokens(scope.run)")
    until(lambda: [pane["tokens"] for pane in lanes(page)] == texts, what="for all lanes")
    panes = lanes(page)
    assert [pane["label"] for pane in panes] == [
        "prompt 1 · sequence 1", "prompt 1 · sequence 2", "prompt 2 · sequence 1", "prompt 2 · sequence 2",
    ]  # fmt: skip
    assert len({pane["generated"] for pane in panes}) == 4
    assert all("reached 25 tokens" in pane["head"] for pane in panes)
    photograph(page, "batch")


def test_another_strategy_keeps_the_prompt_and_what_both_have(notebook: Open) -> None:
    page = notebook(tiny(prompt="the cat", strategy="sample", seed=11, max_new_tokens=12, stop_at_eos=False, top_k=7))
    page.run_cell(0)
    page.scope.locator("textarea").first.fill("a new prompt")
    page.scope.get_by_label("Strategy", exact=True).select_option("beam")
    page.scope.locator("[data-field=num_beams] input.gs-number").fill("3")
    until(lambda: page.ask("scope.settings['strategy']") == "beam" and page.ask("scope.settings['num_beams']") == 3)
    generate(page)
    wait_over(page)
    assert page.ask("[scope.run.request.prompt, scope.run.settings.seed, scope.run.settings.max_new_tokens]") == [
        "a new prompt", 11, 12,
    ]  # fmt: skip
    page.scope.get_by_label("Strategy", exact=True).select_option("beam_sample")
    expect(page.scope.locator("[data-field=top_k] input.gs-number")).to_have_value("7")
    expect(page.scope.locator("[data-field=num_beams] input.gs-number")).to_have_value("3")
    expect(page.scope.locator("textarea").first).to_have_value("a new prompt")


def test_a_strategy_that_cannot_be_says_why(notebook: Open) -> None:
    page = notebook(tiny("t5", "eager", prompt="the cat"), width=1500)
    page.run_cell(0)
    why: dict[str, str] = page.ask("scope.about['unavailable']")
    assert "assisted" in why
    options = page.scope.get_by_label("Strategy", exact=True).locator("option")
    said = options.evaluate_all("all => all.map((one) => [one.value, one.disabled, one.textContent])")
    assert {value for value, disabled, _ in said if disabled} == set(why)
    for value, disabled, text in said:
        assert text.endswith(f" – {why[value]}") if disabled else " – " not in text
    assert sum(not disabled for _, disabled, _ in said) > 3


def test_what_observing_costs_is_measured_when_one_looks(notebook: Open) -> None:
    page = notebook(tiny(attn="eager", prompt="the cat"), width=1500)
    page.run_cell(0)
    assert page.ask("scope.about['costs']") is None
    expect(page.scope.locator(".gs-cost").first).to_be_hidden()
    page.scope.locator("details[data-group=observe] summary").click()
    until(lambda: page.ask("scope.about['costs']"), 120, "for the costs")
    costs: dict[str, str] = page.ask("scope.about['costs']")
    assert set(costs) >= {"attention", "logit_lens"}
    for name, text in costs.items():
        expect(page.scope.locator(f"[data-field={name}] .gs-cost")).to_have_text(text)
    photograph(page, "costs")


def test_markup_in_a_beam_search_is_text(notebook: Open) -> None:
    page = nasty(notebook, "beam", num_beams=3)
    expect(page.scope.locator(".gs-beams").get_by_text(EVIL).first).to_be_attached()
    for cell in page.scope.locator(".gs-bcell").all()[-6:]:
        cell.hover()
    is_text(page)
    until(
        lambda: (
            EVIL in page.scope.locator(".gs-binspector").inner_text()
            or EVIL in page.scope.locator(".gs-bhyps").last.inner_text()
        )
    )


def test_markup_in_drafts_is_text(notebook: Open) -> None:
    page = nasty(notebook, "early_exit")
    expect(page.scope.locator(f".gs-rejected[data-text='{EVIL}']").first).to_be_visible()
    is_text(page)


def test_markup_in_what_is_looked_into_is_text(notebook: Open) -> None:
    page = nasty(notebook, "greedy", attention=True, logit_lens=True)
    position = page.ask(f"[token.text for token in scope.run.record].index({EVIL!r}, 8)")
    page.scope.locator(f"[data-i='{position}']").click()
    assert json.loads(page.scope.locator(".gs-literal").first.inner_text()) == EVIL
    page.scope.get_by_role("radio", name="Attention").click()
    expect(page.scope.locator(".gs-shares code").get_by_text(EVIL).first).to_be_attached()
    page.scope.get_by_text("attention matrix").click()
    expect(page.scope.locator(".gs-columns span").get_by_text(EVIL).first).to_be_attached()
    page.scope.locator(".gs-matrix canvas").hover(position={"x": 20, "y": 5})
    expect(page.scope.locator(".gs-readout")).to_contain_text("looks at")
    is_text(page)
    page.scope.get_by_role("radio", name="Logit lens").click()
    expect(page.scope.locator(".gs-lens code").get_by_text(EVIL).first).to_be_attached()
    is_text(page)
