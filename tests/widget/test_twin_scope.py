"""Twins of a scope: started from the front end and from Python, told while they go, shown, and stopped."""

from __future__ import annotations

import threading

import pytest
from pydantic import TypeAdapter

from fake_engine import FakeEngine
from genscope.kernel_side.request import SettingsError, make_settings
from genscope.widget import wire
from heard import Heard, until
from tiny import tiny_tokenizer

FORM = make_settings(max_new_tokens=6, stop_at_eos=False, execution="traced").model_dump(mode="json")


def over(scope) -> None:
    """Wait until the last state of the twin is in the trait."""
    scope.wait()
    until(lambda: scope.twin_state and scope.twin_state["over"], 60)


@pytest.fixture
def gate():
    return threading.Semaphore(0)


@pytest.fixture
def gated(made, gate):
    return made(FakeEngine(4, gate=gate), prompt="x", settings=FORM)


def test_a_twin_from_the_front_end_is_two_runs_and_a_state(made, model):
    scope = made(model, tiny_tokenizer(), prompt="old", settings={"max_new_tokens": 3})
    front = Heard(scope)
    front.say({"kind": "twin", "prompt": "the cat and", "settings": FORM})
    until(lambda: len(scope.runs) == 2)
    over(scope)
    assert front.problems() == []
    eager, other = scope.runs
    assert [run.settings.execution for run in (eager, other)] == ["eager", "traced"]
    assert (scope.prompt, scope.settings["execution"]) == ("the cat and", "traced")
    assert scope.settings["keep"] == []  # what the twin keeps is not the form's
    state = scope.twin_state
    TypeAdapter(wire.WireTwin).validate_python(state, strict=True)
    assert (state["execution"], state["compared"], state["agreeing"], state["difference"]) == ("traced", 6, 6, None)
    assert (state["eager"]["run"], state["other"]["run"]) == (eager.id, other.id)
    assert state["eager"]["id"] == state["other"]["id"] == eager.record.ids()[eager.prompt_tokens :]
    assert state["other"]["text"] == [token.shown for token in other.record[other.prompt_tokens :]]
    assert (state["largest_gap"], state["gap_over"]) == (0.0, "over all 6 choices")
    assert state["eager"]["per_token"] > 0
    assert state["eager"]["status"]["execution"] is None
    execution = state["other"]["status"]["execution"]
    assert execution["name"] == "traced"
    assert execution["passes"] + execution["compared"] == 6
    assert execution["prepared"] > 0
    # Both were streamed, the eager one first, and both are in the tree.
    assert [begin["run"] for begin in front.of_kind("begin")] == [eager.id, other.id]
    until(lambda: [row["state"] for row in scope.tree] == ["finished"] * 2)
    assert [row["execution"] for row in scope.tree] == [None, "traced"]


def test_a_twin_from_python(made, model):
    scope = made(model, tiny_tokenizer(), prompt="the cat and", settings=FORM)
    assert scope.twin_state is None
    twin = scope.twin(max_new_tokens=4, strategy="sample", seed=3)
    report = twin.wait()
    assert (report.agreeing, report.compared) == (4, 4)
    assert scope.run is twin.other
    assert (scope.settings["max_new_tokens"], scope.settings["strategy"]) == (4, "sample")
    other = scope.twin("another", FORM)
    assert other.eager.request.plain_prompt() == scope.prompt == "another"
    over(scope)
    assert scope.twin_state["eager"]["run"] == other.eager.id


def test_eager_beside_itself_is_refused_and_the_run_before_goes_on(gated, gate):
    run = gated.generate(execution="eager")
    with pytest.raises(SettingsError, match="eager compared with itself"):
        gated.twin()
    front = Heard(gated)
    front.say({"kind": "twin", "prompt": "x", "settings": FORM | {"execution": "eager"}})
    until(front.problems)
    [problem] = front.problems()
    assert (problem["field"], problem["way_out"]) == ("execution", "Choose another execution.")
    front.say({"kind": "twin", "prompt": 5, "settings": FORM})
    until(lambda: "wrong message" in front.problems()[0]["message"])
    assert (len(gated.runs), run.over) == (1, False)
    gate.release(4)
    assert run.wait(10).state == "finished"


