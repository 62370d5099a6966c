"""The scope in a real JupyterLab and Notebook 7: stream, stop, reload, keyboard, life and death of a widget."""

from __future__ import annotations

import json
from typing import Any

import pytest
from playwright.sync_api import expect

from live_jupyter import App, Notebook, Open, until

SLOW = """
import time, torch
from tiny import tiny_model, tiny_tokenizer
from genscope.widget import Scope
model, tokenizer = tiny_model("llama", "sdpa"), tiny_tokenizer()
forward = model.forward
def slow(*args, **kwargs):
    time.sleep({seconds})
    return forward(*args, **kwargs)
slow.__signature__ = __import__("inspect").signature(forward)
model.forward = slow
scope = Scope(model, tokenizer, prompt="the cat and the hat", strategy="sample", seed=3, max_new_tokens={tokens}, stop_at_eos=False)
scope
"""

FAKE = """
from fake_engine import FakeEngine
from genscope.widget import Scope
scope = Scope(FakeEngine({count}), prompt="x", max_new_tokens={count})
scope
"""


def slow(seconds: float = 0.03, tokens: int = 60) -> str:
    return SLOW.format(seconds=seconds, tokens=tokens)


def shown(notebook: Notebook) -> list[str]:
    """Return the text of each token span of the first scope."""
    return notebook.scope.locator("[data-i]").evaluate_all("spans => spans.map(span => span.textContent)")


def recorded(notebook: Notebook, scope: str = "scope") -> list[str]:
    texts: list[str] = notebook.ask(f"[token.shown for token in {scope}.run.record]")
    return texts


def wait_over(notebook: Notebook, scope: str = "scope") -> None:
    until(lambda: notebook.ask(f"{scope}.run is not None and {scope}.run.over"), what="for the run to be over")


def wait_shown(notebook: Notebook) -> None:
    count = notebook.ask("len(scope.run.record)")
    until(lambda: len(shown(notebook)) == count, what=f"for {count} tokens to show")


@pytest.mark.parametrize("app", ["lab", "notebook"])
def test_generate_streams_and_shows_every_token(notebook: Open, app: App) -> None:
    page = notebook(slow(tokens=40), app=app)
    page.run_cell(0)
    page.scope.get_by_role("button", name="Generate").click()
    until(lambda: 8 < len(shown(page)) < 59, what="for tokens to show while the run goes on")
    expect(page.scope.get_by_role("status")).to_have_text("decoding")
    wait_over(page)
    wait_shown(page)
    assert shown(page) == recorded(page)
    expect(page.scope.get_by_role("status")).to_have_text("finished: reached 40 tokens")
    page.screenshot(f"streamed-{app}", page.scope)


def test_stop_works_while_another_cell_is_busy(notebook: Open) -> None:
    # Started from Python, so that the main shell published last on the widget's comm: the hard case.
    page = notebook(slow(seconds=0.05, tokens=400), "run = scope.generate()", "time.sleep(20); late = True")
    page.run_cell(0)
    page.run_cell(1)
    until(lambda: len(shown(page)) > 25)
    page.run_cell(2, wait=False)
    page.page.wait_for_timeout(700)
    before = len(shown(page))
    page.scope.get_by_role("button", name="Stop").click()
    clicked = page.page.evaluate("() => performance.now()")
    expect(page.scope.get_by_role("status")).to_have_text("stopped", timeout=5000)
    seconds = (page.page.evaluate("() => performance.now()") - clicked) / 1000
    assert page.page.locator(".jp-InputPrompt").nth(2).inner_text().strip() == "[*]:", "the cell must still be busy"
    # What the issue asks for: within a second, of which a step of 0.05 s and a frame are a part.
    assert seconds < 1, seconds
    assert before >= 25
    page.command("notebook:interrupt-kernel")
    wait_over(page)
    assert page.ask("scope.run.state") == "stopped"
    assert shown(page) == recorded(page)


def test_escape_stops_and_control_enter_generates(notebook: Open) -> None:
    page = notebook(slow(tokens=400))
    page.run_cell(0)
    page.scope.locator("textarea").first.click()
    page.page.keyboard.press("Control+Enter")
    until(lambda: len(shown(page)) > 25)
    page.page.keyboard.press("Escape")
    wait_over(page)
    assert page.ask("scope.run.state") == "stopped"
    assert page.ask("len(scope.runs)") == 1


