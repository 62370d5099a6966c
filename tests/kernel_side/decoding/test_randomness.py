"""A seed gives the tokens of ``torch.manual_seed``, in any thread, and touches nothing global."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

from genscope.kernel_side.decoding.observe import observe
from genscope.kernel_side.decoding.randomness import SeededDraws
from tiny import KINDS, Kind, tiny_model

SAMPLING = {"do_sample": True, "top_k": 0, "max_new_tokens": 16, "eos_token_id": None, "pad_token_id": 0}


def prompt(seed: int, batch: int = 1) -> dict[str, torch.Tensor]:
    ids = torch.randint(3, 300, (batch, 9), generator=torch.Generator().manual_seed(seed))
    return {"input_ids": ids, "attention_mask": torch.ones_like(ids)}


def test_fifty_runs_in_four_threads_reproduce_manual_seed() -> None:
    model = tiny_model("llama")
    wanted = []
    for seed in range(50):
        torch.manual_seed(seed)
        wanted.append(model.generate(**prompt(seed % 5), **SAMPLING).tolist())
    assert len({str(tokens) for tokens in wanted}) == 50

    def seeded(seed: int) -> list[list[int]]:
        return model.generate(**prompt(seed % 5), **SAMPLING, **observe(seed=seed)).tolist()

    with ThreadPoolExecutor(4) as threads:
        assert list(threads.map(seeded, range(50))) == wanted


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("batch", [1, 3])
def test_seed_equals_manual_seed(kind: Kind, batch: int) -> None:
    model = tiny_model(kind)
    torch.manual_seed(123)
    wanted = model.generate(**prompt(1, batch), **SAMPLING)
    assert torch.equal(model.generate(**prompt(1, batch), **SAMPLING, **observe(seed=123)), wanted)
    assert not torch.equal(model.generate(**prompt(1, batch), **SAMPLING, **observe(seed=124)), wanted)


def test_the_global_generator_is_left_alone() -> None:
    model = tiny_model("llama")
    before = torch.get_rng_state()
    model.generate(**prompt(1), **SAMPLING, **observe(seed=123))
    assert torch.equal(torch.get_rng_state(), before)
    model.generate(**prompt(1), **SAMPLING, **observe())
    assert not torch.equal(torch.get_rng_state(), before)


def test_one_observation_can_be_used_again() -> None:
    model, observed = tiny_model("llama"), observe(seed=5)
    first = model.generate(**prompt(1), **SAMPLING, **observed)
    assert torch.equal(model.generate(**prompt(1), **SAMPLING, **observed), first)


def test_a_generator_that_was_given_is_used() -> None:
    weights = torch.ones(1000)
    with SeededDraws(1):
        given = torch.multinomial(weights, 5, generator=torch.Generator().manual_seed(9))
    assert torch.equal(given, torch.multinomial(weights, 5, generator=torch.Generator().manual_seed(9)))


def test_draws_end_with_the_block_also_after_an_error_in_the_loop() -> None:
    model = tiny_model("llama")

    def fail(input_ids: torch.Tensor, scores: object) -> torch.Tensor:
        raise LookupError("on purpose")

    with pytest.raises(LookupError):
        model.generate(**prompt(1), **SAMPLING, stopping_criteria=[fail], **observe(seed=1))
    torch.manual_seed(3)
    after = torch.multinomial(torch.ones(1000), 5)
    torch.manual_seed(3)
    assert torch.equal(torch.multinomial(torch.ones(1000), 5), after)
    model.generate(**prompt(1), **SAMPLING, **observe(seed=1))
