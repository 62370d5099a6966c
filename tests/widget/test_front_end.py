"""What the front end's messages do, the wrong ones too."""

from __future__ import annotations

import logging
import threading

import pytest

from fake_engine import FakeEngine
from fake_rows import wire_rows, wire_table
from genscope.kernel_side.request import make_settings
from heard import Heard, until


def test_generate_from_the_front_end(made):
    scope = made()
    front = Heard(scope)
    settings = make_settings(strategy="sample", top_k=7).model_dump(mode="json")
    front.say({"kind": "generate", "prompt": "from there", "settings": settings})
    scope.wait()
    assert front.problems() == []
    kinds = [message["kind"] for message in front.messages]
    assert kinds[:2] == ["problems", "begin"]
    assert front.rows() == wire_rows(scope.run.record)
    assert (scope.prompt, scope.settings) == ("from there", settings)


@pytest.mark.parametrize(
    ("message", "field", "text"),
    [
        ({"prompt": "", "settings": {}}, "prompt", "empty"),
        ({"prompt": "x", "settings": {"strategy": "sample", "temperature": 0}}, "temperature", "0 is not allowed"),
        ({"prompt": "x", "settings": {"wrong": 1}}, "wrong", "there is no setting"),
        ({"prompt": 5, "settings": {}}, "prompt", "wrong message"),
        ({"prompt": "x", "settings": None}, "settings", "wrong message"),
        ({"prompt": [{"role": "user"}], "settings": {}}, "prompt", "wrong message"),
        ({}, "prompt", "wrong message"),
    ],
)
def test_a_wrong_generate_is_answered_by_its_problems(made, message, field, text):
    scope = made()
    front = Heard(scope)
    front.say({"kind": "generate", **message})
    problems = front.problems()
    assert (problems[0]["field"], text in problems[0]["message"]) == (field, True)
    assert scope.run is None


def test_edited_settings_become_the_trait_only_if_they_are_right(made):
    scope = made()
    front = Heard(scope)
    front.say({"kind": "settings", "settings": {"strategy": "sample", "top_p": 0.3}})
    assert front.problems() == []
    assert scope.settings["top_p"] == 0.3
    front.say({"kind": "settings", "settings": {"strategy": "sample", "top_p": 3}})
    until(lambda: len(front.of_kind("problems")) == 2)
    assert front.problems() == [
        {
            "field": "top_p",
            "value": "3",
            "message": "3 is not allowed: it must be at most 1",
            "way_out": "Use a number above 0 and up to 1; 0.9 is usual, 1 switches it off.",
        }
    ]
    assert scope.settings["top_p"] == 0.3


@pytest.mark.parametrize(
    "content",
    [None, 5, "stop", [], {}, {"kind": 5}, {"kind": "destroy"}, {"kind": "pull"}, {"kind": "pull", "start": "0"},
     {"kind": "stop", "run": 5}, {"kind": "pull", "start": 0, "run": []}, {"kind": ["stop"]},
     {"kind": "pull", "start": 0, "track": True}, {"kind": "pull", "start": 0, "table": "chairs"},
     {"kind": "look", "run": "x", "lane": 0, "position": 1, "what": "beauty"}, {"kind": "look", "run": "x"}],
)  # fmt: skip
def test_messages_of_another_shape_are_ignored_with_a_warning(made, caplog, capsys, content):
    gate = threading.Semaphore(0)
    scope = made(FakeEngine(5, gate=gate), prompt="x")
    run = scope.generate()
    front = Heard(scope)
    front.say(content)
    assert "ignored a message from the front end" in caplog.text
    assert not [record for record in caplog.records if record.levelno > logging.WARNING]
    assert not run._stop
    assert "Traceback" not in "".join(capsys.readouterr())


def test_anywidgets_own_commands_are_not_ours_to_complain_about(made, caplog):
    Heard(made()).say({"id": "1", "kind": "anywidget-command", "name": "x"})
    assert caplog.text == ""


def test_commands_act_on_the_named_run_and_only_while_it_goes(made):
    gate = threading.Semaphore(0)
    scope = made(FakeEngine(100, gate=gate), prompt="x")
    front = Heard(scope)
    first = scope.generate()
    front.say({"kind": "pause", "run": first.id})
    gate.release()
    until(lambda: first.state == "paused")
    gate.release(2)
    front.say({"kind": "step", "run": first.id})
    until(lambda: first.status().generated == 2 and first.state == "paused")
    front.say({"kind": "stop", "run": "another"})
    assert not first._stop
    front.say({"kind": "resume"})
    front.say({"kind": "stop"})
    first.wait(5)
    assert first.state == "stopped"
    # A step that was meant for a run that has just ended starts no new one; one without a name does.
    front.say({"kind": "step", "run": first.id})
    assert scope.runs == [first]
    front.say({"kind": "step"})
    assert len(scope.runs) == 2
    gate.release(5)
    until(lambda: scope.run.state == "paused")
    assert scope.run.status().generated == 1


def test_a_pull_is_answered(made):
    scope = made(prompt="x")
    scope.generate()
    scope.wait()
    front = Heard(scope)
    front.say({"kind": "pull", "start": 0})
    until(lambda: front.end is not None)
    assert front.rows() == wire_rows(scope.run.record)
    front.say({"kind": "pull", "start": -5, "track": 0})
    until(lambda: len(front.of_kind("end")) == 2)
    assert [(message["track"], message["seq"]) for message in front.of_kind("data")] == [(0, 0), (0, 0)]


def test_a_pull_of_a_table_is_answered(made):
    scope = made(FakeEngine(30), prompt="x", strategy="prompt_lookup")
    run = scope.generate()
    scope.wait()
    front = Heard(scope)
    front.say({"kind": "pull", "start": 0})
    until(lambda: front.end is not None)
    del front.messages[:]
    front.say({"kind": "pull", "start": 5, "table": "rounds", "run": run.id})
    until(lambda: front.of_kind("end"))
    [message] = front.of_kind("rows")
    assert (message["table"], message["seq"]) == ("rounds", 5)
    assert message["rows"] == wire_table(run.recording.rounds[5:])
    assert front.of_kind("data") == []


def test_a_batch_is_generated_with_a_lane_for_each_prompt(made):
    scope = made()
    front = Heard(scope)
    prompts = ["one", [{"role": "user", "content": "two"}]]
    front.say({"kind": "generate", "prompt": prompts, "settings": {}})
    scope.wait()
    assert front.problems() == []
    assert scope.prompt == prompts
    assert [(lane["prompt"], lane["sequence"]) for lane in front.begin["lanes"]] == [(0, 0), (1, 0)]
    assert [front.rows(lane) for lane in range(2)] == [wire_rows(lane.record) for lane in scope.run.lanes]


def test_an_engine_that_raises_anything_is_told_to_whoever_pressed_the_button(made, capsys):
    engine = FakeEngine(3)
    engine.prepare = lambda request: 1 / 0
    scope = made(engine)
    front = Heard(scope)
    front.say({"kind": "generate", "prompt": "x", "settings": {}})
    assert front.problems()[0]["message"] == "ZeroDivisionError: division by zero"
    assert "Traceback" not in "".join(capsys.readouterr())
