"""Views of a model: the same weights, other settings, and an original that never notices."""

from __future__ import annotations

import threading
from typing import Any

import pytest
import torch
from transformers import PreTrainedModel

from compare import COUNTS, EVERYTHING, observed, plain, prompts
from genscope.kernel_side.decoding.model_view import view_of
from genscope.kernel_side.decoding.tap import UnobservableError
from live_tensors import live_tensors
from tiny import ENCODER_DECODERS, KINDS, PAD, AnyKind, tiny_model

ALL_KINDS: tuple[AnyKind, ...] = (*KINDS, "qwen3", *ENCODER_DECODERS)
by_kind = pytest.mark.parametrize("kind", ALL_KINDS)
PLAIN: dict[str, Any] = {"eos_token_id": None, "pad_token_id": PAD, "do_sample": False}
ATTENTIONS = ("attentions", "encoder_attentions", "decoder_attentions", "cross_attentions")


def inputs_of(kind: AnyKind, batch: int = 2) -> dict[str, torch.Tensor]:
    return prompts(batch, side="right" if kind in ENCODER_DECODERS else "left")


def state(model: PreTrainedModel) -> Any:
    return {
        "tensors": {name: (value.data_ptr(), value._version) for name, value in model.state_dict().items()},
        "attributes": [{key: id(value) for key, value in vars(module).items()} for module in model.modules()],
        "hooks": [len(module._forward_hooks) for module in model.modules()],
        "configs": [
            (module.config.to_dict(), module.config._attn_implementation)
            for module in model.modules()
            if isinstance(module, PreTrainedModel)
        ],
        "generation": model.generation_config.to_dict(),
    }


def flat(value: Any) -> list[torch.Tensor]:
    return [value] if isinstance(value, torch.Tensor) else [tensor for item in value for tensor in flat(item)]


@by_kind
def test_an_eager_view_gives_what_an_eager_model_gives(kind: AnyKind) -> None:
    model, eager = tiny_model(kind, "sdpa"), tiny_model(kind, "eager")
    before = state(model)
    output = plain(view_of(model, attention="eager"), inputs_of(kind), **PLAIN)
    wanted = plain(eager, inputs_of(kind), **PLAIN)
    assert torch.equal(output.sequences, wanted.sequences)
    compared = 0
    for name in ATTENTIONS:
        if getattr(wanted, name, None) is not None:
            for one, other in zip(flat(getattr(output, name)), flat(getattr(wanted, name)), strict=True):
                assert torch.equal(one, other), name
                compared += 1
    kinds = 3 if kind in ENCODER_DECODERS else 1
    assert compared >= kinds * model.config.num_hidden_layers
    COUNTS["tensors"] += compared
    assert state(model) == before


@by_kind
def test_the_original_does_not_notice_not_even_in_the_middle_of_a_pass(kind: AnyKind) -> None:
    model, inputs = tiny_model(kind, "sdpa"), inputs_of(kind)
    plain(model, inputs, **PLAIN, output_attentions=False)  # the library hangs its hooks on the model
    wanted = plain(model, inputs, **PLAIN, output_attentions=False)
    before = state(model)
    entered, go_on = threading.Event(), threading.Event()
    outputs: list[Any] = []

    def wait(*_: object) -> None:
        if not entered.is_set():
            entered.set()
            assert go_on.wait(30)

    # A hook holds a pass of the original open while the view runs.
    inner = next(module for name, module in model.named_modules() if name.endswith((".0", ".block.0")))
    handle = inner.register_forward_hook(wait)
    thread = threading.Thread(target=lambda: outputs.append(plain(model, inputs, **PLAIN, output_attentions=False)))
    thread.start()
    assert entered.wait(30)
    handle.remove()
    plain(view_of(model, attention="eager"), inputs, **PLAIN)
    go_on.set()
    thread.join(30)
    assert torch.equal(outputs[0].sequences, wanted.sequences)
    assert all(map(torch.equal, outputs[0].logits, wanted.logits))
    assert state(model) == before
    assert view_of(model, attention="eager").config._attn_implementation == "eager"
    assert model.config._attn_implementation == "sdpa"


@by_kind
def test_tensors_are_the_same_objects_and_none_is_made(kind: AnyKind) -> None:
    model = tiny_model(kind, "sdpa")
    before = {id(tensor) for tensor in live_tensors()}
    view = view_of(model, attention="eager", num_assistant_tokens=3)
    assert {id(tensor) for tensor in live_tensors()} == before
    assert list(map(id, view.state_dict(keep_vars=True).values())) == list(
        map(id, model.state_dict(keep_vars=True).values())
    )
    assert list(map(id, view.buffers())) == list(map(id, model.buffers()))
    assert not {id(module) for module in view.modules()} & {id(module) for module in model.modules()}


