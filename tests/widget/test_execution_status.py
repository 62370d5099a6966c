"""What the wire says of a run's execution."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from pydantic import TypeAdapter

from fake_engine import FakeEngine
from genscope.kernel_side.request import Request
from genscope.kernel_side.run import Run
from genscope.kernel_side.tracing.use import Use
from genscope.widget import wire
from genscope.widget.frames import status_of
from heard import until


def told(use: Use | None) -> wire.WireExecution | None:
    run = Run(FakeEngine(1), Request.make("x")).wait(10)
    run._job.execution = use
    status = status_of(run)
    TypeAdapter(wire.Status).validate_python(status, strict=True)
    return status["execution"]


def test_none_was_asked_for():
    assert told(None) is None


def test_counts_and_the_most_frequent_reason_first():
    use = Use("traced")
    use.passes, use.graphs, use.recompilations = 27, 2, 3
    for reason in ("attentions are asked for", "\ud800", "\ud800"):
        use.fell_back(reason)
    use.differed(1.23456789e-5)
    use.differed(0.0)
    execution = told(use)
    assert execution == {
        "name": "traced", "passes": 27, "compared": 2, "prepared": 0.0, "graphs": 2, "recompilations": 3,
        "fallbacks": [{"reason": "?", "passes": 2}, {"reason": "attentions are asked for", "passes": 1}],
        "largest_difference": 1.2346e-5, "preparing": None,
    }  # fmt: skip


def test_what_was_not_compared_has_no_difference():
    assert told(Use("traced"))["largest_difference"] is None


@pytest.mark.parametrize("stage", ["", "tracing"])
def test_what_is_being_prepared_and_for_how_long(stage):
    use = Use("traced")
    use.begin("one token on a cache")
    if stage:
        use.stage(stage)
    preparing = told(use)["preparing"]
    assert (preparing["what"], preparing["stage"]) == ("one token on a cache", stage)
    until(lambda: told(use)["preparing"]["seconds"] > preparing["seconds"])
    use.end()
    execution = told(use)
    assert execution["preparing"] is None
    assert execution["prepared"] > 0


def test_the_state_is_preparing_while_the_run_does():
    use = Use("traced")
    run = SimpleNamespace(_state="decoding", _job=SimpleNamespace(execution=use))
    assert Run.state.fget(run) == "decoding"
    use.begin("a prompt")
    assert Run.state.fget(run) == "preparing"
    use.end()
    assert Run.state.fget(run) == "decoding"
