"""A scope that plays an environment: what the front end sees, and what is whose among the arguments."""

from __future__ import annotations

import threading

import pytest

from fake_engine import FakeEngine
from fake_rows import wire_rows
from genscope.kernel_side.engines.environment_engine import EnvironmentEngine
from genscope.kernel_side.request import SettingsError
from heard import Heard, until
from scripted import says, turn
from tiny import tiny_tokenizer


def say(query: str) -> str:
    return "w" * int(query)


def test_a_played_run_is_shown_live(made, model):
    scope = made(model, tiny_tokenizer(), max_new_tokens=6, seed=3)
    front = Heard(scope)
    run = scope.play(["the cat", "x"], tools=[say], reward_fn=lambda texts: [len(text) for text in texts], prompt="P: ")
    assert scope.run is run
    assert scope.wait() is run
    assert (front.begin["environment"], front.begin["beams"]) == (True, None)
    assert [lane["prompt"] for lane in front.begin["lanes"]] == [0, 1]
    assert run.text
    assert front.rows() == wire_rows(run.record)
    histories = run.output[-1]
    assert [history.text[:3] for history in histories] == ["P: "] * 2
    kinds = [row["kind"] for row in front.tables["segments"]]
    assert kinds.count("model") == kinds.count("reward") == 2
    rewards = [row["reward"] for row in front.tables["segments"] if row["kind"] == "reward"]
    assert rewards == [len(history.last_text_segment) for history in histories]
    assert (run.settings.max_new_tokens, run.settings.seed) == (6, 3)
    assert front.end["status"]["state"] == "finished"


def test_options_of_the_environment_are_no_settings(made, model):
    scope = made(model, tiny_tokenizer(), max_new_tokens=3)
    front = Heard(scope)
    run = scope.play("the cat", max_turns=1, max_length=6, strategy="beam", num_beams=2, tool_timeout=5.0)
    scope.wait()
    assert front.begin["beams"] is None, "no search is recorded, so there is no tree of one"
    assert len(run.record) == 6
    assert run.whys == ("max_length",)
    assert scope.settings["strategy"] == "beam"
    with pytest.raises(SettingsError, match="there is no setting of this name"):
        scope.play("x", max_turn=1)
    with pytest.raises(ValueError, match="max_turns=0"):
        scope.play("x", max_turns=0)
    assert scope.runs == [run]


def test_what_a_turn_reuses_is_told(made, model):
    scope = made(model, tiny_tokenizer(), max_new_tokens=3, prefix_cache=2**24)
    front = Heard(scope)
    for reused in (0, None):
        run = scope.play(["the cat and the hat"], tools=[say])
        scope.wait()
        known = len(run.record) - 4 if reused is None else reused
        assert [row["reused"] for row in front.tables["segments"] if row["kind"] == "model"] == [known]
        assert front.end["status"]["reuse"]["reused"] == known
        assert [row["cached"] for row in front.rows()][:known] == [1] * known
    assert scope.generate("the cat and the hat", prefix_cache=False).wait().status().reuse is None
    assert scope.tree[1]["kind"] == "environment"


def test_a_played_run_is_stopped_while_a_tool_works(made, model, monkeypatch):
    working, never = threading.Event(), threading.Event()

    def hang(query):
        working.set()
        never.wait(30)

    make = EnvironmentEngine.make_environment

    def scripted(self, request, plan, **hooks):
        environment = make(self, request, plan, **hooks)
        environment.generation_kwargs |= {**says({"x": [turn("<request><hang>x<call>", free=2)]}), "max_new_tokens": 40}
        return environment

    monkeypatch.setattr(EnvironmentEngine, "make_environment", scripted)
    scope = made(model, tiny_tokenizer(), max_new_tokens=40)
    front = Heard(scope)
    run = scope.play("x", tools=[hang])
    assert working.wait(30)
    until(lambda: len(front.tables["segments"]) == 2)
    until(lambda: front.n == len(run.record) > 10)  # rows and tables come in messages of their own
    front.say({"kind": "stop"})
    scope.wait(10)
    never.set()
    assert run.state == "stopped"
    assert [row["kind"] for row in front.tables["segments"]] == ["prompt", "model", "end", "reward"]


def test_a_model_elsewhere_plays_no_environment(made):
    scope = made(FakeEngine(3), prompt="x")
    with pytest.raises(TypeError, match="a model in this process, and the scope has a FakeEngine"):
        scope.play("x", tools=[say])
    assert scope.runs == []
