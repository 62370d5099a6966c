"""Takes pictures of the harness, and measures recolouring and pointing with 50,000 tokens.

``npm run build && npm run harness``, then ``python dev/shots.py FOLDER [SCENE ...]``; ``bulk`` is the measurement. The
pages are served from this checkout; nothing else is fetched.
"""

import functools
import http.server
import json
import pathlib
import shutil
import sys
import threading

from playwright.sync_api import Page, sync_playwright

ROOT = pathlib.Path(__file__).parent.parent.parent
FLAGS = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"]
SCENES = ["running", "finished", "problems", "chat", "loading", "failed", "gone", "idle"]
SCENES += ["batch", "sequences", "encoder", "drafts", "attention", "lens", "form"]
SCENES += ["hits", "verified", "miss", "disagrees", "tree", "reply", "environment", "environment_live", "uncached"]
SCENES += ["preparing", "executed", "twin_agrees", "twin_differs", "twin_prepares"]
WIDTHS = (420, 700, 868, 1200)

# Two frames after a change its paint is done.
MEASURE = """async () => {
  const frames = () => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)));
  const time = async (act) => { await frames(); const start = performance.now(); act(); await frames();
                                return performance.now() - start; };
  const spans = document.querySelectorAll(".gs-t");
  const text = document.querySelector(".gs-text");
  const out = { spans: spans.length, idle: [], recolour: [], hover: [] };
  for (const name of ["entropy", "rank", "latency", "surprisal", "probability"]) {
    out.idle.push(await time(() => {}));
    out.recolour.push(await time(() => model.set("measure", name)));
  }
  text.scrollTop = text.scrollHeight / 2;
  await frames();
  const box = text.getBoundingClientRect();
  for (let i = 0; i < 5; i += 1) {
    const span = document.elementFromPoint(box.left + 60 + 40 * i, box.top + 60);
    out.hover.push(await time(() => span.dispatchEvent(new PointerEvent("pointerover", { bubbles: true }))));
  }
  return out;
}"""


class Quiet(http.server.SimpleHTTPRequestHandler):
    """Serves files and logs nothing."""

    def log_message(self, *args: object) -> None:
        """Say nothing."""


def act(page: Page, scene: str) -> None:
    """Do what a person would do in a scene."""
    if scene == "tree":
        page.locator(".gs-t:not(.gs-in)").nth(4).click()
        page.locator(".gs-branching input").fill(" dog")
        page.locator(".gs-candidate").nth(1).hover()
    if scene in ("hits", "verified"):
        page.locator(".gs-in").nth(7).click()
    if scene == "reply":
        page.locator(".gs-reply textarea").fill("Now make it count letters.\nPlease.")
    if scene in ("finished", "drafts", "encoder", "batch", "attention", "lens"):
        nth = 9 if scene != "attention" else 70
        page.locator("[data-kind=lane] .gs-t:not(.gs-in)").nth(nth).click()
    if scene in ("attention", "encoder"):
        page.locator("[data-value=attention]").click()
        page.locator(".gs-matrix-fold summary").click()
        if scene == "encoder":
            page.locator("[data-value=cross]").first.click()
        page.wait_for_timeout(400)
        box = page.locator("canvas").bounding_box()
        assert box is not None
        page.mouse.move(box["x"] + box["width"] * 0.4, box["y"] + box["height"] * 0.7)
    if scene == "lens":
        page.locator("[data-value=lens]").click()
        page.wait_for_timeout(400)
    if scene == "form":
        page.locator(".gs-strategy select").select_option("prompt_lookup")
        page.locator("details[data-group=observe] summary").click()
        page.wait_for_timeout(800)
    if scene in ("preparing", "executed"):
        page.locator("details[data-group=execution] summary").click()
    page.wait_for_timeout(100)


def shoot(page: Page, url: str, folder: pathlib.Path, scene: str) -> None:
    """Take one scene in both themes and widths."""
    for theme in ("light", "dark"):
        for width in WIDTHS:
            page.set_viewport_size({"width": width + 32, "height": 1300})
            name = {"attention": "looks", "lens": "looks", "form": "finished"}.get(scene, scene)
            page.goto(f"{url}?scene={name}&theme={theme}&width={width}")
            page.wait_for_selector(".genscope")
            page.wait_for_timeout(250)
            act(page, scene)
            page.screenshot(path=folder / f"{scene}-{theme}-{width}.png", full_page=True)


def main() -> None:
    """Serve the checkout, take the pictures."""
    folder = pathlib.Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=ROOT))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    url = f"http://127.0.0.1:{server.server_port}/js/dev/index.html"
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=FLAGS)
        page = browser.new_page()
        page.on("pageerror", lambda error: print("page error:", error))
        page.on("console", lambda message: message.type == "error" and print("console:", message.text))
        for scene in sys.argv[2:] or SCENES:
            if scene == "bulk":
                page.set_viewport_size({"width": 1232, "height": 900})
                page.goto(f"{url}?scene=bulk&n=50000")
                page.wait_for_function("document.querySelectorAll('.gs-t').length >= rows.length", timeout=60000)
                print(json.dumps(page.evaluate(MEASURE)))
            else:
                shoot(page, url, folder, scene)
        browser.close()


if __name__ == "__main__":
    main()
