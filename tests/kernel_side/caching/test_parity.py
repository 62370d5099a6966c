"""Cold and warm runs give the same tokens, and logits within 1e-4, wherever the prefix ends; and warm ones do hit."""

from __future__ import annotations

import pytest
import torch

from cached_runs import TOLERANCE, assert_same, ids_of, model_of, run
from genscope.kernel_side.caching.prefix_cache import PrefixCache
from tiny import SLIDING_WINDOW

LENGTH = 20  # past the sliding windows
SPLITS = (1, LENGTH // 2, LENGTH - 1, LENGTH)


def split(model, at):
    """A prompt that was run before, and one that leaves it after `at` tokens."""
    first = ids_of(LENGTH)
    if model.config.is_encoder_decoder:
        first[0] = model.config.decoder_start_token_id
    return first, first[:at] + ids_of(LENGTH - at, seed=7)


def source_of(model):
    return [ids_of(9, seed=5)] if model.config.is_encoder_decoder else None


@pytest.mark.parametrize("at", SPLITS)
@pytest.mark.parametrize("kind", ["dynamic", "static"])
@pytest.mark.parametrize("name", ["llama", "gpt2", "gemma3", "mistral", "t5", "bart"])
def test_a_warm_run_is_a_cold_one(name, kind, at):
    model = model_of(name)
    first, prompt = split(model, at)
    prefixes = PrefixCache(2**24)
    common = {"kind": kind, "sources": source_of(model)}
    run(model, [first], prefixes, **common)
    warm = run(model, [prompt], prefixes, **common)
    assert_same(run(model, [prompt], **common), warm)
    assert warm.lease.rows[0].reused == min(at, LENGTH - 1)
    assert warm.lease.columns == min(at, LENGTH - 1)
    assert warm.lease.rows[0].end.kind == ("whole" if at == LENGTH else "differs")


@pytest.mark.parametrize("attn", ["eager", "sdpa"])
@pytest.mark.parametrize("name", ["gemma3", "mistral"])
def test_windows_that_remember_change_no_bit_of_a_run(name, attn):
    model = model_of(name, attn)
    prompt = ids_of(LENGTH)
    plain = run(model, [prompt], new=2 * SLIDING_WINDOW)
    remembered = run(model, [prompt], PrefixCache(2**24), new=2 * SLIDING_WINDOW)
    assert torch.equal(plain.logits, remembered.logits)
    assert plain.sequences == remembered.sequences


@pytest.mark.parametrize("name", ["llama", "gpt2", "gemma3", "mistral"])
def test_rows_of_a_batch_find_their_own_prefixes(name):
    model = model_of(name)
    prefixes = PrefixCache(2**24)
    known = [ids_of(15), ids_of(9, 1), ids_of(12, 2)]
    for prompt in known:
        run(model, [prompt], prefixes)
    # 3 columns of padding and 10 known; none of padding and 14 known; 1 of padding and 13 known.
    batch = [known[0][:10] + ids_of(2, 8), [*known[0][:14], 5], [*known[0][:13], 7]]
    cold, warm = run(model, batch), run(model, batch, prefixes)
    assert_same(cold, warm)
    assert [(row.reused, row.known) for row in warm.lease.rows] == [(10, 10), (13, 14), (12, 13)]
    assert [row.end.kind for row in warm.lease.rows] == ["differs", "batch", "batch"]


def test_rows_that_are_all_padding_where_others_begin_are_filled_with_nothing():
    model = model_of("gemma3")
    prefixes = PrefixCache(2**24)
    long, short = ids_of(19), ids_of(4, 1)
    run(model, [long], prefixes)
    run(model, [short], prefixes)
    batch = [long[:12] + ids_of(7, 9), short]
    warm = run(model, batch, prefixes)
    assert_same(run(model, batch), warm)
    assert [row.reused for row in warm.lease.rows] == [12, 0]


def test_what_a_padded_row_stored_serves_a_run_without_padding():
    model = model_of("gemma3")
    prefixes = PrefixCache(2**24)
    batch = [ids_of(17), ids_of(11, 1)]
    run(model, batch, prefixes)
    warm = run(model, [batch[1]], prefixes)
    assert_same(run(model, [batch[1]]), warm)
    assert warm.lease.reused == 10


@pytest.mark.parametrize("settings", [{"num_beams": 3}, {"num_beams": 3, "num_return_sequences": 2}])
@pytest.mark.parametrize("name", ["llama", "gemma3", "t5", "bart"])
def test_beams_go_on_from_a_prefix(name, settings):
    model = model_of(name)
    first, prompt = split(model, 13)
    prefixes = PrefixCache(2**24)
    run(model, [first], prefixes, sources=source_of(model))
    warm = run(model, [prompt], prefixes, sources=source_of(model), **settings)
    assert_same(run(model, [prompt], sources=source_of(model), **settings), warm)
    assert warm.lease.reused == 13
    # Of beams the prompt is stored, of which all rows have the same.
    again = run(model, [prompt], prefixes, sources=source_of(model))
    assert_same(run(model, [prompt], sources=source_of(model)), again)
    assert again.lease.reused == LENGTH - 1


@pytest.mark.parametrize("kind", ["dynamic", "static"])
def test_several_sequences_share_a_prefix_and_store_their_own_ends(kind):
    model = model_of("gemma3")
    prefixes = PrefixCache(2**24)
    batch = [ids_of(14), ids_of(11, 1)]
    for prompt in batch:
        run(model, [prompt], prefixes, kind=kind)
    settings = {"do_sample": True, "num_return_sequences": 3, "kind": kind}
    torch.manual_seed(3)
    cold = run(model, batch, **settings)
    torch.manual_seed(3)
    warm = run(model, batch, prefixes, **settings)
    assert_same(cold, warm)
    assert [row.reused for row in warm.lease.rows] == [13, 10]
    for sequence in warm.sequences:
        again = run(model, [sequence], prefixes, kind=kind)
        assert again.lease.reused == len(sequence) - 1
        assert_same(run(model, [sequence], kind=kind), again)


@pytest.mark.parametrize("name", ["mamba", "jamba"])
def test_a_recurrent_state_is_taken_up_where_one_token_is_left(name):
    model = model_of(name)
    prefixes = PrefixCache(2**24)
    done = run(model, [ids_of(11)], prefixes).sequences[0]
    for prompt in (done, [*done[:-1], 77]):
        warm = run(model, [prompt], prefixes, store=False)
        assert_same(run(model, [prompt]), warm)
        assert (warm.lease.reused, warm.lease.rows[0].end.kind) == (len(done) - 1, "whole")


@pytest.mark.parametrize("name", ["mamba", "jamba"])
def test_a_recurrent_state_is_taken_up_nowhere_else_and_the_reason_is_said(name):
    model = model_of(name)
    prefixes = PrefixCache(2**24)
    done = run(model, [ids_of(11)], prefixes).sequences[0]
    for prompt in ([*done, 5], done[:11], done[:5] + ids_of(6, 3)):
        warm = run(model, [prompt], prefixes, store=False)
        assert torch.equal(warm.logits, run(model, [prompt]).logits)
        assert (warm.lease.reused, warm.lease.rows[0].end.kind) == (0, "recurrent")
    assert "known after 16 tokens, and 2 would be left" in run(model, [[*done, 5]], prefixes).lease.rows[0].end.message


@pytest.mark.parametrize("name", ["mamba", "jamba"])
def test_recurrent_states_of_rows_of_one_length_are_stacked_and_repeated(name):
    model = model_of(name)
    prefixes = PrefixCache(2**24)
    batch = list(run(model, [ids_of(11), ids_of(11, 1)], prefixes).sequences)
    settings = {"do_sample": True, "num_return_sequences": 2}
    torch.manual_seed(3)
    cold = run(model, batch, **settings)
    torch.manual_seed(3)
    warm = run(model, batch, prefixes, **settings)
    assert_same(cold, warm)
    assert warm.lease.reused == 2 * 16


@pytest.mark.parametrize("name", ["t5", "bart"])
def test_an_encoder_does_not_read_the_same_again(name):
    model = model_of(name)
    prefixes = PrefixCache(2**24)
    start = [[model.config.decoder_start_token_id]] * 2
    sources = [ids_of(9, 5), ids_of(6, 6)]
    run(model, start, prefixes, sources=sources)
    for read, reused in ((sources, True), (sources[:1], True), ([sources[0][:-1], sources[1]], False)):
        begin = start[: len(read)]
        warm = run(model, begin, prefixes, sources=read, store=False)
        assert_same(run(model, begin, sources=read), warm)
        assert warm.lease.knows_sources is reused
        assert (warm.lease.encoder_outputs() is not None) is reused
    assert [row.source for row in warm.lease.rows] == [False, True]
    assert warm.lease.rows[0].end.kind == "source"


def test_a_prefix_in_double_precision_agrees_to_its_last_digits():
    """The differences above are rounding: in float64 they are gone."""
    model = model_of("gemma3").double()
    prefixes = PrefixCache(2**24)
    prompt = ids_of(LENGTH)
    run(model, [prompt], prefixes)
    warm = run(model, [prompt], prefixes)
    # Steps carry logits in float32.
    assert float((warm.logits - run(model, [prompt]).logits).abs().max()) <= TOLERANCE / 100
    assert warm.lease.reused == LENGTH - 1


@pytest.mark.parametrize("name", ["mamba", "jamba"])
def test_recurrent_rows_of_different_lengths_are_computed_and_not_stored(name):
    model = model_of(name)
    prefixes = PrefixCache(2**24)
    rows = [run(model, [ids_of(length)], prefixes).sequences[0] for length in (11, 8)]
    warm = run(model, rows, prefixes)
    assert torch.equal(warm.logits, run(model, rows).logits)
    assert (warm.lease.reused, [row.end.kind for row in warm.lease.rows]) == (0, ["recurrent", "recurrent"])
    assert "rows of one length" in warm.lease.rows[0].end.message
    assert prefixes.stats().not_stored == {"a recurrent state behind padding may not be that of its tokens": 1}
