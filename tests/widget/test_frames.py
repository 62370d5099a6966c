"""The wire messages of a run: exact columns, texts once a track, only finite numbers, any slices make the record again."""

from __future__ import annotations

import json
import math
import time
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ConfigDict, TypeAdapter

from fake_front_end import FakeFrontEnd
from fake_rows import make_choice, make_round, make_segment, make_step, make_token, wire_rows
from genscope.kernel_side.caching.hits import End, RowHit
from genscope.kernel_side.caching.reuse import PromptReuse, Verified
from genscope.kernel_side.record.record import Alternative, Record, Token
from genscope.kernel_side.record.recording import Lane, Recording
from genscope.kernel_side.record.rounds import DraftSummary
from genscope.kernel_side.record.table import Table
from genscope.kernel_side.request import Branch, make_settings
from genscope.kernel_side.run import RunStatus
from genscope.widget import wire
from genscope.widget.frames import Frames


def status(**changes):
    values = {
        "state": "decoding", "why": None, "error": None, "generated": 2, "elapsed": 1.23456789, "first_token": 0.123456789,
        "tokens_per_second": 33.3333333, "observation_share": 0.01234567, "queue_ahead": 0, "drafts": None,
    }  # fmt: skip
    return RunStatus(**(values | changes))


def run_of(*records, lanes=None, settings=None, observed=(), whys=(), tables=(), branch=None, **changes):
    lanes = lanes or tuple(Lane(0, index, record, None, 1) for index, record in enumerate(records))
    return SimpleNamespace(
        id="r1",
        request=SimpleNamespace(branch=branch),
        recording=Recording(lanes, *tables),
        settings=settings or make_settings(strategy="sample", temperature=0.7, seed=5),
        looks=SimpleNamespace(observed=observed),
        whys=whys,
        state="decoding",
        over=False,
        status=lambda: status(**changes),
    )


def row(position, **changes):
    values = {
        "position": position,
        "id": 7,
        "text": "a",
        "bytes": b"a",
        "group": position,
        "special": False,
        "origin": "generated",
    }
    values |= changes
    return Token(**({"shown": values["text"]} | values))


def test_a_slice_has_exactly_these_columns():
    record = Record(
        [
            row(0, origin="prompt", id=4, text="Hi", bytes=b"Hi", cached=True),
            row(
                1, id=5, text="", bytes=b"\xe2", raw_logprob=-0.123456789, logprob=-0.00001234567, entropy=2.0, rank=3,
                seconds=0.0123456789,
                alternatives=(Alternative(5, "a", -0.5, -0.25), Alternative(6, "Hi", -math.inf, -math.inf)),
            ),
        ]
    )  # fmt: skip
    message = Frames(run_of(record)).data(0, 0, 2)
    assert message["columns"] == {
        "id": [4, 5],
        "text": [0, 1],
        "bytes": ["4869", "e2"],
        "group": [0, 1],
        "special": [0, 0],
        "generated": [0, 1],
        "raw_logprob": [None, -0.12346],
        "logprob": [None, -1.2346e-05],
        "entropy": [None, 2.0],
        "rank": [None, 3],
        "seconds": [None, 0.012346],
        "alt_n": [0, 2],
        "alt_id": [5, 6],
        "alt_text": [2, 0],
        "alt_raw_logprob": [-0.5, None],
        "alt_logprob": [-0.25, None],
        "cached": [1, None],
    }
    assert (message["track"], message["seq"], message["n"]) == (0, 0, 2)
    assert (message["strings_from"], message["strings"]) == (0, ["Hi", "", "a"])


def test_strings_are_sent_by_the_slice_that_first_needs_them():
    record = Record([row(0, text="a"), row(1, text="b"), row(2, text="a"), row(3, text="c")])
    frames = Frames(run_of(record))
    slices = [frames.data(0, i, i + 1) for i in range(4)]
    assert [(message["strings_from"], message["strings"]) for message in slices] == [
        (0, ["a"]),
        (1, ["b"]),
        (2, []),
        (2, ["c"]),
    ]
    assert frames.data(0, 1, 4)["strings"] == ["b", "c"]
    assert frames.data(0, 2, 2)["strings"] == []


def test_each_track_has_its_own_strings():
    frames = Frames(run_of(Record([row(0, text="a"), row(1, text="b")]), Record([row(0, text="b")])))
    assert frames.data(0, 0, 2)["strings"] == ["a", "b"]
    message = frames.data(1, 0, 1)
    assert (message["track"], message["strings"], message["columns"]["text"]) == (1, ["b"], [0])


