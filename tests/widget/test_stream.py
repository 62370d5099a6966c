"""What of a run is sent next: turns of tracks and tables, pulls, and that in the end all is there whatever was lost."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fake_front_end import FakeFrontEnd
from fake_rows import make_choice, make_round, make_segment, make_step, make_token, wire_rows, wire_table
from genscope.kernel_side.record.record import Record
from genscope.kernel_side.record.recording import Lane, Recording
from genscope.kernel_side.request import Request
from genscope.kernel_side.run import RunStatus
from genscope.widget import stream as module
from genscope.widget.stream import Stream

MAKE = {
    "rounds": lambda at: make_round(at, at, 3, at % 4),
    "beams": make_step,
    "choices": lambda at: make_choice(at, 0, at - 1),
    "segments": make_segment,
}


class GrowingRun:
    """A run that grows when it is told to."""

    request, looks, id = Request.make("x"), None, "r1"
    settings = request.settings

    def __init__(self, lanes=1, sources=0):
        records = [Record() for _ in range(sources)]
        self.recording = Recording(
            tuple(Lane(lane, 0, Record(), records[lane % sources] if sources else None, 0) for lane in range(lanes))
        )
        self.records = [*(lane.record for lane in self.recording.lanes), *records]
        self.state, self.whys = "decoding", ()

    @property
    def over(self):
        return self.state == "finished"

    def status(self):
        return RunStatus(self.state, None, None, 0, 0.0, None, None, None, 0)

    def grow(self, track, count=1):
        record = self.records[track]
        for _ in range(count):
            record.append(make_token(len(record), lane=track))

    def grow_table(self, name, count=1):
        table = getattr(self.recording, name)
        for at in range(len(table), len(table) + count):
            table.append(MAKE[name](at))

    def finish(self):
        self.state, self.whys = "finished", ("eos",) * len(self.recording.lanes)


def sent(stream, count=1000):
    """Return what comes until nothing does."""
    messages = []
    while len(messages) < count and (message := stream.next(beat=False)) is not None:
        messages.append(message)
    return messages


def where(message):
    return message.get("track", message.get("table", message["kind"])), message.get("seq")


def test_everything_that_grows_has_its_turn(monkeypatch):
    monkeypatch.setattr(module, "SLICE", 10)
    run = GrowingRun(lanes=3, sources=1)
    stream = Stream(run)
    stream.begin()
    for track in range(4):
        run.grow(track, 25)
    run.grow_table("rounds", 5)
    turns = [where(message) for message in sent(stream)]
    assert turns[:5] == [(0, 0), (1, 0), (2, 0), (3, 0), ("rounds", 0)]
    assert turns[5:] == [(0, 10), (1, 10), (2, 10), (3, 10), (0, 20), (1, 20), (2, 20), (3, 20)]


def test_a_lane_that_always_has_more_keeps_no_other_waiting(monkeypatch):
    monkeypatch.setattr(module, "SLICE", 5)
    run = GrowingRun(lanes=16)
    stream = Stream(run)
    stream.begin()
    run.grow(0, 1000)
    for lane in range(1, 16):
        run.grow(lane)
    assert [where(stream.next(beat=False))[0] for _ in range(17)] == [*range(16), 0]


def test_rows_wait_while_others_than_those_sent_last_are_there(monkeypatch):
    monkeypatch.setattr(module, "SLICE", 10)
    run = GrowingRun(lanes=2)
    stream = Stream(run)
    stream.begin()
    assert not stream.waiting
    run.grow(0, 3)
    run.grow(1, 15)
    waiting = []
    for _ in range(4):
        message = stream.next(beat=False)
        run.grow(0)  # what comes while others are sent waits for its turn, and hurries nobody
        waiting.append((where(message), stream.waiting))
    assert waiting == [((0, 0), True), ((1, 0), True), ((0, 3), True), ((1, 10), False)]


def test_the_end_comes_once_behind_all_rows_and_again_after_a_pull():
    run = GrowingRun(lanes=2)
    stream = Stream(run)
    assert stream.begin()["kind"] == "begin"
    run.grow(1)
    run.finish()
    assert [where(message) for message in sent(stream)] == [(1, 0), ("end", None)]
    assert stream.ended
    assert stream.next(beat=True) is None
    stream.rewind(1, 0)
    assert [where(message) for message in sent(stream)] == [(1, 0), ("end", None)]


def test_a_beat_comes_where_it_is_due_or_the_state_has_changed():
    run = GrowingRun()
    stream = Stream(run)
    stream.begin()
    assert stream.next(beat=False) is None
    assert stream.next(beat=True)["kind"] == "beat"
    run.state = "paused"
    assert stream.next(beat=False)["kind"] == "beat"
    assert stream.state == "paused"
    assert stream.next(beat=False) is None


@pytest.mark.parametrize("key", [5, -1, "nothing"])
def test_a_pull_of_what_is_not_there_changes_nothing(key):
    stream = Stream(GrowingRun())
    stream.begin()
    stream.rewind(key, 0)
    assert stream.next(beat=False) is None


@pytest.mark.parametrize(("start", "seqs"), [(-5, [0]), (0, [0]), (7, [7]), (10, [10]), (99, [10])])
def test_a_pull_sends_from_a_row_on_and_never_leaves_rows_out(start, seqs):
    run = GrowingRun()
    stream = Stream(run)
    stream.begin()
    run.grow(0, 10)
    sent(stream)
    stream.rewind(0, start)
    run.grow(0, 5)
    assert [message["seq"] for message in sent(stream)] == seqs


def pulling(stream):
    """Return a front end that pulls at once what it misses."""

    def pull(gap):
        key = gap.get("track", gap.get("table"))
        if key is None:
            answers.append(stream.begin())
        else:
            stream.rewind(key, gap["start"])

    answers = []
    return FakeFrontEnd(pull), answers


TRACKS = 4
GROWS = st.tuples(st.sampled_from([*range(TRACKS), "rounds", "beams", "choices"]), st.integers(1, 30))
PULLS = st.tuples(st.just("pull"), st.sampled_from([*range(TRACKS), "rounds", "beams", "choices"]), st.integers(0, 60))
EVENTS = st.one_of(GROWS, PULLS, st.sampled_from(["arrives", "is lost", "begin", "reload"]))


@given(st.lists(EVENTS, max_size=60), st.data())
def test_whatever_is_lost_the_front_end_ends_up_with_exactly_what_the_kernel_has(events, data):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "SLICE", 7)
        patch.setattr("genscope.widget.tables.ENTRIES", 40)
        check(events, data)


def check(events, data):
    run = GrowingRun(lanes=3, sources=1)
    stream = Stream(run)
    front, answers = pulling(stream)

    def send(message, lost=False):
        if message is not None and not lost:
            front.receive(message)
        while answers:  # a pull of everything is answered by a begin, which may be lost, too
            begin = answers.pop()
            if not data.draw(st.booleans()):
                front.receive(begin)

    send(stream.begin(), lost=data.draw(st.booleans()))
    for event in events:
        if event in ("arrives", "is lost"):
            send(stream.next(beat=True), lost=event == "is lost")
        elif event == "begin":
            send(stream.begin())
        elif event == "reload":
            front, answers = pulling(stream)
        elif event[0] == "pull":
            stream.rewind(*event[1:])
        elif isinstance(event[0], int):
            run.grow(*event)
        else:
            run.grow_table(*event)
        for track, known in zip(run.records, front.tracks, strict=False):
            assert known.rows() == wire_rows(track[: known.n])
    run.finish()
    # From here on nothing is lost for ever: each end shows what is missing, and a page that knows nothing asks.
    for _ in range(2000):
        if (message := stream.next(beat=True)) is None:
            if front.begin is not None and front.end is not None:
                break
            front.receive(stream.begin())
        else:
            front.receive(message)
        while answers:
            front.receive(answers.pop())
    for index, record in enumerate(run.records):
        assert front.rows(index) == wire_rows(record)
    for name in ("rounds", "beams", "choices"):
        assert front.tables[name] == wire_table(getattr(run.recording, name))
    assert front.end["counts"]["tracks"] == [len(record) for record in run.records]
