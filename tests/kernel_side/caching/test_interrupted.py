"""Runs that are cancelled, or fail anywhere, leave nothing wrong behind."""

from __future__ import annotations

import random

import pytest
import torch
from transformers.cache_utils import DynamicLayer

from cached_runs import assert_same, ids_of, model_of, run
from genscope.kernel_side.caching.prefix_cache import PrefixCache
from genscope.kernel_side.decoding.model_view import view_of
from genscope.kernel_side.decoding.observe import observe

PROMPTS = [ids_of(14), ids_of(14)[:9] + ids_of(8, 1), ids_of(12, 2), ids_of(14)[:4] + ids_of(3, 3)]
WAYS = (
    {},
    {"num_return_sequences": 2, "do_sample": True},
    {"num_beams": 2},
    {"prompt_lookup_num_tokens": 3},
    {"assistant_early_exit": 1, "num_assistant_tokens": 3},
)


def parity(model, prefixes, prompt, **kwargs):
    warm = run(model, [prompt], prefixes, store=False, **kwargs)
    assert_same(run(model, [prompt], **kwargs), warm)
    return warm.lease.reused


def test_after_1000_random_cancels_everything_that_is_known_is_right():
    model = view_of(model_of("gemma3"))
    prefixes = PrefixCache(40_000)  # some are evicted on the way
    draw = random.Random(0)
    stopped = 0
    for _ in range(1000):
        left = draw.randrange(9)

        def stop():
            nonlocal left, stopped
            left -= 1
            stopped += left == 0
            return left <= 0

        prompt = draw.choice(PROMPTS)[: draw.randint(1, 14)] + [
            draw.randrange(3, 300) for _ in range(draw.randrange(2))
        ]
        run(model, [prompt], prefixes, new=8, stop=stop, **draw.choice(WAYS))
    assert stopped > 500
    assert prefixes.stats().pinned == 0
    assert sum(parity(model, prefixes, prompt) for prompt in PROMPTS) > 20
    assert sum(parity(model, prefixes, prompt, prompt_lookup_num_tokens=2) for prompt in PROMPTS) > 20


class Fails(DynamicLayer):
    """Fails in the middle of an update, when told to."""

    left = None

    def update(self, key_states, value_states, *args, **kwargs):
        if Fails.left is not None:
            Fails.left -= 1
            if Fails.left == 0:
                self.lazy_initialization(key_states, value_states) if not self.is_initialized else None
                self.keys = torch.cat([self.keys, key_states], dim=-2)
                raise KeyboardInterrupt
        return super().update(key_states, value_states, *args, **kwargs)


@pytest.mark.parametrize("at", [1, 2, 3, 4, 7, 8])
def test_a_run_that_fails_between_keys_and_values_stores_what_all_layers_hold(at, monkeypatch):
    model = model_of("llama")  # of two layers
    prompt = PROMPTS[0]
    prefixes = PrefixCache(2**24)
    monkeypatch.setattr("genscope.kernel_side.caching.layers._AS_IT_IS", (Fails,))
    monkeypatch.setattr("transformers.cache_utils.DYNAMIC_LAYER_TYPE_MAPPING", {"full_attention": Fails})
    Fails.left = at
    seen = []
    with prefixes.lease(model, [prompt]) as lease, pytest.raises(KeyboardInterrupt):
        try:
            model.generate(
                torch.tensor([prompt]),
                cache=lease.fork(),
                max_new_tokens=8,
                eos_token_id=None,
                stopping_criteria=[lambda ids, _: seen.append(ids[0].tolist()) or torch.tensor([False])],
            )
        finally:
            Fails.left = None
            lease.store([seen[-1] if seen else prompt], failed=True)
    passes = (at - 1) // 2
    assert prefixes.stats().tokens == (len(prompt) + passes - 1 if passes else 0)
    monkeypatch.undo()
    assert parity(model, prefixes, (seen or [prompt])[-1]) == (len(prompt) + passes - 1 if passes else 0)


@pytest.mark.parametrize(("name", "kind"), [("llama", "static"), ("mamba", "dynamic"), ("jamba", "dynamic")])
def test_what_is_changed_in_place_is_not_stored_of_a_failed_run(name, kind):
    model = model_of(name)
    prefixes = PrefixCache(2**24)
    with prefixes.lease(model, [PROMPTS[0]], kind=kind, length=32) as lease:
        model.generate(torch.tensor(PROMPTS[:1]), cache=lease.fork(), max_new_tokens=2, disable_compile=True)
        assert lease.store([PROMPTS[0]], failed=True) == 0
    assert "changed in place" in next(iter(prefixes.stats().not_stored))


def test_a_recurrent_state_of_other_tokens_than_the_row_is_not_stored():
    model = model_of("mamba")
    prefixes = PrefixCache(2**24)
    with prefixes.lease(model, PROMPTS[:1]) as lease:
        output = model.generate(
            torch.tensor(PROMPTS[:1]), cache=lease.fork(), max_new_tokens=4, **observe(held=lease.columns)
        )
        whole = output[0].tolist()
        assert [lease.store([whole[:-cut]]) for cut in (2, 3)] == [0, 0]  # as if it had ended before
        assert lease.store() == 0
        assert lease.store([whole]) == len(whole) - 1


def test_rows_that_are_more_than_the_runs_are_not_stored():
    """As when contrastive search fails between its candidates and its choice."""
    model = model_of("llama")
    prefixes = PrefixCache(2**24)
    with prefixes.lease(model, PROMPTS[:1]) as lease:
        cache = lease.fork()
        model.generate(torch.tensor(PROMPTS[:1]), cache=cache, max_new_tokens=2)
        cache.layers[0].batch_repeat_interleave(3)
        assert lease.store([PROMPTS[0]], failed=True) == 0
    assert prefixes.stats().tokens == 0