def test_shared_modules_and_configs_stay_shared_and_nested_configs_are_copied() -> None:
    model: Any = tiny_model("t5", "sdpa")
    model.encoder.embed_tokens = model.shared
    view: Any = view_of(model, attention="eager")
    assert view.encoder.embed_tokens is view.shared
    assert view.shared is not model.shared
    assert view.shared.weight is model.shared.weight
    for part in ("encoder", "decoder"):
        assert getattr(view, part).config is not getattr(model, part).config
        assert getattr(view, part).config._attn_implementation == "eager"
        assert getattr(view, part).block[0].layer[0].SelfAttention.config is getattr(view, part).config
    llama: Any = view_of(tiny_model("llama"))
    assert llama.model.config is llama.config


def test_what_refers_to_a_module_refers_to_its_copy() -> None:
    model: Any = tiny_model("llama")
    model.parent = [model.model, {"layers": (model.model.layers[0],)}]
    model.bound = model.model.get_input_embeddings
    model.notes = ["kept", {"as": "is"}]
    view: Any = view_of(model)
    assert view.parent[0] is view.model
    assert view.parent[1]["layers"][0] is view.model.layers[0]
    assert view.bound.__self__ is view.model
    assert view.notes is model.notes


def test_an_edit_of_weights_in_place_shows_in_the_view() -> None:
    model, inputs = tiny_model("llama", "sdpa"), prompts(1)
    view = view_of(model, attention="eager")
    before = plain(view, inputs, **PLAIN).logits[0]
    with torch.no_grad():
        model.lm_head.weight.mul_(2.0)
    torch.testing.assert_close(plain(view, inputs, **PLAIN).logits[0], before * 2)


def test_hooks_registered_on_one_are_not_on_the_other() -> None:
    model = tiny_model("llama", "sdpa")
    calls: list[str] = []
    view = view_of(model)
    view.register_forward_hook(lambda *_: calls.append("view"))
    plain(model, prompts(1), **PLAIN, output_attentions=False)
    assert calls == []
    model.register_forward_hook(lambda *_: calls.append("model"))
    plain(view, prompts(1), **PLAIN, output_attentions=False)
    assert set(calls) == {"view"}


def test_early_exit_on_a_view_leaves_the_layer_count_of_the_model_alone_while_it_drafts() -> None:
    model, counts = tiny_model("llama"), set()
    view = view_of(model)
    drafted: set[int] = set()

    def note(module: Any, *_: object) -> None:
        counts.add(model.config.num_hidden_layers)
        drafted.add(module.config.num_hidden_layers)

    view.model.register_forward_hook(note)
    output, streamed = observed(view, prompts(1), **PLAIN, **EVERYTHING, assistant_early_exit=1)
    assert counts == {2}
    assert drafted == {1, 2}
    assert torch.equal(output.sequences, plain(model, prompts(1), **PLAIN).sequences)
    assert any(step.drafted.shape[1] for step in streamed.steps)


def test_generation_settings_of_a_view_change_drafting_and_not_the_model() -> None:
    model, draft = tiny_model("llama"), tiny_model("llama")
    before = draft.generation_config.to_dict()
    for count in (2, 5):
        view = view_of(
            draft,
            num_assistant_tokens=count,
            num_assistant_tokens_schedule="constant",
            assistant_confidence_threshold=0.0,
        )
        _, streamed = observed(model, prompts(1), **PLAIN, assistant_model=view)
        assert streamed.steps[0].drafted.shape[1] == count
    assert draft.generation_config.to_dict() == before


def test_settings_that_do_not_exist_are_refused() -> None:
    with pytest.raises(TypeError, match=r"no settings \['no_such_setting'\]"):
        view_of(tiny_model("llama"), no_such_setting=1)
    base: Any = tiny_model("llama").model
    base.generation_config = None
    with pytest.raises(TypeError, match=r"LlamaModel has no generation config to set \['num_beams'\]"):
        view_of(base, num_beams=2)


def test_a_model_whose_calls_lead_back_to_the_original_is_refused_for_attention_only() -> None:
    replaced: Any = tiny_model("llama", "sdpa")
    replaced.model.layers[1].forward = replaced.model.layers[1].forward
    with pytest.raises(UnobservableError, match=r"of model.layers.1 was replaced.*set_attn_implementation\('eager'\)"):
        view_of(replaced, attention="eager")
    compiled: Any = tiny_model("llama", "sdpa")
    compiled.model.compile(backend="eager")
    with pytest.raises(UnobservableError, match=r"of model is compiled.*set_attn_implementation\('eager'\)"):
        view_of(compiled, attention="eager")
    for model in (replaced, compiled):
        assert view_of(model, attention="sdpa").config._attn_implementation == "sdpa"
        assert view_of(model).config is not model.config


def test_code_with_attention_written_in_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    model = tiny_model("llama", "sdpa")
    monkeypatch.setattr(type(model), "_can_set_attn_implementation_cached_value", False, raising=False)
    with pytest.raises(UnobservableError, match=r"LlamaForCausalLM does not let.*attn_implementation='eager'"):
        view_of(model, attention="eager")


def test_a_pass_compiled_for_the_original_is_not_taken_for_the_view() -> None:
    model: Any = tiny_model("llama", "sdpa")
    model._compiled_call = model.__call__
    assert not hasattr(view_of(model, attention="eager"), "_compiled_call")
    assert hasattr(view_of(model), "_compiled_call")
