"""Answers to pulls by the sender: of everything, of one track or table; after the end, in the middle, while it goes on."""

from __future__ import annotations

import threading
import time

import pytest

from fake_engine import FakeEngine
from fake_rows import wire_rows, wire_table
from heard import until


def rows_of(message):
    return message["n"] if message["kind"] == "data" else len(message["rows"])


def test_a_pull_of_everything_after_the_end_gives_begin_all_rows_and_end_again(bench):
    run = bench.run(FakeEngine(2500))
    run.wait()
    bench.sender.flush(10)
    bench.front.__init__()
    bench.sender.pull()
    until(lambda: bench.front.end is not None)
    kinds = [(message["kind"], message.get("seq"), message.get("n")) for message in bench.front.messages]
    assert kinds == [
        ("begin", None, None),
        ("data", 0, 1000),
        ("data", 1000, 1000),
        ("data", 2000, 503),
        ("end", None, None),
    ]
    assert bench.front.rows() == wire_rows(run.record)
    assert bench.ended == [run]  # not again


def test_a_pull_of_everything_has_all_lanes_sources_and_tables(bench):
    run = bench.run(FakeEngine(20, source=4), ["a", "b"], strategy="beam", num_return_sequences=2)
    run.wait()
    bench.sender.flush(10)
    bench.front.__init__()
    bench.sender.pull(0)
    assert bench.sender.flush(10)
    records = [*(lane.record for lane in run.lanes), *run.recording.sources]
    assert len(records) == 6
    for track, record in enumerate(records):
        assert bench.front.rows(track) == wire_rows(record)
    assert bench.front.tables["beams"] == wire_table(run.recording.beams)
    assert bench.front.tables["choices"] == wire_table(run.recording.choices)


@pytest.mark.parametrize(
    ("gap", "expected"),
    [
        ({"track": 0, "start": 90}, ("data", 90, 13)),
        ({"track": 3, "start": 100}, ("data", 100, 3)),
        ({"table": "rounds", "start": 30}, ("rows", 30, 4)),
    ],
)
def test_a_pull_from_the_middle_of_one_gives_the_rest_of_that_one(bench, gap, expected):
    strategy = "prompt_lookup" if "table" in gap else "sample"
    sequences = {} if "table" in gap else {"num_return_sequences": 4}
    run = bench.run(FakeEngine(100), strategy=strategy, **sequences)
    run.wait()
    bench.sender.flush(10)
    del bench.front.messages[:]
    bench.sender.pull(run=run.id, **gap)
    until(lambda: bench.front.of_kind("end"))
    [message] = [message for message in bench.front.messages if message["kind"] in ("data", "rows")]
    assert (message["kind"], message["seq"], rows_of(message)) == expected
    assert all(message[key] == value for key, value in gap.items() if key != "start")
    assert bench.front.of_kind("begin") == []


def test_a_pull_of_another_run_gives_the_current_one_from_its_beginning(bench):
    run = bench.run(FakeEngine(10))
    run.wait()
    bench.sender.flush(10)
    del bench.front.messages[:]
    bench.sender.pull(5, run="some older run", track=0)
    until(lambda: bench.front.of_kind("end"))
    assert [m["run"] for m in bench.front.of_kind("begin")] == [run.id]
    assert bench.front.of_kind("data")[0]["seq"] == 0


def test_a_pull_while_the_run_goes_on_catches_up_and_goes_on(bench):
    gate = threading.Semaphore(0)
    run = bench.run(FakeEngine(4000, gate=gate))
    gate.release(3000)
    until(lambda: bench.front.n >= 3003)
    bench.front.__init__()  # a reload: all is gone there
    bench.sender.pull(0)
    for _ in range(20):
        gate.release(10)
        time.sleep(0.01)
    until(lambda: bench.front.n >= 3203)
    # What was on its way before the pull belongs to a run that the page does not know.
    assert [gap for gap in bench.front.gaps if gap != {"start": 0}] == []
    gate.release(1000)
    run.wait()
    assert bench.sender.flush(10)
    assert bench.front.rows() == wire_rows(run.record)


def test_pulls_from_beyond_the_end_or_without_a_run_do_no_harm(bench):
    bench.sender.pull(0)
    assert bench.sender.flush(5)
    assert bench.front.messages == []
    run = bench.run(FakeEngine(5))
    run.wait()
    bench.sender.pull(10_000, track=0)
    bench.sender.pull(0, track=7)
    bench.sender.pull(0, table="rounds")
    assert bench.sender.flush(5)
    assert bench.front.rows() == wire_rows(run.record)
