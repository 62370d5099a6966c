"""The committed bundle on a page of its own, fed by the fake kernel: what needs a layout but no Jupyter."""

from __future__ import annotations

import functools
import http.server
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page

ROOT = Path(__file__).resolve().parents[2]
WIDTHS = (230, 302, 380, 420, 700, 868, 1200)

# Only modules that need no bundler; the schema is what the Python side made.
START = """async ({ width, traits, texts }) => {
  const widget = (await import("/widget/static/widget.js")).default;
  const { FakeModel } = await import("/js/dev/fake_model.js");
  const kernel = await import("/js/dev/fake_kernel.js");
  const schema = await (await fetch("/js/dev/settings.schema.json")).json();
  const settings = { strategy: "sample", top_k: 7, max_new_tokens: 1600, stop_strings: ["User:"], seed: 7, alternatives: 10 };
  const model = new FakeModel({ schema, settings, prompt: "Once", about: { model: "someone/some-model-135M", chat: true, context: 8192 }, ...traits });
  const host = document.createElement("div");
  host.style.width = `${width}px`;
  document.body.append(host);
  const props = { model, el: host, signal: new AbortController().signal };
  const { initialize, render } = widget();
  await initialize(props);
  await render(props);
  const { rows, promptTokens } = texts
    ? { rows: texts.map((text) => ({ generated: true, raw: 0.5, processed: 0.5, bytes: "e280", ...(typeof text === "string" ? { text } : text) })), promptTokens: 0 }
    : kernel.believableRun();
  const run = new kernel.FakeRun("r1", rows);
  const begin = () => model.receive(run.begin(promptTokens, { ...settings }));
  const data = (from, to) => model.receive(run.data(from, to));
  const end = () => model.receive(run.end({ state: "finished", why: "eos" }));
  const drawn = () => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)));
  Object.assign(window, { model, rows, begin, data, end, drawn, kernel });
  await drawn();
}"""

# What sticks out of the scope, or of a box within that cannot be scrolled.
STICKS_OUT = """() => {
  const root = document.querySelector(".genscope");
  const faults = [];
  if (root.scrollWidth > root.clientWidth) faults.push(`root: ${root.scrollWidth} > ${root.clientWidth}`);
  const box = root.getBoundingClientRect();
  for (const element of root.querySelectorAll("*")) {
    const r = element.getBoundingClientRect();
    const seen = r.width && r.height && element.checkVisibility() && !element.closest(".gs-text, .gs-sr, .gs-alternatives");
    if (seen && (r.right > box.right + 0.5 || r.left < box.left - 0.5)) {
      faults.push(`${element.tagName} ${element.className}: ${element.textContent.trim().slice(0, 30)}`);
    }
  }
  for (const part of root.querySelectorAll("section, .gs-controls, .gs-toolbar, .gs-legend, .gs-keys, .gs-fields, .gs-folds, .gs-inspector, .gs-readings, .gs-segmented, button, summary > span")) {
    if (part.scrollWidth > part.clientWidth + 1 && part.clientWidth && !part.closest(".gs-jump, .gs-alternatives")) {
      faults.push(`within ${part.tagName} ${part.className}: ${part.scrollWidth} > ${part.clientWidth}`);
    }
  }
  const boxes = [...root.querySelectorAll("button, summary, dt, dd, label, .gs-keys span, .gs-title > *, .gs-loading, input:not([type=range], [type=checkbox]), select")]
    .filter((element) => element.checkVisibility() && !element.closest("details:not([open]) > :not(summary), .gs-text, .gs-alternatives"))
    .map((element) => [element, element.getBoundingClientRect()]);
  boxes.forEach(([a, p], i) => {
    for (const [b, q] of boxes.slice(i + 1)) {
      const wide = Math.min(p.right, q.right) - Math.max(p.left, q.left);
      const high = Math.min(p.bottom, q.bottom) - Math.max(p.top, q.top);
      if (wide > 1 && high > 1 && !a.contains(b) && !b.contains(a)) {
        faults.push(`overlap: ${a.textContent.trim()} / ${b.textContent.trim()}`);
      }
    }
  });
  return faults;
}"""


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *args: object) -> None:
        """Say nothing."""


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=ROOT))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