DEMO = """
from genscope import Scope
scope = Scope("demo", prompt="The history of the telescope", strategy="sample", seed=2, max_new_tokens=250, stop_at_eos=False)
scope
"""


@pytest.mark.slow
def test_reload_in_the_middle_of_a_run_shows_all_of_it(notebook: Open) -> None:
    page = notebook(DEMO)
    page.run_cell(0)
    until(lambda: page.ask("scope.status['phase']") == "ready", 120, "for the demo model")
    page.scope.get_by_role("button", name="Generate").click()
    until(lambda: len(shown(page)) > 20)
    page.save()
    page.open()
    page.page.wait_for_selector(".genscope [data-i]", timeout=60_000)
    assert not page.ask("scope.run.over"), "the run was over before the reload was: no test of it"
    until(lambda: page.ask("scope.run.over"), 280, "for the run to be over")
    wait_shown(page)
    text = page.scope.locator("[data-i]:not(.gs-in):not(.gs-special), .gs-tail").all_text_contents()
    assert "".join(text) == page.ask("scope.run.text")
    assert shown(page) == recorded(page)


def test_five_thousand_tokens_at_once_lose_none(notebook: Open) -> None:
    page = notebook(FAKE.format(count=5000))
    page.run_cell(0)
    page.scope.get_by_role("button", name="Generate").click()
    expect(page.scope.get_by_role("status")).to_have_text("finished: reached 5,000 tokens", timeout=60_000)
    until(lambda: len(shown(page)) == 5003, what="for all tokens")
    assert shown(page) == recorded(page)


def test_nasty_tokens_show_literally(notebook: Open) -> None:
    page = notebook(FAKE.format(count=40))
    page.page.on("dialog", lambda dialog: pytest.fail(f"a token ran as script: {dialog.message}"))
    page.run_cell(0)
    page.scope.get_by_role("button", name="Generate").click()
    expect(page.scope.get_by_role("status")).to_have_text("finished: reached 40 tokens")
    until(lambda: len(shown(page)) == 43)
    assert shown(page) == recorded(page)
    assert {"<script>alert(1)</script>", '"', "&", "<s>", "👩‍👩‍👧"} <= set(shown(page))
    assert page.scope.locator("script").count() == 0
    page.scope.locator("[data-i]").nth(15).click()
    assert json.loads(page.scope.locator(".gs-literal").inner_text()) == shown(page)[15]
    candidates = page.scope.locator(".gs-alternatives tbody code").all_inner_texts()
    assert [json.loads(text) for text in candidates] == page.ask("[a.text for a in scope.run.record[15].alternatives]")


def test_selected_text_is_copied_exactly(notebook: Open) -> None:
    page = notebook(slow(seconds=0, tokens=80))
    page.run_cell(0)
    page.scope.get_by_role("button", name="Generate").click()
    wait_over(page)
    wait_shown(page)
    copied = page.page.evaluate(
        """() => { const spans = document.querySelectorAll('.genscope [data-i]');
                   const range = document.createRange();
                   range.setStartBefore(spans[0]); range.setEndAfter(spans[spans.length - 1]);
                   const selection = getSelection(); selection.removeAllRanges(); selection.addRange(range);
                   return selection.toString(); }"""
    )
    # A selection gives line ends as \n, whatever made them; chips of lone bytes are drawn, not text.
    assert copied.replace("\r", "\n").split() == "".join(recorded(page)).replace("\r", "\n").split()


def test_keyboard_walks_the_tokens_and_leaves_the_notebook_alone(notebook: Open) -> None:
    page = notebook(FAKE.format(count=30))
    page.run_cell(0)
    page.scope.get_by_role("button", name="Generate").click()
    until(lambda: len(shown(page)) == 33)
    page.scope.locator("[data-i]").nth(10).click()
    for key, index in (("ArrowRight", 11), ("ArrowLeft", 10), ("ArrowLeft", 9), ("Home", 0), ("End", 32)):
        page.page.keyboard.press(key)
        expect(page.scope.locator(".gs-kicker b").first).to_have_text(str(index))
    cells = page.page.locator(".jp-Notebook .jp-Cell").count()
    for key in ("b", "a", "d", "d", "m", "x"):
        page.page.keyboard.press(key)
    assert page.page.locator(".jp-Notebook .jp-Cell").count() == cells


