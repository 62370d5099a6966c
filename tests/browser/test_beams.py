"""The view of a beam search in a real JupyterLab: what it shows is what the run recorded, live, afterwards and back in time."""

from __future__ import annotations

from typing import Any

import pytest
from playwright.sync_api import expect

from live_jupyter import Notebook, Open, until
from scope_page import generate, lanes, near, photograph, ready, wait_over

DEMO = """
import replay
from genscope import Scope
scope = Scope("demo", prompt="In 1969, the first human", strategy="beam", num_beams=8, num_return_sequences=3, max_new_tokens=40)
scope
"""

TINY = """
import time, replay
from tiny import tiny_model, tiny_tokenizer
from genscope import Scope
model, tokenizer = tiny_model("llama", "sdpa"), tiny_tokenizer()
forward, pace = model.forward, [0.15]
def slow(*args, **kwargs):
    time.sleep(pace[0])
    return forward(*args, **kwargs)
slow.__signature__ = __import__("inspect").signature(forward)
model.forward = slow
scope = Scope(model, tokenizer, prompt="the cat", strategy="beam", num_beams=4, num_return_sequences=2, max_new_tokens=200, stop_at_eos=False)
scope
"""

SHOWN = """() => {
  const root = document.querySelector('.genscope .gs-beams');
  const rows = (name) => [...root.querySelectorAll(`section[aria-label="${name} hypotheses"] tbody tr`)].map((row) => ({
    key: row.dataset.key,
    cells: [...row.cells].slice(0, -1).map((cell) => cell.textContent),
    text: row.querySelector('.gs-btext bdi').textContent,
    mark: row.querySelector('.gs-bseq')?.textContent ?? '',
  }));
  return {
    when: root.querySelector('.gs-bwhen').textContent,
    live: rows('Live'),
    pool: rows('Finished'),
    settled: [...root.querySelectorAll('.gs-blines p')].map((line) => line.textContent),
    cells: Object.fromEntries([...root.querySelectorAll('.gs-bcell')].map((cell) => [cell.dataset.key, cell.dataset.line])),
    ends: [...root.querySelectorAll('.gs-bend')].map((end) => end.textContent),
    edges: root.querySelector('.gs-bl-chosen').getAttribute('d').split('M').length - 1,
  };
}"""


def shown(page: Notebook) -> dict[str, Any]:
    view: dict[str, Any] = page.page.evaluate(SHOWN)
    return view


def wait_drawn(page: Notebook, step: int | None = None) -> dict[str, Any]:
    """Wait until the page shows a step, by default the newest in the kernel, and return what it shows."""
    steps = page.ask("len(replay.steps_of(scope.run))")
    when = f"step {steps if step is None else step + 1} of {steps}"
    until(lambda: shown(page)["when"].startswith(when), what=f"for {when}")
    return shown(page)


def is_live(view: dict[str, Any], expected: list[dict[str, Any]]) -> None:
    """Check the table of live hypotheses, and what all of them share."""
    assert [row["key"] for row in view["live"]] == [one["key"] for one in expected]
    for place, (row, one) in enumerate(zip(view["live"], expected, strict=True), 1):
        assert row["cells"][0] == str(place)
        assert near(row["cells"][1], one["score"], 2), (row, one)
        assert view["settled"][0] + row["text"] == one["text"]
    assert set(view["cells"]) >= {one["key"] for one in expected}


def is_pool(view: dict[str, Any], expected: list[dict[str, Any]]) -> None:
    """Check the table of finished hypotheses."""
    assert [row["key"] for row in view["pool"]] == [one["key"] for one in expected]
    for place, (row, one) in enumerate(zip(view["pool"], expected, strict=True), 1):
        assert row["cells"][0] == str(place)
        assert near(row["cells"][1], one["score"], 3), (row, one)
        assert row["cells"][2] == str(int(one["key"].partition(":")[0]) + 1)
        assert row["text"]
        assert one["text"].endswith(row["text"])


