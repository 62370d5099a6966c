"""Attention and logit lens in a real JupyterLab: what a page shows of a token is what the run kept of it."""

from __future__ import annotations

import itertools
import math
from typing import Any

import pytest
from playwright.sync_api import expect

from live_jupyter import Notebook, Open, until
from scope_page import generate, lanes, near, number, photograph, ready, wait_over

DEMO = """
import replay
from genscope import Scope
scope = Scope("demo", prompt="The capital of France is Paris. The capital of Japan is", max_new_tokens=24, attention=True, logit_lens=True)
scope
"""

ENCODER = """
import replay
from tiny import tiny_model, tiny_tokenizer
from genscope import Scope
scope = Scope(tiny_model("t5"), tiny_tokenizer(), prompt="the cat and the hat", strategy="sample", seed=5, repetition_penalty=1.5, max_new_tokens=16, attention=True, stop_at_eos=False)
scope
"""

SHARES = """() => [...document.querySelectorAll('.genscope .gs-shares tbody tr')].map((row) => ({
  token: row.cells[0].textContent, index: Number(row.cells[1].textContent),
  share: row.cells[2].textContent, bar: Number(row.cells[2].style.getPropertyValue('--p')),
}))"""

# Bars below the tokens: by pane, what they say and how high they are.
ATTENDED = """() => [...document.querySelectorAll('.genscope .gs-pane')].map((pane) => Object.fromEntries(
  [...pane.querySelectorAll('.gs-attended')].map((span) =>
    [span.dataset.i, [span.title.replace(' of the attention', ''), Number(span.style.getPropertyValue('--a'))]])))"""

LENS = """() => [...document.querySelectorAll('.genscope .gs-lens tbody tr')].map((row) => ({
  layer: Number(row.cells[0].textContent),
  says: row.cells[1].querySelector('code').textContent,
  others: row.cells[1].querySelector('small').textContent,
  hit: row.dataset.chosen === 'true',
  bar: Number(row.cells[1].style.getPropertyValue('--p')),
  chosen: row.cells[2].textContent,
  ownBar: Number(row.cells[2].style.getPropertyValue('--p')),
}))"""


def visible_after(index: int, texts: list[str]) -> int:
    """Return the place of a token that a person can point at."""
    return next(at for at, text in enumerate(texts) if at > index and text.strip() and text.isprintable())


def is_percent(shown: str, logprob: float) -> bool:
    """Whether a share as the page writes it is a probability, in as many digits as are shown."""
    share = math.exp(logprob)
    if shown.startswith((">", "<")):
        return shown.startswith(">") == (share > 0.9995)
    # One digit after the point; of small ones two digits, of very small ones a single one.
    slack = 0.00051 if share >= 0.01 else share * (0.06 if share >= 1e-6 else 0.5)
    return abs(number(shown.replace("e−", "e-")) - share) <= slack


def pin(page: Notebook, index: int, pane: int = 0) -> None:
    page.scope.locator(".gs-lane").nth(pane).locator(f"[data-i='{index}']").click()
    expect(page.scope.locator(".gs-inspector .gs-kicker b").first).to_have_text(str(index))


def show_part(page: Notebook, name: str) -> None:
    page.scope.get_by_role("radio", name=name).or_(page.scope.get_by_role("button", name=name)).first.click()


def choose(page: Notebook, layer: int | None, head: int | None) -> None:
    """Choose layer and head in the inspector."""
    for what, value in (("layer", layer), ("head", head)):
        page.scope.locator(".gs-attention .gs-heads label", has_text=what).locator("select").select_option(
            "" if value is None else str(value)
        )


def are_shares(page: Notebook, weights: list[float], texts: list[str], pane: int = 0) -> None:
    """Check the table of shares and the bars below the tokens of a pane."""
    most = max(weights)

    def here() -> bool:
        rows = page.page.evaluate(SHARES)
        return len(rows) == min(24, len(weights)) and near(rows[0]["share"], most, 3)

    until(here, what="for the shares")
    rows = page.page.evaluate(SHARES)
    for row in rows:
        weight = weights[row["index"]]
        assert near(row["share"], weight, 3), row
        assert abs(row["bar"] - weight / most) < 2e-3, row
        assert row["token"] == texts[row["index"]]
    shown = [weights[row["index"]] for row in rows]
    assert all(one >= other - 1e-5 for one, other in itertools.pairwise(shown))
    panes: list[dict[str, Any]] = page.page.evaluate(ATTENDED)
    for at, bars in enumerate(panes):
        if at != pane:
            assert bars == {}
            continue
        high = {index for index, weight in enumerate(weights) if math.sqrt(weight / most) > 0.05}
        assert high <= {int(index) for index in bars}
        for index, (share, height) in bars.items():
            assert near(share, weights[int(index)], 3)
            assert abs(height - math.sqrt(weights[int(index)] / most)) < 5e-3


def hover_matrix(page: Notebook, row: int, column: int, size: tuple[int, int]) -> str:
    """Point at a cell of the matrix, and return the readout."""
    canvas = page.scope.locator(".gs-matrix canvas")
    canvas.scroll_into_view_if_needed()
    box = canvas.bounding_box()
    assert box is not None
    rows, columns = size
    canvas.hover(position={"x": (column + 0.5) * box["width"] / columns, "y": (row + 0.5) * box["height"] / rows})
    expect(page.scope.locator(".gs-readout")).to_contain_text("looks at")
    return page.scope.locator(".gs-readout").inner_text()


