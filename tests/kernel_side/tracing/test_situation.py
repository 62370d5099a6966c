"""What of a forward pass is read, which masks are made for it, and what no graph can serve."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from transformers import DynamicCache, StaticCache

from cached_runs import model_of
from execution_checks import every_token, generate, prompt
from genscope.kernel_side.tracing.situation import Call, CannotError, read
from genscope.kernel_side.tracing.trace import trace


def calls_of(kind: str, inputs: dict[str, Any], **arguments: Any) -> list[Call]:
    """Return what the passes of a generation are read as."""
    model, calls = model_of(kind), []
    eager = type(model).forward

    class Reading(type(model)):  # type: ignore[misc]
        def forward(self, **given: Any) -> Any:
            calls.append(read(self, given))
            return eager(self, **given)

    Reading.forward.__signature__ = __import__("inspect").signature(eager)  # type: ignore[attr-defined]
    model.__class__ = Reading
    generate(model, inputs, **arguments)
    return calls


def test_passes_without_padding_have_no_masks() -> None:
    first, *others = calls_of("llama", prompt())
    assert (first.situation.one, first.situation.cached, first.situation.masks) == (False, False, ())
    assert list(first.tensors) == ["ids", "positions"]
    assert str(first.situation) == "several tokens from the start"
    for at, call in enumerate(others):
        assert str(call.situation) == "one token on a cache"
        assert list(call.tensors) == ["ids", "positions", "keys.0", "values.0", "keys.1", "values.1"]
        assert call.tensors["keys.0"].shape == (1, 2, 11 + at, 8)
        assert call.tensors["positions"].tolist() == [[11 + at]]


def test_padding_brings_masks() -> None:
    first, second, *_ = calls_of("llama", prompt(rows=2))
    assert str(first.situation) == "several tokens from the start, 2 rows, masked"
    assert str(second.situation) == "one token on a cache, 2 rows, masked"
    assert second.tensors["mask"].shape == (2, 1, 1, 12)
    assert second.tensors["mask"][:, 0, 0].tolist() == [[True] * 12, [False] * 2 + [True] * 10]


def test_each_kind_of_layer_has_its_mask() -> None:
    first, *_, last = calls_of("gemma3", prompt())
    assert first.situation.patterns == ("full_attention", "sliding_attention")
    assert first.situation.masks == ("mask.sliding_attention",)
    assert first.tensors["mask.sliding_attention"].shape == (1, 1, 11, 11)
    assert last.tensors["keys.0"].shape[2] == 7  # a window of 8, the new token included
    assert last.tensors["keys.1"].shape[2] == 11 + 10


def test_several_tokens_on_a_cache_are_masked_and_give_all_their_logits() -> None:
    calls = calls_of("llama", every_token(), prompt_lookup_num_tokens=3)
    several = [call for call in calls if call.situation.cached and not call.situation.one]
    assert several
    assert {str(call.situation) for call in several} == {"several tokens on a cache, masked, logits of all"}


def test_drafts_behind_a_prompt_need_some_logits() -> None:
    twice = {"input_ids": prompt()["input_ids"].repeat(1, 2)}
    first, *_ = calls_of("llama", twice, prompt_lookup_num_tokens=3)
    assert str(first.situation) == "several tokens from the start, logits of some"
    assert first.tensors["kept"].tolist() == [21, 22, 23, 24]


def test_a_decoder_behind_an_encoder_reads_it_once() -> None:
    first, second, *_ = calls_of("t5", prompt(rows=2))
    assert "cross_keys.0" not in first.tensors
    assert first.tensors["encoder"].shape == (2, 11, 32)
    assert second.tensors["cross_keys.1"].shape == (2, 4, 11, 8)
    assert second.situation.masks == ("cross_mask",)


def asked(**changes: Any) -> dict[str, Any]:
    ids = torch.tensor([[5, 6, 7]])
    return {"input_ids": ids, "cache": DynamicCache(), "use_cache": True, **changes}


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"output_attentions": True}, "attentions are asked for"),
        ({"output_hidden_states": [1]}, "hidden states are asked for"),
        ({"labels": torch.tensor([[1, 2, 3]])}, "labels is given"),
        ({"cache": None, "use_cache": None}, "there is no cache"),
        ({"use_cache": False}, "there is no cache"),
        ({"input_ids": None}, "embeddings are given in place of ids"),
        ({"input_ids": torch.tensor([5, 6])}, "ids or positions have more dimensions than rows and tokens"),
        ({"logits_to_keep": torch.tensor([0])}, "logits of chosen positions are asked for"),
    ],
)
def test_what_no_graph_serves_is_said(changes: dict[str, Any], reason: str) -> None:
    with pytest.raises(CannotError, match=f"^{reason}$"):
        read(model_of("llama"), asked(**changes))


def test_a_cache_written_in_place_is_not_served() -> None:
    model = model_of("llama")
    cache = StaticCache(config=model.config, max_cache_len=32)
    with pytest.raises(CannotError, match="its cache has layers of the class StaticLayer"):
        read(model, asked(cache=cache))
    view = trace(model)
    output = generate(view, prompt(), cache_implementation="static")
    assert torch.equal(output.sequences, generate(model, prompt()).sequences)
    assert view.execution.fallbacks == {"its cache has layers of the class StaticLayer": 12}


def test_layers_of_different_lengths_are_not_served() -> None:
    model = model_of("llama")
    cache = DynamicCache(config=model.config)
    cache.update(torch.zeros(1, 2, 3, 8), torch.zeros(1, 2, 3, 8), 1)
    with pytest.raises(CannotError, match="layers of its cache hold different lengths"):
        read(model, asked(cache=cache))


def test_an_attention_implementation_that_is_not_understood_is_not_served() -> None:
    model = model_of("llama")
    model.config._attn_implementation_internal = "flex_attention"
    with pytest.raises(CannotError, match=r"^its attention implementation is 'flex_attention'$"):
        read(model, asked())
