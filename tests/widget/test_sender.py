"""The sender thread with real runs and no kernel: nothing lost, order, pace, signs of life, pulls, life of the thread."""

from __future__ import annotations

import contextvars
import gc
import threading
import time
import weakref
from collections import Counter

import pytest

from fake_engine import FakeEngine
from fake_rows import make_token, wire_rows, wire_table
from genscope.kernel_side.record.record import Record
from genscope.kernel_side.record.recording import Lane, Recording
from genscope.kernel_side.request import Request
from genscope.kernel_side.run import RunStatus
from genscope.widget import stream as module
from genscope.widget.sender import Sender
from heard import until


def test_5000_tokens_at_once_all_arrive_and_the_end_is_seen(bench):
    run = bench.run(FakeEngine(5000))
    run.wait()
    assert bench.sender.flush(10)
    assert bench.front.end["counts"]["tracks"] == [5003]
    assert bench.front.rows() == wire_rows(run.record)
    assert bench.front.gaps == []
    assert bench.front.end["status"]["state"] == "finished"
    assert max(message["n"] for message in bench.front.of_kind("data")) <= 1000
    # Coalesced: one message a token would be 5,000.
    assert len(bench.front.messages) < 200


def test_messages_are_paced_far_below_what_a_server_drops(bench, monkeypatch):
    monkeypatch.setattr(module, "SLICE", 10)  # quick to make, so that only the pace takes time
    run = bench.run(FakeEngine(1500))
    run.wait()
    began = time.monotonic()
    bench.sender.pull(0)
    assert bench.sender.flush(20)
    data = [moment for moment, kind in bench.times if kind == "data" and moment > began]
    assert len(data) >= 150
    # A server drops what comes faster than 1,000 a second; a browser takes some hundred.
    assert len(data) / (data[-1] - data[0]) < 120


def test_a_live_run_comes_in_about_25_frames_a_second(bench):
    gate = threading.Semaphore(0)
    run = bench.run(FakeEngine(500, gate=gate))
    began = time.monotonic()
    while time.monotonic() - began < 1.0:
        gate.release()
        time.sleep(0.002)
    frames = len(bench.front.of_kind("data"))
    run.stop()
    assert 10 <= frames <= 28


def test_sixteen_lanes_all_move_and_come_far_below_what_a_server_drops(bench):
    gate = threading.Semaphore(0)
    run = bench.run(FakeEngine(100_000, gate=gate), strategy="sample", num_return_sequences=16)

    def turns():
        gate.release()
        frames = Counter(message["track"] for message in bench.front.of_kind("data"))
        return [frames[lane] for lane in range(16)]

    began = time.monotonic()
    until(lambda: min(turns()) >= 4)
    frames, seconds = turns(), time.monotonic() - began
    run.stop()
    assert max(frames) - min(frames) <= 1
    assert len(bench.times) / seconds < 120


def test_rounds_of_drafts_and_steps_of_a_search_all_arrive(bench):
    run = bench.run(FakeEngine(3000), strategy="assisted")
    run.wait()
    assert bench.sender.flush(20)
    assert bench.front.rows() == wire_rows(run.record)
    assert bench.front.tables["rounds"] == wire_table(run.recording.rounds)
    assert bench.front.end["status"]["drafts"]["rounds"] == len(run.recording.rounds) > 900
    run = bench.run(FakeEngine(128), strategy="beam", num_beams=8, num_return_sequences=3)
    run.wait()
    assert bench.sender.flush(20)
    assert bench.front.begin["beams"] == {"beams": 8, "groups": 1}
    assert bench.front.tables["beams"] == wire_table(run.recording.beams)
    assert bench.front.tables["choices"] == wire_table(run.recording.choices)
    assert [bench.front.rows(lane) for lane in range(3)] == [wire_rows(lane.record) for lane in run.lanes]
    assert bench.front.end["whys"] == ["length"] * 3
    assert bench.front.gaps == []
    # Coalesced: 128 steps are more than one message holds, and fewer than ten do.
    assert 1 < len([m for m in bench.front.of_kind("rows") if m["run"] == run.id and m["table"] == "beams"]) < 10


def test_an_answer_comes_behind_what_was_asked_for_before_and_from_the_senders_thread(bench):
    made_in = []

    def make():
        made_in.append(threading.current_thread())
        return {"kind": "problems", "problems": []}

    run = bench.run(FakeEngine(1))
    bench.sender.answer(make)
    assert bench.sender.flush(5)
    run.wait()
    kinds = [message["kind"] for message in bench.front.messages]
    assert kinds.index("begin") < kinds.index("problems")  # the run's tokens may come before it, or behind
    assert set(made_in) == bench.threads


def test_a_run_without_tokens_gives_a_sign_of_life_a_second(bench):
    gate = threading.Semaphore(0)
    run = bench.run(FakeEngine(5, gate=gate))
    until(lambda: bench.front.n == 3)
    time.sleep(2.5)
    beats = [message["counts"]["tracks"] for message in bench.front.of_kind("beat")]
    run.stop()
    assert len(beats) in (2, 3, 4)  # with one for a change of state
    assert beats[-1] == [3]


def test_a_change_of_state_shows_without_new_tokens(bench):
    gate = threading.Semaphore(0)
    run = bench.run(FakeEngine(5, gate=gate))
    gate.release()
    until(lambda: bench.front.n == 4)
    run.pause()
    gate.release()
    until(lambda: run.state == "paused")
    until(lambda: bench.front.messages[-1]["status"]["state"] == "paused", 0.5)
    assert {"state": "paused"} in bench.writes
    run.resume()
    until(lambda: bench.front.messages[-1]["status"]["state"] == "decoding", 0.5)
    assert bench.front.messages[-1]["kind"] == "beat"
    run.stop()
    assert bench.sender.flush(5)
    assert bench.writes[-1] == {"state": "stopped"}
    assert bench.front.end["status"]["state"] == "stopped"


