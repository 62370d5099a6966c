"""Whatever decides keys and values makes a run miss when it changes, and says so; what does not, does not."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from transformers import LlamaConfig, LlamaForCausalLM, cache_utils
from transformers.cache_utils import DynamicLayer

from cached_runs import assert_same, ids_of, run
from genscope.kernel_side.caching.key import LOOKED_AT, Seen, key_of, longest_exact, why_not
from genscope.kernel_side.caching.layers import UncacheableError, fresh_cache
from genscope.kernel_side.caching.prefix_cache import PrefixCache
from genscope.kernel_side.decoding.model_view import view_of
from tiny import tiny_model

PROMPT = ids_of(12)


def known(model, **kwargs):
    prefixes = PrefixCache(2**24)
    run(model, [PROMPT], prefixes, **kwargs)
    assert run(model, [PROMPT], prefixes, store=False, **kwargs).lease.reused == len(PROMPT) - 1
    return prefixes


def end_of(model, prefixes, **kwargs):
    """Run what is known of the model as it was; return the reason, after checking that the run is right."""
    warm = run(model, [PROMPT], prefixes, store=False, **kwargs)
    assert_same(run(model, [PROMPT], **kwargs), warm)
    assert warm.lease.reused == 0
    return warm.lease.rows[0].end


def edit(how, weight):
    with torch.no_grad():
        if how == "in place":
            weight.mul_(1.5)
        elif how == "one value":
            weight[3, 5] += 0.25
        elif how == "one value, in inference mode":
            with torch.inference_mode():
                weight[3, 5] += 0.25
        elif how == "through data":
            weight.data[3, 5] += 0.25
        elif how == "signs, through data":
            weight.data.neg_()
        elif how == "rows swapped, through data":
            weight.data[[0, 1]] = weight.data[[1, 0]]
        elif how == "columns swapped, through data":
            weight.data[:, [0, 1]] = weight.data[:, [1, 0]]
        elif how == "through numpy":
            weight.detach().numpy()[3, 5] += 0.25
        else:
            weight.data = weight.data * 1.5


EDITS = [
    "in place",
    "one value",
    "one value, in inference mode",
    "through data",
    "signs, through data",
    "rows swapped, through data",
    "columns swapped, through data",
    "through numpy",
    "other data",
]


@pytest.mark.parametrize("how", EDITS)
def test_weights_edited_in_place_miss(how):
    model = tiny_model("llama")
    prefixes = known(model)
    edit(how, model.model.layers[0].self_attn.k_proj.weight)
    end = end_of(model, prefixes)
    assert (end.kind, end.message) == ("changed", "what is known is of the model with other weights")
    assert prefixes.stats().nbytes == 0  # torch counts upwards: it can never be of use again


def test_large_weights_are_looked_at_in_part_unless_thoroughly():
    with torch.random.fork_rng(devices=[]):
        model = LlamaForCausalLM(
            LlamaConfig(
                vocab_size=1000, hidden_size=64, intermediate_size=64, num_hidden_layers=1, num_attention_heads=2
            )
        ).eval()
    weight = model.lm_head.weight
    assert weight.numel() > LOOKED_AT
    before, all_before = key_of(Seen(model), "dynamic"), key_of(Seen(model), "dynamic", thorough=True)
    weight.data[1, 1] += 1.0  # of the rows that are left out
    assert before.differences(key_of(Seen(model), "dynamic")) == ()
    assert all_before.differences(key_of(Seen(model), "dynamic", thorough=True)) == ("weights",)
    weight.data[:, 1] += 1.0
    assert before.differences(key_of(Seen(model), "dynamic")) == ("weights",)


def test_another_dtype_misses():
    model = tiny_model("llama")
    prefixes = known(model)
    model.double()
    assert end_of(model, prefixes).message.endswith("other dtype")


def test_another_attention_implementation_misses_and_the_first_is_still_known():
    model = tiny_model("llama", "sdpa")
    prefixes = known(model)
    model.set_attn_implementation("eager")
    assert end_of(model, prefixes).message.endswith("other attention implementation")
    model.set_attn_implementation("sdpa")
    assert run(model, [PROMPT], prefixes).lease.reused == len(PROMPT) - 1


def test_another_kind_of_cache_misses():
    model = tiny_model("llama")
    assert end_of(model, known(model), kind="static").message.endswith("other cache class")


def test_another_execution_misses():
    model = tiny_model("llama")
    prefixes = known(model)
    with prefixes.lease(model, [PROMPT], execution="compiled") as lease:
        assert lease.rows[0].end.message.endswith("other execution")


def test_a_setting_of_rope_misses():
    model = tiny_model("llama")
    prefixes = known(model)
    model.config.rope_parameters = {**model.config.rope_parameters, "rope_theta": 500.0}
    assert end_of(model, prefixes).message.endswith("other settings")


def test_a_number_set_on_a_module_misses():
    model = tiny_model("llama")
    prefixes = known(model)
    model.model.layers[1].self_attn.scaling *= 2
    assert end_of(model, prefixes).message.endswith("other modules")


class Adapter(nn.Module):
    """As those of peft: with the names of what is active, and scales by name."""

    def __init__(self, base):
        super().__init__()
        self.base = base
        self.low = nn.Linear(base.in_features, base.out_features, bias=False)
        self.scaling = {"one": 0.5, "two": 2.0}
        self.active_adapter = ["one"]
        self.disabled = False

    def forward(self, x):
        if self.disabled:
            return self.base(x)
        return self.base(x) + self.scaling[self.active_adapter[0]] * self.low(x)


def test_adapters_their_scale_and_switches_miss_and_come_back():
    model = tiny_model("llama")
    prefixes = known(model)
    attention = model.model.layers[0].self_attn
    adapter = attention.v_proj = Adapter(attention.v_proj).eval()
    assert end_of(model, prefixes).message.endswith("other adapters")
    run(model, [PROMPT], prefixes)

    adapter.active_adapter = ["two"]
    assert end_of(model, prefixes).message.endswith("other adapters")
    adapter.active_adapter = ["one"]
    assert run(model, [PROMPT], prefixes).lease.reused == len(PROMPT) - 1
    adapter.scaling["one"] = 0.75
    assert end_of(model, prefixes).message.endswith("other adapters")
    adapter.scaling["one"] = 0.5
    adapter.disabled = True
    assert end_of(model, prefixes).message.endswith("other adapters")
    adapter.disabled = False
    assert run(model, [PROMPT], prefixes).lease.reused == len(PROMPT) - 1


def test_a_view_shares_with_its_model():
    model = tiny_model("llama")
    model.model.bound = model.model.get_input_embeddings  # the view's is bound to the view
    assert run(view_of(model), [PROMPT], known(model)).lease.reused == len(PROMPT) - 1
    assert end_of(view_of(model, attention="sdpa"), known(model)).message.endswith("other attention implementation")


def test_another_model_shares_nothing():
    prefixes = known(tiny_model("llama"))
    assert end_of(tiny_model("llama", seed=1), prefixes).kind == "empty"


def test_a_model_that_is_gone_takes_its_tree_with_it():
    prefixes = known(tiny_model("llama"))
    assert prefixes.stats().nbytes > 0
    run(tiny_model("llama", seed=1), [PROMPT], prefixes, store=False)
    assert prefixes.stats().nbytes == 0


@pytest.mark.parametrize("what", ["generate", "states", "static", "beams"])
def test_runs_leave_the_key_as_it_is(what):
    model = tiny_model("gemma3")
    before = key_of(Seen(model), "dynamic")
    states = {"output_hidden_states": True, "output_attentions": True, "return_dict_in_generate": True}
    settings = {"states": states, "static": {"cache_implementation": "static"}, "beams": {"num_beams": 2}}
    model.generate(torch.tensor([PROMPT]), max_new_tokens=3, disable_compile=True, **settings.get(what, {}))
    assert before.differences(key_of(Seen(model), "dynamic")) == ()
    assert why_not(Seen(model)) is None


def test_a_weight_that_changes_during_a_run_keeps_it_from_being_stored():
    model = tiny_model("llama")
    prefixes = PrefixCache(2**24)

    def stop():
        with torch.no_grad():
            model.lm_head.weight.mul_(1.01)
        return False

    run(model, [PROMPT], prefixes, stop=stop)
    assert prefixes.stats().tokens == 0
    assert prefixes.stats().not_stored == {"the model was changed during the run: weights": 1}


def refusal(model, **kwargs):
    """Run a model of which nothing can be known, and return why; the run itself goes as always."""
    prefixes = PrefixCache(2**24)
    with prefixes.lease(model, [PROMPT], **kwargs) as lease:
        assert lease.fork() is None
        assert lease.store() == 0
        assert lease.columns == 0
        assert lease.rows[0].end.kind == "refused"
    assert prefixes.stats().misses == {"refused": 1}
    return lease.rows[0].end.message


def test_a_forward_hook_is_refused():
    model = tiny_model("llama")
    handle = model.model.layers[1].register_forward_hook(lambda *args: None)
    assert refusal(model) == "a forward hook on model.layers.1 may change what it computes"
    handle.remove()
    assert why_not(Seen(model)) is None


def test_a_hook_on_all_modules_is_refused():
    handle = nn.modules.module.register_module_forward_hook(lambda *args: None)
    try:
        assert "a forward hook on all modules" in refusal(tiny_model("llama"))
    finally:
        handle.remove()


def test_training_mode_is_refused():
    model = tiny_model("llama")
    model.model.layers[0].train()
    assert "model.layers.0 is in training mode" in refusal(model)


def test_a_replaced_forward_is_refused():
    model = tiny_model("llama")
    model.model.layers[0].forward = model.model.layers[1].forward
    assert "forward() of model.layers.0 was replaced" in refusal(model)


def test_weights_that_are_not_in_memory_are_refused():
    model = tiny_model("llama")
    model.lm_head = nn.Linear(32, 300, bias=False, device="meta").eval()
    assert "not in memory" in refusal(model)


def test_weights_whose_changes_are_not_counted_are_refused():
    with torch.inference_mode():
        model = tiny_model("llama")
    assert "made in inference mode" in refusal(model)


@pytest.mark.parametrize("kind", ["quantized", "offloaded"])
def test_caches_that_round_or_move_are_refused(kind):
    assert f"a cache of the kind '{kind}'" in refusal(tiny_model("llama"), kind=kind)


def test_an_unknown_class_of_layer_is_refused(monkeypatch):
    class More(DynamicLayer):
        pass

    monkeypatch.setitem(cache_utils.DYNAMIC_LAYER_TYPE_MAPPING, "full_attention", More)
    assert "layers of the class More are not known" in refusal(tiny_model("llama"))


def test_a_model_with_a_cache_of_its_own_is_refused(monkeypatch):
    model = tiny_model("llama")
    monkeypatch.setattr(type(model), "_supports_default_dynamic_cache", classmethod(lambda _: False))
    with pytest.raises(UncacheableError, match="cache of its own kind"):
        fresh_cache(model, "dynamic")


def test_bidirectional_attention_is_refused():
    model = tiny_model("gemma3")
    model.config.use_bidirectional_attention = True
    assert "look at later ones" in refusal(model)


def rope(kind, **more):
    parameters = {"rope_type": kind, "rope_theta": 10000.0, **more}
    sizes = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 1, "num_attention_heads": 4}
    with torch.random.fork_rng(devices=[]):
        config = LlamaConfig(vocab_size=300, max_position_embeddings=32, rope_parameters=parameters, **sizes)
        return LlamaForCausalLM(config).eval()


def test_rope_that_depends_on_the_length_is_reused_below_its_limit_only():
    model = rope("dynamic", factor=2.0)
    assert longest_exact(model) == 31
    prefixes = known(model)
    assert "more than 31, and the run may get to 32" in refusal(model, length=32)
    assert "any length" in refusal(model)
    long = run(model, [ids_of(30, 1)], prefixes, new=12)
    assert long.lease.rows[0].end.kind == "refused"
    warm = run(model, [PROMPT], prefixes)
    assert_same(run(model, [PROMPT]), warm)


@pytest.mark.parametrize("kind", ["default", "linear", "yarn"])
def test_other_rope_does_not_depend_on_the_length(kind):
    assert longest_exact(rope(kind, **({} if kind == "default" else {"factor": 2.0}))) is None


def test_longrope_switches_at_its_original_length():
    short = {"short_factor": [1.0] * 4, "long_factor": [2.0] * 4, "factor": 2.0}
    assert longest_exact(rope("longrope", original_max_position_embeddings=16, **short)) == 15


def test_a_model_that_counts_padding_shares_no_padded_rows(monkeypatch):
    model = tiny_model("llama")
    prefixes = known(model)
    monkeypatch.setattr("genscope.kernel_side.caching.prefix_cache.follows_padding", lambda _: False)
    monkeypatch.setattr("genscope.kernel_side.caching.storing.follows_padding", lambda _: False)
    padded = run(model, [PROMPT, PROMPT[:6]], prefixes)
    assert [row.end.kind for row in padded.lease.rows] == ["padding", "padding"]
    assert prefixes.stats().not_stored == {"the model counts padding as positions": 1}
    assert run(model, [PROMPT], prefixes).lease.reused == len(PROMPT) - 1
