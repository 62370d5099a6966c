"""Executions that runs share: made once a model, dropped when the model changes, and keeping none alive."""

from __future__ import annotations

import gc
import weakref

import pytest
import torch

from cached_runs import model_of
from execution_checks import generate, prompt
from genscope.kernel_side.tracing.shared import drop, execution_of


def test_one_is_made_for_a_model() -> None:
    model = model_of("llama")
    first = execution_of(model, "traced")
    assert execution_of(model, "traced") is first
    assert execution_of(model, "optimised") is not first
    assert execution_of(model_of("llama"), "traced") is not first


@pytest.mark.parametrize("change", ["in place", "data", "config", "dtype", "replaced"])
def test_a_change_of_the_model_drops_it(change: str) -> None:
    model = model_of("llama")
    first = execution_of(model, "optimised")
    before = generate(first.attach(model), prompt())
    weight = model.model.layers[0].mlp.down_proj.weight
    if change == "in place":
        with torch.no_grad():
            weight.mul_(1.5)
    elif change == "data":
        weight.data.mul_(1.5)
    elif change == "config":
        model.model.layers[0].self_attn.scaling *= 2
    elif change == "dtype":
        model.double()
    else:
        model.model.layers[0].mlp.down_proj.weight = torch.nn.Parameter(weight.detach() * 1.5, requires_grad=False)
    second = execution_of(model, "optimised")
    assert second is not first
    assert not first._graphs
    after = generate(second.attach(model), prompt())
    plain = generate(model, prompt())
    assert torch.equal(after.sequences, plain.sequences)
    if change != "dtype":
        assert not torch.equal(after.logits[0], before.logits[0])


def test_dropped_by_hand() -> None:
    model = model_of("llama")
    traced, optimised = execution_of(model, "traced"), execution_of(model, "optimised")
    generate(traced.attach(model), prompt())
    drop(model, "traced")
    assert not traced._graphs
    assert execution_of(model, "optimised") is optimised
    assert execution_of(model, "traced") is not traced
    drop(model)
    assert execution_of(model, "optimised") is not optimised
    drop(model_of("gpt2"))  # of which there is nothing


def test_no_model_is_kept_alive() -> None:
    model = model_of("llama")
    generate(execution_of(model, "optimised").attach(model), prompt())
    gone = weakref.ref(model)
    weight = weakref.ref(model.lm_head.weight)
    del model
    gc.collect()
    assert gone() is None
    assert weight() is None