def is_matrix(page: Notebook, expected: dict[str, Any], down: list[str], across: list[str]) -> None:
    """Check the readout of some cells, and that the picture has each weight."""
    rows = expected["rows"]
    size = (len(rows), max(len(row) for row in rows))
    expect(page.scope.locator(".gs-matrix canvas")).to_have_attribute("width", str(size[1]))
    expect(page.scope.locator(".gs-matrix canvas")).to_have_attribute("height", str(size[0]))
    for row in (0, size[0] // 2, size[0] - 1):
        column = rows[row].index(max(rows[row]))
        readout = hover_matrix(page, row, column, size)
        position = expected["position"] + row
        said, _, share = readout.rpartition(": ")
        assert said == f"{down[position]} {position} looks at {across[column]} {column}"
        assert near(share, rows[row][column], 3), readout
    alpha: list[int] = page.page.evaluate(
        """() => { const canvas = document.querySelector('.genscope .gs-matrix canvas');
                   const { data } = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height);
                   return [...data].filter((_, i) => i % 4 === 3); }"""
    )
    for row, weights in enumerate(rows):
        for column in range(size[1]):
            weight = weights[column] if column < len(weights) else 0
            assert abs(alpha[row * size[1] + column] - 255 * math.sqrt(weight)) <= 2


def ink(page: Notebook) -> list[str]:
    """Return the colour of the matrix, and what the theme says that it is."""
    colours: list[str] = page.page.evaluate(
        """() => { const canvas = document.querySelector('.genscope .gs-matrix canvas');
                   const { data } = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height);
                   const most = Array.from({ length: data.length / 4 }, (_, i) => 4 * i).reduce((a, b) => (data[b + 3] > data[a + 3] ? b : a));
                   const hex = [0, 1, 2].map((i) => data[most + i].toString(16).padStart(2, '0')).join('');
                   return [`#${hex}`, getComputedStyle(canvas).getPropertyValue('--gs-weight').trim()]; }"""
    )
    return colours


@pytest.mark.slow
def test_attention_and_lens_of_the_demo_model(notebook: Open) -> None:
    page = notebook(DEMO, width=1500)
    page.run_cell(0)
    ready(page)
    generate(page)
    wait_over(page)
    texts = page.ask("[replay.literal(token.shown) for token in scope.run.record]")
    until(lambda: len(lanes(page)[0]["tokens"]) == len(texts))
    position = page.ask("scope.run.prompt_tokens")
    assert texts[position] == '" Tokyo"'
    pin(page, position)
    show_part(page, "Attention")
    are_shares(page, page.ask(f"replay.attention(scope.run, {position})"), texts)
    choose(page, 23, 4)
    are_shares(page, page.ask(f"replay.attention(scope.run, {position}, layer=23, head=4)"), texts)
    photograph(page, "attention")
    later = visible_after(position + 8, page.ask("[token.shown for token in scope.run.record]"))
    pin(page, later)
    are_shares(page, page.ask(f"replay.attention(scope.run, {later}, layer=23, head=4)"), texts)
    page.scope.get_by_text("attention matrix").click()
    is_matrix(page, page.ask(f"replay.matrix(scope.run, {later}, layer=23, head=4)"), texts, texts)
    photograph(page, "attention-matrix")
    page.scope.get_by_text("attention matrix").click()

    pin(page, position)
    show_part(page, "Logit lens")
    expected = page.ask(f"replay.lens(scope.run, {position})")
    until(lambda: len(page.page.evaluate(LENS)) == len(expected), what="for the lens")
    for row, look in zip(page.page.evaluate(LENS), expected, strict=True):
        assert (row["layer"], row["says"], row["hit"]) == (look["layer"], look["says"], look["hit"])
        assert row["others"] == " ".join(look["others"])
        assert abs(row["bar"] - math.exp(look["logprob"])) < 1e-3
        assert abs(row["ownBar"] - math.exp(look["chosen"])) < 1e-3
        share, _, rank = row["chosen"].partition(" #")
        assert rank == f"{look['rank']:,}"
        assert is_percent(share, look["chosen"]), row
    assert expected[0]["hit"]
    photograph(page, "lens")


def test_attention_of_an_encoder_decoder_is_drawn_on_what_it_read(notebook: Open) -> None:
    page = notebook(ENCODER, width=1500)
    page.run_cell(0)
    generate(page)
    wait_over(page)
    texts = page.ask("[token.shown for token in scope.run.record]")
    source = page.ask("[token.shown for token in scope.run.lanes[0].source]")
    until(lambda: [pane["tokens"] for pane in lanes(page)] == [source, texts], what="for both records")
    assert [(pane["kind"], pane["label"]) for pane in lanes(page)] == [("source", "source"), ("lane", "target")]
    written = page.ask(
        "[[replay.literal(token.shown) for token in record] for record in (scope.run.lanes[0].source, scope.run.record)]"
    )
    at = visible_after(4, texts)
    pin(page, at, pane=1)
    show_part(page, "Attention")
    are_shares(page, page.ask(f"replay.attention(scope.run, {at})"), written[1], pane=1)
    page.scope.get_by_role("radio", name="source", exact=True).click()
    choose(page, 1, 2)
    are_shares(page, page.ask(f"replay.attention(scope.run, {at}, of='cross', layer=1, head=2)"), written[0], pane=0)
    page.scope.get_by_text("attention matrix").click()
    is_matrix(page, page.ask(f"replay.matrix(scope.run, {at}, of='cross', layer=1, head=2)"), written[1], written[0])
    photograph(page, "encoder-decoder")
    light = ink(page)
    page.theme("dark")
    dark = ink(page)
    # A canvas keeps what was painted; one step of rounding, for the opacity is multiplied in.
    for painted, wanted in (light, dark):
        assert painted == wanted
    assert light != dark
    page.theme("light")
    page.scope.get_by_role("radio", name="within source").click()
    is_matrix(
        page,
        page.ask(f"replay.matrix(scope.run, {len(source) - 1}, of='encoder', layer=1, head=2)"),
        written[0],
        written[0],
    )