@pytest.fixture
def page(chromium: Browser, address: str) -> Iterator[Page]:
    context = chromium.new_context(viewport={"width": 1240, "height": 1000})
    page = context.new_page()
    errors: list[str] = []
    page.on("pageerror", lambda error: errors.append(f"{error.message}\n{error.stack}"))
    page.route(
        f"{address}/empty",
        lambda route: route.fulfill(
            content_type="text/html",
            body='<!doctype html><link rel="icon" href="data:,"><link rel="stylesheet" href="/widget/static/widget.css">'
            '<body style="margin: 0" data-jp-theme-light="true">',
        ),
    )
    page.goto(f"{address}/empty")
    yield page
    context.close()
    assert errors == []


def start(page: Page, width: int = 868, traits: dict[str, Any] | None = None, texts: list[Any] | None = None) -> None:
    page.evaluate(START, {"width": width, "traits": traits or {}, "texts": texts})


TALK = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi"}]
LOADING = {"phase": "loading", "text": "Reading the weights: 94 of 272 tensors", "progress": 0.35}


@pytest.mark.parametrize("width", WIDTHS)
def test_nothing_is_cut_off_at_any_width(page: Page, width: int) -> None:
    start(page, width, {"prompt": TALK, "status": LOADING})
    assert page.evaluate(STICKS_OUT) == [], "loading"
    page.evaluate("() => { model.set('status', { phase: 'ready' }); return drawn(); }")
    assert page.evaluate(STICKS_OUT) == [], "idle"
    page.evaluate("() => { begin(); data(0, rows.length); end(); return drawn(); }")
    assert page.evaluate(STICKS_OUT) == [], "finished"
    page.evaluate("() => { document.querySelectorAll('details').forEach((group) => { group.open = true; }); }")
    page.locator("[data-i].gs-group").first.click()
    assert page.evaluate(STICKS_OUT) == [], "unfolded"
    for measure in ("Surprisal", "Entropy", "Rank", "Latency"):
        page.get_by_role("radio", name=measure).click()
        assert page.evaluate(STICKS_OUT) == [], measure


@pytest.mark.parametrize("width", [420, 700, 868, 1200])
def test_nothing_moves_while_a_run_grows(page: Page, width: int) -> None:
    start(page, width)
    heights = page.evaluate(
        """async () => {
          const heights = [];
          const note = async () => { await drawn(); heights.push(document.querySelector(".genscope").offsetHeight); };
          begin();
          await note();
          for (let at = 0; at < rows.length; at += 30) {
            data(at, Math.min(rows.length, at + 30));
            await note();
          }
          end();
          await note();
          model.receive(new kernel.FakeRun("r2", rows).begin(0, { alternatives: 10 }));
          await note();
          return heights;
        }"""
    )
    assert len(set(heights)) == 1, heights


@pytest.mark.parametrize("width", [420, 700, 868, 1200])
def test_nothing_moves_when_the_model_is_there(page: Page, width: int) -> None:
    start(page, width, {"status": LOADING})
    top = "() => document.querySelector('.gs-prompt textarea').getBoundingClientRect().top"
    loading = page.evaluate(top)
    height = page.locator(".genscope").bounding_box()
    page.evaluate("() => { model.set('status', { phase: 'ready' }); return drawn(); }")
    assert page.evaluate(top) == loading
    assert page.locator(".genscope").bounding_box() == height


def test_the_inspector_stands_beside_the_tokens_in_a_usual_notebook(page: Page) -> None:
    start(page, 868)
    tokens, inspector = (page.locator(part).bounding_box() for part in (".gs-pane", ".gs-inspector"))
    assert tokens is not None
    assert inspector is not None
    assert tokens["y"] == inspector["y"]
    assert tokens["width"] > 500


def test_marks_of_direction_turn_no_neighbours(page: Page) -> None:
    bytes_ = {"text": "", "bytes": "e280", "group": 2}
    start(page, texts=["left", "\u202e", bytes_, {"text": "\u202e", "bytes": "ae", "group": 2}, "mid", "dle", "right"])
    page.evaluate("() => { begin(); data(0, rows.length); end(); return drawn(); }")
    lefts = page.evaluate("() => [...document.querySelectorAll('[data-i]')].map((e) => e.getBoundingClientRect().left)")
    assert lefts == sorted(lefts)


def test_text_from_right_to_left_runs_so(page: Page) -> None:
    start(page, texts=["مرحبا", " بالعالم", "\n", "left", " again"])
    page.evaluate("() => { begin(); data(0, rows.length); end(); return drawn(); }")
    first, second, _, left, again = page.evaluate(
        "() => [...document.querySelectorAll('[data-i]')].map((e) => e.getBoundingClientRect().left)"
    )
    assert first > second
    assert left < again