@pytest.mark.slow
def test_a_search_of_the_demo_model_shows_what_it_does_and_did(notebook: Open) -> None:
    page = notebook(DEMO, width=1500)
    page.run_cell(0)
    ready(page)
    generate(page)
    until(lambda: page.scope.locator(".gs-bcell").count() > 4, what="for the tree")
    early = set(shown(page)["cells"])
    until(lambda: page.ask("scope.run.status().generated > 18"), 120, "for some steps")
    page.scope.get_by_role("button", name="Pause").click()
    until(lambda: page.ask("scope.run.state") == "paused")
    view = wait_drawn(page)
    assert max(int(key.partition(":")[0]) for key in view["cells"]) > max(int(key.partition(":")[0]) for key in early)
    is_live(view, page.ask("replay.live(scope.run)"))
    is_pool(view, page.ask("replay.pool(scope.run)"))
    photograph(page, "beams-live")

    page.scope.get_by_role("button", name="Resume").click()
    wait_over(page)
    view = wait_drawn(page)
    pool, chosen = page.ask("replay.pool(scope.run)"), page.ask("replay.chosen(scope.run)")
    is_pool(view, pool)
    assert view["live"] == []
    paths = {key for one in chosen for key in one["path"]}
    first = min(int(key.partition(":")[0]) for key in view["cells"])
    marked = {key for key, line in view["cells"].items() if line == "chosen"}
    assert marked == {key for key in paths if int(key.partition(":")[0]) >= first}
    assert view["edges"] == len(paths)
    became = {one["key"]: f"★ {sequence}" for sequence, one in enumerate(chosen, 1)}
    assert {row["key"]: row["mark"] for row in view["pool"] if row["key"] in became} == became
    assert sorted(end[:12] for end in view["ends"] if end.startswith("★")) == [f"★ sequence {n}" for n in (1, 2, 3)]
    expect(page.scope.get_by_role("status")).to_have_text("finished: 2 × reached 40 tokens, 1 × end of sequence")
    panes = lanes(page)
    assert [pane["generated"] for pane in panes] == page.ask("scope.run.texts")
    assert [pane["label"] for pane in panes] == ["sequence 1", "sequence 2", "sequence 3"]
    for pane, one in zip(panes, chosen, strict=True):
        assert f"score {one['score']:.3f}".replace("-", "−") in pane["head"]
    photograph(page, "beams-finished")

    page.scope.get_by_role("slider", name="Step of the search").fill("20")
    view = wait_drawn(page, 20)
    is_live(view, page.ask("replay.live(scope.run, 20)"))
    is_pool(view, page.ask("replay.pool(scope.run, 20)"))
    photograph(page, "beams-back-in-time")
    page.scope.get_by_role("button", name="newest").click()
    wait_drawn(page)


def test_a_search_outlasts_reloads_of_the_page(notebook: Open) -> None:
    page = notebook(TINY)
    page.run_cell(0)
    # Our own line to the kernel takes a while to open.
    assert page.ask("scope.state") == "idle"
    generate(page)
    until(lambda: page.ask("scope.run.status().generated > 12"), what="for some steps")
    page.scope.get_by_role("button", name="Pause").click()
    until(lambda: page.ask("scope.run.state") == "paused")
    before = wait_drawn(page)
    page.save()
    page.open()
    page.page.wait_for_selector(".genscope .gs-bcell", timeout=60_000)
    assert wait_drawn(page) == before
    expect(page.scope.get_by_role("status")).to_have_text("paused")
    page.ask("pace.clear() or pace.append(0)")
    page.scope.get_by_role("button", name="Resume").click()
    wait_over(page)
    before, panes = wait_drawn(page), lanes(page)
    assert "★ 1" in [row["mark"] for row in before["pool"]]
    assert [pane["tokens"] for pane in panes] == page.ask("replay.tokens(scope.run)")
    page.save()
    page.open()
    page.page.wait_for_selector(".genscope .gs-bcell", timeout=60_000)
    until(lambda: lanes(page) == panes, what="for the lanes")
    until(lambda: shown(page) == before, what="for the tree")


def test_stop_in_the_middle_of_a_search_gives_its_best_so_far(notebook: Open) -> None:
    page = notebook(TINY)
    page.run_cell(0)
    # Our own line to the kernel takes a while to open.
    assert page.ask("scope.state") == "idle"
    generate(page)
    until(lambda: page.ask("scope.run.status().generated > 12"), what="for some steps")
    page.scope.get_by_role("button", name="Stop").click()
    wait_over(page)
    assert page.ask("scope.run.state") == "stopped"
    until(lambda: len(lanes(page)) == 2 and all(pane["generated"] for pane in lanes(page)), what="for the lanes")
    panes, chosen = lanes(page), page.ask("replay.chosen(scope.run)")
    assert [pane["tokens"] for pane in panes] == page.ask("replay.tokens(scope.run)")
    assert 12 < page.ask("scope.run.lanes[0].generated") < 200
    view = wait_drawn(page)
    assert view["edges"] == len({key for one in chosen for key in one["path"]})
    is_pool(view, page.ask("replay.pool(scope.run)"))
