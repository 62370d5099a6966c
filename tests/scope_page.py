"""What tests read of a scope on a page, and its pictures: both themes, two widths, nothing that overlaps or sticks out."""

from __future__ import annotations

import re
from typing import Any

from playwright.sync_api import expect

from live_jupyter import Notebook, until

__all__ = ["FAULTS", "WIDTHS", "generate", "lanes", "near", "number", "photograph", "ready", "set_width", "wait_over"]

WIDTHS = (1200, 700)
HEIGHT = 2400
"""Of the window: the whole scope is in sight."""

# What sticks out of the scope, and texts that overlap; what a scroller hides is not seen.
FAULTS = """() => {
  const root = document.querySelector('.genscope');
  const box = root.getBoundingClientRect();
  const all = { left: -Infinity, top: -Infinity, right: Infinity, bottom: Infinity };
  const meet = (a, b) => ({
    left: Math.max(a.left, b.left), top: Math.max(a.top, b.top),
    right: Math.min(a.right, b.right), bottom: Math.min(a.bottom, b.bottom),
  });
  const clips = new Map([[root, all]]);
  const clipOf = (element) => {
    if (!clips.has(element)) {
      const { overflowX, overflowY } = getComputedStyle(element);
      const { left, top, right, bottom } = element.getBoundingClientRect();
      const own = { ...all, ...(overflowX !== 'visible' && { left, right }), ...(overflowY !== 'visible' && { top, bottom }) };
      clips.set(element, meet(own, clipOf(element.parentElement)));
    }
    return clips.get(element);
  };
  const seen = (element, r) => {
    const met = meet(r, clipOf(element));
    return { ...met, width: Math.max(0, met.right - met.left), height: Math.max(0, met.bottom - met.top) };
  };
  const faults = [];
  for (const element of root.querySelectorAll('*')) {
    const r = seen(element, element.getBoundingClientRect());
    if (r.width && r.height && !element.closest('.gs-sr') && (r.right > box.right + 1 || r.left < box.left - 1)) {
      faults.push(`sticks out: ${element.getAttribute('class') || element.tagName}`);
    }
  }
  for (const line of root.querySelectorAll('.gs-kicker')) {
    if (line.offsetHeight > 24) faults.push(`on two lines: ${line.textContent.trim()}`);
  }
  const words = 'dt, dd, label, button, th, td, h1, h2, h3, h4, summary > *, p, li, .gs-bcell > *, .gs-bend, .gs-btick, .gs-kicker span';
  const boxes = [...root.querySelectorAll(words)]
    .filter((e) => e.checkVisibility() && e.offsetParent && e.textContent.trim()
      && !e.closest('details:not([open]) > :not(summary)') && !e.closest('.gs-text, .gs-sr, .gs-blines') && !e.querySelector(words))
    .map((element) => {
      const range = document.createRange();
      range.selectNodeContents(element);
      return [element, seen(element, range.getBoundingClientRect())];
    })
    .filter(([, r]) => r.width && r.height);
  boxes.forEach(([a, p], i) => {
    for (const [b, q] of boxes.slice(i + 1)) {
      const wide = Math.min(p.right, q.right) - Math.max(p.left, q.left);
      const high = Math.min(p.bottom, q.bottom) - Math.max(p.top, q.top);
      if (wide > 2 && high > 3 && !a.contains(b) && !b.contains(a)) {
        faults.push(`overlap: ${a.textContent.trim()} / ${b.textContent.trim()}`);
      }
    }
  });
  return faults;
}"""


def set_width(page: Notebook, width: int) -> None:
    """Make the scope this wide."""
    for _ in range(3):
        now = page.scope.bounding_box()
        assert now is not None
        size = page.page.viewport_size
        assert size is not None
        page.page.set_viewport_size({"width": round(size["width"] + width - now["width"]), "height": HEIGHT})
        page.page.wait_for_timeout(400)


def photograph(page: Notebook, name: str, *, whole: bool = False) -> None:
    """Keep a picture in each theme and width, and look for faults in each.

    Parameters
    ----------
    page : Notebook
    name : str
    whole : bool
        Of all of JupyterLab, too.
    """
    for theme in ("light", "dark"):
        page.theme(theme)
        for width in WIDTHS:
            set_width(page, width)
            box = page.scope.bounding_box()
            assert box is not None
            assert abs(box["width"] - width) <= 2
            page.scope.scroll_into_view_if_needed()
            page.page.mouse.move(5, 5)
            page.page.wait_for_timeout(200)
            page.screenshot(f"{name}-{theme}-{width}", page.scope)
            if whole:
                page.screenshot(f"lab-{name}-{theme}-{width}")
            faults = page.page.evaluate(FAULTS)
            assert faults == [], (name, theme, width, faults)
    page.theme("light")
    set_width(page, WIDTHS[0])


def ready(page: Notebook) -> None:
    """Wait for the demo model, and make room for the scope."""
    until(lambda: page.ask("scope.status['phase']") == "ready", 120, "for the demo model")
    page.command("application:toggle-left-area")
    set_width(page, WIDTHS[0])


def generate(page: Notebook) -> None:
    """Start a run as a user does."""
    page.scope.get_by_role("button", name="Generate").click()


def wait_over(page: Notebook, seconds: float = 240) -> None:
    """Wait until the run is over and the page knows it."""
    # Asked of the page: a kernel that is asked all the time decodes slowly.
    expect(page.scope.get_by_role("status")).to_have_text(re.compile("^(finished|stopped)"), timeout=1000 * seconds)


def lanes(page: Notebook) -> list[dict[str, Any]]:
    """Return what each pane of tokens shows: ``label``, ``tokens``, and ``generated`` as one text."""
    shown: list[dict[str, Any]] = page.page.evaluate(
        """() => [...document.querySelector('.genscope').querySelectorAll('.gs-lane')].map((lane) => ({
             kind: lane.dataset.kind,
             label: lane.querySelector('.gs-lane-head b')?.textContent ?? '',
             head: lane.querySelector('.gs-lane-head').textContent,
             tokens: [...lane.querySelectorAll('[data-i]')].map((span) => span.textContent),
             generated: [...lane.querySelectorAll('[data-i]:not(.gs-in):not(.gs-special), .gs-tail')].map((span) => span.textContent).join(''),
           }))"""
    )
    return shown


def number(shown: str) -> float:
    """Read a number as the page writes it: ``−1.23``, ``45.6 %`` (as a share), ``> −0.01``."""
    text = shown.replace("−", "-").replace("\u202f", "").lstrip(">< ")
    return float(text.removesuffix("%")) / 100 if text.endswith("%") else float(text)


def near(shown: str, value: float, digits: int) -> bool:
    """Whether what is shown with so many digits is the value; the wire keeps five significant ones."""
    return bool(abs(number(shown) - value) <= 0.51 * 10**-digits + 1e-4 * abs(value))
