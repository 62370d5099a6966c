"""Runs that choose an execution: the tokens of eager runs, preparing as a state of its own, and what the status says."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from typing import Any, get_args

import pytest

from cached_runs import model_of
from genscope.kernel_side.caching.prefix_cache import PrefixCache
from genscope.kernel_side.engines.environment_engine import EnvironmentEngine
from genscope.kernel_side.engines.in_process import InProcessEngine
from genscope.kernel_side.request import Request, Settings, SettingsError
from genscope.kernel_side.run import Run
from genscope.kernel_side.tracing.execution import Execution
from genscope.kernel_side.tracing.traced import Traced
from tiny import tiny_model, tiny_tokenizer

NAMES = [chosen.model_fields["strategy"].default for chosen in get_args(Settings)]
LOOKING = ("contrastive", "dola")
"""Strategies that compare hidden states, for which no graph is made."""


def engine(kind: str = "llama", prefixes: PrefixCache | None = None) -> InProcessEngine:
    draft = tiny_model("llama", "sdpa", seed=1) if kind == "llama" else None
    return InProcessEngine(model_of(kind), tiny_tokenizer(), draft, prefixes)


def ask(name: str = "greedy", prompt: Any = "the cat and the hat on it", **settings: Any) -> Request:
    changes = {"assistant_early_exit": 1} if name == "early_exit" else {}
    base = {"max_new_tokens": 10, "stop_at_eos": False, "seed": 3, "strategy": name, "execution": "traced"}
    return Request.make(prompt, base | changes | settings)


def ids(run: Run) -> list[list[int]]:
    return [lane.record.ids() for lane in run.lanes]


def use_of(run: Run) -> Any:
    use = run.status().execution
    assert use is not None
    return use


@pytest.fixture(scope="module")
def llama() -> InProcessEngine:
    return engine()


@pytest.mark.parametrize("name", NAMES)
def test_each_strategy_gives_the_tokens_of_an_eager_run(llama: InProcessEngine, name: str) -> None:
    eager = Run(llama, ask(name, execution="eager")).wait(60)
    assert eager.status().execution is None
    for _ in range(2):
        traced = Run(llama, ask(name)).wait(60)
        assert ids(traced) == ids(eager)
    use = use_of(traced)
    if name in LOOKING:
        assert use.passes == 0
        assert set(use.fallbacks) == {"hidden states are asked for"}
    elif name == "early_exit":
        assert set(use.fallbacks) == {"fewer layers are run"}
        assert use.passes > 0
    else:
        assert use.fallbacks == {}
        assert use.passes > 0


@pytest.mark.parametrize("kind", ["gemma3", "t5"])
@pytest.mark.parametrize("name", ["greedy", "beam", "sample"])
def test_other_models(kind: str, name: str) -> None:
    one = engine(kind)
    eager = Run(one, ask(name, execution="eager")).wait(60)
    assert ids(Run(one, ask(name)).wait(60)) == ids(Run(one, ask(name)).wait(60)) == ids(eager)


def test_a_batch_is_masked(llama: InProcessEngine) -> None:
    prompts = ["the cat", "a hat on the mat"]
    eager = Run(llama, ask(prompt=prompts, execution="eager")).wait(60)
    assert ids(Run(llama, ask(prompt=prompts)).wait(60)) == ids(eager)


def test_a_graph_is_made_once_for_all_runs_of_a_model() -> None:
    one = engine()
    first = Run(one, ask()).wait(60)
    second = Run(InProcessEngine(one.model, one.tokenizer), ask()).wait(60)
    assert (use_of(first).graphs, use_of(second).graphs) == (2, 0)
    assert use_of(first).prepared > 0
    assert (use_of(second).prepared, use_of(second).compared, use_of(second).passes) == (0.0, 0, 10)
    assert use_of(second).largest_difference is None


def test_a_run_begins_with_what_another_of_its_execution_left() -> None:
    prefixes = PrefixCache(2**24)
    one = engine(prefixes=prefixes)
    eager = Run(one, ask(execution="eager")).wait(60)
    first, second = Run(one, ask()).wait(60), Run(one, ask()).wait(60)
    reused = [run.status().reuse.reused for run in (eager, first, second)]  # type: ignore[union-attr]
    assert reused == [0, 0, first.prompt_tokens - 1]
    assert ids(second) == ids(first) == ids(eager)
    branch = second.branch(second.prompt_tokens + 3, 40)
    assert branch.settings.execution == "traced"
    cold = second.branch(second.prompt_tokens + 3, 40, execution="eager", prefix_cache=False)
    assert ids(branch.wait(60)) == ids(cold.wait(60))


def test_what_is_looked_at_runs_eagerly_and_says_so(llama: InProcessEngine) -> None:
    run = Run(llama, ask(attention=True)).wait(60)
    assert use_of(run).fallbacks == {"attentions are asked for": 10}
    lens = Run(llama, ask(logit_lens=True)).wait(60)
    assert use_of(lens).fallbacks == {"hidden states are asked for": 10}


class Slow:
    """Lets a trace begin when a test says so."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.begun, self.go_on = threading.Event(), threading.Event()
        make = Traced.make

        def slow(traced: Any, step: Any, call: Any, stage: Any) -> Any:
            stage("tracing")
            self.begun.set()
            assert self.go_on.wait(30)
            return make(traced, step, call, stage)

        monkeypatch.setattr(Traced, "make", slow)


