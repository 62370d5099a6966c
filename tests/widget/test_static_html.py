r"""Static HTML: text of the model stays text, hosts may sanitise it, every colour is readable."""

from __future__ import annotations

import math
import re
from html.parser import HTMLParser

import pytest

from fake_engine import FakeEngine
from genscope.kernel_side.record.record import Alternative, Record, Token
from genscope.kernel_side.request import Request
from genscope.kernel_side.run import Run
from genscope.widget.static_html import FAINT, INK, MOST_TOKENS, PAPER, PROMPT, RAMP, caption, static_html

NASTY = ["<script>alert(1)</script>", '"', "'", "&", "&lt;", "<s>", "👩‍👩‍👧", "</div>", "a\tb\n\nc", "]]>", "<!--"]


class Reader(HTMLParser):
    """What a browser would make of it: tags, titles and text."""

    def __init__(self, text):
        super().__init__(convert_charrefs=True)
        self.tags, self.titles, self.styles, self.spans, self.attributes = [], [], [], [], []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        attrs = dict(attrs)
        self.attributes.append(attrs)
        self.styles.append(attrs.get("style", ""))
        if "title" in attrs:
            self.titles.append(attrs["title"])
            self.spans.append("")
        self.open = "title" in attrs

    def handle_endtag(self, tag):
        self.open = False

    def handle_data(self, data):
        if self.spans and self.open:
            self.spans[-1] += data


def token(position, text, raw=None, **changes):
    values = {
        "position": position, "id": position, "text": text, "shown": text, "bytes": raw, "group": position, "special": False,
        "origin": "generated", "raw_logprob": math.log(0.25), "logprob": math.log(0.5), "entropy": 1.0, "rank": 2, "seconds": 0.1,
    }  # fmt: skip
    return Token(**(values | changes))


@pytest.mark.parametrize("text", NASTY)
@pytest.mark.parametrize("bytes_known", [True, False])
def test_text_shows_literally_in_tokens_titles_and_caption(text, bytes_known):
    alternatives = (Alternative(1, text, math.log(0.5), -math.inf),)
    record = Record([token(0, text, text.encode() if bytes_known else None, alternatives=alternatives)])
    page = static_html(record, caption=text)
    reader = Reader(page)
    assert reader.spans == [text]
    assert reader.titles[0] == f"25.0%, 2.00 bits, rank 2\n50.0% {text!r} (cut)"
    assert set(reader.tags) == {"div", "span"}
    assert text in Reader(page.replace("<span ", "<b title='x' ")).titles[0] or text in _text(page)


def _text(page):
    parts = []
    parser = HTMLParser(convert_charrefs=True)
    parser.handle_data = parts.append
    parser.feed(page)
    return "".join(parts)


def test_only_what_survives_a_sanitiser_is_used():
    record = Record([token(i, text) for i, text in enumerate(NASTY)])
    page = static_html(record, caption="x", css_class="genscope-static-1")
    reader = Reader(page)
    assert {name for attributes in reader.attributes for name in attributes} == {"class", "style", "title"}
    assert "hsl" not in page
    assert "var(" not in page
    colours = re.findall(r"(?:background|color|solid|dotted):? ?([^;\"]+)", ";".join(reader.styles))
    assert colours
    assert all(re.fullmatch(r"#[0-9a-f]{6}", colour.strip()) for colour in colours)
    assert reader.attributes[0]["class"] == "genscope-static-1"


def test_bytes_that_are_no_character_are_escaped_and_a_character_of_many_tokens_shows_once():
    face = "😀".encode()
    record = Record(
        [
            token(0, "", face[:2], group=0),
            token(1, "", face[2:3], group=0),
            token(2, "😀", face[3:], group=0),
            token(3, "", b"\xe2", group=3),
            token(4, "\ufffdA", b"A", group=4, shown="A"),  # the text of the lone byte came with the next token
            token(5, "", b"\x80\xff", group=5),
        ],
        tail="\ufffd\ufffd",
    )
    reader = Reader(static_html(record))
    assert reader.spans == ["😀", "\\xE2", "A", "\\x80\\xFF"]
    # All three tokens of the face are told of.
    assert reader.titles[0].count("rank 2") == 3


