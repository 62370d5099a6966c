"""Runs with a prefix cache: the tokens of runs without one, real hits, reasons where there are none, and what is left."""

from __future__ import annotations

import random
import threading
import time
from typing import Any, get_args

import pytest

from cached_runs import model_of
from genscope.kernel_side.caching.prefix_cache import PrefixCache
from genscope.kernel_side.engines.in_process import InProcessEngine
from genscope.kernel_side.request import Request, Settings
from genscope.kernel_side.run import Run
from tiny import tiny_model, tiny_tokenizer

NAMES = [chosen.model_fields["strategy"].default for chosen in get_args(Settings)]
ENCODERS = ("t5", "bart")
CHANGES: dict[str, dict[str, Any]] = {"early_exit": {"assistant_early_exit": 1}}
TEXT = "the cat and the hat on it"
TOLERANCE = 1e-4


def engine(kind: str = "llama", prefixes: PrefixCache | None = None, *, attn: str = "sdpa") -> InProcessEngine:
    model = model_of(kind, attn)
    draft = tiny_model("llama", "sdpa", seed=1) if kind == "llama" else None
    return InProcessEngine(model, tiny_tokenizer(), draft, prefixes)


def ask(name: str = "greedy", prompt: Any = TEXT, **settings: Any) -> Request:
    base = {"max_new_tokens": 10, "stop_at_eos": False, "seed": 3, "strategy": name} | CHANGES.get(name, {})
    return Request.make(prompt, base | settings)


def warm_and_cold(kind: str, request: Request, before: Request | None = None) -> tuple[Run, Run]:
    """Return a run that came second on a cache, and the same one without."""
    prefixes = PrefixCache(2**26)
    on = engine(kind, prefixes)
    Run(on, before or request).wait(60)
    warm = Run(on, request).wait(60)
    assert prefixes.stats().pinned == 0
    off = InProcessEngine(on.model, on.tokenizer, None if on.draft is None else on.draft.model)
    return warm, Run(off, request).wait(60)


def ids(run: Run) -> list[list[int]]:
    return [lane.record.ids() for lane in run.lanes]


def reuse_of(run: Run) -> Any:
    reuse = run.status().reuse
    assert reuse is not None
    return reuse


@pytest.mark.parametrize("name", NAMES)
def test_each_strategy_begins_with_what_is_known(name: str) -> None:
    warm, cold = warm_and_cold("llama", ask(name))
    assert ids(warm) == ids(cold)
    assert cold.status().reuse is None
    reuse = reuse_of(warm)
    if name == "contrastive":
        assert (reuse.reused, reuse.rows[0].end.kind) == (0, "refused")
        assert "compares hidden states of all tokens" in reuse.message()
    else:
        assert reuse.reused == warm.prompt_tokens - 1 == reuse.tokens - 1
        assert reuse.rows[0].end.kind == "whole"
        assert reuse.nbytes == reuse.reused * 2 * 2 * 2 * 8 * 4  # layers, keys and values, heads, size, bytes
    given = [token.cached for token in warm.record[: warm.prompt_tokens]]
    assert given == [at < reuse.reused for at in range(warm.prompt_tokens)]
    assert {token.cached for token in warm.record[warm.prompt_tokens :]} == {None}
    assert {token.cached for token in cold.record} == {None}


@pytest.mark.parametrize("name", [name for name in NAMES if name not in ("assisted", "early_exit")])
def test_each_strategy_leaves_its_prompt_for_a_greedy_run(name: str) -> None:
    warm, cold = warm_and_cold("llama", ask(), ask(name))
    assert ids(warm) == ids(cold)
    assert reuse_of(warm).reused == warm.prompt_tokens - 1


@pytest.mark.parametrize("kind", ["llama", "gpt2", "gemma3", "qwen3", "mistral", "mamba", "jamba", "t5", "bart"])
def test_each_kind_of_model_gives_the_same_tokens_with_hits_or_a_reason(kind: str) -> None:
    warm, cold = warm_and_cold(kind, ask(verify_cache=True))
    assert ids(warm) == ids(cold)
    reuse = reuse_of(warm)
    if kind in ENCODERS:
        assert (reuse.sources_reused, reuse.reused, reuse.tokens) == (1, 0, 1)
        assert {token.cached for token in warm.recording.sources[0]} == {True}
    elif kind in ("mamba", "jamba"):
        # A recurrent state is known at the end of a run only, and that run ended behind this prompt.
        assert (reuse.reused, reuse.rows[0].end.kind) == (0, "recurrent")
        assert "one token at a time" in reuse.message()
    else:
        assert reuse.reused == warm.prompt_tokens - 1
    if kind not in ("mamba", "jamba"):
        assert reuse.verified is not None
        assert reuse.verified.difference <= TOLERANCE
        assert reuse.verified.agrees
        assert reuse.saved_measured


