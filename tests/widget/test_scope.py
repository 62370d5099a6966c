"""The scope without a kernel: its runs, how it reads, closing, running a cell again."""

from __future__ import annotations

import threading
import time

import ipywidgets
import pytest

from fake_engine import FakeEngine
from fake_rows import wire_rows
from genscope.kernel_side.request import SettingsError
from genscope.widget import cells
from heard import Heard, until
from tiny import tiny_tokenizer


def test_generate_gives_the_run_that_the_front_end_sees(made, model):
    scope = made(model, tiny_tokenizer(), strategy="sample", max_new_tokens=12, seed=3, stop_at_eos=False)
    front = Heard(scope)
    run = scope.generate("the cat", temperature=0.5)
    assert scope.run is run
    assert scope.wait() is run
    assert front.begin["settings"] == run.settings.model_dump(mode="json")
    assert front.begin["settings"]["temperature"] == 0.5
    assert front.rows() == wire_rows(run.record)
    assert front.end["status"]["why"] == "length"
    assert scope.state == "finished"
    # What was given became the scope's own.
    assert (scope.prompt, scope.settings["temperature"]) == ("the cat", 0.5)


def test_a_drawn_seed_does_not_become_the_scopes_own(made, model):
    scope = made(model, tiny_tokenizer(), strategy="sample", max_new_tokens=2, prompt="a")
    run = scope.generate()
    scope.wait()
    assert isinstance(run.settings.seed, int)
    assert scope.settings["seed"] is None


def test_5000_tokens_at_once(made):
    scope = made(FakeEngine(5000), prompt="x")
    front = Heard(scope)
    run = scope.generate()
    scope.wait()
    assert front.rows() == wire_rows(run.record)
    assert front.end["counts"]["tracks"] == [5003]


def test_generating_again_stops_the_run_before(made):
    gate = threading.Semaphore(0)
    scope = made(FakeEngine(100, gate=gate), prompt="x")
    front = Heard(scope)
    first = scope.generate()
    until(lambda: len(first.record) == 3)
    second = scope.generate()
    first.wait(5)
    assert first.state == "stopped"
    gate.release(100)
    scope.wait(10)
    assert second.state == "finished"
    assert scope.runs == [first, second]
    assert front.begin["run"] == second.id
    assert front.rows() == wire_rows(second.record)


def test_what_does_not_fit_raises_and_stops_nothing(made, model):
    scope = made(model, tiny_tokenizer(), prompt="a", max_new_tokens=400, stop_at_eos=False)
    run = scope.generate()
    with pytest.raises(SettingsError, match="max_new_tokens: 600 do not fit"):
        scope.generate(max_new_tokens=600)
    with pytest.raises(SettingsError, match="prompt: the prompt is empty"):
        scope.generate("")
    assert not run.over
    assert (scope.run, scope.prompt, scope.settings["max_new_tokens"]) == (run, "a", 400)


def test_pause_step_resume_stop(made):
    gate = threading.Semaphore(1000)
    scope = made(FakeEngine(1000, gate=gate), prompt="x")
    run = scope.step()  # nothing is going: starts one that pauses
    until(lambda: run.state == "paused")
    assert run.status().generated == 1
    assert scope.step() is run
    until(lambda: run.status().generated == 2 and run.state == "paused")
    until(lambda: scope.state == "paused")
    scope.resume()
    until(lambda: run.status().generated > 10)
    scope.pause()
    until(lambda: run.state in ("paused", "finished"))
    scope.stop()
    scope.wait(5)
    assert run.state in ("stopped", "finished")
    assert scope.state == run.state


def test_without_a_run_stop_and_pause_do_nothing_and_wait_says_so(made):
    scope = made()
    scope.stop()
    scope.pause()
    scope.resume()
    with pytest.raises(RuntimeError, match="call generate"):
        scope.wait()


def test_a_failed_run_shows_its_error_and_the_next_one_works(made):
    engine = FakeEngine(10, fail_at=4)
    scope = made(engine, prompt="x")
    front = Heard(scope)
    run = scope.generate()
    with pytest.raises(RuntimeError, match="out of memory"):
        scope.wait()
    assert scope.state == "failed"
    assert front.end["status"]["error"] == "RuntimeError: out of memory, say"
    assert front.rows() == wire_rows(run.record)
    engine.fail_at = None
    scope.generate()
    scope.wait()
    assert scope.state == "finished"


def test_two_scopes_on_one_model_take_turns(made, model):
    one = made(model, tiny_tokenizer(), prompt="the", max_new_tokens=30, stop_at_eos=False)
    other = made(one, prompt="and", max_new_tokens=5, stop_at_eos=False)
    third = made(model, tiny_tokenizer(), prompt="in", max_new_tokens=5, stop_at_eos=False)
    runs = [one.generate(), other.generate(), third.generate()]
    assert [run.status().queue_ahead for run in runs[1:]] == [1, 2]
    ended = []
    for run in runs:
        run.add_done_callback(ended.append)
    for run in runs:
        run.wait(30)
    until(lambda: len(ended) == 3)
    assert ended == runs
    assert other.model is model


