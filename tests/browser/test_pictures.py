"""The demo model in a real JupyterLab, photographed: light and dark, 700 and 1,200 pixels wide. Pictures are kept."""

from __future__ import annotations

import pytest
from playwright.sync_api import expect

from live_jupyter import Notebook, Open, until

CELL = """
from genscope import Scope
scope = Scope("demo", prompt="In 1969, the first human", strategy="sample", temperature=0.7, seed=14, max_new_tokens=90)
scope
"""

# Elements of the scope that stick out of it, or texts that overlap a sibling's.
FAULTS = """() => {
  const root = document.querySelector('.genscope');
  const box = root.getBoundingClientRect();
  const faults = [];
  for (const element of root.querySelectorAll('*')) {
    const r = element.getBoundingClientRect();
    if (r.width && r.height && !element.closest('.gs-text, .gs-sr, .gs-alternatives') && (r.right > box.right + 1 || r.left < box.left - 1)) {
      faults.push(`sticks out: ${element.className || element.tagName}`);
    }
  }
  const words = [...root.querySelectorAll('dt, dd, label, button, th, td, h1, h2, h3')].filter((e) =>
    e.checkVisibility() && e.offsetParent && e.textContent.trim() && !e.closest('details:not([open]) > :not(summary)') && !e.closest('.gs-text, .gs-sr') && !e.querySelector('dt, dd, label, button'));
  const boxes = words.map((element) => {
    const range = document.createRange();
    range.selectNodeContents(element);
    return [element, range.getBoundingClientRect()];
  });
  for (let i = 0; i < boxes.length; i += 1) {
    for (let j = i + 1; j < boxes.length; j += 1) {
      const [[a, p], [b, q]] = [boxes[i], boxes[j]];
      const wide = Math.min(p.right, q.right) - Math.max(p.left, q.left);
      const high = Math.min(p.bottom, q.bottom) - Math.max(p.top, q.top);
      if (wide > 2 && high > 3 && !a.contains(b) && !b.contains(a) && !a.closest('.gs-alternatives') ) {
        faults.push(`overlap: ${a.textContent.trim()} / ${b.textContent.trim()}`);
      }
    }
  }
  return faults;
}"""


def set_width(page: Notebook, width: int) -> None:
    """Make the scope this wide."""
    for _ in range(3):
        now = page.scope.bounding_box()
        assert now is not None
        size = page.page.viewport_size
        assert size is not None
        page.page.set_viewport_size({"width": round(size["width"] + width - now["width"]), "height": 1500})
        page.page.wait_for_timeout(400)


@pytest.mark.slow
def test_pictures_of_the_scope(notebook: Open) -> None:
    page = notebook(CELL, width=1500)
    page.command("application:toggle-left-area")
    page.run_cell(0)
    until(lambda: page.ask("scope.status['phase']") == "ready", 120, "for the demo model")
    set_width(page, 1200)
    page.scope.get_by_role("button", name="Generate").click()
    until(lambda: page.ask("scope.run is not None and len(scope.run.record) > 30"), 120)
    page.screenshot("live-light-1200")
    until(lambda: page.ask("scope.run.over"), 240)
    page.scope.locator("[data-i]").nth(18).click()
    for theme in ("light", "dark"):
        page.theme(theme)  # type: ignore[arg-type]  # mypy widens the literal
        for width in (1200, 700):
            set_width(page, width)
            box = page.scope.bounding_box()
            assert box is not None
            assert abs(box["width"] - width) <= 2
            page.scope.scroll_into_view_if_needed()
            page.page.mouse.move(5, 5)
            page.page.wait_for_timeout(200)
            page.screenshot(f"scope-{theme}-{width}", page.scope)
            page.screenshot(f"lab-{theme}-{width}")
            assert page.page.evaluate(FAULTS) == [], (theme, width)
    expect(page.scope.locator(".gs-kicker b").first).to_have_text("18")
