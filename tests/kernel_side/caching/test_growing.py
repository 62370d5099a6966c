"""A layer that appends in place is the library's in every bit, and writes nowhere but behind what it was given."""

from __future__ import annotations

import gc
import weakref

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers.cache_utils import DynamicLayer

from cached_bytes import A_TOKEN, compute, nodes_of, small_model
from cached_runs import ids_of, model_of, run
from genscope.kernel_side.caching.growing import GrowingLayer, Room, room_behind, with_room
from genscope.kernel_side.caching.prefix_cache import PrefixCache
from genscope.kernel_side.caching.tree import Borrowed
from genscope.kernel_side.tracing import situation

HEADS, KEY, VALUE = 2, 3, 5


def states(rows, tokens, seed=0):
    """Keys and values of different dimensions."""
    draw = torch.Generator().manual_seed(seed)
    return tuple(torch.randn(rows, HEADS, tokens, size, generator=draw) for size in (KEY, VALUE))


def same(one, other):
    """Whether two layers hold the same."""
    assert one.get_seq_length() == other.get_seq_length()
    if one.is_initialized:
        assert torch.equal(one.keys, other.keys)
        assert torch.equal(one.values, other.values)


actions = st.one_of(
    st.tuples(st.just("update"), st.integers(1, 40)),
    st.tuples(st.just("update"), st.just(1)),
    st.tuples(st.just("crop"), st.integers(0, 5)),
    st.tuples(st.just("reorder"), st.integers(0, 5)),
    st.tuples(st.just("repeat"), st.integers(1, 2)),
    st.tuples(st.just("select"), st.integers(0, 5)),
    st.tuples(st.just("reset"), st.none()),
)


@settings(max_examples=200, deadline=None)
@given(done=st.lists(actions, max_size=25), begins=st.booleans())
def test_it_holds_and_returns_what_the_library_s_layer_does(done, begins):
    ours, theirs, rows = GrowingLayer(), DynamicLayer(), 1
    if begins:
        keys, values = (with_room(one, 4) for one in states(1, 6))
        kept = keys.clone(), values.clone()
        ours.hold(keys, values, Room.behind(keys, values, object()))
        theirs.update(keys, values)
    for number, (name, value) in enumerate(done):
        if name == "update":
            new = states(rows, value, number)
            assert all(torch.equal(a, b) for a, b in zip(ours.update(*new), theirs.update(*new), strict=True))
        elif name == "crop" and value < theirs.get_seq_length():
            ours.crop(-value)
            theirs.crop(-value)
        elif name == "reorder" and theirs.is_initialized:
            picked = torch.tensor([value % rows] * rows)
            ours.reorder_cache(picked)
            theirs.reorder_cache(picked)
        elif name == "repeat" and theirs.is_initialized and rows < 4:
            ours.batch_repeat_interleave(value)
            theirs.batch_repeat_interleave(value)
            rows *= value
        elif name == "select" and theirs.is_initialized:
            picked = torch.tensor([value % rows])
            ours.batch_select_indices(picked)
            theirs.batch_select_indices(picked)
            rows = 1
        elif name == "reset":
            ours.reset()
            theirs.reset()
            rows = 1
        same(ours, theirs)
    if begins:
        assert torch.equal(keys, kept[0])
        assert torch.equal(values, kept[1])


