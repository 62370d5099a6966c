"""Answers to pulls: after the end, in the middle, while the run goes on."""

from __future__ import annotations

import threading
import time

from fake_engine import FakeEngine, wire_rows
from heard import until


def test_a_pull_after_the_end_gives_begin_all_rows_and_end_again(bench):
    run = bench.run(FakeEngine(2500))
    run.wait()
    bench.sender.flush(10)
    bench.front.__init__()
    bench.sender.pull(0)
    until(lambda: bench.front.end is not None)
    kinds = [(message["kind"], message.get("seq"), message.get("n")) for message in bench.front.messages]
    assert kinds == [
        ("begin", None, None),
        ("data", 0, 1000),
        ("data", 1000, 1000),
        ("data", 2000, 503),
        ("end", None, 2503),
    ]
    assert bench.front.rows() == wire_rows(run.record)
    assert bench.ended == [run]  # not again


def test_a_pull_from_the_middle_gives_the_rest(bench):
    run = bench.run(FakeEngine(100))
    run.wait()
    bench.sender.flush(10)
    del bench.front.messages[:]
    bench.sender.pull(90, run.id)
    until(lambda: bench.front.of_kind("end"))
    assert [(m["seq"], m["n"]) for m in bench.front.of_kind("data")] == [(90, 13)]
    assert bench.front.of_kind("begin") == []


def test_a_pull_of_another_run_gives_the_current_one_from_its_beginning(bench):
    run = bench.run(FakeEngine(10))
    run.wait()
    bench.sender.flush(10)
    del bench.front.messages[:]
    bench.sender.pull(5, "some older run")
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
    assert bench.front.gaps == []
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
    bench.sender.pull(10_000)
    assert bench.sender.flush(5)
    assert bench.front.rows() == wire_rows(run.record)