def test_wrong_settings_are_shown_beside_the_control_and_nothing_runs(notebook: Open) -> None:
    page = notebook(slow())
    page.run_cell(0)
    field = page.scope.get_by_label("Temperature").last
    field.fill("0")
    page.scope.get_by_role("button", name="Generate").click()
    alert = page.scope.get_by_text("for no randomness choose the strategy 'greedy'")
    expect(alert.first).to_be_visible()
    assert page.ask("len(scope.runs)") == 0
    page.screenshot("problem-beside-control", page.scope)
    field.fill("0.5")
    expect(alert).to_have_count(0)
    until(lambda: page.ask("scope.settings['temperature']") == 0.5)
    page.scope.get_by_role("button", name="Generate").click()
    wait_over(page)
    assert page.ask("scope.run.settings.temperature") == 0.5


def test_pause_step_resume(notebook: Open) -> None:
    page = notebook(slow(tokens=200))
    page.run_cell(0)
    page.scope.get_by_role("button", name="Generate").click()
    until(lambda: len(shown(page)) > 25)
    page.scope.get_by_role("button", name="Pause").click()
    until(lambda: page.ask("scope.run.state") == "paused")
    count = page.ask("len(scope.run.record)")
    page.scope.get_by_role("button", name="Step").click()
    until(lambda: page.ask("scope.run.state") == "paused" and page.ask("len(scope.run.record)") == count + 1)
    until(lambda: len(shown(page)) == count + 1)
    page.scope.get_by_role("button", name="Resume").click()
    until(lambda: len(shown(page)) > count + 3)


def test_two_scopes_on_one_model_take_turns(notebook: Open) -> None:
    page = notebook(
        slow(tokens=40), "other = Scope(scope, prompt='to be', max_new_tokens=20, stop_at_eos=False); other"
    )
    page.run_cell(0)
    page.run_cell(1)
    scopes = page.page.locator(".genscope")
    expect(scopes).to_have_count(2)
    for index in (0, 1):
        scopes.nth(index).get_by_role("button", name="Generate").click()
    expect(scopes.nth(1).get_by_role("status")).to_contain_text("queued")
    for scope in ("scope", "other"):
        wait_over(page, scope)
    for index, scope in enumerate(("scope", "other")):
        texts = recorded(page, scope)
        expect(scopes.nth(index).locator("[data-i]")).to_have_count(len(texts))
        assert scopes.nth(index).locator("[data-i]").evaluate_all("s => s.map(e => e.textContent)") == texts


def test_running_the_cell_again_stops_the_old_run(notebook: Open) -> None:
    page = notebook(slow(tokens=400), "old = scope")
    page.run_cell(0)
    page.scope.get_by_role("button", name="Generate").click()
    until(lambda: len(shown(page)) > 25)
    page.run_cell(1)
    page.run_cell(0, wait=False)
    until(lambda: page.ask("scope is not old"))
    until(lambda: page.ask("old.run.state") == "stopped")
    expect(page.page.locator(".genscope")).to_have_count(1)
    page.scope.get_by_role("button", name="Generate").click()
    until(lambda: len(shown(page)) > 25)
    page.scope.get_by_role("button", name="Stop").click()
    wait_over(page)


def test_kernel_restart_is_said_and_what_came_is_kept(notebook: Open) -> None:
    page = notebook(slow(tokens=400))
    page.run_cell(0)
    page.scope.get_by_role("button", name="Generate").click()
    until(lambda: len(shown(page)) > 25)
    page.page.evaluate("() => { window.jupyterapp.shell.currentWidget.sessionContext.session.kernel.restart(); }")
    expect(page.scope.get_by_role("status")).to_have_text("kernel gone", timeout=30_000)
    assert len(shown(page)) > 25
    expect(page.scope.get_by_role("button", name="Generate")).to_be_disabled()
    page.screenshot("kernel-gone", page.scope)


def test_closing_a_scope_stops_its_run_and_removes_it(notebook: Open) -> None:
    page = notebook(slow(tokens=400), "scope.close()")
    page.run_cell(0)
    page.scope.get_by_role("button", name="Generate").click()
    until(lambda: len(shown(page)) > 25)
    page.run_cell(1)
    wait_over(page)
    assert page.ask("scope.run.state") == "stopped"


def test_it_sits_in_layouts(notebook: Open) -> None:
    tabs = "import ipywidgets; tab = ipywidgets.Tab([ipywidgets.Label('first'), ipywidgets.VBox([scope])], titles=['one', 'two']); tab"
    page = notebook(slow(tokens=20).replace("\nscope\n", "\n" + tabs + "\n"))
    page.run_cell(0)
    page.page.locator(".lm-TabBar-tabLabel", has_text="two").last.click()
    expect(page.scope.get_by_role("button", name="Generate")).to_be_visible()
    page.scope.get_by_role("button", name="Generate").click()
    wait_over(page)
    wait_shown(page)
    assert shown(page) == recorded(page)


