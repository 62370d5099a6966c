"""What the exporter makes of a step: all lengths stay free, at lengths that it never saw; what it fixes is found out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch._dynamo.exc import UserError

from cached_runs import model_of
from execution_checks import CASES, check, generate, prompt
from genscope.kernel_side.tracing.exported import Exported
from genscope.kernel_side.tracing.exporting import Tied, export, sizes_of
from genscope.kernel_side.tracing.graphs import Graph
from genscope.kernel_side.tracing.quiet import quiet
from genscope.kernel_side.tracing.situation import Call, CannotError, Situation
from genscope.kernel_side.tracing.step import Step


class Uncompiled(Exported):
    """Runs exported programs as they are."""

    def make(self, step: Step, call: Call, stage: Callable[[str], None]) -> Graph:
        sizes = sizes_of(self.situation_of(call.situation), call)
        with quiet():
            program: Any = export(call, Tied(step, sizes).eval(), sizes).module(check_guards=False)

        def run(*tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
            given: tuple[torch.Tensor, ...] = program(*tensors)
            return given

        return run


def uncompiled(kind: str) -> tuple[Any, Any]:
    model = model_of(kind)
    execution = Uncompiled(model)
    view = execution.attach(model)
    view.execution = execution
    return model, view


@pytest.mark.parametrize("case", ["greedy", "padded batch"])
def test_a_program_is_the_model(case: str) -> None:
    model, view = uncompiled("gpt2")
    check(case, model, view, exact=False)
    assert not view.execution.fallbacks


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["mistral", "bart"])
def test_so_it_is_for_models_that_are_not_compiled_here(kind: str) -> None:
    model, view = uncompiled(kind)
    for case in CASES:
        check(case, model, view, exact=False)
    assert not view.execution.fallbacks


class Sized(Exported):
    """Exports nothing, and keeps the sizes that it would export with."""

    def make(self, step: Step, call: Call, stage: Callable[[str], None]) -> Graph:
        vars(self)[str(call.situation)] = sizes_of(self.situation_of(call.situation), call)
        return step


def test_layers_with_windows_have_lengths_of_their_own() -> None:
    model = model_of("gemma3")
    sized = Sized(model)
    generate(sized.attach(model), prompt())
    assert not sized.fallbacks
    sizes = vars(sized)["one token on a cache, masked"]
    assert sizes["ids"] == (1, 1)
    assert sizes["keys.0"] == (1, 2, "held by 8", 8)
    assert sizes["values.1"] == (1, 2, "held by all", 8)
    assert sizes["mask.sliding_attention"] == (1, 1, 1, "held by 8+1")
    sizes = vars(sized)["several tokens from the start, masked"]
    assert sizes["ids"] == ("rows", "fed")
    assert sizes["mask.sliding_attention"] == ("rows", 1, "fed", "fed")


class Fake:
    """A cache of two layers."""

    class Layer:
        sliding_window = None

    layers = (Layer(), Layer())


def call_of(**tensors: torch.Tensor) -> Call:
    situation = Situation(
        one=False, cached=True, rows=None, masks=(), patterns=None, keep="last", positions=False, encoder=False
    )
    return Call(situation, tensors, Fake())


class Odd(torch.nn.Module):
    """Does to its tensors what it is told."""

    def __init__(self, do: Callable[..., Any]) -> None:
        super().__init__()
        self.do = do

    def forward(self, *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return (self.do(*tensors),)


KEYS = torch.zeros(2, 1, 6, 4)


def _twice(ids: torch.Tensor, keys: torch.Tensor) -> torch.Tensor:
    torch._check(keys.shape[2] == 2 * ids.shape[1] + 1)
    return keys


@pytest.mark.parametrize(
    ("do", "error", "said"),
    [
        (_twice, CannotError, "ties lengths together"),
        (lambda ids, keys: keys * (2 if keys.shape[2] > 9 else 1), CannotError, "takes lengths only from 10"),
        (lambda ids, keys: keys * int(keys.shape[2]), UserError, "specialized it to be a constant"),
        (lambda ids, keys: keys[:, 0, :, 0] + ids, RuntimeError, "must match"),
    ],
)
def test_a_length_that_is_taken_as_fixed_is_found_out(do: Any, error: Any, said: str) -> None:
    call = call_of(ids=torch.zeros(2, 3, dtype=torch.long), **{"keys.0": KEYS})
    sizes = sizes_of(call.situation, call)
    assert sizes == {"ids": ("rows", "fed"), "keys.0": ("rows", 1, "held by all", 4)}
    odd: Any = Odd(do)
    with quiet(), pytest.raises(error, match=said):
        export(call, Tied(odd, sizes), sizes)


def test_lengths_that_are_free_stay_so() -> None:
    call = call_of(ids=torch.zeros(2, 3, dtype=torch.long), **{"keys.0": KEYS})
    sizes = sizes_of(call.situation, call)
    odd: Any = Odd(lambda ids, keys: keys * (keys.shape[2] + ids.shape[1]))
    with quiet():
        program = export(call, Tied(odd, sizes), sizes).module(check_guards=False)
    [made] = program(torch.zeros(5, 7, dtype=torch.long), torch.ones(5, 1, 23, 4))
    assert torch.equal(made, torch.full((5, 1, 23, 4), 30.0))
