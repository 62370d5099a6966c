"""Comparisons of a scope: from the front end and from Python, shown as one, stopped by lane and whole, branched from."""

from __future__ import annotations

import pytest

from genscope.kernel_side.request import SettingsError, make_settings
from heard import Heard, until
from tiny import tiny_tokenizer

FORM = make_settings(strategy="sample", max_new_tokens=6, stop_at_eos=False).model_dump(mode="json")
CHANGES = [{"temperature": 0.5}, {"temperature": 1.5}]


@pytest.fixture
def scope(made, model):
    return made(model, tiny_tokenizer(), prompt="the cat", settings=FORM)


def ask(**changes):
    return {"kind": "compare", "prompt": "the cat and", "settings": FORM, "changes": CHANGES, "seeds": 2} | changes


def test_the_front_end_asks_and_is_told_lanes_with_labels(scope):
    front = Heard(scope)
    front.say(ask())
    until(lambda: len(scope.runs) == 1)
    scope.wait(60)
    begin = front.of_kind("begin")[-1]
    [comparison] = scope._runs.comparisons
    assert begin["run"] == comparison.id
    assert [lane["label"] for lane in begin["lanes"]] == [lane.label for lane in comparison.lanes]
    assert [lane["label"].split(",")[0] for lane in begin["lanes"]] == ["temperature 0.5"] * 2 + ["temperature 1.5"] * 2
    assert [one["group"] for one in begin["compared"]] == [0, 0, 1, 1]
    assert {one["batch"] for one in begin["compared"]} == {0}
    assert [one["settings"]["temperature"] for one in begin["compared"]] == [0.5, 0.5, 1.5, 1.5]
    assert scope.prompt == "the cat and"
    assert scope.settings["temperature"] == 1.0  # what differs is not the form's


def test_a_comparison_is_one_row_of_the_tree_and_its_branches_hang_below_it(scope):
    comparison = scope.compare([{"temperature": 0.5}, {"strategy": "contrastive"}], seeds=[1])
    comparison.wait(60)
    lane = comparison.lanes[1]
    branch = scope.branch(lane.lane.prompt_tokens + 1, run=lane.run, lane=lane.index)
    branch.wait(60)
    until(lambda: len(scope.tree) == 2)
    row, below = scope.tree
    assert (row["id"], row["kind"], row["strategy"]) == (comparison.id, "comparison", "2 lanes")
    assert (below["parent"], below["lane"], below["kind"]) == (comparison.id, 1, "branch")


def test_the_front_end_branches_from_a_lane(scope):
    comparison = scope.compare(CHANGES, seeds=[1])
    comparison.wait(60)
    front = Heard(scope)
    lane = comparison.lanes[1]
    at = lane.lane.prompt_tokens + 2
    front.say(
        {"kind": "branch", "run": comparison.id, "lane": 1, "position": at, "settings": FORM | {"max_new_tokens": 2}}
    )
    until(lambda: len(scope.runs) == 2)
    run = scope.runs[-1].wait(60)
    assert front.problems() == []
    assert run.record.ids()[:at] == lane.record.ids()[:at]
    assert run.request.branch.run == lane.run.id


def test_a_lane_and_a_whole_comparison_are_stopped(made, model):
    settings = FORM | {"max_new_tokens": 300}
    scope = made(model, tiny_tokenizer(), prompt="the cat", settings=settings)
    front = Heard(scope)
    comparison = scope.compare(CHANGES, seeds=[1])
    comparison.pause()
    front.say({"kind": "stop_lane", "run": comparison.id, "lane": 0})
    front.say({"kind": "stop_lane", "run": comparison.id, "lane": 7})  # there is none
    front.say({"kind": "resume", "run": comparison.id})
    until(lambda: comparison.lanes[1].lane.generated > comparison.lanes[0].lane.generated + 5, 60)
    front.say({"kind": "stop", "run": comparison.id})
    comparison.wait(60)
    assert comparison.state == "stopped"
    assert comparison.lanes[0].why == "stopped"
    assert comparison.lanes[1].why is None


def test_what_comes_next_stops_it_and_it_can_be_shown_again(made, model):
    scope = made(model, tiny_tokenizer(), prompt="the cat", settings=FORM | {"max_new_tokens": 300})
    comparison = scope.compare([{"temperature": 0.5}, {"strategy": "contrastive"}], seeds=[1])
    run = scope.generate(max_new_tokens=2)
    run.wait(60)
    comparison.wait(60)
    assert comparison.state == "stopped"
    assert scope._runs.shown is run
    scope.show(comparison)
    assert scope._runs.shown is comparison
    assert "2 lanes of up to" in scope.to_html()
    assert "temperature 0.5" not in scope.to_html()  # what tells them apart is the strategy
    assert "contrastive" in scope.to_html()


def test_what_is_wrong_is_told_and_stops_nothing(scope):
    front = Heard(scope)
    run = scope.generate()
    front.say(ask(changes=[{"temperature": -1}]))
    until(front.problems)
    [problem] = front.problems()
    assert problem["field"] == "temperature"
    run.wait(60)
    assert run.state == "finished"
    with pytest.raises(SettingsError, match="a comparison takes a list of settings"):
        scope.compare([])
    with pytest.raises(ValueError, match="a comparison has several runs"):
        scope.compare(CHANGES, seeds=[1]).wait(60)
        scope.branch(1)
