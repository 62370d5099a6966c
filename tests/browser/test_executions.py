"""Executions in a real JupyterLab: chosen, prepared and cancelled, told in the status, and compared in a twin."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import expect

from live_jupyter import Notebook, Open, until
from scope_page import generate, photograph, ready, wait_over

pytestmark = pytest.mark.slow

DEMO = """
from genscope import Scope
scope = Scope("demo", prompt="In 1969, the first human", max_new_tokens={tokens}, prefix_cache=None, **{options})
scope
"""
# Executions give the same tokens, so the second run is told another seed.
PARTING = """
from genscope.kernel_side import twin as _twin
_changed = _twin._changed
_twin._changed = lambda request, **changes: _changed(request, **(changes | ({"seed": 5} if "seed" in changes else {})))
"""


def opened(notebook: Open, *cells: str, tokens: int = 24, **options: object) -> Notebook:
    page = notebook(DEMO.format(tokens=tokens, options=options), *cells, width=1500)
    page.run_cell(0)
    ready(page)
    page.scope.locator("details[data-group=execution] summary").click()
    return page


def choose(page: Notebook, name: str) -> None:
    page.scope.get_by_label("Execution", exact=True).select_option(name)
    until(lambda: page.ask("scope.settings['execution']") == name, what=f"for {name} in the settings")


def preparing(page: Notebook) -> None:
    """Wait until the page says that something is being prepared."""
    expect(page.scope.locator(".gs-state [role=status]")).to_have_text(re.compile("^preparing: .+"), timeout=120_000)


def over(page: Notebook) -> None:
    """Wait until both runs of the twin are over, and the page knows it."""
    until(lambda: page.ask("bool(scope.twin_state) and scope.twin_state['over']"), 240, "for the end of the twin")
    wait_over(page)
    expect(page.scope.locator(".gs-side[data-state=finished]")).to_have_count(2)


def plain(text: str) -> str:
    return " ".join(text.replace("\u202f", " ").split())


def test_an_execution_is_chosen_prepared_and_told(notebook: Open) -> None:
    page = opened(notebook)
    line = page.scope.locator("[data-field=execution] .gs-choice")
    expect(line).to_have_text("The model's own code. Nothing to prepare.")
    twin = page.scope.get_by_role("button", name="Twin", exact=True)
    expect(twin).to_be_disabled()
    generate(page)
    wait_over(page)
    expect(page.scope.locator(".gs-execution")).to_have_count(0)
    choose(page, "traced")
    expect(line).to_contain_text("Recorded once as a graph")
    expect(twin).to_be_enabled()
    photograph(page, "execution-choice")

    generate(page)
    preparing(page)
    expect(page.scope.locator(".gs-seconds")).to_have_text(re.compile(r"^[\d.]+\u202fm?s$"))
    expect(page.scope.get_by_role("button", name="Stop")).to_have_attribute("title", re.compile("^Cancel preparing"))
    expect(twin).to_be_disabled()
    page.screenshot("preparing-light-1200", page.scope)
    wait_over(page)
    use = page.ask("[getattr(scope.run.status().execution, name) for name in"
                   " ('passes', 'compared', 'graphs', 'largest_difference', 'prepared')]")  # fmt: skip
    passes, compared, graphs, difference, prepared = use
    assert passes + compared == 24
    assert (graphs, difference) == (2, 0)
    said = plain(page.scope.locator(".gs-execution p").first.inner_text())
    assert said.startswith(
        f"traced: {passes} passes, {compared} compared with eager (largest difference 0), prepared in "
    )
    assert said.endswith(", 2 graphs")
    assert page.ask("scope.run.record.ids() == scope.runs[0].record.ids()")
    # What was prepared is in none of the run's times.
    assert page.ask("scope.run.status().elapsed") < prepared + page.ask("scope.runs[0].status().elapsed")
    photograph(page, "executed")

    generate(page)
    until(lambda: page.ask("len(scope.runs) == 3 and scope.run.over"), 120, "for the end of the third run")
    expect(page.scope.locator(".gs-execution p")).to_contain_text("nothing was to be prepared")


def test_preparing_is_cancelled_by_stop(notebook: Open) -> None:
    page = opened(notebook, execution="traced")
    generate(page)
    preparing(page)
    page.scope.get_by_role("button", name="Stop").click()
    wait_over(page)
    expect(page.scope.locator(".gs-state [role=status]")).to_have_text(re.compile("^stopped"))
    assert page.ask("[scope.run.state, len(scope.runs)]") == ["stopped", 1]


def test_a_twin_agrees(notebook: Open) -> None:
    page = opened(notebook, tokens=40)
    choose(page, "traced")
    page.scope.get_by_role("button", name="Twin", exact=True).click()
    other = page.scope.locator("[data-side=other]")
    expect(other.locator("h4 span")).to_have_text(re.compile("^preparing: "), timeout=120_000)
    page.screenshot("twin-preparing-light-1200", page.scope)
    over(page)
    state = page.ask(
        "{key: scope.twin_state[key] for key in ('compared', 'agreeing', 'largest_gap', 'pays_off_after')}"
    )
    assert (state["compared"], state["agreeing"], state["largest_gap"]) == (40, 40, 0)
    expect(page.scope.locator(".gs-verdict")).to_have_text("40 of 40 tokens agree")
    texts = page.ask("[''.join(token.shown for token in run.record[run.prompt_tokens:]) for run in scope.runs]")
    for which, text in zip(("eager", "other"), texts, strict=True):
        assert page.scope.locator(f"[data-side={which}] .gs-twin-text").evaluate("box => box.textContent") == text
    rows = page.scope.locator(".gs-numbers tbody tr").evaluate_all(
        "rows => rows.map((row) => [...row.children].map((cell) => cell.textContent.trim()))"
    )
    numbers = {first: [plain(cell) for cell in cells] for first, *cells in rows}
    assert numbers["tokens"] == ["40", "40", "40 of 40 agree"]
    assert numbers["largest logit gap"] == ["0", "over all 40 choices"]
    assert numbers["preparation"][0] == "none"
    assert numbers["preparation"][1].endswith(", 2 graphs")
    pays = state["pays_off_after"]
    assert numbers["preparation"][2] == (
        "is not faster here: never pays off" if pays is None else f"pays off after {pays:,} tokens"
    )
    assert numbers["time a token"][2].endswith("times as fast")
    expect(page.scope.get_by_role("treeitem")).to_have_count(2)
    assert plain(page.scope.locator(".gs-run-what").nth(1).inner_text()) == "greedy, traced"
    photograph(page, "twin-agrees")

    page.save()
    page.open()
    expect(page.scope.locator(".gs-verdict")).to_have_text("40 of 40 tokens agree")
    page.scope.get_by_role("button", name="Close the twin view").click()
    expect(page.scope.locator(".gs-twin")).to_be_hidden()


def test_a_twin_differs(notebook: Open) -> None:
    page = opened(notebook, PARTING, tokens=40, strategy="sample", temperature=0.4, seed=14, execution="traced")
    page.run_cell(1)
    page.scope.get_by_role("button", name="Twin", exact=True).click()
    over(page)
    difference = page.ask("scope.twin_state['difference']")
    at, agreeing = difference["generated"], page.ask("scope.twin_state['agreeing']")
    assert agreeing == at < 40
    expect(page.scope.locator(".gs-verdict")).to_contain_text(f"first difference at token {difference['position']}")
    for which in ("eager", "other"):
        side = page.scope.locator(f"[data-side={which}]")
        expect(side.locator("[data-place=same]")).to_have_count(at)
        assert side.locator("[data-place=first]").text_content() == page.ask(
            f"scope.twin_state['{which}']['text'][{at}]"
        )
        # Seen without its colour.
        mark = "span => getComputedStyle(span, '::before').content"
        assert side.locator("[data-place=first]").evaluate(mark) == '"≠"'
    chosen = page.scope.locator(".gs-distributions [data-chosen]")
    expect(chosen).to_have_count(2)
    photograph(page, "twin-differs")


def test_stop_stops_both_runs_of_a_twin(notebook: Open) -> None:
    page = opened(notebook, tokens=200, execution="traced", stop_at_eos=False)
    page.scope.get_by_role("button", name="Twin", exact=True).click()
    until(lambda: page.ask("len(scope.runs) == 2 and scope.runs[0].status().generated > 2"), 60, "for some tokens")
    page.scope.get_by_role("button", name="Stop").click()
    until(lambda: page.ask("[run.state for run in scope.runs]") == ["stopped", "stopped"], 60, "for the end of both")
    expect(page.scope.locator(".gs-side[data-state=stopped]")).to_have_count(2)
    expect(page.scope.locator(".gs-verdict")).to_have_text("nothing to compare")