def test_traits_are_linked_both_ways(notebook: Open) -> None:
    page = notebook(
        slow(), "import ipywidgets; slider = ipywidgets.Text(); ipywidgets.link((scope, 'prompt'), (slider, 'value')); slider",
        "scope.settings = scope.settings | {'temperature': 0.25}; scope.measure = 'entropy'",
    )  # fmt: skip
    for cell in (0, 1):
        page.run_cell(cell)
    page.scope.locator("textarea").first.fill("typed here")
    until(lambda: page.ask("slider.value") == "typed here")
    page.run_cell(2)
    expect(page.scope.get_by_label("Temperature").last).to_have_value("0.25")
    page.scope.get_by_role("radio", name="Rank").or_(page.scope.get_by_role("button", name="Rank")).first.click()
    until(lambda: page.ask("scope.measure") == "rank")


def test_an_error_in_the_model_is_shown_and_the_next_run_works(notebook: Open) -> None:
    broken = "def broken(*args, **kwargs): raise RuntimeError('CUDA out of memory, say')\nmodel.forward = broken"
    page = notebook(slow(seconds=0, tokens=20), broken, "model.forward = slow")
    page.run_cell(0)
    page.run_cell(1)
    page.scope.get_by_role("button", name="Generate").click()
    expect(page.scope.get_by_role("status")).to_contain_text("failed")
    expect(page.scope.get_by_text("RuntimeError: CUDA out of memory, say")).to_be_visible()
    page.run_cell(2)
    page.scope.get_by_role("button", name="Generate").click()
    expect(page.scope.get_by_role("status")).to_have_text("finished: reached 20 tokens")


def test_the_magic_shows_a_scope_and_fills_the_variable(notebook: Open) -> None:
    page = notebook(
        slow(seconds=0), "%load_ext genscope.widget",
        "%%generate --model scope --strategy sample --seed 5 --max-new-tokens 15 --no-stop-at-eos --into told --wait\nthe hat",
        "%%generate --temperature 0\nthe hat",
    )  # fmt: skip
    for cell in range(3):
        page.run_cell(cell)
    assert page.ask("[told.state, told.settings.seed, len(told.record) - told.prompt_tokens]") == ["finished", 5, 15]
    scope = page.page.locator(".genscope").nth(1)
    until(lambda: scope.locator("[data-i]").count() == page.ask("len(told.record)"))
    error = page.run_cell(3)
    expect(error.locator(".jp-OutputArea")).to_contain_text("temperature")
    assert "Traceback" not in error.locator(".jp-OutputArea").inner_text()


STATIC = ".jp-OutputArea-child:has([class*='genscope-static-'])"


def test_a_saved_notebook_reads_without_a_kernel(notebook: Open) -> None:
    page = notebook(slow(seconds=0, tokens=30))
    page.run_cell(0)
    page.scope.get_by_role("button", name="Generate").click()
    wait_over(page)
    wait_shown(page)
    until(lambda: page.page.locator(STATIC).count() == 1, what="for the static copy")
    expect(page.page.locator(STATIC)).to_be_hidden()
    words = [text.strip() for text in recorded(page) if text.strip().isalpha()]
    page.save()
    saved: dict[str, Any] = json.loads(page.path.read_text())
    assert len(saved["cells"][0]["outputs"]) == 2
    # Another kernel, no widget state, not trusted: what a colleague sees.
    page.page.evaluate("() => window.jupyterapp.shell.currentWidget.sessionContext.session.kernel.shutdown()")
    saved["metadata"].pop("widgets", None)
    page.path.with_name("colleague.ipynb").write_text(json.dumps(saved))
    page.path = page.path.with_name("colleague.ipynb")
    page.open()
    static = page.page.locator(".jp-OutputArea-output").last
    expect(static).to_be_visible()
    expect(static).to_contain_text("sample (stop at eos False, seed 3), 30 tokens, finished (length)")
    assert len(words) > 5
    for word in words:
        expect(static).to_contain_text(word)
    # Coloured, and with its numbers, also after the sanitiser.
    assert static.locator("[style*='background']").count() > 10
    assert static.locator("[title*='%']").count() > 10
    page.screenshot("saved-notebook")
