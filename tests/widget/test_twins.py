"""A twin as its trait holds it: cut to size, with what each side chose between; and who watches it."""

from __future__ import annotations

import threading
import time
from dataclasses import replace
from types import SimpleNamespace

import pytest
from pydantic import TypeAdapter

from fake_engine import FakeEngine
from genscope.kernel_side.request import Request
from genscope.kernel_side.twin import Difference, Twin
from genscope.widget import twins, wire
from genscope.widget.twins import TwinWatch, wire_twin
from heard import until


class Parted(Twin):
    """A twin whose report says that the two part at a generated token of a lane."""

    at = 0
    lane = 0

    def report(self):
        report = super().report()
        position = self.eager.lanes[self.lane].prompt_tokens + self.at
        token = self.eager.lanes[self.lane].record[position]
        # A candidate that only one side recorded, and one that is impossible.
        impossible = replace(token.alternatives[0], id=998, raw_logprob=float("-inf"))
        other = replace(token, id=999, text="\ud800", raw_logprob=-0.123456789, alternatives=(impossible,))
        return replace(report, difference=Difference(self.lane, position, token, other), agreeing=self.at)


def finished(count: int, **settings) -> Parted:
    twin = Parted(FakeEngine(count), Request.make("x", execution="traced", **settings))
    twin.wait()
    return twin


def test_a_difference_tells_what_each_side_knew_of_what_either_chose_between():
    twin = finished(5)
    twin.at = 2
    state = wire_twin(twin)
    difference = state["difference"]
    TypeAdapter(wire.WireTwin).validate_python(state, strict=True)
    begin = twin.eager.prompt_tokens
    assert (difference["lane"], difference["position"], difference["generated"]) == (0, begin + 2, 2)
    token = twin.eager.record[begin + 2]
    known = [entry.id for entry in token.alternatives[:6]]
    assert difference["eager"]["id"] == token.id
    assert difference["eager"]["alt_id"][: len(known)] == known
    assert difference["other"]["text"] == "?"
    # What was chosen is there though it was none of the candidates, with digits enough to tell two that are close.
    assert (difference["other"]["alt_id"], difference["other"]["alt_logprob"]) == ([998, 999], [None, -0.123456789])
    assert state["gap_over"] == "the two runs did not both keep logits"


@pytest.mark.parametrize(
    ("at", "start"), [(None, 0), (10, 0), (twins.TOKENS, twins.TOKENS // 2), (899, 899 - twins.TOKENS // 2)]
)
def test_long_texts_are_cut_to_the_beginning_or_to_what_is_around_the_difference(at, start):
    twin = finished(900)
    if at is not None:
        twin.at = at
    state = wire_twin(twin) if at is not None else wire_twin(plain(twin))
    assert state["start"] == start
    first = twin.eager.prompt_tokens + start
    expected = twin.eager.record.ids()[first : first + twins.TOKENS]
    assert state["eager"]["id"] == expected
    assert len(state["eager"]["text"]) == len(expected) <= twins.TOKENS
    assert state["eager"]["generated"] == 900
    assert state["compared"] == 900


def plain(twin: Parted) -> Twin:
    """The same twin with its own report."""
    twin.__class__ = Twin
    return twin


def test_the_lane_of_the_difference_is_listed():
    twin = finished(5, strategy="sample", num_return_sequences=3)
    twin.at, twin.lane = 1, 2
    state = wire_twin(twin)
    assert (state["lane"], state["lanes"]) == (2, 3)
    lane = twin.eager.lanes[2]
    assert state["eager"]["id"] == lane.record.ids()[lane.prompt_tokens :]


@pytest.mark.parametrize(
    ("report", "lanes", "searches", "said"),
    [
        ({"largest_gap": 0.0, "difference": None, "agreeing": 7}, 1, False, "over all 7 choices"),
        (
            {"largest_gap": 1e-5, "difference": 1, "agreeing": 7},
            1,
            False,
            "over the 8 choices up to the first difference",
        ),
        (
            {"largest_gap": 1e-5, "difference": 1, "agreeing": 7},
            2,
            False,
            "up to the first difference of each sequence",
        ),
        ({"largest_gap": 0.0, "difference": None, "agreeing": 1}, 1, False, "over the one choice"),
        ({"largest_gap": 1e-5, "difference": 1, "agreeing": 0}, 1, False, "over the first choice, which differs"),
        ({"largest_gap": None}, 1, True, "a beam search's rows of logits are not those of its sequences"),
        ({"largest_gap": None}, 1, False, "the two runs did not both keep logits"),
    ],
)
def test_what_the_gap_was_looked_for_in(report, lanes, searches, said):
    eager = SimpleNamespace(settings=SimpleNamespace(searches=searches), lanes=[None] * lanes)
    assert twins._gap_over(SimpleNamespace(eager=eager), SimpleNamespace(**report)) == said


def test_a_twin_that_cannot_be_compared_is_logged_and_ends_the_watch(caplog):
    class Broken(Twin):
        def report(self):
            raise RuntimeError("no")

    told = []
    twin = Broken(FakeEngine(3), Request.make("x", execution="traced"))
    TwinWatch(twin, told.append)
    twin.eager.wait(10)
    twin.other.wait(10)
    until(lambda: "a twin could not be compared" in caplog.text)
    assert told == []


def test_watching_takes_a_small_share_of_the_time(monkeypatch):
    monkeypatch.setattr(twins, "_PAUSE", 0.0)
    twin = Twin(FakeEngine(2, gate=threading.Semaphore(0)), Request.make("x", execution="traced"))
    begun = []

    def slowly(_twin):
        begun.append(time.monotonic())
        time.sleep(0.02)
        return {}

    monkeypatch.setattr(twins, "wire_twin", slowly)
    TwinWatch(twin, lambda state: None)
    until(lambda: len(begun) == 2)
    twin.stop()
    assert begun[1] - begun[0] >= 50 * 0.02