def test_begin_tells_the_lanes_and_behind_them_the_sources():
    first, second = Record(), Record()
    lanes = (
        Lane(0, 0, Record(), first, 1),
        Lane(0, 1, Record(), first, 1),
        Lane(1, 0, Record(), second, 2),
        Lane(1, 1, Record(), second, 2),
    )
    begin = Frames(run_of(lanes=lanes, observed=("attention", "cross"))).begin()
    assert begin["lanes"] == [
        {"prompt": 0, "sequence": 0, "prompt_tokens": 1, "source": 4, "label": ""},
        {"prompt": 0, "sequence": 1, "prompt_tokens": 1, "source": 4, "label": ""},
        {"prompt": 1, "sequence": 0, "prompt_tokens": 2, "source": 5, "label": ""},
        {"prompt": 1, "sequence": 1, "prompt_tokens": 2, "source": 5, "label": ""},
    ]
    assert (begin["tracks"], begin["beams"], begin["observed"]) == (6, None, ["attention", "cross"])


@pytest.mark.parametrize(
    ("settings", "shape"),
    [
        ({"strategy": "beam", "num_beams": 5}, {"beams": 5, "groups": 1}),
        ({"strategy": "diverse_beam", "num_beams": 6, "num_beam_groups": 3}, {"beams": 6, "groups": 3}),
        ({"strategy": "greedy"}, None),
    ],
)
def test_begin_tells_the_shape_of_a_beam_search(settings, shape):
    assert Frames(run_of(Record(), settings=make_settings(settings))).begin()["beams"] == shape


def test_a_run_whose_engine_keeps_nothing_has_nothing_observed():
    run = run_of(Record())
    run.looks = None
    assert Frames(run).begin()["observed"] == []


def test_begin_beat_and_end_say_what_the_run_is():
    tables = (Table([make_round(0, 1, 3, 2)]), Table([make_step(0), make_step(1)]), Table())
    record, other = Record([row(0)], tail="\ufffd"), Record()
    drafts = DraftSummary(rounds=3, drafted=12, accepted=6, generated=9)
    frames = Frames(
        run_of(record, other, tables=tables, whys=("eos", None), state="finished", why="eos (1)", drafts=drafts)
    )
    begin = frames.begin()
    assert (begin["run"], begin["settings"]["seed"], begin["settings"]["temperature"]) == ("r1", 5, 0.7)
    assert begin["status"] == {
        "state": "finished", "why": "eos (1)", "error": None, "generated": 2, "elapsed": 1.2346, "first_token": 0.12346,
        "tokens_per_second": 33.333, "observation_share": 0.012346, "queue_ahead": 0,
        "drafts": {"rounds": 3, "drafted": 12, "accepted": 6, "generated": 9}, "reuse": None,
        "execution": None,
    }  # fmt: skip
    counts = {"tracks": [1, 0], "rounds": 1, "beams": 2, "choices": 0, "segments": 0}
    assert frames.beat()["counts"] == frames.end()["counts"] == counts
    assert (frames.end()["tails"], frames.end()["whys"]) == (["\ufffd", ""], ["eos", None])
    assert (begin["branch"], begin["environment"]) == (None, False)


def hit(tokens, reused, kind="whole", **changes):
    end = End(kind, reused, 7, (), "because") if kind != "differs" else End(kind, reused, 7, (8, 9), "unused")
    return RowHit(**({"tokens": tokens, "known": reused, "reused": reused, "source": None, "nbytes": 100 * reused,
                      "end": end} | changes))  # fmt: skip


def test_the_status_says_what_was_reused_and_why_no_more_of_the_prompt_with_the_most_left():
    reuse = PromptReuse((hit(9, 8), hit(12, 4, "differs"), hit(9, 2, "ends")), (" a", " b\ud800", " c"),
                        ((), (" x", " y"), ()), 0.123456789, saved_measured=True,
                        verified=Verified(7.4e-6, 29.1, agrees=True))  # fmt: skip
    assert Frames(run_of(Record(), reuse=reuse)).begin()["status"]["reuse"] == {
        "tokens": 30, "reused": 14, "nbytes": 1400, "sources_reused": None, "sources": None,
        "end": {"prompt": 1, "kind": "differs", "position": 4, "asked": " b?", "cached": [" x", " y"],
                "message": "at position 4 it has ' b\\ud800', known is ' x' or ' y'"},
        "saved": 0.12346, "saved_measured": True,
        "verified": {"difference": 7.4e-6, "largest": 29.1, "agrees": True},
    }  # fmt: skip


def test_of_an_encoder_the_sources_that_it_need_not_read_are_counted():
    reuse = PromptReuse((hit(1, 0, source=True), hit(1, 0, source=False)), ("", ""), ((), ()))
    message = Frames(run_of(Record(), reuse=reuse)).begin()["status"]["reuse"]
    assert (message["sources_reused"], message["sources"], message["saved"], message["verified"]) == (1, 2, None, None)


