"""How histories are drawn: the colour of each part, nothing that commands a terminal or a page."""

from __future__ import annotations

import re
from html.parser import HTMLParser

import pytest
import torch

from genscope.kernel_side.environment.history import TextHistory
from scripted import TOKENIZER, ids_of

PROMPT, SYSTEM, MODEL, REWARD = (f"\x1b[30;48;5;{colour}m" for colour in (253, 43, 39, 219))
END = "\x1b[0m"


def history_of(*texts: str) -> TextHistory:
    """A prompt, then segments of the model and of the system by turns."""
    history = TextHistory(texts[0], torch.tensor(ids_of(texts[0])))
    for index, text in enumerate(texts[1:]):
        history.append_segment(text, torch.tensor(ids_of(text)), system=index % 2 == 1)
    return history


@pytest.fixture(autouse=True)
def colours(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)


def test_each_segment_has_the_colour_of_its_kind(capsys: pytest.CaptureFixture[str]) -> None:
    history = history_of("p", "m", "s", "n")
    history.reward = torch.tensor(0.5)
    history.show_text()
    shown = f"{PROMPT}p{END}{MODEL}m{END}{SYSTEM}s{END}{MODEL}n{END}\n\n{REWARD}Reward: 0.5{END}\n"
    assert capsys.readouterr().out == shown


def test_a_history_of_one_segment_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    history_of("alone").show_text()
    assert capsys.readouterr().out == f"{PROMPT}alone{END}\n\n{REWARD}Reward: 0.0{END}\n"
    history_of("a").show_tokens(TOKENIZER)
    assert capsys.readouterr().out == f"{PROMPT}a{END}\n\n{REWARD}Reward: 0.0{END}\n"
    assert "alone" in history_of("alone")._repr_html_()


def test_tokens_are_shown_by_name_and_unknown_ones_by_number(capsys: pytest.CaptureFixture[str]) -> None:
    history = TextHistory("the a", torch.tensor(ids_of("the a")))
    history.append_segment("?", torch.tensor([5000]), system=False)
    history.show_tokens(TOKENIZER)
    assert capsys.readouterr().out.startswith(f"{PROMPT}the{END} {PROMPT}Ġa{END} {MODEL}5000{END}\n\n")


def test_the_legend(capsys: pytest.CaptureFixture[str]) -> None:
    history = history_of("p", "m")
    history.show_colour_legend()
    legend = f"{PROMPT}Prompt{END} | {SYSTEM}System{END} | {MODEL}Model{END} | {REWARD}Reward{END}\n"
    assert capsys.readouterr().out == legend
    for show in (history.show_text, lambda **kwargs: history.show_tokens(TOKENIZER, **kwargs)):
        show(show_legend=True)
        assert capsys.readouterr().out.endswith(legend)


def test_no_colour_where_none_is_wanted(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    history_of("p", "m").show_text()
    assert capsys.readouterr().out == "pm\n\nReward: 0.0\n"


def test_text_commands_no_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    history_of("p", "\x1b[2J\x07\x9b\x7f\u202e\ta\n👩\u200d🚀").show_text()
    assert f"{MODEL}\u241b[2J\u2407\\u009b\u2421\\u202e\ta\n👩\u200d🚀{END}" in capsys.readouterr().out


class Read(HTMLParser):
    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.texts: list[tuple[str, str]] = []
        self.feed(html)

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.style = dict(attrs).get("style") or ""

    def handle_data(self, data):
        self.texts.append((data, re.sub(r".*background: ", "", self.style)))


def test_text_is_no_markup() -> None:
    page = Read(history_of("p", "<script>alert(1)</script> & '\"<b>")._repr_html_())
    assert set(page.tags) == {"pre", "span"}
    assert page.texts[:2] == [("p", "#dadada"), ("<script>alert(1)</script> & '\"<b>", "#00afff")]
    assert ("Reward: 0.0", "#ffafff") in page.texts
    assert page.texts[-1] == ("Reward", "#ffafff")
