"""Rows of one batch choose as their own calls do: same processors, same draws, same end."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from genscope.kernel_side.decoding.observe import observe
from genscope.kernel_side.decoding.rows import Row, Rows, prepare
from tiny import EOS, tiny_model

NEW = 12
WAYS: tuple[dict[str, Any], ...] = (
    {"do_sample": False},
    {"do_sample": True, "temperature": 0.7, "top_k": 0},
    {"do_sample": True, "top_k": 5},
    {"do_sample": True, "top_p": 0.6, "repetition_penalty": 1.4},
    {"do_sample": True, "min_p": 0.2, "top_k": 0},
    {"do_sample": True, "typical_p": 0.8, "no_repeat_ngram_size": 2},
    {"do_sample": False, "repetition_penalty": 1.7},
    {"do_sample": True, "temperature": 1.8, "min_new_tokens": 5},
)


def asked(length: int = 9) -> dict[str, torch.Tensor]:
    ids = torch.randint(3, 300, (1, length), generator=torch.Generator().manual_seed(3))
    return {"input_ids": ids, "attention_mask": torch.ones_like(ids)}


def alone(model: Any, way: dict[str, Any], seed: int, **more: Any) -> list[int]:
    """The new tokens of a call of its own."""
    torch.manual_seed(seed)
    arguments = {"max_new_tokens": NEW} | way | more
    return model.generate(**asked(), **arguments)[0, 9:].tolist()


def together(model: Any, rows: list[Row], **more: Any) -> list[list[int]]:
    """The new tokens of all rows, and of each none behind its end."""
    batch = {"do_sample": True, "num_return_sequences": len(rows), "max_new_tokens": NEW, "eos_token_id": None}
    ids = model.generate(**asked(), **batch | more, **observe(rows=Rows(rows)))[:, 9:].tolist()
    return [row[: row.index(EOS) + 1] if EOS in row else row for row in ids]


@pytest.mark.parametrize("kind", ["llama", "gpt2"])
def test_each_row_gets_the_tokens_that_it_gets_alone(kind: Any) -> None:
    model = tiny_model(kind, "sdpa")
    ways = [prepare(model, asked(), {"max_new_tokens": NEW} | way) for way in WAYS]
    seeds = (0, 1, 2, 3)
    rows = [Row(way, seed) for way in ways for seed in seeds]
    expected = [alone(model, way, seed) for way in WAYS for seed in seeds]
    assert together(model, rows) == expected
    assert len({tuple(row) for row in expected}) > 20


def test_rows_end_each_at_their_own_place_and_the_others_go_on() -> None:
    model = tiny_model("llama", "sdpa")
    lengths = (3, 12, 7)
    ways = [prepare(model, asked(), {"max_new_tokens": length, "do_sample": True}) for length in lengths]
    rows = Rows([Row(way, seed) for seed, way in enumerate(ways)])
    batch = {"do_sample": True, "num_return_sequences": 3, "max_new_tokens": NEW, "eos_token_id": None}
    seen: list[list[bool]] = []
    model.generate(**asked(), **batch, **observe(rows=rows, stop=lambda: seen.append(list(rows.ended))))  # type: ignore[func-returns-value]
    assert [sum(not step[row] for step in seen) + 1 for row in range(3)] == list(lengths)


def test_a_row_ends_when_it_is_told_to() -> None:
    model = tiny_model("llama", "sdpa")
    way = prepare(model, asked(), {"max_new_tokens": NEW, "do_sample": True, "eos_token_id": None})
    steps: list[int] = []
    rows = Rows([Row(way, 0), Row(way, 1, stopped=lambda: len(steps) >= 4)])
    batch = {"do_sample": True, "num_return_sequences": 2, "max_new_tokens": NEW, "eos_token_id": None}

    def step() -> bool:
        steps.append(sum(rows.ended))
        return False

    model.generate(**asked(), **batch, **observe(rows=rows, stop=step))
    assert steps == [0] * 4 + [1] * 7 + [2]


def test_rows_that_have_ended_are_not_processed() -> None:
    model = tiny_model("llama", "sdpa")
    short, long = (
        prepare(model, asked(), {"max_new_tokens": new, "do_sample": True, "temperature": 0.5}) for new in (2, 9)
    )
    counts = {"short": 0, "long": 0}
    for name, way in (("short", short), ("long", long)):

        def counting(ids: Any, scores: Any, name: str = name) -> Any:
            counts[name] += len(ids)
            return scores

        way.processors.append(counting)  # type: ignore[arg-type]
    together(model, [Row(short, 1), Row(long, 1), Row(short, 2)])
    assert counts == {"short": 4, "long": 9}


def test_preparing_decodes_nothing_and_leaves_the_model_as_it_is() -> None:
    model = tiny_model("llama", "sdpa")
    calls: list[Any] = []
    handle = model.register_forward_hook(lambda *given: calls.append(given))
    before = model.generation_config.to_dict()
    way = prepare(model, asked(), {"do_sample": True, "temperature": 0.5, "top_k": 7, "max_new_tokens": 3})
    handle.remove()
    assert not calls
    assert [type(one).__name__ for one in way.processors] == ["TemperatureLogitsWarper", "TopKLogitsWarper"]
    assert way.draws
    assert model.generation_config.to_dict() == before


def test_the_global_generator_is_left_alone() -> None:
    model = tiny_model("llama", "sdpa")
    way = prepare(model, asked(), {"do_sample": True, "max_new_tokens": 3})
    torch.manual_seed(5)
    expected = torch.rand(1)
    torch.manual_seed(5)
    together(model, [Row(way, 0), Row(way, 1)])
    assert torch.equal(torch.rand(1), expected)
