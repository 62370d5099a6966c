"""Runs with a prefix cache keep what they generated, and their own error, whatever becomes of storing and verifying."""

from __future__ import annotations

import time
from typing import Any

import pytest

from cached_runs import model_of
from genscope.kernel_side.caching import prefix_cache
from genscope.kernel_side.caching.prefix_cache import PrefixCache
from genscope.kernel_side.engines.in_process import InProcessEngine
from genscope.kernel_side.engines.prefixes import PrefixUse
from genscope.kernel_side.record.recorder import Recorder
from genscope.kernel_side.request import Request
from genscope.kernel_side.run import Run
from tiny import tiny_tokenizer


def cached_engine() -> InProcessEngine:
    return InProcessEngine(model_of("llama"), tiny_tokenizer(), prefix_cache=PrefixCache(2**26))


def ask(**settings: Any) -> Request:
    return Request.make("the cat and the hat on it", {"max_new_tokens": 10, "stop_at_eos": False}, **settings)


def reuse_of(run: Run) -> Any:
    reuse = run.status().reuse
    assert reuse is not None
    return reuse


def test_a_run_keeps_what_it_generated_where_storing_or_verifying_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise MemoryError("no room")

    on = cached_engine()
    Run(on, ask()).wait(60)
    monkeypatch.setattr(prefix_cache, "store", fail)
    monkeypatch.setattr(PrefixUse, "verify", fail)
    run = Run(on, ask(verify_cache=True)).wait(60)
    assert (run.state, run.why, run.output is None) == ("finished", "length", False)
    assert reuse_of(run).verified is None
    assert on.prefix_cache is not None
    stats = on.prefix_cache.stats()
    assert (stats.not_stored, stats.pinned) == ({"storing failed: MemoryError: no room": 1}, 0)


def test_the_error_of_a_run_is_not_hidden_by_that_of_storing(monkeypatch: pytest.MonkeyPatch) -> None:
    put = Recorder.put

    def fail(*_: Any, **__: Any) -> None:
        raise MemoryError("no room")

    def fail_later(recorder: Recorder, output: Any) -> None:
        put(recorder, output)
        if recorder.steps == 3:
            raise ValueError("the run's own")

    monkeypatch.setattr(prefix_cache, "store", fail)
    monkeypatch.setattr(Recorder, "put", fail_later)
    with pytest.raises(ValueError, match="the run's own"):
        Run(cached_engine(), ask()).wait(60)


def test_a_run_that_was_stopped_is_not_verified() -> None:
    on = cached_engine()
    Run(on, ask()).wait(60)
    run = Run(on, ask(verify_cache=True), paused=True)
    while run.state != "paused":
        time.sleep(0.002)
    run.stop()
    run.wait(60)
    assert run.state == "stopped"
    assert (reuse_of(run).verified, reuse_of(run).saved_measured) == (None, False)