def test_control_characters_are_drawn_as_their_pictures():
    assert Reader(static_html(Record([token(0, "a\x00\x1b\rb")]))).spans == ["a␀␛␍b"]


def test_colour_follows_the_models_own_probability():
    probabilities = [0.95, 0.8, 0.6, 0.4, 0.2, 0.05, 0.001, 0.0]
    logprobs = [math.log(p) if p else -math.inf for p in probabilities]
    reader = Reader(static_html(Record([token(i, "x", raw_logprob=logprob) for i, logprob in enumerate(logprobs)])))
    styles = [a.get("style", "") for a in reader.attributes if "title" in a]
    found = [re.search(r"background:(#\w+)", style) for style in styles]
    assert [match and match[1] for match in found] == [None, *RAMP[1:], RAMP[-1]]
    assert reader.titles[0].startswith("95.0%, 0.07 bits")
    assert reader.titles[6].startswith("0.1%")
    assert reader.titles[7].startswith("0%, impossible")


def test_an_unknown_measure_is_not_drawn_as_zero():
    unknown = {"raw_logprob": None, "logprob": None, "entropy": None, "rank": None, "seconds": None}
    reader = Reader(static_html(Record([token(0, "x", **unknown)])))
    assert reader.titles == [""]
    assert reader.attributes[-1].get("style") is None


def test_the_prompt_looks_different_from_what_was_generated():
    unknown = {"raw_logprob": None, "logprob": None, "rank": None}
    reader = Reader(
        static_html(Record([token(0, "p", origin="prompt", **unknown), token(1, "g"), token(2, "q", origin="prompt")]))
    )
    prompt, generated, measured = (a["style"] for a in reader.attributes if "title" in a)
    assert f"background:{PROMPT}" in prompt
    assert "dotted" in prompt
    assert "dotted" not in generated
    assert "dotted" in measured
    assert reader.titles[0] == "prompt"


def luminance(colour):
    channels = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    r, g, b = (c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels)
    return 0.2126 * r + 0.7152 * g + 0.0722 * b


@pytest.mark.parametrize("paper", [*RAMP, PROMPT])
def test_ink_is_readable_on_every_colour(paper):
    assert (luminance(paper) + 0.05) / (luminance(INK) + 0.05) >= 4.5


def test_the_caption_is_readable():
    assert (luminance(PAPER) + 0.05) / (luminance(FAINT) + 0.05) >= 4.5


def test_every_colour_comes_with_its_ink_so_that_a_dark_page_can_be_read():
    reader = Reader(static_html(Record([token(0, "x"), token(1, "y", origin="prompt", raw_logprob=None)])))
    for style in reader.styles:
        assert ("background" in style) <= (f"color:{INK}" in style)


def test_2000_tokens_stay_small():
    alternatives = tuple(Alternative(k, f" word{k}", -float(k + 1), -float(k + 1)) for k in range(10))
    record = Record([token(i, " word", b" word", alternatives=alternatives) for i in range(2000)])
    assert len(static_html(record)) < 400_000


def test_the_end_of_a_very_long_run_is_plain_text():
    count = MOST_TOKENS + 500
    reader = Reader(static_html(Record([token(i, f"{i},") for i in range(count)])))
    assert len(reader.spans) == MOST_TOKENS + 1
    assert reader.spans[-1] == "".join(f"{i}," for i in range(MOST_TOKENS, count))


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({}, "greedy"),
        ({"stop_strings": ["\n"], "alternatives": 3}, "greedy (stop strings ['\\n'])"),
        ({"strategy": "sample", "temperature": 0.7, "seed": 5}, "sample (temperature 0.7, seed 5)"),
    ],
)
def test_the_caption_tells_what_makes_the_tokens_again(settings, told):
    run = Run(FakeEngine(2), Request.make("x", settings, max_new_tokens=2)).wait(30)
    assert caption(run, "tiny") == f"tiny, {told}, 2 tokens, finished (length)"
