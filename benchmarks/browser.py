"""What a person sees of speed: a real kernel, a real JupyterLab, a real Chromium.

Each stream is made at a known pace; the page notes when each token was painted. The last line is one JSON object:

``paint_p95_ms_50``, ``paint_p95_ms_5000``
    from a token's entry in the record to the frame that shows it, 95th percentile, at 50 and at 5,000 tokens a second
``lost_tokens``
    tokens of all streams that never showed
``recolour_ms_50k``, ``hover_ms_50k``
    with 50,000 tokens in the page: from the click on another measure, or the pointer's entering a token, to the next
    frame painted; medians
``append_p95_ms_50k``
    as ``paint_p95_ms_50``, with 50,000 tokens in the page already
"""

from __future__ import annotations

import json
import statistics
import sys
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser, sync_playwright

TESTS = Path(__file__).resolve().parents[1] / "tests"
sys.path.insert(0, str(TESTS))  # the tests' way to drive a JupyterLab

from live_jupyter import JupyterServer, Notebook, launch_chromium, opened, until  # noqa: E402 - after the path

CELL = """
from genscope.widget import Scope
from paced_engine import PacedEngine
engine = PacedEngine({stretches})
inf = float("inf")
scope = Scope(engine, prompt="x", max_new_tokens=100_000)
scope
"""

# Every frame that changed the number of tokens: when it was painted, and the number.
WATCH = """() => {
  const text = document.querySelector('.genscope .gs-text');
  const frames = window.gsFrames = [];
  let last = 0;
  const look = () => {
    const chunks = text.querySelectorAll('.gs-chunk');
    const end = chunks.length && chunks[chunks.length - 1].lastElementChild;
    const n = end && end.dataset.i !== undefined ? Number(end.dataset.i) + 1 : last;
    if (n !== last) {
      last = n;
      // A task behind the frame's: the frame has been painted when it runs.
      setTimeout(() => frames.push([performance.timeOrigin + performance.now(), n]));
    }
    requestAnimationFrame(look);
  };
  requestAnimationFrame(look);
}"""

# From an action to the frame painted after it.
TIMED = """async (act) => {
  const painted = () => new Promise((done) => requestAnimationFrame(() => setTimeout(done)));
  const times = [];
  for (let round = 0; round < 15; round += 1) {
    await new Promise((done) => setTimeout(done, 120));
    await painted();
    const began = performance.now();
    act(round);
    await painted();
    times.push(performance.now() - began);
  }
  return times;
}"""

RECOLOUR = """(round) => {
  const measures = document.querySelector('.genscope .gs-toolbar .gs-segmented').querySelectorAll('[role=radio]');
  measures[round % measures.length].click();
}"""

HOVER = """(round) => {
  const view = document.querySelector('.genscope .gs-text').getBoundingClientRect();
  const x = view.left + 30 + (round * 37) % (view.width - 60);
  const y = Math.max(view.top, 0) + 30 + (round % 4) * 24;
  const span = document.elementFromPoint(x, y)?.closest('[data-i]') ?? document.querySelector('.genscope [data-i]');
  span.dispatchEvent(new PointerEvent('pointerover', { bubbles: true, clientX: x, clientY: y }));
}"""


def main() -> None:
    """Measure, and print the figures last."""
    server = JupyterServer({"PYTHONPATH": str(TESTS)})
    try:
        with sync_playwright() as playwright:
            browser = launch_chromium(playwright)
            slow, lost_slow = stream(server, browser, "slow", "(500, 50)")
            fast, lost_fast = stream(server, browser, "fast", "(5000, 5000)")
            large = large_page(server, browser)
            browser.close()
    finally:
        server.close()
    figures = {
        "paint_p95_ms_50": p95(slow),
        "paint_p95_ms_5000": p95(fast),
        "lost_tokens": lost_slow + lost_fast + large.pop("lost"),
        **large,
    }
    print(json.dumps(figures))


def stream(server: JupyterServer, browser: Browser, name: str, stretches: str) -> tuple[list[float], int]:
    """Run one stream; return the latency of each token in milliseconds, and how many never showed."""
    with opened(server, browser, [CELL.format(stretches=stretches)], name) as notebook:
        latencies, lost = watched(notebook, 0)
        print(f"{name}: {len(latencies)} tokens, median {statistics.median(latencies):.0f} ms", flush=True)
        return latencies, lost


def watched(notebook: Notebook, first: int) -> tuple[list[float], int]:
    """Run the notebook's stream; return latencies from token ``first`` on, and lost tokens."""
    page = notebook.page
    page.set_default_timeout(300_000)
    notebook.run_cell(0)
    page.wait_for_selector(".genscope")
    page.evaluate(WATCH)
    notebook.scope.get_by_role("button", name="Generate").click()
    until(lambda: notebook.ask("scope.run is not None and scope.run.over"), 300, "for the stream to end")
    made: list[float] = notebook.ask("engine.made")
    shown = "() => window.gsFrames.length ? window.gsFrames.at(-1)[1] : 0"
    try:
        until(lambda: page.evaluate(shown) >= len(made), 120)
    except AssertionError:
        print("not all tokens showed", flush=True)
    frames: list[tuple[float, int]] = page.evaluate("() => window.gsFrames")
    latencies = []
    at = 0
    for index in range(first, len(made)):
        while at < len(frames) and frames[at][1] <= index:
            at += 1
        if at == len(frames):
            break
        latencies.append(frames[at][0] - 1000 * made[index])
    present = len(set(notebook.scope.locator("[data-i]").evaluate_all("spans => spans.map(s => s.dataset.i)")))
    return latencies, len(made) - present


def large_page(server: JupyterServer, browser: Browser) -> dict[str, Any]:
    """Measure a page of 50,000 tokens."""
    # The second of the two slow tokens comes after 20 s, when the page has long drawn the others.
    stretches = "(50_000, float('inf')), (2, 1 / 20), (250, 50)"
    with opened(server, browser, [CELL.format(stretches=stretches)], "large") as notebook:
        latencies, lost = watched(notebook, 50_002)
        notebook.page.wait_for_timeout(2000)
        recolour = notebook.page.evaluate(f"() => ({TIMED})({RECOLOUR})")
        hover = notebook.page.evaluate(f"() => ({TIMED})({HOVER})")
    return {
        "recolour_ms_50k": round(statistics.median(recolour)),
        "hover_ms_50k": round(statistics.median(hover)),
        "append_p95_ms_50k": p95(latencies),
        "lost": lost,
    }


def p95(values: list[float]) -> int:
    """Return the 95th percentile, rounded."""
    return round(statistics.quantiles(values, n=20)[-1])


if __name__ == "__main__":
    main()