@pytest.mark.parametrize("kind", ["mamba", "jamba"])
def test_a_recurrent_model_goes_on_from_the_end_of_a_run(kind: str) -> None:
    on = engine(kind, PrefixCache(2**26))
    first = Run(on, ask()).wait(60)
    more = first.branch(len(first.record), verify_cache=True).wait(60)
    reuse = reuse_of(more)
    assert reuse.reused == len(first.record) - 1
    assert reuse.verified.difference <= TOLERANCE
    whole = Run(InProcessEngine(on.model, on.tokenizer), ask(max_new_tokens=20)).wait(60)
    assert more.record.ids() == whole.record.ids()


def test_a_static_cache_of_the_models_own_config_is_reused() -> None:
    prefixes = PrefixCache(2**26)
    on = engine("llama", prefixes)
    on.model.generation_config.cache_implementation = "static"
    first, second = Run(on, ask()).wait(60), Run(on, ask(verify_cache=True)).wait(60)
    assert ids(first) == ids(second)
    assert reuse_of(second).reused == second.prompt_tokens - 1
    assert reuse_of(second).verified.difference <= TOLERANCE
    assert "static" in prefixes.picture()
    assert on.model.generation_config.cache_implementation == "static"


def test_a_model_that_uses_no_cache_says_so() -> None:
    on = engine("llama", PrefixCache(2**26))
    on.model.generation_config.use_cache = False
    first, second = Run(on, ask()).wait(60), Run(on, ask()).wait(60)
    assert ids(first) == ids(second)
    assert (reuse_of(second).reused, reuse_of(second).rows[0].end.kind) == (0, "refused")
    assert "use_cache=False" in reuse_of(second).message()


