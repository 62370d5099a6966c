"""The wire messages of a run: exact columns, texts once, only finite numbers, any slices make the record again."""

from __future__ import annotations

import json
import math
import time
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ConfigDict, TypeAdapter

from fake_engine import FakeFrontEnd, make_token, wire_rows
from genscope.kernel_side.record.record import Alternative, Record, Token
from genscope.kernel_side.request import make_settings
from genscope.kernel_side.run import RunStatus
from genscope.widget import wire
from genscope.widget.frames import Frames


def status(**changes):
    values = {
        "state": "decoding", "why": None, "error": None, "generated": 2, "elapsed": 1.23456789, "first_token": 0.123456789,
        "tokens_per_second": 33.3333333, "observation_share": 0.01234567, "queue_ahead": 0,
    }  # fmt: skip
    return RunStatus(**(values | changes))


def run_of(record, **changes):
    settings = make_settings(strategy="sample", temperature=0.7, seed=5)
    return SimpleNamespace(
        id="r1",
        record=record,
        prompt_tokens=1,
        settings=settings,
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
            row(0, origin="prompt", id=4, text="Hi", bytes=b"Hi"),
            row(
                1, id=5, text="", bytes=b"\xe2", raw_logprob=-0.123456789, logprob=-0.00001234567, entropy=2.0, rank=3,
                seconds=0.0123456789,
                alternatives=(Alternative(5, "a", -0.5, -0.25), Alternative(6, "Hi", -math.inf, -math.inf)),
            ),
        ]
    )  # fmt: skip
    message = Frames(run_of(record)).data(0, 2)
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
    }
    assert (message["seq"], message["n"]) == (0, 2)
    assert (message["strings_from"], message["strings"]) == (0, ["Hi", "", "a"])


def test_strings_are_sent_by_the_slice_that_first_needs_them():
    record = Record([row(0, text="a"), row(1, text="b"), row(2, text="a"), row(3, text="c")])
    frames = Frames(run_of(record))
    assert [(frames.data(i, i + 1)["strings_from"], frames.data(i, i + 1)["strings"]) for i in range(4)] == [
        (0, ["a"]),
        (1, ["b"]),
        (2, []),
        (2, ["c"]),
    ]
    assert frames.data(1, 4)["strings"] == ["b", "c"]
    assert frames.data(2, 2)["strings"] == []


def test_begin_beat_and_end_say_what_the_run_is():
    record = Record([row(0)], tail="\ufffd")
    frames = Frames(run_of(record, state="finished", why="eos"))
    begin = frames.begin()
    assert (begin["run"], begin["prompt_tokens"], begin["settings"]["seed"]) == ("r1", 1, 5)
    assert begin["settings"]["temperature"] == 0.7
    assert begin["status"] == {
        "state": "finished", "why": "eos", "error": None, "generated": 2, "elapsed": 1.2346, "first_token": 0.12346,
        "tokens_per_second": 33.333, "observation_share": 0.012346, "queue_ahead": 0,
    }  # fmt: skip
    assert (frames.beat()["n"], frames.end()["n"], frames.end()["tail"]) == (1, 1, "\ufffd")


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_no_number_is_anything_but_finite(bad):
    alternative = Alternative(1, "a", bad, bad)
    record = Record([row(0, raw_logprob=bad, logprob=bad, entropy=bad, seconds=bad, alternatives=(alternative,))])
    frames = Frames(run_of(record, tokens_per_second=bad, first_token=bad, observation_share=bad))
    text = json.dumps([frames.data(0, 1), frames.begin()], allow_nan=False)
    columns = json.loads(text)[0]["columns"]
    assert [columns[name] for name in ("raw_logprob", "entropy", "seconds", "alt_logprob")] == [[None]] * 4


def test_a_negative_zero_loses_its_sign():
    columns = Frames(run_of(Record([row(0, raw_logprob=-0.0)]))).data(0, 1)["columns"]
    assert math.copysign(1, columns["raw_logprob"][0]) == 1


def test_lone_surrogates_become_something_that_utf8_can_carry():
    record = Record([row(0, text="a\ud800b")], tail="\udfff")
    frames = Frames(run_of(record, error="\ud800"))
    message = frames.data(0, 1)
    assert message["strings"] == ["a?b"]
    json.dumps([message, frames.end()], ensure_ascii=False).encode()


def test_messages_are_of_the_wire_schema():
    adapter = TypeAdapter(wire.BackMessage, config=ConfigDict(strict=True, extra="forbid"))
    frames = Frames(run_of(Record([make_token(i, "prompt" if i < 2 else "generated") for i in range(20)])))
    for message in (frames.begin(), frames.data(0, 20), frames.beat(), frames.end()):
        adapter.validate_python(message)


def test_a_front_end_sees_the_texts_of_all_tokens_literally():
    record = Record([make_token(i) for i in range(10)])
    front = FakeFrontEnd()
    frames = Frames(run_of(record))
    front.receive(frames.begin())
    front.receive(frames.data(0, 10))
    assert [r["text"] for r in front.rows()] == [t.shown for t in record]
    assert "<script>alert(1)</script>" in front.strings


@given(st.lists(st.tuples(st.integers(0, 60), st.integers(0, 60)), max_size=12), st.integers(0, 60))
def test_any_sequence_of_slices_makes_the_record_again(slices, length):
    record = Record([make_token(i, "prompt" if i < 5 else "generated") for i in range(length)])
    frames, front = Frames(run_of(record)), FakeFrontEnd()
    front.receive(frames.begin())
    for one, other in slices:
        start, stop = sorted((min(one, length), min(other, length)))
        front.receive(frames.data(start, stop))
        assert front.rows() == wire_rows(record[: front.n])
    # What is still missing is pulled from where the front end stands.
    front.receive(frames.data(front.n, length))
    assert front.rows() == wire_rows(record)


def test_a_slice_costs_the_same_at_the_end_of_a_long_record():
    record = Record([make_token(i, alternatives=1) for i in range(50_000)])
    frames = Frames(run_of(record))
    for start in range(0, 50_000, 1000):
        frames.data(start, start + 1000)

    def cost(start):
        began = time.perf_counter()
        for _ in range(200):
            frames.data(start, start + 5)
        return time.perf_counter() - began

    ratios = sorted(cost(49_990) / cost(10) for _ in range(5))
    assert ratios[2] < 3