@pytest.fixture
def slow(monkeypatch: pytest.MonkeyPatch) -> Iterator[Slow]:
    made = Slow(monkeypatch)
    yield made
    made.go_on.set()


def test_preparing_is_a_state_of_its_own_and_in_none_of_the_times(slow: Slow) -> None:
    run = Run(engine(), ask())
    assert slow.begun.wait(30)
    status = run.status()
    assert (run.state, status.state) == ("preparing", "preparing")
    assert status.execution is not None
    assert status.execution.preparing is not None
    assert status.execution.preparing.what == "several tokens from the start"
    assert status.execution.preparing.stage == "tracing"
    elapsed = status.elapsed
    time.sleep(0.3)
    assert run.status().elapsed == elapsed
    assert run.status().execution.preparing.seconds > status.execution.preparing.seconds  # type: ignore[union-attr]
    slow.go_on.set()
    run.wait(60)
    final = run.status()
    assert final.execution is not None
    assert final.execution.prepared > 0.3
    assert final.elapsed is not None
    assert final.first_token is not None
    assert final.elapsed < final.execution.prepared
    assert sum(token.seconds or 0.0 for token in run.record) <= final.elapsed
    assert run.state == "finished"


def test_stopping_cancels_what_is_being_prepared(slow: Slow) -> None:
    one = engine()
    run = Run(one, ask())
    assert slow.begun.wait(30)
    run.stop()
    slow.go_on.set()
    run.wait(60)
    assert run.state == "stopped"
    assert use_of(run).fallbacks == {"preparing was cancelled": 1}
    assert use_of(Run(one, ask()).wait(60)).graphs == 2


def test_changed_weights_drop_the_graphs() -> None:
    one = engine()
    before = Run(one, ask(execution="optimised")).wait(60)
    one.model.model.layers[0].mlp.down_proj.weight.data.mul_(3.0)
    after = Run(one, ask(execution="optimised")).wait(60)
    assert use_of(after).graphs == 2
    assert ids(after) == ids(Run(one, ask(execution="eager")).wait(60))
    assert ids(after) != ids(before)


def test_an_execution_that_fails_leaves_the_run_running(monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(*_: Any) -> Any:
        raise RuntimeError("no such thing")

    one = engine()
    monkeypatch.setattr(Traced, "make", failing)
    run = Run(one, ask()).wait(60)
    assert run.state == "finished"
    assert use_of(run).fallbacks == {"traced failed: RuntimeError: no such thing": 10}
    assert ids(run) == ids(Run(one, ask(execution="eager")).wait(60))


def test_a_failing_generation_still_gives_the_thread_back(monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(*_: Any) -> Any:
        raise ValueError("broken")

    one = engine()
    monkeypatch.setattr(Execution, "_check", failing)
    run = Run(one, ask())
    with pytest.raises(ValueError, match="broken"):
        run.wait(60)
    assert run.state == "failed"
    monkeypatch.undo()
    assert Run(one, ask()).wait(60).state == "finished"


def test_no_execution_of_another_name() -> None:
    with pytest.raises(SettingsError, match=r"execution: .*'turbo'"):
        ask(execution="turbo")


def test_environments_run_eagerly() -> None:
    one = EnvironmentEngine(engine(), {"add": lambda text: text})
    with pytest.raises(SettingsError, match="execution: the turns of an environment run eagerly"):
        Run(one, ask())
