"""Lanes of a comparison: the tokens of solo runs, one prompt read for all, each stopped alone, others in their turn."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from cached_runs import model_of
from genscope.kernel_side.caching.prefix_cache import PrefixCache
from genscope.kernel_side.comparison.comparison import Comparison, compare
from genscope.kernel_side.engines.in_process import InProcessEngine
from genscope.kernel_side.request import Request, SettingsError
from genscope.kernel_side.run import Run
from tiny import tiny_tokenizer

TEXT = "the cat and the hat on it"
NEW = 16
SETTINGS: list[dict[str, Any]] = [
    {"temperature": 0.6},
    {"temperature": 1.4, "top_k": 0},
    {"top_k": 5},
    {"top_p": 0.7, "top_k": 0},
    {"min_p": 0.1, "top_k": 0},
    {"typical_p": 0.7},
    {"repetition_penalty": 1.3, "no_repeat_ngram_size": 3},
    {"min_new_tokens": 6, "max_new_tokens": 9},
]
BASE: dict[str, Any] = {"strategy": "sample", "max_new_tokens": NEW}


def engine(kind: str = "llama", prefixes: PrefixCache | None = None) -> InProcessEngine:
    return InProcessEngine(model_of(kind), tiny_tokenizer(), None, prefixes)


def solo(on: InProcessEngine, settings: Any) -> Run:
    return Run(InProcessEngine(on.model, on.tokenizer), Request.make(TEXT, settings)).wait(60)


@pytest.mark.parametrize("kind", ["llama", "gpt2", "gemma3", "t5"])
def test_lanes_get_the_tokens_of_solo_runs(kind: str) -> None:
    on = engine(kind)
    comparison = Comparison(on, TEXT, SETTINGS, seeds=[0, 1, 2, 3], base=BASE).wait(120)
    assert len(comparison.runs) == 1
    assert len(comparison.lanes) == 32
    assert comparison.state == "finished"
    for lane in comparison.lanes:
        run = solo(on, lane.settings)
        assert lane.record.ids() == run.record.ids(), lane.label
        assert lane.why == run.why
        assert lane.text == run.text
    assert len({tuple(lane.record.ids()) for lane in comparison.lanes}) > 7


def test_measures_of_a_lane_are_those_of_a_solo_run() -> None:
    on = engine()
    comparison = Comparison(on, TEXT, SETTINGS[:4], seeds=[0, 1], base=BASE).wait(60)
    for lane in comparison.lanes:
        run = solo(on, lane.settings)
        for ours, theirs in zip(lane.record, run.record, strict=True):
            assert (ours.id, ours.text, ours.origin, ours.rank) == (theirs.id, theirs.text, theirs.origin, theirs.rank)
            for name in ("raw_logprob", "logprob", "entropy"):
                one, other = getattr(ours, name), getattr(theirs, name)
                assert one == other if one is None else one == pytest.approx(other, abs=1e-4)
            cut = [[entry.cut for entry in token.alternatives] for token in (ours, theirs)]
            assert cut[0] == cut[1]


def test_stop_strings_and_ends_are_each_lane_s_own() -> None:
    on = engine()
    plain = solo(on, {"strategy": "greedy", "max_new_tokens": NEW, "stop_at_eos": False})
    string = plain.record[plain.prompt_tokens + 3].text
    assert string
    comparison = Comparison(
        on,
        TEXT,
        [{"stop_strings": [string]}, {"max_new_tokens": 2}, {}],
        base={"strategy": "greedy", "max_new_tokens": NEW, "stop_at_eos": False},
    ).wait(60)
    assert [lane.why for lane in comparison.lanes] == [f"stop string {string!r}", "length", "length"]
    assert [lane.lane.generated for lane in comparison.lanes][1:] == [2, NEW]
    assert comparison.lanes[0].lane.generated <= 4
    assert comparison.whys == tuple(lane.why for lane in comparison.lanes)


@pytest.mark.parametrize("prefixes", [None, PrefixCache(2**26)])
def test_the_prompt_is_read_once(prefixes: PrefixCache | None) -> None:
    on = engine(prefixes=prefixes)
    fed: list[tuple[int, int]] = []
    forward = type(on.model).forward

    class Counting(type(on.model)):  # type: ignore[misc]
        def forward(self, input_ids: Any = None, **given: Any) -> Any:
            fed.append(tuple(input_ids.shape))
            return forward(self, input_ids=input_ids, **given)

    Counting.forward.__signature__ = __import__("inspect").signature(forward)  # type: ignore[attr-defined]
    original = type(on.model)
    on.model.__class__ = Counting  # what is known is known of models of this class
    comparison = Comparison(on, TEXT, SETTINGS[:3], seeds=[1], base=BASE).wait(60)
    again = Comparison(on, TEXT, SETTINGS[:3], seeds=[1], base=BASE).wait(60)
    on.model.__class__ = original
    prompt = comparison.lanes[0].lane.prompt_tokens
    assert fed[0] == (1, prompt)
    assert fed[1] == (3, 1)
    given = [token.cached for token in comparison.lanes[1].record[:prompt]]
    if prefixes is None:
        assert comparison.status().reuse is None
        assert set(given) == {None}
        assert fed.count((1, prompt)) == 2
        return
    assert fed.count((1, prompt)) == 1
    # What was read for all is no hit: nothing was known before.
    reuse, later = comparison.status().reuse, again.status().reuse
    assert reuse is not None
    assert later is not None
    assert (reuse.reused, reuse.tokens) == (0, prompt)
    assert set(given) == {False}
    assert (later.reused, later.tokens) == (prompt - 1, prompt)
    assert [one.record.ids() for one in again.lanes] == [one.record.ids() for one in comparison.lanes]


def test_other_strategies_run_on_their_own_in_turn_and_all_look_like_one() -> None:
    on = engine()
    settings: list[dict[str, Any]] = [
        {"strategy": "beam", "num_beams": 3, "num_return_sequences": 2},
        {"strategy": "greedy"},
        {"strategy": "contrastive"},
        {"strategy": "sample"},
    ]
    comparison = Comparison(on, TEXT, settings, seeds=[4], base={"max_new_tokens": 8, "stop_at_eos": False}).wait(60)
    assert [lane.label for lane in comparison.lanes] == [
        "beam, sequence 1",
        "beam, sequence 2",
        "greedy",
        "contrastive",
        "sample",
    ]
    assert [lane.batched for lane in comparison.lanes] == [2, 2, 2, 1, 2]
    assert len(comparison.runs) == 3
    assert comparison.lanes[2].run is comparison.lanes[4].run
    assert [one.record for one in comparison.recording.lanes] == [one.record for one in comparison.lanes]
    assert [one.sequence for one in comparison.recording.lanes] == list(range(5))
    for lane in comparison.lanes[2:]:
        assert lane.record.ids() == solo(on, lane.settings).record.ids()


def held(comparison: Comparison, steps: int) -> None:
    """Let its first run take so many steps, and wait until it stands."""
    for _ in range(steps):
        comparison.step()
    run = comparison.runs[0]
    for _ in range(3000):
        if run.state == "paused" and run.status().generated >= steps:
            return
        threading.Event().wait(0.01)
    raise AssertionError(run.status())


def test_one_lane_is_stopped_and_the_others_go_on() -> None:
    comparison = Comparison(
        engine(), TEXT, [{}, {"top_k": 3}], seeds=[1, 2], base={**BASE, "max_new_tokens": 400, "stop_at_eos": False}
    )
    comparison.pause()
    held(comparison, 3)
    comparison.stop(1)
    generated = comparison.lanes[1].lane.generated
    comparison.resume()
    comparison.wait(60)
    assert [lane.why for lane in comparison.lanes] == ["length", "stopped", "length", "length"]
    assert comparison.lanes[1].lane.generated <= generated + 1
    assert [comparison.lanes[at].lane.generated for at in (0, 2, 3)] == [400] * 3
    assert comparison.state == "finished"


def test_all_are_stopped_and_keep_what_came() -> None:
    settings: list[dict[str, Any]] = [{"strategy": "sample"}, {"strategy": "contrastive"}]
    comparison = Comparison(engine(), TEXT, settings, base={"max_new_tokens": 400, "stop_at_eos": False})
    comparison.pause()
    held(comparison, 3)
    assert comparison.state == "paused"
    comparison.stop()
    comparison.wait(60)
    assert comparison.state == "stopped"
    assert comparison.lanes[0].lane.generated >= 3
    assert comparison.lanes[1].lane.generated == 0
    assert comparison.lanes[0].why is None


def test_a_lane_of_a_plain_run_does_not_end_alone() -> None:
    run = solo(engine(), BASE)
    with pytest.raises(ValueError, match="does not end alone"):
        run.stop(0)


def test_nothing_runs_where_one_of_them_does_not_fit() -> None:
    on = engine("t5")
    with pytest.raises(SettingsError, match="needs a decoder-only model"):
        Comparison(on, TEXT, [{"strategy": "greedy"}, {"strategy": "contrastive"}])
    ticket = on.turnstile.join()
    assert on.turnstile.ahead(ticket) == 0
    on.turnstile.leave(ticket)


def test_a_branch_of_a_lane_has_the_lane_s_settings() -> None:
    comparison = Comparison(engine(), TEXT, SETTINGS[:3], seeds=[5], base=BASE).wait(60)
    lane = comparison.lanes[1]
    at = lane.lane.prompt_tokens + 2
    branch = lane.run.branch(at, lane=lane.index, max_new_tokens=3).wait(60)
    assert branch.settings == lane.settings.model_copy(update={"max_new_tokens": 3})
    assert branch.record.ids()[:at] == lane.record.ids()[:at]
    assert len(branch.lanes) == 1


def test_whoever_waits_is_called_once_when_all_are_over() -> None:
    called: list[Any] = []
    comparison = Comparison(
        engine(), TEXT, [{"strategy": "greedy"}, {"strategy": "contrastive"}], base={"max_new_tokens": 3}
    )
    comparison.add_done_callback(lambda one: called.append((one, one.over)))
    comparison.wait(60)
    for run in comparison.runs:
        run.wait()
        run._thread.join(10)
    assert called == [(comparison, True)]


def test_a_plain_model_and_tokenizer_are_compared() -> None:
    on = engine()
    comparison = compare(on.model, on.tokenizer, TEXT, [{"top_k": 1}, {"top_k": 4}], seeds=[1], **BASE).wait(60)
    assert [lane.label for lane in comparison.lanes] == ["top_k 1", "top_k 4"]
    assert "2 lanes in 1 runs" in repr(comparison)


def test_the_state_is_that_of_the_run_which_goes() -> None:
    settings: list[dict[str, Any]] = [{"strategy": "greedy"}, {"strategy": "contrastive"}]
    comparison = Comparison(engine(), TEXT, settings, base={"max_new_tokens": 5, "stop_at_eos": False}).wait(60)
    status = comparison.status()
    assert (status.state, status.generated, status.why, status.error) == ("finished", 5, None, None)
    assert status.elapsed == pytest.approx(sum(run.status().elapsed or 0 for run in comparison.runs))
