"""What a person meets: budgets, pins, counts, reasons, the picture, and wrong use."""

from __future__ import annotations

import pytest
import torch

from cached_bytes import A_TOKEN, LAYERS, check_account, compute, expected, nodes_of, small_model
from cached_runs import ids_of, model_of, run
from genscope.kernel_side.caching import growing
from genscope.kernel_side.caching.prefix_cache import PrefixCache
from genscope.kernel_side.caching.tree import Tree
from tiny import tiny_tokenizer


def put(prefixes, ids, model=None):
    with prefixes.lease(model or small_model(), [ids]) as lease:
        compute(lease, [ids], lease.fork())
        return lease.store([ids])


def known(prefixes, ids):
    with prefixes.lease(small_model(), [ids]) as lease:
        return lease.rows[0].known


def test_the_least_recently_used_goes_first():
    prefixes = PrefixCache(12 * A_TOKEN)
    for ids in ([0] * 4, [1] * 4, [2] * 4):
        assert put(prefixes, ids) == 4
    known(prefixes, [0, 0, 5])  # uses the first: looking is using
    put(prefixes, [3] * 4)
    assert [known(prefixes, [one] * 5) for one in (0, 1, 2, 3)] == [4, 0, 4, 4]
    assert prefixes.stats().evictions == 1


def test_a_branch_goes_before_what_it_shares():
    prefixes = PrefixCache(8 * A_TOKEN)
    put(prefixes, [0, 0, 0, 0, 1, 1])
    put(prefixes, [0, 0, 0, 0, 2, 2])
    put(prefixes, [0, 0, 0, 0, 3, 3])
    assert [known(prefixes, [0, 0, 0, 0, one, one, 7]) for one in (1, 2, 3)] == [4, 6, 6]


def test_what_is_larger_than_the_budget_is_refused_and_nothing_goes_for_it():
    prefixes = PrefixCache(12 * A_TOKEN)
    put(prefixes, [0] * 8)
    assert put(prefixes, [1] * 13) == 0
    assert known(prefixes, [0] * 9) == 8
    assert prefixes.stats().not_stored == {"it is larger than the whole cache": 1}
    assert prefixes.stats().evictions == 0


def test_what_is_in_use_stays_and_what_needs_its_place_is_refused():
    prefixes = PrefixCache(12 * A_TOKEN)
    put(prefixes, [0] * 8)
    with prefixes.lease(small_model(), [[0] * 9]) as lease:
        assert put(prefixes, [1] * 5) == 0
        assert prefixes.stats().pinned == 8 * A_TOKEN
        assert lease.fork().get_seq_length() == 8
    assert prefixes.stats().not_stored == {"what could make room is in use, or is what it goes on from": 1}
    assert put(prefixes, [1] * 5) == 5
    assert known(prefixes, [0] * 9) == 0


@pytest.mark.parametrize(("share", "budget"), [(16, 12), (2, 20)])
def test_room_is_made_before_anything_is_added(monkeypatch, share, budget):
    monkeypatch.setattr(growing, "_SHARE", share)
    prefixes = PrefixCache(budget * A_TOKEN)
    add, most = Tree.add, []

    def watched(tree, ids, take):
        def taken(start, stop, room):
            most.append(prefixes.stats().nbytes + (stop - start + room) * A_TOKEN)
            return take(start, stop, room)

        return add(tree, ids, taken)

    monkeypatch.setattr(Tree, "add", watched)
    for one in range(8):
        put(prefixes, [one] * 5)
    assert len(most) == 8
    assert max(most) <= prefixes.max_bytes