def test_the_state_is_told_while_the_runs_go_and_the_second_run_is_shown_when_the_first_ends(gated, gate):
    twin = gated.twin()
    gate.release(2)
    until(lambda: gated.twin_state and gated.twin_state["eager"]["generated"] == 2)
    state = gated.twin_state
    assert (state["over"], state["compared"], state["other"]["status"]["state"]) == (False, 0, "queued")
    assert (state["largest_gap"], state["gap_over"], state["pays_off_after"]) == (None, None, None)
    assert gated._runs.shown is twin.eager
    gate.release(3)
    until(lambda: gated._runs.shown is twin.other)
    until(lambda: gated.twin_state["compared"] == 1)
    gate.release(3)
    over(gated)
    state = gated.twin_state
    assert (state["compared"], state["agreeing"]) == (4, 4)
    assert state["gap_over"] == "the two runs did not both keep logits"
    until(lambda: all(thread.name != "genscope-twin" for thread in threading.enumerate()))


def test_a_person_who_looks_elsewhere_is_left_there(gated, gate):
    gate.release(4)
    first = gated.generate().wait(10)
    twin = gated.twin()
    gated.show(first)
    gate.release(8)
    twin.wait(10)
    assert gated._runs.shown is first


@pytest.mark.parametrize("by", ["python", "front end", "control"])
def test_stop_stops_both(gated, gate, by):
    twin = gated.twin()
    gate.release(1)
    until(lambda: twin.eager.status().generated == 1)
    if by == "python":
        gated.stop()
    elif by == "front end":
        Heard(gated).say({"kind": "stop", "run": twin.eager.id})
    else:
        gated._front_end.stop(twin.eager.id)
    over(gated)
    assert (twin.eager.state, twin.other.state) == ("stopped", "stopped")
    assert gated._runs.shown is twin.eager  # the other has nothing to show
    assert (gated.twin_state["compared"], gated.twin_state["eager"]["generated"]) == (0, 1)


def test_pausing_holds_the_run_that_goes(gated, gate):
    twin = gated.twin()
    gate.release(1)
    until(lambda: twin.eager.status().generated == 1)
    gated.pause()
    gate.release(1)
    until(lambda: twin.eager.state == "paused")
    gated.resume()
    gate.release(6)
    over(gated)
    assert (twin.eager.state, twin.other.state) == ("finished", "finished")


def test_another_run_stops_both_and_the_last_state_stays(gated, gate):
    twin = gated.twin()
    gate.release(1)
    until(lambda: twin.eager.status().generated == 1)
    run = gated.generate(execution="eager")
    gate.release(8)
    run.wait(10)
    assert (twin.eager.state, twin.other.state) == ("stopped", "stopped")
    until(lambda: gated.twin_state["over"])
    assert gated.twin_state["eager"]["run"] == twin.eager.id


def test_the_next_twin_takes_the_trait_and_a_closed_scope_tells_nothing(gated):
    told = []
    gated.observe(lambda change: told.append((change["new"]["eager"]["run"], change["new"]["over"])), "twin_state")
    first, second = gated.twin(), gated.twin()
    until(lambda: first.over and (second.eager.id, False) in told)
    gated._sender.flush(5)
    assert (first.eager.id, True) not in told
    gated.close()
    until(lambda: second.over)
    until(lambda: all(thread.name != "genscope-twin" for thread in threading.enumerate()))
    assert (second.eager.id, True) not in told


def test_a_twin_asked_for_while_the_model_loads_starts_behind_it(made, model, monkeypatch):
    loaded = threading.Event()

    def load(*args, **options):
        loaded.wait(10)
        return model, tiny_tokenizer()

    monkeypatch.setattr("genscope.kernel_side.models.load_model", load)
    scope = made("demo", prompt="x", settings=FORM)
    front = Heard(scope)
    front.say({"kind": "twin", "prompt": "the cat", "settings": FORM})
    assert front.problems() == []
    assert scope.runs == []
    loaded.set()
    until(lambda: len(scope.runs) == 2)
    over(scope)
    assert scope.twin_state["agreeing"] == 6
