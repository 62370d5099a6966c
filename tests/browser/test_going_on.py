"""Hits of the prefix cache, branches, the tree of runs, a conversation and tools, in a real JupyterLab."""

from __future__ import annotations

import re
from typing import Any

import pytest
from playwright.sync_api import Locator, expect

from live_jupyter import Notebook, Open, until
from scope_page import generate, lanes, photograph, ready, wait_over

pytestmark = pytest.mark.slow

DEMO = """
from genscope import PrefixCache, Scope
scope = Scope("demo", prompt={prompt!r}, max_new_tokens={tokens}, prefix_cache=PrefixCache(2**28), **{options})
scope
"""
FACTS = "The capital of France is Paris. The capital of Japan is Tokyo. " * 3
TOOLS = '''
prompt = """Work out the sum with the tool add, then submit the number.

Question: What is 2 + 3?
<request><add>2 + 3<call>5<response>
The result is 5<submit>

Question: """


def add(query):
    return sum(map(int, query.split("+")))


def exact(texts, answers):
    return [float(answer in text) for text, answer in zip(texts, answers)]
'''
PLAY = """
scope.play(["What is 31 + 45?\\n", "What is 7 + 8 + 9?\\n"], tools=[add], reward_fn=exact, prompt=prompt,
           rewards_kwargs={"answers": ["76", "24"]}, max_new_tokens=30);
"""

# What the page says of each token: its place, and whether it looks like a hit.
SHOWN = """() => [...document.querySelectorAll('.genscope .gs-lane:first-of-type [data-i], .genscope .gs-text [data-i]')]
  .filter((span, i, all) => all.indexOf(span) === i)
  .map((span) => ({ i: Number(span.dataset.i), text: span.textContent, classes: [...span.classList] }))"""


def opened(notebook: Open, prompt: Any, tokens: int, *cells: str, **options: Any) -> Notebook:
    page = notebook(DEMO.format(prompt=prompt, tokens=tokens, options=options), *cells, width=1500)
    page.run_cell(0)
    ready(page)
    return page


def pin(page: Notebook, index: int) -> None:
    page.scope.locator(f"[data-i='{index}']").click()
    expect(page.scope.locator(".gs-kicker b").first).to_have_text(str(index))


def runs(page: Notebook, count: int) -> Locator:
    rows = page.scope.get_by_role("treeitem")
    expect(rows).to_have_count(count)
    return rows


def ended(page: Notebook, count: int) -> None:
    """Wait until there are so many runs, and the last one is over and shown."""
    until(lambda: page.ask(f"len(scope.runs) == {count} and scope.run.over"), 240, what=f"for the end of run {count}")
    wait_over(page)
    shown_is(page, "scope.run")


def shown_is(page: Notebook, run: str) -> None:
    """Wait until the page shows all tokens of a run of the kernel."""
    text = "".join(page.ask(f"[token.shown for token in {run}.record]"))
    until(lambda: "".join(lanes(page)[0]["tokens"]) == text, what=f"for the tokens of {run}")


def test_hits_on_the_prompt(notebook: Open) -> None:
    page = opened(notebook, FACTS + "The capital of Italy is", 8)
    generate(page)
    wait_over(page)
    expect(page.scope.locator(".gs-reuse")).to_contain_text("nothing reused: nothing is known of this model")

    prompt = page.scope.get_by_label("Prompt", exact=True).get_by_role("textbox").first
    prompt.fill(FACTS + "The capital of Spain is")
    page.scope.locator("details[data-group=cache] summary").click()
    page.scope.get_by_label("Verify").check()
    generate(page)
    ended(page, 2)
    reuse = page.ask("scope.run.status().reuse.reused")
    tokens = page.ask("scope.run.status().reuse.tokens")
    assert 40 < reuse == tokens - 2
    said = page.scope.locator(".gs-reuse")
    expect(said).to_contain_text(f"reused {reuse} of {tokens} prompt tokens (")
    expect(said).to_contain_text(re.compile(r"(saved|cost more than it saved, by) .+ \(measured\)"))
    expect(said).to_contain_text(f'at token {reuse} the prompt has " Spain", where " Italy" is known')
    expect(said).to_contain_text(re.compile("verified: largest logit difference .* same most probable token"))

    cached = page.ask("[token.cached for token in scope.run.record]")
    marked = page.page.evaluate(
        """() => [...document.querySelectorAll('.genscope [data-i]')]
             .map((span) => getComputedStyle(span).boxShadow.includes('-2.5px'))"""
    )
    assert len(marked) == len(cached)
    assert [at for at, hit in enumerate(cached) if hit] == [at for at, on in enumerate(marked) if on]
    page.scope.get_by_role("radio", name="Cache").click()
    pin(page, reuse)
    expect(page.scope.locator(".gs-inspector")).to_contain_text("computed")
    pin(page, reuse - 1)
    expect(page.scope.locator(".gs-inspector")).to_contain_text("hit")
    photograph(page, "cache-hits")
    page.scope.get_by_role("radio", name="Probability").click()
    page.page.keyboard.press("Escape")
    photograph(page, "cache-marks")


