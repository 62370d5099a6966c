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
RUN = [
    *STRATEGIES,
    *(
        DOCS / f"{name}.md"
        for name in ("branches", "environment", "execution", "lanes", "looks", "prefix_cache", "record")
    ),
]
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
    assert [shown for shown, _ in links] == [to for _, to in links]
    assert sorted(shown for shown, _ in links) == sorted(settings_tables.definitions())


@pytest.mark.parametrize("page", STRATEGIES, ids=name_of)
def test_pages_of_strategies_have_one_shape(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert re.findall(r"^#+ (.+)$", prose(page), re.MULTILINE)[1:] == HEADINGS
    assert f'strategy="{page.stem}"' in text
    assert re.search(r"^\*\*Source\*\*: ", text, re.MULTILINE)
    words = [line for line in prose(page).splitlines() if line and not line.startswith("|")]
    assert len(words) <= 40


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


@pytest.mark.parametrize(
    ("name", "settings", "rows"),
    [
        ("greedy", {}, [1] * 6),
        ("sample", {"num_return_sequences": 2}, [2] * 6),
        ("beam", {"num_beams": 3}, [3] * 6),
        ("beam_sample", {"num_beams": 3}, [3] * 6),
        ("diverse_beam", {"num_beams": 4, "num_beam_groups": 2}, [4] * 6),
        ("contrastive", {"contrastive_top_k": 4}, [1] + [4] * 6),
        ("dola", {}, [1] * 6),
        ("guidance", {}, [1, 1] * 6),
    ],
)
def test_forward_passes_are_as_told(name: str, settings: dict[str, Any], rows: list[int]) -> None:
    run, passes = run_counted(name, **settings)
    assert run.status().generated == 6
    assert [one for _, one in passes] == rows


@pytest.mark.parametrize("name", ["assisted", "prompt_lookup", "early_exit"])
def test_a_round_of_drafts_is_one_pass_and_one_a_draft(name: str) -> None:
    settings = {"assistant_early_exit": 1} if name == "early_exit" else {}
    run, passes = run_counted(name, **settings)
    drafts = run.status().drafts
    assert drafts is not None
    assert passes.count(("all", 1)) == drafts.rounds
    assert passes.count(("draft", 1)) == (0 if name == "prompt_lookup" else drafts.drafted)
    assert len(passes) == drafts.rounds + passes.count(("draft", 1))


def run_counted(name: str, **settings: Any) -> tuple[genscope.Run, list[tuple[str, int]]]:
    """Run on a small model; return the run, and by whom and over how many rows each forward pass was."""
    model, draft = tiny_model("llama"), tiny_model("llama", seed=1)
    layers = model.config.num_hidden_layers
    engine = genscope.InProcessEngine(model, tiny_tokenizer(), assistant=draft)
    engine.unavailable()  # which tries once whether the model can exit early
    passes: list[tuple[str, int]] = []

    def count(module: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        ids = args[0] if args else kwargs["input_ids"]
        drafts = module.name_or_path == "draft" or module.config.num_hidden_layers < layers
        passes.append(("draft" if drafts else "all", len(ids)))

    draft.name_or_path = "draft"  # as its views are named, too
    for either in (model, draft):
        either.register_forward_pre_hook(count, with_kwargs=True)
    request = genscope.Request.make(
        "the cat and the cat", strategy=name, max_new_tokens=6, stop_at_eos=False, **settings
    )
    run = genscope.Run(engine, request)
    return run.wait(60), passes


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
