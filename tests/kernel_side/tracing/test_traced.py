"""Traced execution against eager generation: models, strategies, what is bit-equal, and what a trace must not be."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import weakref
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import execution_checks
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


def test_nothing_that_the_libraries_say_of_tracing_reaches_the_notebook() -> None:
    # In a process of its own: what transformers logs goes to the standard error of when it was imported, and only once.
    code = (
        "from cached_runs import model_of\n"
        "from execution_checks import generate, prompt\n"
        "from genscope.kernel_side.tracing.trace import trace\n"
        "view = trace(model_of('llama'), 'optimised')\n"
        "generate(view, prompt())\n"
        "assert len(view.execution.cost.graphs) == 2\n"
    )
    paths = os.pathsep.join(
        [str(Path(execution_checks.__file__).parent), *filter(None, [os.environ.get("PYTHONPATH")])]
    )
    command = [sys.executable, "-W", "always", "-c", code]
    done = subprocess.run(command, check=False, capture_output=True, text=True, env={**os.environ, "PYTHONPATH": paths})
    said = [line for line in done.stderr.splitlines() if "trac" in line or "jit" in line or "loss_type" in line]
    assert (done.returncode, said) == (0, []), done.stderr


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