def test_a_branch_by_a_click_on_an_alternative_and_the_tree(notebook: Open) -> None:
    page = opened(notebook, "In 1969, the first human", 12)
    generate(page)
    wait_over(page)
    first = page.ask("scope.run.prompt_tokens")
    pin(page, first + 1)
    other = page.ask(f"scope.run.record[{first + 1}].alternatives[1].id")
    page.scope.locator(".gs-candidate").nth(1).click()
    ended(page, 2)
    assert page.ask("scope.run.record.ids()")[: first + 2] == [
        *page.ask("scope.runs[0].record.ids()")[: first + 1],
        other,
    ]
    assert page.ask("scope.run.request.branch.run == scope.runs[0].id")
    assert page.ask("scope.run.status().reuse.reused") == first + 1
    expect(page.scope.locator(".gs-fork")).to_have_count(1)
    expect(page.scope.get_by_role("textbox").first).to_have_value("In 1969, the first human")

    # Another text, to the letter; then the model's choice; then on behind the end; each from the branch.
    pin(page, first + 2)
    page.scope.get_by_label("Other text for this place").fill(" <b>on</b> Mars")
    page.page.keyboard.press("Enter")
    ended(page, 3)
    assert " <b>on</b> Mars" in page.ask("''.join(token.text for token in scope.run.record)")
    assert page.scope.locator(".gs-text b, .gs-run-title b").count() == 0
    page.scope.get_by_role("button", name="Keep going").click()
    ended(page, 4)
    assert page.ask("scope.run.request.branch.run == scope.runs[2].id")
    assert page.ask("scope.run.request.branch.position == len(scope.runs[2].record)")

    rows = runs(page, 4)
    assert [rows.nth(at).get_attribute("aria-level") for at in range(4)] == ["1", "2", "3", "4"]
    rows.nth(0).click()
    shown_is(page, "scope.runs[0]")
    expect(page.scope.locator(".gs-fork")).to_have_count(0)
    pin(page, first + 3)
    page.scope.locator("[data-command='branch-again']").click()
    ended(page, 5)
    page.scope.locator("[aria-current='true']").focus()
    page.page.keyboard.press("ArrowLeft")
    page.page.keyboard.press("ArrowRight")
    page.page.keyboard.press("Enter")
    until(lambda: page.ask("scope._runs.shown is scope.runs[1]"), what="for the first branch")
    shown_is(page, "scope.runs[1]")
    pin(page, first + 1)
    photograph(page, "tree")

    page.save()
    page.open()
    expect(page.scope.get_by_role("treeitem")).to_have_count(5)
    shown_is(page, "scope.runs[1]")
    expect(page.scope.locator("[aria-current='true']")).to_have_attribute("data-run", page.ask("scope.runs[1].id"))


def test_a_wrong_branch_says_why_where_it_was_asked_for(notebook: Open) -> None:
    page = opened(notebook, "In 1969, the first human", 6)
    generate(page)
    wait_over(page)
    page.ask("setattr(scope, 'settings', scope.settings | {'max_new_tokens': 9000})")
    page.scope.get_by_role("button", name="Keep going").click()
    expect(page.scope.locator(".gs-onward .gs-problem")).to_contain_text("do not fit")
    assert page.ask("len(scope.runs)") == 1


def test_a_conversation_goes_on(notebook: Open) -> None:
    page = opened(notebook, [{"role": "user", "content": "Name one river in Africa."}], 24)
    generate(page)
    wait_over(page)
    page.scope.get_by_label("Reply to the conversation").fill("And one in Asia?")
    page.page.keyboard.press("Enter")
    ended(page, 2)
    before, after = page.ask("scope.runs[0].record.ids()"), page.ask("scope.run.record.ids()")
    assert after[: len(before)] == before
    expect(page.scope.locator(".gs-reuse")).to_contain_text(f"reused {len(before) - 1} of ")
    assert [one["content"] for one in page.ask("scope.prompt")][0::2] == [
        "Name one river in Africa.",
        "And one in Asia?",
    ]
    typed = "() => [...document.querySelectorAll('.genscope .gs-prompt textarea')].map((box) => box.value)"
    until(lambda: "And one in Asia?" in page.page.evaluate(typed), what="for the whole conversation in the prompt")
    photograph(page, "reply")


def test_a_conversation_with_tools(notebook: Open) -> None:
    page = opened(notebook, "", 30, TOOLS, PLAY)
    page.run_cell(1)
    page.run_cell(2)
    until(lambda: page.ask("scope.run is not None and scope.run.over"), 240, what="for the end of the play")
    wait_over(page)
    assert page.ask("[history.reward for history in scope.run.output[4]]") == [1.0, 1.0]
    segments = page.ask("[[row.lane, row.kind, row.reused] for row in scope.run.recording.segments]")
    first = [row for row in segments if row[0] == 0]
    assert [kind for _, kind, _ in first] == ["prompt", "model", "tool", "model", "end", "reward"]
    assert first[3][2] > 40  # the second turn of the model goes on from the first
    labels = """() => [...document.querySelectorAll('.genscope .gs-lane')].map((lane) =>
        [...lane.querySelectorAll('.gs-segment b, .gs-outcome b')].map((label) => label.dataset.text))"""
    wanted = ["prompt", "model, turn 1", "tool: add", "model, turn 2", "ended: submit", "reward 1"]
    # Any frame may be the first to say that the run is over.
    until(lambda: page.page.evaluate(labels) == [wanted, wanted], what="for all segments")
    texts = page.ask("[[token.shown for token in lane.record] for lane in scope.run.lanes]")
    assert ["".join(one["tokens"]) for one in lanes(page)] == ["".join(one) for one in texts]
    photograph(page, "tools")


def test_a_conversation_with_tools_is_stopped(notebook: Open) -> None:
    page = opened(notebook, "", 30, TOOLS, PLAY.replace("max_new_tokens=30", "max_new_tokens=30, max_turns=4"))
    page.run_cell(1)
    page.run_cell(2)
    until(lambda: page.scope.locator(".gs-segment").count() > 0, what="for the first segment")
    page.scope.get_by_role("button", name="Stop").click()
    wait_over(page)
    expect(page.scope.get_by_role("status")).to_have_text(re.compile("^stopped"))
    assert page.ask("scope.run.state") == "stopped"
    assert page.ask("len(scope.run.output[4])") == 2
