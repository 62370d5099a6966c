"""Comparisons in a real JupyterLab: asked for, streamed side by side, one lane stopped, branched from; by pointer and keys."""

from __future__ import annotations

import pytest
from playwright.sync_api import expect

from live_jupyter import Notebook, Open, until
from scope_page import photograph, ready

pytestmark = pytest.mark.slow

DEMO = """
from genscope import Scope
scope = Scope("demo", prompt="The best thing about a microscope is that", strategy="sample", max_new_tokens={tokens}, stop_at_eos=False)
scope
"""


def opened(notebook: Open, tokens: int) -> Notebook:
    page = notebook(DEMO.format(tokens=tokens), width=1500)
    page.run_cell(0)
    ready(page)
    return page


def ask(page: Notebook, values: str, seeds: int) -> None:
    """Fill in the panel by keys alone, and start."""
    page.scope.get_by_role("button", name="Compare", exact=True).press("Enter")
    field = page.scope.locator(".gs-values").first
    field.fill(values)
    field.press("Tab")
    page.scope.get_by_label("seeds").fill(str(seeds))
    page.scope.get_by_label("seeds").press("Tab")
    page.scope.locator("[data-command=compare]").press("Enter")


def over(page: Notebook) -> None:
    until(lambda: page.ask("scope._runs.comparisons[-1].over"), 120, "for the end of the comparison")
    expect(page.scope.locator(".gs-compare-table tbody button")).to_have_count(0)


def test_lanes_grow_side_by_side_and_say_where_they_part(notebook: Open) -> None:
    page = opened(notebook, 40)
    ask(page, "0.4, 1, 1.6", 2)
    lanes = page.scope.locator(".gs-lane")
    expect(lanes).to_have_count(6, timeout=60_000)
    over(page)
    labels = [f"temperature {value}, seed" for value in ("0.4", "1", "1.6") for _ in range(2)]
    said = page.scope.locator(".gs-lane-head b").all_inner_texts()
    assert [text.rsplit(" ", 1)[0] for text in said] == labels
    assert page.ask("len(scope._runs.comparisons[-1].runs)") == 1
    expect(page.scope.locator(".gs-shared-prompt")).to_have_text("The best thing about a microscope is that")
    expect(lanes.nth(1).locator(".gs-in").first).to_be_hidden()
    # Side by side: the first two begin at the same height.
    tops = [box["y"] for box in (lanes.nth(at).bounding_box() for at in (0, 1)) if box is not None]
    assert tops[0] == tops[1]
    parted = page.scope.locator(".gs-differs")
    assert 1 <= parted.count() <= 5
    ids = page.ask("[lane.record.ids()[lane.lane.prompt_tokens:] for lane in scope._runs.comparisons[-1].lanes]")
    column = page.scope.locator(".gs-compare-table tbody tr td:nth-child(2)").all_inner_texts()
    for told, own in zip(column[1:], ids[1:], strict=True):
        same = next((at for at, (a, b) in enumerate(zip(own, ids[0], strict=True)) if a != b), None)
        assert told == ("all" if same is None else str(same))
    photograph(page, "comparison")

    # A lane goes on from a token as any run does.
    lanes.nth(2).locator(".gs-t:not(.gs-in)").nth(3).click()
    page.scope.locator("[data-command='branch-again']").click()
    until(lambda: page.ask("len(scope.runs)") == 2, what="for the branch")
    at = page.ask("scope.runs[-1].request.branch.position")
    lane = page.ask("scope._runs.comparisons[-1].lanes[2].record.ids()")
    until(lambda: page.ask("scope.runs[-1].over"), 60)
    assert page.ask("scope.runs[-1].record.ids()")[:at] == lane[:at]


def test_one_lane_is_stopped(notebook: Open) -> None:
    page = opened(notebook, 400)
    ask(page, "0.7", 2)
    stop = page.scope.locator(".gs-compare-table tbody tr").nth(1).get_by_role("button")
    stop.press("Enter", timeout=60_000)
    until(
        lambda: page.ask("scope._runs.comparisons[-1].runs[0]._job.stopped_lanes == {1}"), what="for the lane to stop"
    )
    generated = page.ask("[lane.generated for lane in scope._runs.comparisons[-1].lanes]")
    until(
        lambda: page.ask("scope._runs.comparisons[-1].lanes[0].generated") > generated[1] + 5,
        60,
        "for the other to go on",
    )
    page.scope.locator(".gs-commands button", has_text="Stop").click()
    until(lambda: page.ask("scope._runs.comparisons[-1].over"), 60)
    assert page.ask("scope._runs.comparisons[-1].whys") == [None, "stopped"]