def test_a_fork_shares_what_is_known_until_its_first_step():
    prefixes = PrefixCache(2**20)
    put(prefixes, [1, 2, 3, 4])
    with prefixes.lease(small_model(), [[1, 2, 3, 4, 5]]) as lease:
        cache = lease.fork()
        [node] = [one for one in nodes_of(prefixes) if one.ids]
        for layer, pair in zip(cache.layers, node.layers, strict=True):
            assert layer.keys.data_ptr() == pair[0].data_ptr()
        compute(lease, [[1, 2, 3, 4, 5]], cache)
        assert cache.layers[0].keys.data_ptr() != node.layers[0][0].data_ptr()
    check_account(prefixes)


def test_a_run_takes_what_is_split_under_it():
    prefixes = PrefixCache(2**20)
    put(prefixes, [1, 2, 3, 4, 5, 6])
    with prefixes.lease(small_model(), [[1, 2, 3, 4, 5, 6, 7]]) as lease:
        put(prefixes, [1, 2, 3, 9])
        put(prefixes, [1, 9])
        cache = lease.fork()
        for layer in range(LAYERS):
            assert torch.equal(cache.layers[layer].keys, expected([1, 2, 3, 4, 5, 6], layer)[0])


def test_clear_forgets_what_is_in_use_when_it_is_no_longer():
    prefixes = PrefixCache(2**20)
    put(prefixes, [1, 2, 3, 4])
    with prefixes.lease(small_model(), [[1, 2, 3, 4, 5]]) as lease:
        prefixes.clear()
        assert known(prefixes, [1, 2, 3]) == 0
        assert prefixes.stats().nbytes == 4 * A_TOKEN
        assert lease.fork().get_seq_length() == 4
    assert prefixes.stats().nbytes == 0


def test_reasons_and_counts():
    prefixes = PrefixCache(2**20)
    model = small_model()
    put(prefixes, [1, 2, 3, 4])
    put(prefixes, [1, 2, 6, 7])
    ends = []
    for ids in ([1, 2, 5], [1, 2, 3, 4, 5], [1, 2, 3, 4], [1, 2, 3], [5]):
        with prefixes.lease(model, [ids]) as lease:
            [row] = lease.rows
            ends.append((row.known, row.reused, row.end.kind, row.end.position, row.end.asked, row.end.cached))
    assert ends == [
        (2, 2, "differs", 2, 5, (3, 6)),
        (4, 4, "ends", 4, 5, ()),
        (4, 3, "whole", 3, 4, ()),
        (3, 2, "whole", 2, 3, ()),
        (0, 0, "differs", 0, 5, (1,)),
    ]
    stats = prefixes.stats()
    assert (stats.entries, stats.tokens, stats.nbytes) == (2, 6, 6 * A_TOKEN)
    assert (stats.hits, stats.misses) == (5, {"empty": 1, "differs": 1})
    assert (stats.tokens_reused, stats.tokens_asked) == (2 + 2 + 4 + 3 + 2, 4 + 4 + 3 + 5 + 4 + 3 + 1)


def test_a_prompt_of_one_token_is_computed():
    prefixes = PrefixCache(2**20)
    put(prefixes, [1, 2])
    with prefixes.lease(small_model(), [[1]]) as lease:
        assert (lease.columns, lease.rows[0].end.kind) == (0, "whole")
        compute(lease, [[1]], lease.fork())


def test_the_picture():
    prefixes = PrefixCache(2**20)
    assert prefixes.picture() == "empty"
    put(prefixes, [1, 2, 3, 4])
    put(prefixes, [1, 2, 6])
    with prefixes.lease(small_model(), [[1, 2, 6, 7]]):
        assert prefixes.picture().splitlines() == [
            "LlamaForCausalLM, dynamic",
            f"└─ 1 2 (2 tokens, {2 * A_TOKEN:,} bytes)",
            f"   ├─ 3 4 (2 tokens, {2 * A_TOKEN:,} bytes)",
            f"   └─ 6 (1 token, {A_TOKEN:,} bytes, in use by 1)",
        ]


def test_the_picture_with_texts():
    prefixes = PrefixCache(2**20)
    tokenizer = tiny_tokenizer()
    run(model_of("llama"), [tokenizer("the others").input_ids], prefixes, new=1)
    assert "└─ 'the others' (" in prefixes.picture(tokenizer)
    assert "behind 'in'" in _picture_of_t5(tokenizer)


