r"""Static HTML: text of the model stays text, hosts may sanitise it, every colour is readable."""

from __future__ import annotations

import math
import re
from html.parser import HTMLParser
from types import SimpleNamespace

import pytest

from genscope.kernel_side.record.beams import BeamChoice
from genscope.kernel_side.record.record import Alternative, Record, Token
from genscope.kernel_side.record.recording import Lane, Recording
from genscope.kernel_side.record.table import Table
from genscope.widget import static_html as module
from genscope.widget.static_html import FAINT, INK, MOST_TOKENS, PAPER, PROMPT, RAMP


def run_of(*lanes, whys=(), scores=()):
    """Make what is drawn of a run, from lanes or from records that are a lane each."""
    lanes = tuple(lane if isinstance(lane, Lane) else Lane(0, index, lane, None, 0) for index, lane in enumerate(lanes))
    choices = Table([BeamChoice(lane, 0, 0, 0, score) for lane, score in enumerate(scores)])
    return SimpleNamespace(recording=Recording(lanes, choices=choices), lanes=lanes, whys=whys)


def static_html(record, **options):
    return module.static_html(run_of(record), **options)


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


def words(text):
    return Record([token(i, word) for i, word in enumerate(text.split())])


def order(page, *parts):
    """Tell whether a page has parts in this order."""
    places = [_text(page).index(part) for part in parts]
    return places == sorted(places)


def test_lanes_stand_one_below_the_other_with_their_labels():
    lanes = [Lane(p, s, words(f"p{p}s{s}"), None, 0) for p in range(2) for s in range(2)]
    page = module.static_html(run_of(*lanes, whys=("eos", "length", None, "eos"), scores=(-0.5, -1.25, -2, -math.inf)))
    assert order(
        page,
        "prompt 1, sequence 1 (eos, score -0.500)", "p0s0",
        "prompt 1, sequence 2 (length, score -1.250)", "p0s1",
        "prompt 2, sequence 1 (score -2.000)", "p1s0",
        "prompt 2, sequence 2 (eos, score -inf)", "p1s1",
    )  # fmt: skip


def test_a_single_lane_has_no_label_and_several_none_of_what_they_share():
    assert "sequence" not in _text(static_html(words("a b")))
    prompts = module.static_html(run_of(Lane(0, 0, words("a"), None, 0), Lane(1, 0, words("b"), None, 0)))
    assert "prompt 2" in _text(prompts)
    assert "sequence" not in _text(prompts)
    sequences = module.static_html(run_of(words("a"), words("b")))
    assert "sequence 2" in _text(sequences)
    assert "prompt" not in _text(sequences)


def test_a_source_is_shown_once_apart_above_its_targets():
    first, second = words("read1"), words("read2")
    lanes = [Lane(p, s, words(f"p{p}s{s}"), (first, second)[p], 0) for p in range(2) for s in range(2)]
    page = module.static_html(run_of(*lanes))
    assert order(page, "source of prompt 1", "read1", "p0s0", "p0s1", "source of prompt 2", "read2", "p1s0", "p1s1")
    assert (page.count("read1"), page.count("read2")) == (1, 1)
    alone = module.static_html(run_of(lanes[0]))
    assert order(alone, "source", "read1", "target", "p0s0")


def test_labels_are_escaped():
    page = module.static_html(run_of(words("a"), words("b"), whys=("stop string '<b>'", None)))
    assert "<b>" not in page
    assert "sequence 1 (stop string '<b>')" in _text(page)


def test_the_colours_are_for_all_lanes_together(monkeypatch):
    monkeypatch.setattr(module, "MOST_TOKENS", 10)
    source = words("s " * 4)
    lanes = [Lane(0, index, words("a " * 5), source, 0) for index in range(3)]
    reader = Reader(module.static_html(run_of(*lanes)))
    assert reader.spans == ["s"] * 4 + ["a"] * 5 + ["a"] + ["aaaa"] + ["aaaaa"]
    assert reader.titles[-1] == "tokens after the first 10 are not coloured"
