"""The same request in two executions: what agrees, where they part, and when a preparation has paid off."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from cached_runs import model_of
from genscope.kernel_side.engines.in_process import InProcessEngine
from genscope.kernel_side.request import Request, SettingsError
from genscope.kernel_side.tracing.graphs import GraphExecution
from genscope.kernel_side.tracing.use import ExecutionStatus
from genscope.kernel_side.twin import Twin, _pays_off
from tiny import tiny_tokenizer


def engine(kind: str = "llama") -> InProcessEngine:
    return InProcessEngine(model_of(kind), tiny_tokenizer())


def ask(**settings: Any) -> Request:
    base = {"max_new_tokens": 12, "stop_at_eos": False, "execution": "traced"}
    return Request.make("the cat and the hat", base | settings)


def test_a_trace_agrees_in_all_and_to_the_bit() -> None:
    twin = Twin(engine(), ask())
    report = twin.wait(60)
    assert twin.over
    assert (report.compared, report.agreeing, report.difference) == (12, 12, None)
    assert report.largest_gap == 0.0
    assert twin.eager.settings.execution == "eager"
    assert twin.other.settings.execution == "traced"
    assert report.execution is not None
    assert (report.execution.name, report.execution.graphs) == ("traced", 2)
    assert all(one is not None and one > 0 for one in (*report.first_token, *report.per_token))


def test_both_draw_with_the_same_seed() -> None:
    twin = Twin(engine(), ask(strategy="sample", num_return_sequences=2))
    report = twin.wait(60)
    assert twin.eager.settings.seed == twin.other.settings.seed
    assert (report.compared, report.agreeing, report.largest_gap) == (24, 24, 0.0)


def test_a_gap_is_measured() -> None:
    report = Twin(engine(), ask(execution="optimised")).wait(60)
    assert report.largest_gap is not None
    assert 0 < report.largest_gap < 1e-3
    assert report.execution is not None
    assert report.execution.largest_difference is not None


def test_the_first_difference_is_shown_with_both_distributions(monkeypatch: pytest.MonkeyPatch) -> None:
    passes = 0

    def bent(self: Any, key: Any, graph: Any, call: Any) -> Any:
        nonlocal passes
        logits, *written = graph(*call.tensors.values())
        passes += 1
        if passes == 7:
            logits = logits.clone()
            logits[..., 42] = 1e3
        return logits, *written

    monkeypatch.setattr(GraphExecution, "_run", bent)
    twin = Twin(engine(), ask())
    report = twin.wait(60)
    assert report.difference is not None
    at = report.difference.position
    assert at == twin.eager.prompt_tokens + 6
    assert report.difference.other is not None
    assert report.difference.eager is not None
    assert report.difference.other.id == 42
    assert report.difference.eager.id == twin.eager.record[at].id != 42
    assert len(report.difference.eager.alternatives) == len(report.difference.other.alternatives) == 10
    assert (report.compared, report.agreeing) == (12, 6)
    assert report.largest_gap is not None
    assert report.largest_gap > 500  # up to the choice that differs, not beyond it


def test_one_that_ends_sooner_differs_there() -> None:
    twin = Twin(engine(), ask())
    twin.wait(60)
    del twin.other.record._tokens[-2:]
    report = twin.report()
    assert report.difference is not None
    assert (report.difference.other, report.difference.position) == (None, twin.other.prompt_tokens + 10)
    assert report.difference.eager == twin.eager.record[-2]


def test_of_a_search_no_gap_is_known() -> None:
    report = Twin(engine(), ask(strategy="beam")).wait(60)
    assert (report.largest_gap, report.difference) == (None, None)
    assert report.agreeing == report.compared > 0


def test_both_can_be_stopped() -> None:
    twin = Twin(engine(), ask(max_new_tokens=400))
    twin.stop()
    twin.wait(60)
    assert (twin.eager.state, twin.other.state) == ("stopped", "stopped")


def test_eager_has_no_twin() -> None:
    with pytest.raises(SettingsError, match="execution: eager compared with itself shows nothing"):
        Twin(engine(), ask(execution="eager"))


def test_prompts_are_read_whole() -> None:
    twin = Twin(engine(), ask())
    twin.wait(60)
    assert twin.eager.settings.prefix_cache is False
    assert twin.other.settings.prefix_cache is False
    assert twin.eager.output.logits is None  # compared, and let go


def test_a_report_that_began_before_the_end_compares_no_logits(monkeypatch: pytest.MonkeyPatch) -> None:
    twin = Twin(engine(), ask(execution="optimised"))
    twin.eager.wait(60)
    twin.other.wait(60)
    answers = [False, *[True] * 10]
    monkeypatch.setattr(Twin, "over", property(lambda _: answers.pop(0)))
    # What it read of the records may be a part of them, and logits are compared once.
    assert twin.report().largest_gap is None
    assert twin.eager.output.logits is not None
    assert twin.report().largest_gap is not None


def test_logits_stay_where_they_are_asked_for() -> None:
    twin = Twin(engine(), ask(keep=["logits"]))
    assert twin.wait(60).largest_gap == 0.0
    assert torch.equal(twin.eager.output.logits[3], twin.other.output.logits[3])
    assert twin.report().largest_gap == 0.0


@pytest.mark.parametrize(
    ("prepared", "eager", "other", "tokens"),
    [(3.0, 0.05, 0.04, 300), (0.0, 0.05, 0.04, None), (3.0, 0.04, 0.05, None), (3.0, None, 0.05, None)],
)
def test_when_it_pays_off(prepared: float, eager: float | None, other: float, tokens: int | None) -> None:
    assert _pays_off(ExecutionStatus("traced", prepared=prepared), eager, other) == tokens


def test_nothing_pays_off_before_it_began() -> None:
    assert _pays_off(None, 0.05, 0.04) is None
