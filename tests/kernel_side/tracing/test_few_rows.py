"""Linear layers of few rows as sums: the same numbers, of the layers that they are meant for alone."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch
from torch import nn

from genscope.kernel_side.decoding.model_view import view_of
from genscope.kernel_side.tracing.few_rows import MOST, Sums, as_sums, has_few
from genscope.kernel_side.tracing.situation import Situation
from tiny import tiny_model

ONE = Situation(one=True, cached=True, rows=1, masks=(), patterns=None, keep="last", positions=False, encoder=False)


class Holder(nn.Module):
    """A linear layer as a view has it: an object of its own."""

    def __init__(self, *, bias: bool) -> None:
        super().__init__()
        self.linear = nn.Linear(48, 7, bias=bias)


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("rows", range(1, MOST + 1))
def test_sums_are_what_the_layer_gives(rows, bias):
    torch.manual_seed(rows)
    holder = Holder(bias=bias)
    given = torch.randn(rows, 1, 48)
    expected = holder.linear(given)
    as_sums(holder)
    assert type(holder.linear) is Sums
    ours = holder.linear(given)
    assert ours.shape == (rows, 1, 7)
    assert torch.allclose(ours, expected, atol=1e-5)
    assert not torch.equal(ours, torch.zeros_like(ours))


def test_several_tokens_are_multiplied_as_ever() -> None:
    holder = Holder(bias=True)
    given = torch.randn(2, 9, 48)
    expected = holder.linear(given)
    as_sums(holder)
    program = torch.export.export(holder.linear, (given,), dynamic_shapes=({1: torch.export.Dim.DYNAMIC},))
    assert torch.equal(holder.linear(given), expected)
    assert torch.allclose(program.module()(given[:, :5]), expected[:, :5], atol=1e-6)  # no length was taken as fixed


def test_a_view_is_changed_and_its_model_is_not():
    model = tiny_model("llama", "sdpa")
    view = view_of(model)
    as_sums(view)
    assert any(type(one) is Sums for one in view.modules())
    assert not any(type(one) is Sums for one in model.modules())
    ids = torch.tensor([[5]])
    assert torch.allclose(view(ids).logits, model(ids).logits, atol=1e-4)


def test_other_layers_are_left_as_they_are():
    class Other(nn.Linear):
        """May compute something else."""

    several = nn.ModuleList([Other(4, 4), nn.Linear(4, 4, dtype=torch.bfloat16), nn.Embedding(4, 4)])
    as_sums(several)
    assert [type(one) for one in several] == [Other, nn.Linear, nn.Embedding]


def test_few_are_few_rows_of_one_token_on_a_processor():
    def told(kind="cpu", **changes):
        return has_few(SimpleNamespace(device=torch.device(kind)), replace(ONE, **changes))

    assert told()
    assert told(rows=MOST)
    assert not told(rows=None)
    assert not told(one=False)
    assert not told("meta")


def test_a_situation_says_how_many_rows_it_has():
    assert str(ONE) == "one token on a cache"
    assert str(replace(ONE, rows=3)) == "one token on a cache, 3 rows"
    assert str(replace(ONE, rows=None)) == "one token on a cache, several rows"