def test_observers_hear_of_the_state_and_one_that_raises_harms_nothing(made, caplog):
    gate = threading.Semaphore(0)
    scope = made(FakeEngine(3, gate=gate), prompt="x")
    front, states = Heard(scope), []

    def raising(change):
        raise ValueError("a user's mistake")

    scope.observe(lambda change: states.append(change["new"]), "state")
    scope.observe(raising, "state")
    scope.generate()
    until(lambda: states)
    gate.release(3)
    scope.wait()
    assert states[0] in ("queued", "prefilling", "decoding")
    assert states[-1] == scope.state == "finished"
    assert front.end["counts"]["tracks"] == [6]
    assert "an observer of the trait 'state' raised" in caplog.text


def test_close_stops_the_run_and_sends_nothing_more(made):
    gate = threading.Semaphore(0)
    scope = made(FakeEngine(1000, gate=gate), prompt="x")
    front = Heard(scope)
    run = scope.generate()
    gate.release(5)
    until(lambda: front.n > 3)
    scope.close()
    count = len(front.messages)
    assert run.wait(5).state == "stopped"
    time.sleep(0.1)
    assert len(front.messages) == count
    with pytest.raises(RuntimeError, match="closed"):
        scope.generate()
    scope.close()


def test_running_a_cell_again_stops_what_it_started_before(made, monkeypatch):
    where = ("cell-1", "execution-1")
    monkeypatch.setattr(cells, "_current", lambda: where)
    gate = threading.Semaphore(0)

    def started():
        return made(FakeEngine(100, gate=gate), prompt="x").generate()

    one, beside = started(), started()
    assert not one.over
    assert not one._stop  # a cell may make two
    where = ("cell-2", "execution-2")
    elsewhere = started()
    where = ("cell-1", "execution-3")
    again = started()
    one.wait(5)
    beside.wait(5)
    assert (one.state, beside.state) == ("stopped", "stopped")
    where = None
    started()
    assert not elsewhere.over
    assert not again.over


def test_its_repr_and_its_bundle_read_well_without_a_front_end(made):
    scope = made(FakeEngine(4), prompt="x")
    assert repr(scope) == "<Scope FakeEngine: idle>"
    data, _ = scope._repr_mimebundle_()
    assert set(data) == {"text/plain", "application/vnd.jupyter.widget-view+json"}
    assert scope.to_html() == ""
    scope.generate()
    scope.wait()
    assert repr(scope) == "<Scope FakeEngine, greedy, 4 tokens, finished (length): ' saté<script>alert(1)</script>\"'>"
    data, _ = scope._repr_mimebundle_()
    assert data["application/vnd.jupyter.widget-view+json"]["model_id"] == scope.model_id
    assert data["text/html"] == scope.to_html()
    assert "&lt;script&gt;" in data["text/html"]
    assert "<script" not in data["text/html"]


def test_several_lanes_read_well_without_a_front_end(made):
    scope = made(FakeEngine(3, ragged=True), strategy="sample", num_return_sequences=2, seed=1)
    scope.generate(["a", "b"])
    scope.wait()
    settings = "sample (num return sequences 2, seed 1)"
    caption = f"FakeEngine, {settings}, 4 sequences of up to 3 tokens, finished (eos (3), length (1))"
    texts = scope.run.texts
    assert texts[0] != texts[1]
    assert repr(scope) == f"<Scope {caption}: {texts[0]!r}, {texts[1]!r}, {texts[2]!r}, and 1 more>"
    data, _ = scope._repr_mimebundle_()
    labels = [
        "prompt 1, sequence 1 (length)",
        *(f"prompt {p}, sequence {s} (eos)" for p, s in ((1, 2), (2, 1), (2, 2))),
    ]
    assert all(label in data["text/html"] for label in labels)


def test_what_was_observed_is_kept_until_the_next_run_that_observes(made):
    scope = made(FakeEngine(3), prompt="x")
    first = scope.generate(attention=True)
    scope.wait()
    plain = scope.generate(attention=False)
    scope.wait()
    assert (first.looks.nbytes, plain.looks.nbytes) == (1000, 1000)
    second = scope.generate(logit_lens=True)
    assert (first.looks.nbytes, second.looks.nbytes) == (0, 1000)
    assert scope.runs == [first, plain, second]


def test_an_engine_that_keeps_nothing_to_look_at_is_no_hindrance(made):
    engine = FakeEngine(3)
    scope = made(engine, prompt="x")
    first = scope.generate()
    first._job.looks = None
    scope.wait()
    second = scope.generate(attention=True)
    scope.wait()
    assert (second.state, second.looks.nbytes) == ("finished", 1000)


def test_it_sits_in_layouts(made):
    scope = made()
    box = ipywidgets.VBox([ipywidgets.Label("x"), ipywidgets.Tab([scope])])
    assert box.children[1].children == (scope,)