def test_it_copies_when_its_room_is_used_up_and_no_earlier():
    layer, places = GrowingLayer(), []
    layer.update(*states(1, 640))
    for number in range(80):
        layer.update(*states(1, 1, number))
        places.append(layer.keys.data_ptr())
    assert places.index(places[-1]) == 41  # the one that made the room, and a sixteenth of 640
    assert len(set(places)) == 2
    assert layer.keys.untyped_storage().nbytes() == (681 + 1 + 681 // 16) * HEADS * KEY * 4


def test_where_rows_are_picked_in_every_step_no_room_is_made():
    layer = GrowingLayer()
    layer.update(*states(2, 5))
    for number in range(3):
        layer.reorder_cache(torch.tensor([1, 0]))
        layer.update(*states(2, 1, number))
        assert layer.keys.untyped_storage().nbytes() == layer.keys.nbytes


def test_nothing_is_written_before_what_was_given():
    keys, values = (with_room(one, 8) for one in states(1, 6))
    before = keys.clone(), values.clone()
    layer = GrowingLayer()
    layer.hold(keys, values, Room.behind(keys, values, object()))
    layer.update(*states(1, 2, 1))
    assert layer.keys.data_ptr() == keys.data_ptr()
    layer.crop(-3)  # one position further than what is its own
    layer.update(*states(1, 1, 2))
    assert layer.keys.data_ptr() != keys.data_ptr()
    assert torch.equal(keys, before[0])
    assert torch.equal(values, before[1])


def test_behind_its_own_positions_a_cropped_layer_writes_in_place_again():
    keys, values = (with_room(one, 8) for one in states(1, 6))
    layer = GrowingLayer()
    layer.hold(keys, values, Room.behind(keys, values, object()))
    layer.update(*states(1, 3, 1))
    layer.crop(-3)
    layer.update(*states(1, 2, 2))
    assert layer.keys.data_ptr() == keys.data_ptr()


def test_without_room_what_was_given_is_copied_once():
    keys, values = states(1, 6)
    layer = GrowingLayer()
    layer.hold(keys, values)
    layer.update(*states(1, 1, 1))
    at = layer.keys.data_ptr()
    assert at != keys.data_ptr()
    layer.update(*states(1, 1, 2))
    assert layer.keys.data_ptr() == at


@pytest.mark.parametrize("cut", [lambda one: one[:1], lambda one: one[:, :, ::2]])
def test_what_was_cut_from_its_tensors_is_joined_and_not_written_behind(cut):
    ours, theirs = GrowingLayer(), DynamicLayer()
    for layer in (ours, theirs):
        for number in range(3):
            layer.update(*states(2, 4, number))
        layer.keys, layer.values = cut(layer.keys), cut(layer.values)
        layer.update(*states(len(layer.keys), 1, 9))
    same(ours, theirs)


def test_a_layer_that_is_reset_gives_its_room_back():
    keys, values = (with_room(one, 8) for one in states(1, 6))
    borrowed = Borrowed()
    room = weakref.ref(borrowed)
    layer = GrowingLayer()
    layer.hold(keys, values, Room.behind(keys, values, borrowed))
    del borrowed
    assert room() is not None
    layer.reset()
    assert room() is None


def test_tensors_of_inference_mode_are_written_in_inference_mode_only():
    with torch.inference_mode():
        keys, values = (with_room(one, 8) for one in states(1, 6))
    layer = GrowingLayer()
    layer.hold(keys, values, Room.behind(keys, values, object()))
    layer.update(*states(1, 1, 1))
    assert layer.keys.data_ptr() != keys.data_ptr()
    assert layer.get_seq_length() == 7


def test_gradients_flow_as_through_the_library_s_layer():
    layer = GrowingLayer()
    given = [tuple(one.requires_grad_() for one in states(1, 2, seed)) for seed in range(3)]
    # What was returned is used in the backward pass, so it must not have been written to.
    sum(layer.update(*one)[0].square().sum() for one in given).backward()
    for often, (keys, _) in zip((3, 2, 1), given, strict=True):
        assert torch.equal(keys.grad, often * 2 * keys)


def put(prefixes, ids):
    """Make ids known."""
    with prefixes.lease(small_model(), [ids]) as lease:
        compute(lease, [ids], lease.fork())
        return lease.store([ids])


def test_one_run_at_a_time_goes_on_in_the_room_behind_a_prefix():
    prefixes, model = PrefixCache(2**20), small_model()
    known = [at % 7 for at in range(64)]
    put(prefixes, known)
    [node] = [one for one in nodes_of(prefixes) if one.ids]
    place = node.layers[0][0].data_ptr()

    def begin(token):
        lease = prefixes.lease(model, [[*known, token]])
        cache = lease.fork()
        compute(lease, [[*known, token]], cache)
        return lease, cache

    first, in_room = begin(1)
    second, copied = begin(2)
    assert in_room.layers[0].keys.data_ptr() == place
    assert copied.layers[0].keys.data_ptr() != place
    assert not torch.equal(in_room.layers[0].keys[:, :, 64:], copied.layers[0].keys[:, :, 64:])
    first.close()
    second.close()
    # Who kept the cache keeps the room.
    third, copied = begin(3)
    assert copied.layers[0].keys.data_ptr() != place
    third.close()
    del in_room
    gc.collect()
    fourth, again = begin(4)
    assert again.layers[0].keys.data_ptr() == place
    fourth.close()


def test_several_rows_do_not_go_on_in_it():
    prefixes, model = PrefixCache(2**20), small_model()
    known = [at % 7 for at in range(64)]
    put(prefixes, known)
    [node] = [one for one in nodes_of(prefixes) if one.ids]
    with prefixes.lease(model, [[*known, 1]], copies=2) as two:
        cache = two.fork()
        assert node.lend() is not None
        compute(two, [[*known, 1]] * 2, cache)
        assert cache.layers[0].keys.data_ptr() != node.layers[0][0].data_ptr()


def test_a_whole_sequence_has_room_and_its_parts_have_what_is_left():
    prefixes = PrefixCache(2**20)
    put(prefixes, [at % 7 for at in range(64)])
    whole = prefixes.stats().nbytes
    put(prefixes, [*[at % 7 for at in range(32)], 5, 5, 5])
    assert whole == (64 + room_behind(64)) * A_TOKEN == 68 * A_TOKEN
    held = [(len(node.ids), len(node.children), node.nbytes // A_TOKEN) for node in nodes_of(prefixes) if node.ids]
    assert sorted(held) == [(3, 0, 3), (32, 0, 32), (32, 2, 34)]
    put(prefixes, [*[at % 7 for at in range(48)], 5, 5, 5])
    held = [(len(node.ids), len(node.children), node.nbytes // A_TOKEN) for node in nodes_of(prefixes) if node.ids]
    assert sorted(held) == [(3, 0, 3), (3, 0, 3), (16, 0, 16), (16, 2, 16), (32, 2, 34)]


@pytest.mark.parametrize("attn", ["eager", "sdpa"])
@pytest.mark.parametrize("name", ["llama", "gpt2"])
@pytest.mark.parametrize(
    "how", [{}, {"num_beams": 3}, {"prompt_lookup_num_tokens": 3}, {"num_return_sequences": 2, "do_sample": True}]
)
def test_room_changes_no_bit_of_a_run(name, attn, how):
    model = model_of(name, attn)
    prompt = ids_of(20)
    torch.manual_seed(0)
    plain = run(model, [prompt], new=60, **how)
    torch.manual_seed(0)
    grown = run(model, [prompt], PrefixCache(2**24), new=60, **how)
    assert torch.equal(plain.logits, grown.logits)
    assert plain.sequences == grown.sequences


def test_executions_take_it_for_the_library_s():
    assert GrowingLayer in situation._LAYERS