def test_a_failed_run_ends_with_its_tokens_and_its_error(bench):
    run = bench.run(FakeEngine(10, fail_at=4))
    with pytest.raises(RuntimeError):
        run.wait()
    assert bench.sender.flush(5)
    assert bench.front.end["counts"]["tracks"] == [7]
    assert bench.front.end["status"]["error"] == "RuntimeError: out of memory, say"
    assert bench.front.rows() == wire_rows(run.record)


class LateRecord(Record):
    """Grows, and its run ends, right after its length was asked for some time."""

    asked = moment = 0
    over = False

    def __len__(self):
        length = super().__len__()
        self.asked += 1
        if self.asked == self.moment:
            for position in range(length, length + 5):
                self._tokens.append(make_token(position))
            self.over = True
        return length


@pytest.mark.parametrize("moment", range(4, 12))
def test_rows_that_come_right_before_the_end_are_not_behind_it(bench, moment):
    record = LateRecord([make_token(0)])
    record.moment = moment

    class LateRun:
        id, request, looks, whys = "late", Request.make("x"), None, ()
        settings = request.settings
        recording = Recording((Lane(0, 0, record, None, 1),))
        state = property(lambda self: "finished" if record.over else "decoding")
        over = property(lambda self: record.over)

        def status(self):
            return RunStatus(self.state, None, None, 0, 0.0, None, None, None, 0)

    bench.sender.begin(LateRun())
    assert bench.sender.flush(10)
    assert bench.front.gaps == []
    assert [bench.front.n] == bench.front.end["counts"]["tracks"] == [6]


def test_a_new_run_takes_the_place_of_the_old_one(bench):
    gate = threading.Semaphore(0)
    first = bench.run(FakeEngine(100, gate=gate))
    until(lambda: bench.front.n == 3)
    second = bench.run(FakeEngine(7))
    assert bench.sender.flush(5)
    first.stop()
    assert bench.front.begin["run"] == second.id
    assert bench.front.rows() == wire_rows(second.record)
    position = bench.front.messages.index(bench.front.begin)
    assert {message["run"] for message in bench.front.messages[position:]} == {second.id}


def test_all_is_sent_and_written_by_one_thread_which_ends_when_nothing_is_left(bench):
    run = bench.run(FakeEngine(100))
    run.wait()
    assert bench.sender.flush(5)
    [thread] = bench.threads
    assert thread.daemon
    assert thread is not threading.current_thread()
    until(lambda: not thread.is_alive(), 2)


def test_traits_in_quick_succession_are_written_once(bench):
    for share in range(500):
        bench.sender.set_traits(status=share)
    assert bench.sender.flush(5)
    assert bench.writes[-1] == {"status": 499}
    assert len(bench.writes) < 10


def test_a_trait_that_cannot_be_written_yet_is_written_later_and_frames_go_on(bench):
    bench.writable = False
    run = bench.run(FakeEngine(50))
    run.wait()
    until(lambda: bench.front.end is not None)
    assert bench.writes == []
    bench.writable = True
    assert bench.sender.flush(5)
    assert bench.writes == [{"state": "finished"}]


def test_nothing_is_sent_after_close(bench):
    gate = threading.Semaphore(0)
    run = bench.run(FakeEngine(1000, gate=gate))
    gate.release(10)
    until(lambda: bench.front.n >= 3)
    bench.sender.close()
    count = len(bench.front.messages)
    gate.release(900)
    bench.sender.pull(0)
    bench.sender.problems([])
    time.sleep(0.15)
    assert len(bench.front.messages) == count
    assert not bench.sender.flush(0.1)
    run.stop()


def test_it_can_be_closed_from_inside_a_send():
    ended = threading.Event()

    def send(message):
        sent.append(message)
        sender.close()
        ended.set()

    sent = []
    sender = Sender(send, lambda _: True, lambda _: None)
    with sender._changed:  # both in one go
        sender.problems([])
        sender.problems([])
    assert ended.wait(2)
    time.sleep(0.05)
    assert len(sent) == 1


def test_a_sink_that_raises_stops_the_stream_until_it_is_pulled_and_not_the_sender(bench, caplog):
    good = bench.sender._send_now
    bench.sender._send_now = lambda message: 1 / 0
    run = bench.run(FakeEngine(10))
    run.wait()
    assert bench.sender.flush(5)
    assert "could not be sent" in caplog.text
    bench.sender._send_now = good
    bench.sender.pull(0)  # the front end noticed
    assert bench.sender.flush(5)
    assert bench.front.rows() == wire_rows(run.record)
    assert bench.front.end is not None
    second = bench.run(FakeEngine(10))
    second.wait()
    assert bench.sender.flush(5)
    assert bench.front.rows() == wire_rows(second.record)


def test_it_sends_in_the_context_of_whoever_asked():
    cell = contextvars.ContextVar("cell", default="nobody")
    seen = []
    sender = Sender(lambda _: seen.append(cell.get()), lambda _: True, lambda _: None)
    for name in ("first", "second"):
        cell.set(name)
        sender.problems([])
        assert sender.flush(5)
    assert seen == ["first", "second"]


def test_an_idle_sender_keeps_nothing_alive():
    class Owner:
        def send(self, message): ...

    owner = Owner()
    sender = Sender(owner.send, lambda _: True, lambda _: None)
    sender.problems([])
    assert sender.flush(5)
    gone = weakref.ref(owner)
    del sender, owner
    until(lambda: gc.collect() >= 0 and gone() is None, 2)