@pytest.mark.parametrize(
    ("name", "settings"),
    [("greedy", {}), ("sample", {"num_return_sequences": 3}), ("beam", {"num_return_sequences": 2}), ("guidance", {})],
)
@pytest.mark.parametrize("kind", ["llama", "gemma3", "t5"])
def test_rows_of_a_batch_find_their_own_prefixes(kind: str, name: str, settings: dict[str, Any]) -> None:
    if kind == "t5" and name == "guidance":
        pytest.skip("needs a decoder-only model")
    prompts = [f"{TEXT} now", "on it", f"{TEXT} then"]
    warm, cold = warm_and_cold(kind, ask(name, prompts, verify_cache=True, **settings))
    assert ids(warm) == ids(cold)
    reuse = reuse_of(warm)
    if kind == "t5":
        assert (reuse.sources_reused, len(reuse.rows)) == (3, 3)
    else:
        lengths = [warm.lanes[at * len(warm.lanes) // 3].prompt_tokens for at in range(3)]
        columns = max(lengths) - 1
        assert [row.reused for row in reuse.rows] == [columns - (max(lengths) - one) for one in lengths]
        assert reuse.rows[1].reused == lengths[1] - 1
    assert reuse.verified.difference <= TOLERANCE
    for lane in warm.lanes:
        hits = sum(token.cached is True for token in lane.record[: lane.prompt_tokens])
        assert hits == reuse.rows[lane.prompt].reused


def test_another_text_says_at_which_token_it_differs() -> None:
    on = engine("llama", PrefixCache(2**26))
    Run(on, ask(prompt="the cat sat")).wait(60)
    run = Run(on, ask(prompt="the cat and")).wait(60)
    reuse = reuse_of(run)
    assert [token.text for token in run.record[:6]] == ["the", " ", "c", "at", " ", "and"]
    assert (reuse.reused, reuse.rows[0].end.position) == (5, 5)
    assert reuse.message() == "at position 5 it has 'and', known is 's'"


def test_switched_off_and_not_there_are_no_miss() -> None:
    prefixes = PrefixCache(2**26)
    on = engine("llama", prefixes)
    for run in (Run(on, ask(prefix_cache=False)).wait(60), Run(engine("llama"), ask()).wait(60)):
        assert run.status().reuse is None
        assert {token.cached for token in run.record} == {None}
    assert prefixes.stats().tokens == 0


@pytest.mark.parametrize("settings", [{"logit_lens": True}, {"attention": True}, {"keep": ["hidden_states"]}])
def test_what_looks_at_the_whole_prompt_computes_it(settings: dict[str, Any]) -> None:
    on = engine("llama", PrefixCache(2**26))
    Run(on, ask()).wait(60)
    run = Run(on, ask(**settings)).wait(60)
    assert (reuse_of(run).reused, reuse_of(run).rows[0].end.kind) == (0, "refused")
    assert "of the prompt are observed" in reuse_of(run).message()
    if "keep" in settings:
        assert run.output.hidden_states[0][0].shape[1] == run.prompt_tokens
    else:
        assert run.looks is not None
        looked = run.looks.lens(2) if settings.get("logit_lens") else run.looks.attention(2).weights
        assert len(looked) >= 2


def test_probabilities_of_the_prompt_are_there_beside_hits() -> None:
    warm, cold = warm_and_cold("llama", ask(prompt_probabilities=True))
    assert reuse_of(warm).reused == warm.prompt_tokens - 1
    measured = [[token.raw_logprob for token in run.record[1 : run.prompt_tokens]] for run in (warm, cold)]
    assert measured[0] == measured[1]


def test_a_stopped_run_and_one_that_failed_leave_what_they_computed() -> None:
    prefixes = PrefixCache(2**26)
    on = engine("llama", prefixes)
    run = Run(on, ask(max_new_tokens=400), paused=True)
    while run.state != "paused":
        time.sleep(0.002)
    run.stop()
    run.wait(60)
    assert prefixes.stats().tokens == len(run.record) - 1

    failing = Run(on, ask(prompt=f"{TEXT} again", max_new_tokens=400), paused=True)
    while failing.state != "paused":
        time.sleep(0.002)
    failing.record.append = lambda _: 1 / 0  # type: ignore[method-assign, assignment, misc, return-value]
    failing.resume()
    with pytest.raises(ZeroDivisionError):
        failing.wait(60)
    assert prefixes.stats().pinned == 0
    again, cold = (
        Run(one, ask(prompt=f"{TEXT} again")).wait(60) for one in (on, InProcessEngine(on.model, on.tokenizer))
    )
    assert ids(again) == ids(cold)
    assert reuse_of(again).reused == again.prompt_tokens - 1


def test_verifying_what_is_wrong_shows_it(monkeypatch: pytest.MonkeyPatch) -> None:
    from genscope.kernel_side.caching import lease

    on = engine("llama", PrefixCache(2**26))
    Run(on, ask()).wait(60)
    refill = lease.refill

    def wrong(cache: Any, layers: Any, borrowed: object) -> None:
        refill(cache, tuple((keys * 0.5, values) for keys, values in layers))

    monkeypatch.setattr(lease, "refill", wrong)
    verified = reuse_of(Run(on, ask(verify_cache=True)).wait(60)).verified
    assert verified.difference > 0.01
    assert verified.largest > verified.difference


def test_nothing_is_compared_where_nothing_was_reused() -> None:
    run = Run(engine("llama", PrefixCache(2**26)), ask(verify_cache=True)).wait(60)
    assert (reuse_of(run).verified, reuse_of(run).saved, reuse_of(run).saved_measured) == (None, None, False)


def test_what_is_saved_is_estimated_once_a_long_prompt_was_computed(monkeypatch: pytest.MonkeyPatch) -> None:
    on = engine("llama", PrefixCache(2**26))
    note, noted = on.prefill_rate.note, []

    def told(computed: int, first: float, step: float) -> None:
        """Note what it was told, with times that do not hang on what else the machine does."""
        assert first > 0
        assert step > 0
        noted.append(computed)
        note(computed, 2.0, 1.0)

    monkeypatch.setattr(on.prefill_rate, "note", told)
    Run(on, ask(prompt="on it")).wait(60)
    assert reuse_of(Run(on, ask(prompt="on it")).wait(60)).saved is None  # too short to tell
    Run(on, ask(prompt=TEXT * 8)).wait(60)
    long = Run(on, ask(prompt=TEXT * 8)).wait(60)
    reuse = reuse_of(long)
    assert noted[2] == long.prompt_tokens
    assert reuse.saved == pytest.approx(reuse.reused / (long.prompt_tokens - 1), abs=0.5)  # less what looking took
    assert not reuse.saved_measured


def test_runs_of_several_threads_with_random_stops_leave_nothing_wrong() -> None:
    prefixes = PrefixCache(60_000)  # some is evicted on the way
    on = engine("llama", prefixes)
    names = ("greedy", "sample", "beam", "prompt_lookup", "dola")
    cold = InProcessEngine(on.model, on.tokenizer)

    def work(seed: int) -> None:
        draw = random.Random(seed)
        for _ in range(12):
            run = Run(on, ask(draw.choice(names), TEXT[: draw.randint(4, len(TEXT))], max_new_tokens=12))
            time.sleep(draw.random() / 50)
            if draw.random() < 0.6:
                run.stop()
            run.wait(60)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    stats = prefixes.stats()
    assert (stats.pinned, stats.nbytes <= 60_000) == (0, True)
    reused = 0
    for end in range(4, len(TEXT), 3):
        warm, plain = Run(on, ask(prompt=TEXT[:end])).wait(60), Run(cold, ask(prompt=TEXT[:end])).wait(60)
        assert ids(warm) == ids(plain)
        reused += reuse_of(warm).reused
    assert reused > 20
