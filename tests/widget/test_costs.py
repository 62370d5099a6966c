"""What observing costs: measured in the background, once a model, and told to every scope that asks."""

from __future__ import annotations

import threading
from types import SimpleNamespace

from fake_engine import FakeEngine
from heard import Heard, until


class Measuring(FakeEngine):
    """An engine that measures when it is told to."""

    def __init__(self, costs=None):
        super().__init__(3)
        self.go, self.threads = threading.Event(), []
        self.result = costs or {"attention": SimpleNamespace(text=lambda: "2.1 times slower")}

    def costs(self):
        self.threads.append(threading.current_thread())
        assert self.go.wait(10)
        if isinstance(self.result, Exception):
            raise self.result
        return self.result


def test_costs_are_measured_in_the_background_and_told_in_about(made):
    engine = Measuring()
    scope = made(engine)
    front = Heard(scope)
    front.say({"kind": "costs"})  # returns although the measuring waits
    until(lambda: engine.threads)
    assert scope.about["costs"] is None
    assert threading.current_thread() not in engine.threads
    engine.go.set()
    until(lambda: scope.about["costs"] is not None)
    assert scope.about == {
        "model": "Measuring", "chat": False, "context": None, "unavailable": {}, "prefix_cache": None,
        "costs": {"attention": "2.1 times slower"},
    }  # fmt: skip
    assert {"about": scope.about} in front.updates


def test_they_are_measured_once_a_model_for_all_its_scopes(made):
    engine = Measuring()
    one = made(engine)
    other, late = made(one), made(one)
    for scope in (one, other, one):
        Heard(scope).say({"kind": "costs"})
    engine.go.set()
    until(lambda: one.about["costs"] and other.about["costs"])
    assert late.about["costs"] is None
    Heard(late).say({"kind": "costs"})
    until(lambda: late.about["costs"])
    assert made(other).about["costs"] == {"attention": "2.1 times slower"}
    assert len(engine.threads) == 1


def test_what_goes_wrong_is_logged_and_shown(made, caplog):
    engine = Measuring(RuntimeError("out of memory, say"))
    engine.go.set()
    scope = made(engine)
    Heard(scope).say({"kind": "costs"})
    until(lambda: scope.about["costs"])
    text = "could not be measured (RuntimeError: out of memory, say)"
    assert scope.about["costs"] == {"attention": text, "logit_lens": text}
    assert "what observing costs could not be measured" in caplog.text


def test_an_engine_that_cannot_measure_has_no_costs(made):
    scope = made()
    Heard(scope).say({"kind": "costs"})
    until(lambda: scope.about["costs"] is not None)
    assert scope.about["costs"] == {}
