"""The documentation: a page for each strategy, all of one shape, tables as the settings are, examples as they run."""

from __future__ import annotations

import contextlib
import io
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import genscope
from genscope.kernel_side import models
from genscope.kernel_side.models import LoadedModel
from tiny import tiny_model, tiny_tokenizer

ROOT = Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs"
STRATEGIES = sorted((DOCS / "strategies").glob("*.md"))
PAGES = sorted([*DOCS.rglob("*.md"), ROOT / "README.md", ROOT / "CONTRIBUTING.md"])
RUN = [*STRATEGIES, *(DOCS / f"{name}.md" for name in ("lanes", "looks", "record"))]
"""Pages whose examples run as they stand; elsewhere they are excerpts."""
HEADINGS = ["Example", "In a script", "Settings", "What the scope shows", "What it costs", "What it does not go with"]
FENCED = re.compile(r"^```(\w*)\n(.*?)^```\n", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\(([^)#]*)(?:#([^)]*))?\)")

sys.path.insert(0, str(ROOT / "tools"))  # for the module below
import settings_tables  # noqa: E402 - a tool is no package


def name_of(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


def prose(page: Path) -> str:
    return FENCED.sub("", page.read_text(encoding="utf-8"))


def test_every_strategy_has_a_page_and_the_index_leads_to_it() -> None:
    assert {page.stem for page in STRATEGIES} == set(settings_tables.definitions())
    index = (DOCS / "strategies.md").read_text(encoding="utf-8")
    links = re.findall(r"^\|[^|]*\| \[`(\w+)`\]\(strategies/(\w+)\.md\) \|", index, re.MULTILINE)
    assert [shown for shown, _ in links] == [to for _, to in links] == list(settings_tables.definitions())


@pytest.mark.parametrize("page", STRATEGIES, ids=name_of)
def test_pages_of_strategies_have_one_shape(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert re.findall(r"^#+ (.+)$", prose(page), re.MULTILINE)[1:] == HEADINGS
    assert f'strategy="{page.stem}"' in text
    assert re.search(r"^\*\*Source\*\*: ", text, re.MULTILINE)
    assert len(text.splitlines()) <= 90


@pytest.mark.parametrize("page", settings_tables.pages(), ids=name_of)
def test_tables_are_as_the_settings(page: Path) -> None:
    text, table = page.read_text(encoding="utf-8"), settings_tables.pages()[page]
    assert settings_tables.replaced(text, table) == text, "run: make generate"


def test_a_table_tells_default_values_and_switch() -> None:
    dola = settings_tables.pages()[DOCS / "strategies" / "dola.md"].splitlines()
    assert dola[2].startswith('| `dola_layers` | `"high"` | `"low"`, `"high"` | Layers of the lower or of the upper')
    assert dola[4].startswith("| `do_sample` | `False` | `True`, `False` | Draws each token")
    assert dola[5].startswith("| `temperature` | `1.0` | above 0 to 100 | ")
    assert dola[5].endswith(" Counts with `do_sample`. |")
    shared = settings_tables.pages()[settings_tables.INDEX]
    assert "| `seed` | none | 0 to 9,007,199,254,740,991 |" in shared
    assert "| `stop_strings` | `[]` | list of text, up to 16 |" in shared
    assert "temperature" not in shared


def test_a_page_without_a_place_for_its_table_is_refused() -> None:
    with pytest.raises(ValueError, match="no place for its table"):
        settings_tables.replaced(f"# Page\n\n{settings_tables.BEGIN}\n", "")


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_links_lead_somewhere(page: Path) -> None:
    for path, anchor in LINK.findall(prose(page)):
        if path.startswith("http"):
            continue
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), path
        if anchor:
            headings = re.findall(r"^#+ (.+)$", prose(target), re.MULTILINE)
            assert anchor in {re.sub(r"[^\w -]", "", heading).lower().replace(" ", "-") for heading in headings}


def examples(page: Path) -> Iterator[tuple[str, str | None]]:
    """Yield the Python blocks of a page, each with the block of output that follows it at once, if one does."""
    text = page.read_text(encoding="utf-8")
    blocks = list(FENCED.finditer(text))
    for block, after in zip(blocks, [*blocks[1:], None], strict=True):
        if block[1] != "python":
            continue
        shown = after is not None and after[1] == "text" and not text[block.end() : after.start()].strip()
        line = text[: block.start(2)].count("\n")  # so that a traceback names the line of the page
        yield "\n" * line + block[2], after[2] if after is not None and shown else None


def output_of(code: str, namespace: dict[str, Any], page: Path, *, may_raise: bool) -> str:
    """Run a block; return what it prints, and its error as the last line where it may raise one."""
    printed = io.StringIO()
    try:
        with contextlib.redirect_stdout(printed):
            exec(compile(code, name_of(page), "exec"), namespace)
    except Exception as error:
        if not may_raise:
            raise
        print(f"{type(error).__name__}: {error}", file=printed)
    return printed.getvalue()


@pytest.mark.parametrize("page", RUN, ids=name_of)
def test_examples_run_and_give_what_is_shown(
    page: Path, demo: LoadedModel, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def load_model(name: str, **_: Any) -> LoadedModel:
        if name == "t5":  # a stand-in for a model on the hub
            return LoadedModel(tiny_model("t5"), tiny_tokenizer())
        assert name == "demo"
        return demo

    monkeypatch.setattr(models, "load_model", load_model)
    monkeypatch.setattr(genscope, "load_model", load_model)
    monkeypatch.chdir(tmp_path)
    namespace: dict[str, Any] = {}
    count = 0
    try:
        for code, shown in examples(page):
            printed = output_of(code, namespace, page, may_raise=shown is not None)
            count += 1
            if shown is not None:
                assert printed == shown
    finally:
        for value in list(namespace.values()):
            if isinstance(value, genscope.Scope):
                value.close()
    assert count
