"""Every strategy goes on from a prefix, with the whole ids before its processors."""

from __future__ import annotations

import pytest
import torch

from cached_runs import assert_same, ids_of, model_of, run
from genscope.kernel_side.caching.prefix_cache import PrefixCache
from genscope.kernel_side.decoding.contrastive import ContrastiveSearch
from genscope.kernel_side.decoding.diverse_beam import DiverseBeamSearch
from genscope.kernel_side.decoding.dola import DoLa
from genscope.kernel_side.decoding.model_view import view_of
from genscope.kernel_side.decoding.observe import observe
from genscope.kernel_side.streaming.base import OutputStreamer

LENGTH, SHARED = 20, 13


def repeated():
    """A prompt with repetitions, for look-ups to find something, and one that shares most of it."""
    begin = ids_of(6) * 2 + ids_of(1)
    return begin + ids_of(7, 4), begin + ids_of(6)[:4] + ids_of(3, 5)


ASSISTED = {
    "prompt lookup": {"prompt_lookup_num_tokens": 3},
    "early exit": {"assistant_early_exit": 1, "num_assistant_tokens": 3},
    "draft model": {"num_assistant_tokens": 3},
}


def assisted_by(how, model):
    return {"assistant": model_of("llama", seed=1) if how == "draft model" else None, **ASSISTED[how]}


@pytest.mark.parametrize("how", ASSISTED)
@pytest.mark.parametrize("name", ["llama", "gemma3"])
def test_assisted_decoding_goes_on_from_a_prefix(name, how):
    model = view_of(model_of(name))
    first, prompt = repeated()
    prefixes = PrefixCache(2**24)
    settings = {"repetition_penalty": 1.7, "new": 12, **assisted_by(how, model)}
    run(model, [first], prefixes, **settings)
    warm = run(model, [prompt], prefixes, **settings)
    assert_same(run(model, [prompt], **settings), warm)
    assert warm.lease.reused == SHARED
    # What it stored, with drafts taken back, is right too: past the window, and to the end.
    again = run(model, [warm.sequences[0]], prefixes)
    assert again.lease.reused == len(warm.sequences[0]) - 1
    assert_same(run(model, [warm.sequences[0]]), again)


def test_without_being_told_the_librarys_assisted_loop_is_wrong():
    """What `held` is for: transformers 5.24 feeds the whole ids onto the prefix. If this fails, it may go."""
    model = model_of("llama")
    prompt = repeated()[0]
    prefixes = PrefixCache(2**24)
    run(model, [prompt], prefixes)
    settings = {"max_new_tokens": 6, "do_sample": False, "eos_token_id": None, **ASSISTED["prompt lookup"]}
    ids = torch.tensor([prompt])
    found = []
    for told in (True, False):
        with prefixes.lease(model, [prompt]) as lease:
            steps = []
            streamer = OutputStreamer(steps.append, fields=["logits"])
            held = lease.columns if told else 0
            model.generate(ids, cache=lease.fork(), **settings, **observe(streamer, held=held))
            found.append(steps[0].logits[0])
    right = run(model, [prompt]).logits[0]
    assert float((found[0] - right).abs().max()) < 1e-4
    assert float((found[1] - right).abs().max()) > 0.1


@pytest.mark.parametrize("name", ["llama", "t5", "mamba"])
def test_processors_see_the_whole_prompt(name):
    model = model_of(name)
    prefixes = PrefixCache(2**24)
    sources = [ids_of(8, 5)] if name == "t5" else None
    prompt = ([0] if name == "t5" else []) + ids_of(LENGTH)
    prompt = run(model, [prompt], prefixes, sources=sources).sequences[0]
    seen = []

    def look(input_ids, scores):
        seen.append(input_ids[0].tolist())
        return scores

    warm = run(model, [prompt], prefixes, sources=sources, logits_processor=[look])
    assert warm.lease.reused == len(prompt) - 1
    assert seen[0] == prompt


@pytest.mark.parametrize("name", ["llama", "gemma3"])
def test_dola_goes_on_from_a_prefix(name):
    model = model_of(name)
    prefixes = PrefixCache(2**24)
    first, prompt = repeated()
    loop = DoLa("low")
    run(model, [first], prefixes, loop=loop)
    warm = run(model, [prompt], prefixes, loop=loop)
    assert_same(run(model, [prompt], loop=loop), warm)
    assert warm.lease.reused == SHARED


def test_diverse_beams_go_on_from_a_prefix():
    model = model_of("gemma3")
    prefixes = PrefixCache(2**24)
    first, prompt = repeated()
    settings = {"loop": DiverseBeamSearch(2, 0.5), "num_beams": 4}
    run(model, [first], prefixes)
    warm = run(model, [prompt], prefixes, **settings)
    assert_same(run(model, [prompt], **settings), warm)
    assert warm.lease.reused == SHARED


def test_contrastive_search_fills_a_fork_and_says_why_it_takes_none_up():
    model = model_of("gemma3")
    prefixes = PrefixCache(2**24)
    prompt = repeated()[0]
    loop = ContrastiveSearch(0.6, 3)
    why = "contrastive search compares with hidden states of every token"
    run(model, [prompt], prefixes)
    stored = run(model, [prompt], prefixes, loop=loop, only_store=why)
    assert stored.sequences == run(model, [prompt], loop=loop).sequences
    assert (stored.lease.reused, stored.lease.rows[0].end.message) == (0, why)
    warm = run(model, stored.sequences, prefixes)
    assert_same(run(model, stored.sequences), warm)
    assert warm.lease.reused == len(stored.sequences[0]) - 1


def test_guidance_goes_on_from_a_prefix():
    model = model_of("llama")
    prefixes = PrefixCache(2**24)
    first, prompt = repeated()
    settings = {"guidance_scale": 1.5, "negative_prompt_ids": torch.tensor([ids_of(4, 8)])}
    run(model, [first], prefixes)
    warm = run(model, [prompt], prefixes, **settings)
    assert_same(run(model, [prompt], **settings), warm)
    assert warm.lease.reused == SHARED


def test_states_of_a_warm_run_are_those_of_the_tokens_that_it_computed():
    model = model_of("llama", "eager")
    prefixes = PrefixCache(2**24)
    prompt = ids_of(LENGTH)
    run(model, [prompt], prefixes)
    steps = {}
    for held in (0, LENGTH - 1):
        with prefixes.lease(model, [prompt], only_store=None if held else "cold") as lease:
            steps[held] = []
            streamer = OutputStreamer(steps[held].append, fields=["hidden_states", "attentions"])
            settings = {"max_new_tokens": 4, "eos_token_id": None, **ASSISTED["prompt lookup"]}
            observing = observe(streamer, held=lease.columns)
            model.generate(torch.tensor([prompt]), cache=lease.fork(), **settings, **observing)
    cold, warm = (steps[held][0] for held in (0, LENGTH - 1))
    for name in ("own_hidden_states", "own_attentions"):
        for ours, theirs in zip(getattr(warm, name)[0], getattr(cold, name)[0], strict=True):
            assert ours.shape[-2] == 1
            assert torch.allclose(ours[..., -1:, :], theirs[..., -1:, :], atol=1e-5)