def _picture_of_t5(tokenizer):
    prefixes = PrefixCache(2**20)
    run(model_of("t5"), [[0]], prefixes, sources=[tokenizer("in").input_ids])
    return prefixes.picture(tokenizer)


def test_what_an_encoder_gave_counts_and_goes_with_its_tree():
    model = model_of("t5")
    prefixes = PrefixCache(9_000)
    for seed in range(5):
        run(model, [[0]], prefixes, sources=[ids_of(6, seed)])
        held = {}
        for tree in prefixes._shelf.trees:
            source = tree.root.checkpoint
            pairs = [*source.cross, *(pair for node in tree.nodes for pair in node.layers)]
            tensors = [source.hidden, *(one for pair in pairs for one in pair)]
            held |= {one.untyped_storage().data_ptr(): one.untyped_storage().nbytes() for one in tensors}
        assert prefixes.stats().nbytes == sum(held.values()) <= prefixes.max_bytes
    assert prefixes.stats().evictions > 0
    assert run(model, [[0]], prefixes, sources=[ids_of(6, 4)]).lease.knows_sources
    assert not run(model, [[0]], prefixes, sources=[ids_of(6, 0)]).lease.knows_sources


@pytest.mark.parametrize("name", ["mamba", "jamba"])
def test_recurrent_states_are_counted_and_evicted_whole(name):
    model = model_of(name)
    prefixes = PrefixCache(15_000)
    for seed in range(6):
        done = run(model, [ids_of(9, seed)], prefixes).sequences[0]
        states = [node.checkpoint for node in nodes_of(prefixes) if node.checkpoint is not None]
        assert prefixes.stats().nbytes == sum(one.nbytes for one in states) <= prefixes.max_bytes
    assert prefixes.stats().evictions > 0
    assert run(model, [done], prefixes).lease.reused == len(done) - 1


def test_a_budget_must_be_positive():
    with pytest.raises(ValueError, match="max_bytes is 0"):
        PrefixCache(0)


def test_wrong_use_is_said():
    prefixes, model = PrefixCache(2**20), small_model()
    with pytest.raises(ValueError, match="a prompt without tokens"):
        prefixes.lease(model, [[1], []])
    with pytest.raises(ValueError, match="what the encoder reads"):
        prefixes.lease(model, [[1]], sources=[[1]])
    with pytest.raises(ValueError, match="what the encoder reads"):
        prefixes.lease(model_of("t5"), [[0]])
    with pytest.raises(ValueError, match="needs its length"):
        prefixes.lease(model, [[1]], kind="static")
    with prefixes.lease(model, [[1, 2]], copies=2) as lease:
        assert lease.store([[1, 2], [1, 2]]) == 0  # nothing ran
        compute(lease, [[1, 2]] * 2, lease.fork())
        with pytest.raises(RuntimeError, match="a lease is for one run"):
            lease.fork()
        with pytest.raises(ValueError, match="1 rows of ids were given, but the run has 2"):
            lease.store([[1, 2]])
        with pytest.raises(ValueError, match="row 1 does not begin with its prompt"):
            lease.store([[1, 2], [0, 1, 2]])
        assert lease.store([[1, 2], None]) == 2
    assert lease.store([[1, 2], None]) == 0  # closed


def test_a_fork_that_does_not_hold_what_was_found_is_not_handed_out(monkeypatch):
    model, prefixes = model_of("llama"), PrefixCache(2**24)
    run(model, [ids_of(12)], prefixes)
    monkeypatch.setattr("genscope.kernel_side.caching.lease.refill", lambda *_: None)
    with prefixes.lease(model, [ids_of(12)]) as lease, pytest.raises(RuntimeError, match="holds 0 columns, and 11"):
        lease.fork()
