"""Compiled execution against eager generation: strategies, what is never compiled twice, and what is left alone."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import pytest
import torch
from torch._inductor import cpp_builder
from transformers import DynamicCache

from cached_runs import model_of
from execution_checks import CASES, STEPS, check, check_streamed, generate, prompt
from genscope.kernel_side.tracing.trace import trace
from genscope.kernel_side.tracing.use import Use

ALONE = "its cache holds a single position"


def compiled(kind: str, **options: Any) -> tuple[Any, Any]:
    model = model_of(kind)
    return model, trace(model, "compiled", **options)


@pytest.fixture(scope="module")
def llama() -> tuple[Any, Any]:
    return compiled("llama")


@pytest.fixture(scope="module", params=["llama", "gpt2", "gemma3", "qwen3", "t5"])
def by_layer(request: pytest.FixtureRequest) -> tuple[Any, Any]:
    return compiled(request.param)


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES)
def test_compiled_layers_give_the_same_tokens(by_layer: tuple[Any, Any], case: str) -> None:
    model, view = by_layer
    check(case, model, view, exact=False)
    # A decoder behind an encoder begins with one token, whose keys and values are all that the next pass finds.
    assert set(view.execution.fallbacks) <= ({ALONE} if model.config.is_encoder_decoder else set())
    assert view.execution.recompilations == 0


@pytest.mark.slow
def test_streamed_steps_are_what_generate_returns(by_layer: tuple[Any, Any]) -> None:
    check_streamed(by_layer[1])


@pytest.mark.slow
@pytest.mark.parametrize("case", ["greedy", "padded batch"])
def test_a_compiled_step_gives_the_same_tokens(case: str) -> None:
    model, view = compiled("llama", part="step")
    check(case, model, view, exact=False)
    assert not view.execution.fallbacks
    assert view.execution.recompilations == 0


def test_layers_share_one_graph_of_a_situation_whatever_the_length(
    llama: tuple[Any, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    model, view = llama
    inductor, graphs = torch._dynamo.lookup_backend("inductor"), []

    def counting(_name: str) -> Any:
        def backend(graph: Any, inputs: Any) -> Any:
            made = inductor(graph, inputs)
            graphs.append(made)
            return made

        return backend

    monkeypatch.setattr(torch._dynamo, "lookup_backend", counting)
    for length in (5, 3, 17, 33, 64):
        plain = generate(model, prompt(length=length))
        ours = generate(view, prompt(length=length))
        assert torch.equal(ours.sequences, plain.sequences)
    assert len(model.model.layers) == 2
    assert len(graphs) == 3  # of layers with several tokens, and with one; and of the head behind one
    assert view.execution.cost.graphs == ("several tokens from the start", "one token on a cache")
    assert view.execution.recompilations == 0
    assert view.execution.cost.compared == 4
    assert not view.execution.fallbacks


def test_a_cache_of_one_position_is_not_compiled_for(llama: tuple[Any, Any]) -> None:
    model, view = llama
    before = view.execution.fallbacks[ALONE]
    plain = generate(model, prompt(length=1))
    assert torch.equal(generate(view, prompt(length=1)).sequences, plain.sequences)
    assert view.execution.fallbacks[ALONE] == before + 1
    view.execution.fallbacks.clear()


def test_what_is_compiled_anew_is_counted_and_its_time_is_not_the_tokens(llama: tuple[Any, Any]) -> None:
    model, view = llama
    generate(view, prompt())
    plain = generate(model, prompt())
    use = Use("compiled")
    threads = torch.get_num_threads()
    before = view.execution.recompilations
    try:
        torch.set_num_threads(threads + 1)
        with view.execution.used(use):
            ours = generate(view, prompt())
    finally:
        torch.set_num_threads(threads)
    assert torch.equal(ours.sequences, plain.sequences)
    assert view.execution.recompilations - before == use.recompilations == 3
    assert use.status().prepared > 0
    assert use.status().graphs == 0


def test_asked_hidden_states_run_eagerly(llama: tuple[Any, Any]) -> None:
    _, view = llama
    view.execution.fallbacks.clear()
    hidden = generate(view, prompt(), output_hidden_states=True).hidden_states
    assert len(hidden) == STEPS
    assert view.execution.fallbacks == {"hidden states are asked for": STEPS}


def test_hooks_of_the_library_on_a_model_that_was_asked_are_not_followed() -> None:
    model = model_of("llama")
    generate(model, prompt(), output_hidden_states=True)
    hooks = [dict(module._forward_hooks) for module in model.modules()]
    assert any(hooks)
    again = trace(model, "compiled")
    plain = generate(model, prompt())
    assert torch.equal(generate(again, prompt()).sequences, plain.sequences)
    assert not again.execution.fallbacks
    assert [dict(module._forward_hooks) for module in model.modules()] == hooks


def test_the_model_and_tensors_of_a_run_are_left_as_they_are(llama: tuple[Any, Any]) -> None:
    model, _ = llama
    before = {name: dict(vars(module)) for name, module in model.named_modules()}
    settings = torch._dynamo.config.get_config_copy(), torch._inductor.config.get_config_copy()
    view = trace(model, "compiled")
    cache, given = DynamicCache(config=model.config), []
    with torch.no_grad():
        for ids in (torch.tensor([[5, 6, 7, 8, 9]]), torch.tensor([[10]])):
            given += [
                ids,
                *(held for layer in cache.layers if layer.is_initialized for held in (layer.keys, layer.values)),
            ]
            view(input_ids=ids, cache=cache)
    assert view.execution.cost.compared == 2
    assert len(given) == 2 + 4
    assert {name: dict(vars(module)) for name, module in model.named_modules()} == before
    assert (torch._dynamo.config.get_config_copy(), torch._inductor.config.get_config_copy()) == settings
    assert not [one for one in given if hasattr(one, "_dynamo_weak_dynamic_indices")]


def test_what_it_holds_is_released_when_it_is_dropped_and_nothing_of_others() -> None:
    model, view = compiled("llama")
    others = []

    def backend(graph: Any, _: Any) -> Any:
        others.append(graph)
        return graph.forward

    doubled = torch.compile(lambda tensor: tensor * 2, backend=backend)
    doubled(torch.ones(3))
    generate(view, prompt())
    held = [weakref.ref(graph) for graph in view.execution._graphs.values()]
    held += [weakref.ref(graph()._step) for graph in held]
    assert len(held) == 4
    view.execution.close()
    gc.collect()
    assert [one() for one in held] == [None] * 4
    generate(view, prompt(), max_new_tokens=2)
    assert view.execution.fallbacks == {"the execution was dropped": 2}
    doubled(torch.ones(3))
    assert len(others) == 1
    weight = weakref.ref(model.model.layers[0].self_attn.q_proj.weight)
    del model, view
    gc.collect()
    assert weight() is None


def test_without_a_compiler_it_runs_eagerly_and_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    model, view = compiled("llama")
    plain = generate(model, prompt())
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr("sys.platform", "linux")
    cpp_builder.cpp_compiler_search.cache_clear()
    ours = generate(view, prompt())
    assert torch.equal(ours.sequences, plain.sequences)
    [(reason, times)] = view.execution.fallbacks.items()
    assert reason.startswith("there is no C++ compiler; install on Debian and Ubuntu `sudo apt install g++`")
    assert times == STEPS
    assert view.execution.cost.graphs == ()


def test_compiling_can_be_cancelled_and_taken_up_again() -> None:
    model, view = compiled("llama")
    asked = []

    def cancelled() -> bool:
        asked.append(1)
        return len(asked) > 1  # not before it is about to compile

    use = Use("compiled", cancelled=cancelled)
    with view.execution.used(use):
        ours = generate(view, prompt(), max_new_tokens=1)
    assert torch.equal(ours.sequences, generate(model, prompt(), max_new_tokens=1).sequences)
    assert view.execution.fallbacks == {"preparing was cancelled": 1}
    assert view.execution.cost.graphs == ()
    generate(view, prompt(), max_new_tokens=1)
    assert view.execution.cost.graphs == ("several tokens from the start",)


def test_an_unknown_part_is_named() -> None:
    with pytest.raises(ValueError, match=r"part is 'head'; it can be one of 'layer', 'step'"):
        trace(model_of("llama"), "compiled", part="head")
    assert trace(model_of("llama"), "compiled").execution.part == "layer"
