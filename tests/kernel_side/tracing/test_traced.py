"""Traced execution against eager generation: models, strategies, what is bit-equal, and what a trace must not be."""

from __future__ import annotations

import gc
import warnings
import weakref
from typing import Any

import pytest
import torch
from torch import nn

from cached_runs import model_of
from execution_checks import CASES, KINDS, check, generate, prompt
from genscope.kernel_side.models import load_model
from genscope.kernel_side.tracing.trace import trace


@pytest.fixture(scope="module", params=KINDS)
def traced(request: pytest.FixtureRequest) -> tuple[Any, Any]:
    model = model_of(request.param)
    return model, trace(model)


@pytest.fixture(scope="module", params=["llama", "gpt2", "gemma3", "t5"])
def optimised(request: pytest.FixtureRequest) -> tuple[Any, Any]:
    model = model_of(request.param)
    return model, trace(model, "optimised")


@pytest.mark.parametrize("case", CASES)
def test_a_trace_gives_the_same_tokens_and_the_same_logits_to_the_bit(traced: tuple[Any, Any], case: str) -> None:
    model, view = traced
    check(case, model, view, exact=True)
    assert not view.execution.fallbacks


@pytest.mark.parametrize("case", CASES)
def test_an_optimised_trace_gives_the_same_tokens(optimised: tuple[Any, Any], case: str) -> None:
    model, view = optimised
    check(case, model, view, exact=False)
    assert not view.execution.fallbacks


def test_eager_attention_is_traced_with_its_masks() -> None:
    model = model_of("llama", "eager")
    view = trace(model)
    for case in ("greedy", "padded batch", "prompt lookup"):
        check(case, model, view, exact=True)
    assert not view.execution.fallbacks


def test_one_graph_serves_all_lengths_and_rows() -> None:
    model = model_of("llama")
    view = trace(model)
    for length in (3, 5, 9, 17, 33):
        plain = generate(model, prompt(length=length))
        assert torch.equal(generate(view, prompt(length=length)).sequences, plain.sequences)
    assert view.execution.cost.graphs == ("several tokens from the start", "one token on a cache")
    assert view.execution.cost.compared == 4
    assert view.execution.cost.largest_difference == 0.0


class Choosy(nn.Module):
    """Doubles what is large: by Python, so that a trace does for ever what it did once."""

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        return hidden * 2 if hidden.sum() > 0 else hidden


def test_code_that_decides_by_contents_is_not_traced() -> None:
    model = model_of("llama")
    model.model.norm = nn.Sequential(model.model.norm, Choosy()).eval()
    view = trace(model)
    plain = generate(model, prompt())
    assert torch.equal(generate(view, prompt()).sequences, plain.sequences)
    assert view.execution.passes == 0
    [reason] = view.execution.fallbacks
    assert reason.startswith("its code decides by what is in a tensor (test_traced.py, line ")


def test_no_warning_of_torch_reaches_the_notebook(capfd: pytest.CaptureFixture[str]) -> None:
    view = trace(model_of("llama"), "optimised")
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        generate(view, prompt())
    assert view.execution.cost.graphs
    assert not [one for one in said if "jit" in str(one.message) or "trace" in str(one.message)]
    assert capfd.readouterr() == ("", "")


def test_an_unknown_optimisation_is_named() -> None:
    with pytest.raises(ValueError, match=r"optimise is 'more'; it can be one of 'none', 'freeze', 'inference'"):
        trace(model_of("llama"), optimise="more")


@pytest.mark.parametrize("execution", ["traced", "optimised"])
def test_what_it_holds_is_released_when_it_is_dropped(execution: str) -> None:
    model = model_of("llama")
    view = trace(model, execution)
    generate(view, prompt())
    graphs = [weakref.ref(graph) for graph in view.execution._graphs.values()]
    assert len(graphs) == 2
    view.execution.close()
    gc.collect()
    assert [graph() for graph in graphs] == [None, None]
    generate(view, prompt(), max_new_tokens=2)
    assert view.execution.fallbacks == {"the execution was dropped": 2}


def test_frozen_weights_are_released_with_the_view() -> None:
    model = model_of("llama")
    view = trace(model, optimise="freeze")
    generate(view, prompt())
    weight = weakref.ref(model.model.layers[0].self_attn.q_proj.weight)
    del model, view
    gc.collect()
    assert weight() is None


@pytest.mark.slow
def test_the_demo_model_is_traced() -> None:
    model, tokenizer = load_model("demo", progress=None)
    view = trace(model)
    inputs = tokenizer("The history of measuring is long. The first", return_tensors="pt")
    for arguments in ({}, {"num_beams": 2}):
        plain = generate(model, inputs, **arguments)
        ours = generate(view, inputs, **arguments)
        assert torch.equal(ours.sequences, plain.sequences)
        assert all(torch.equal(mine, theirs) for mine, theirs in zip(ours.logits, plain.logits, strict=True))
    assert not view.execution.fallbacks
    assert view.execution.cost.graphs == ("several tokens from the start", "one token on a cache")