def test_begin_tells_where_a_run_branches_off_and_whether_it_is_an_environments():
    branch = Branch("r0", 1, 12, 3, kind="reply", rewritten=True)
    run = run_of(Record(), branch=branch)
    run.recording = Recording(run.recording.lanes, segmented=True)
    begin = Frames(run).begin()
    assert begin["branch"] == {
        "run": "r0", "lane": 1, "position": 12, "added": 3, "kind": "reply", "rewritten": True,
    }  # fmt: skip
    assert begin["environment"] is True


def test_the_end_of_a_run_that_failed_knows_no_why():
    assert Frames(run_of(Record(), Record())).end()["whys"] == [None, None]


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_no_number_is_anything_but_finite(bad):
    alternative = Alternative(1, "a", bad, bad)
    record = Record([row(0, raw_logprob=bad, logprob=bad, entropy=bad, seconds=bad, alternatives=(alternative,))])
    frames = Frames(run_of(record, tokens_per_second=bad, first_token=bad, observation_share=bad))
    text = json.dumps([frames.data(0, 0, 1), frames.begin()], allow_nan=False)
    columns = json.loads(text)[0]["columns"]
    assert [columns[name] for name in ("raw_logprob", "entropy", "seconds", "alt_logprob")] == [[None]] * 4


def test_a_negative_zero_loses_its_sign():
    columns = Frames(run_of(Record([row(0, raw_logprob=-0.0)]))).data(0, 0, 1)["columns"]
    assert math.copysign(1, columns["raw_logprob"][0]) == 1


def test_lone_surrogates_become_something_that_utf8_can_carry():
    record = Record([row(0, text="a\ud800b")], tail="\udfff")
    frames = Frames(run_of(record, whys=("stop string '\ud800'",), error="\ud800", why="stop string '\ud800'"))
    message = frames.data(0, 0, 1)
    assert message["strings"] == ["a?b"]
    json.dumps([message, frames.end()], ensure_ascii=False).encode()


def test_messages_are_of_the_wire_schema():
    adapter = TypeAdapter(wire.BackMessage, config=ConfigDict(strict=True, extra="forbid"))
    record = Record([make_token(i, "prompt" if i < 2 else "generated") for i in range(20)])
    tables = (
        Table([make_round(step, 3, 3, 1) for step in range(3)]),
        Table([make_step(0), make_step(1)]),
        Table([make_choice(0, 0, 1), make_choice(1, 0, -1)]),
        Table([make_segment(0), make_segment(4)]),
    )
    reuse = PromptReuse((hit(3, 2),), ("a",), ((),))
    changes = {"branch": Branch("r0", 0, 1, 1), "drafts": DraftSummary(1, 2, 1, 2), "reuse": reuse}
    frames = Frames(run_of(record, tables=tables, whys=("length",), **changes))
    rows = [
        frames.rows(name, 0, len(table))
        for name, table in zip(("rounds", "beams", "choices", "segments"), tables, strict=True)
    ]
    for message in (frames.begin(), frames.data(0, 0, 20), *rows, frames.beat(), frames.end()):
        adapter.validate_python(message)


def test_a_front_end_sees_the_texts_of_all_tokens_literally():
    record = Record([make_token(i) for i in range(10)])
    front = FakeFrontEnd()
    frames = Frames(run_of(record))
    front.receive(frames.begin())
    front.receive(frames.data(0, 0, 10))
    assert [r["text"] for r in front.rows()] == [t.shown for t in record]
    assert "<script>alert(1)</script>" in front.tracks[0].strings


@given(st.lists(st.tuples(st.integers(0, 60), st.integers(0, 60)), max_size=12), st.integers(0, 60))
def test_any_sequence_of_slices_makes_the_record_again(slices, length):
    record = Record([make_token(i, "prompt" if i < 5 else "generated") for i in range(length)])
    frames, front = Frames(run_of(record)), FakeFrontEnd()
    front.receive(frames.begin())
    for one, other in slices:
        start, stop = sorted((min(one, length), min(other, length)))
        front.receive(frames.data(0, start, stop))
        assert front.rows() == wire_rows(record[: front.n])
    # What is still missing is pulled from where the front end stands.
    front.receive(frames.data(0, front.n, length))
    assert front.rows() == wire_rows(record)


def test_a_slice_costs_the_same_at_the_end_of_a_long_record():
    record = Record([make_token(i, alternatives=1) for i in range(50_000)])
    frames = Frames(run_of(record))
    for start in range(0, 50_000, 1000):
        frames.data(0, start, start + 1000)

    def cost(start):
        began = time.perf_counter()
        for _ in range(200):
            frames.data(0, start, start + 5)
        return time.perf_counter() - began

    ratios = sorted(cost(49_990) / cost(10) for _ in range(5))
    assert ratios[2] < 3
