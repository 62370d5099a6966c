"""The lens at a layer is what the library says when the model really ends there."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from transformers import (
    BloomConfig,
    BloomForCausalLM,
    CohereConfig,
    CohereForCausalLM,
    GPTNeoXConfig,
    GPTNeoXForCausalLM,
    GraniteConfig,
    GraniteForCausalLM,
    MBartConfig,
    MBartForConditionalGeneration,
    OPTConfig,
    OPTForCausalLM,
)

from compare import prompts
from genscope.kernel_side.decoding.observe import observe
from genscope.kernel_side.observation.lens import LogitLens
from genscope.kernel_side.observation.states import States, UnseenError
from genscope.kernel_side.streaming.base import OutputStreamer
from tiny import ENCODER_DECODERS, KINDS, PAD, AnyKind, tiny_model

LAYERS = {
    "gpt2": "transformer.h",
    "t5": "decoder.block",
    "bart": "model.decoder.layers",
    "bloom": "transformer.h",
    "gpt_neox": "gpt_neox.layers",
    "opt": "model.decoder.layers",
    "mbart": "model.decoder.layers",
}
SMALL = {"vocab_size": 300, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "pad_token_id": 0}
PLAIN: dict[str, Any] = {**SMALL, "intermediate_size": 64, "initializer_range": 0.3}


def own_model(kind: str) -> Any:
    """Make models whose heads do something of their own."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        if kind == "cohere":
            return CohereForCausalLM(CohereConfig(**PLAIN, logit_scale=0.2))
        if kind == "granite":
            return GraniteForCausalLM(GraniteConfig(**PLAIN, logits_scaling=3.0, attention_multiplier=0.3))
        if kind == "gpt_neox":
            return GPTNeoXForCausalLM(GPTNeoXConfig(**PLAIN))
        if kind == "bloom":
            return BloomForCausalLM(BloomConfig(vocab_size=300, hidden_size=32, n_layer=2, n_head=4))
        if kind == "opt":
            sizes = {"hidden_size": 32, "word_embed_proj_dim": 32, "ffn_dim": 64, "num_attention_heads": 4}
            return OPTForCausalLM(OPTConfig(vocab_size=300, num_hidden_layers=2, init_std=0.3, **sizes))
        layers = {"encoder_layers": 2, "decoder_layers": 2, "encoder_attention_heads": 4, "decoder_attention_heads": 4}
        sizes = {"d_model": 32, "encoder_ffn_dim": 64, "decoder_ffn_dim": 64}
        return MBartForConditionalGeneration(MBartConfig(vocab_size=300, init_std=0.3, **layers, **sizes))


def model_of(kind: str) -> Any:
    """Make a model whose norms, biases and caps do something."""
    name = kind.split(",", maxsplit=1)[0]
    model = tiny_model(name) if name in (*KINDS, "qwen3", *ENCODER_DECODERS) else own_model(name)  # type: ignore[arg-type]
    if kind == "t5, scaled":
        model.config.scale_decoder_outputs = True
    if kind == "gemma3, capped":
        model.config.final_logit_softcapping = 3.0
    if name in {"bart", "mbart"}:
        model.final_logits_bias += torch.linspace(-2, 2, 300)
    with torch.no_grad(), torch.random.fork_rng(devices=[]):
        torch.manual_seed(2)
        for parameter in model.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    return model.eval()


def forward(model: Any, tokens: torch.Tensor) -> Any:
    inputs = {"input_ids": tokens}
    if model.config.is_encoder_decoder:
        inputs["decoder_input_ids"] = tokens[:, :4]
    with torch.inference_mode():
        return model(**inputs, output_hidden_states=True, use_cache=False, return_dict=True)


def hidden_of(outputs: Any, position: int = -1) -> torch.Tensor:
    states = outputs.get("decoder_hidden_states") or outputs["hidden_states"]
    return torch.stack([layer[0, position] for layer in states])


ALL = (
    "llama", "gpt2", "gemma3", "gemma3, capped", "qwen3", "t5", "t5, scaled", "bart",
    "cohere", "granite", "bloom", "gpt_neox", "opt", "mbart",
)  # fmt: skip


@pytest.mark.parametrize("kind", ALL)
def test_lens_at_a_layer_is_the_model_cut_off_there(kind: str) -> None:
    model, tokens = model_of(kind), torch.tensor([[5, 17, 200, 31, 8]])
    outputs = forward(model, tokens)
    lens = LogitLens(model)
    lens.verify(hidden_of(outputs), outputs.logits[0, -1])
    found = lens.look(hidden_of(outputs), token=9, top=7)
    path, _, name = LAYERS.get(kind.split(",", maxsplit=1)[0], "model.layers").rpartition(".")
    stack = model.get_submodule(path)
    layers = getattr(stack, name)
    assert [one.layer for one in found] == list(range(len(layers) + 1))
    for one in found:
        setattr(stack, name, layers[: one.layer])
        if hasattr(stack.config, "num_hidden_layers"):
            stack.config.num_hidden_layers = one.layer
        cut = forward(model, tokens).logits[0, -1].float()
        logprobs = cut.log_softmax(dim=-1)
        best = logprobs.topk(7)
        assert [token for token, _ in one.candidates] == best.indices.tolist()
        assert [logprob for _, logprob in one.candidates] == pytest.approx(best.values.tolist(), abs=1e-3)
        assert one.logprob == pytest.approx(float(logprobs[9]), abs=1e-3)
        assert one.rank == int((logprobs > logprobs[9]).sum()) + 1
    assert found[0].candidates != found[-1].candidates


@pytest.mark.parametrize("kind", [*KINDS, "qwen3", *ENCODER_DECODERS])
def test_last_layer_is_the_distribution_of_the_step(kind: AnyKind) -> None:
    """From the states that a run keeps, for each token: rank and probability by the step's own logits."""
    model = model_of(kind)
    states, logits = States(1, attention=False, hidden=True), []
    steps = OutputStreamer(lambda step: logits.append((step.tokens, step.logits)), fields=["logits"])
    model.generate(
        **prompts(1),
        max_new_tokens=4,
        eos_token_id=None,
        pad_token_id=PAD,
        do_sample=True,
        **observe(states, steps, seed=5),
    )
    lens = LogitLens(model)
    lens.probe()
    first = 1 if model.config.is_encoder_decoder else 11
    for position, (tokens, wanted) in enumerate(logits, start=first):
        token, logprobs = int(tokens[0]), wanted[0].log_softmax(dim=-1)
        last = lens.look(states.hidden(0, position), token, top=3)[-1]
        assert last.logprob == pytest.approx(float(logprobs[token]), abs=1e-3)
        assert last.rank == int((logprobs > logprobs[token]).sum()) + 1
        assert [token for token, _ in last.candidates] == logprobs.topk(3).indices.tolist()


@pytest.mark.parametrize("kind", ALL)
def test_probe_understands_the_head(kind: str) -> None:
    model = model_of(kind)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    lens = LogitLens(model)
    lens.probe()
    assert lens.look(hidden_of(forward(model, torch.tensor([[5, 6, 7, 8]]))), 5)[-1].rank >= 1
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


def test_probe_hangs_no_hooks_on_the_model() -> None:
    model = model_of("llama")
    LogitLens(model).probe()
    assert not any(module._forward_hooks for module in model.modules())


def test_last_state_in_front_of_the_norm_is_taken_through_it() -> None:
    model = model_of("llama")
    normed, logits = (
        hidden_of(forward(model, torch.tensor([[5, 6, 7]]))),
        forward(model, torch.tensor([[5, 6, 7]])).logits,
    )
    model.config.tie_last_hidden_states = False
    raw = hidden_of(forward(model, torch.tensor([[5, 6, 7]])))
    assert not torch.allclose(normed[-1], raw[-1], atol=0.1)
    lens = LogitLens(model)
    lens.verify(raw, logits[0, -1])
    assert lens.look(raw, 9)[-1].logprob == pytest.approx(float(logits[0, -1].log_softmax(-1)[9]), abs=1e-3)


def test_head_that_is_not_understood_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    model = model_of("llama")
    outputs = forward(model, torch.tensor([[5, 6, 7]]))
    lens = LogitLens(model)
    with pytest.raises(UnseenError, match=r"not understand the output head of LlamaForCausalLM.* Choose another"):
        lens.verify(hidden_of(outputs), outputs.logits[0, -1] * 1.1)
    lens.verify(hidden_of(outputs), outputs.logits[0, -1])
    monkeypatch.setattr(model, "forward", lambda **kwargs: Scaled.of(type(model).forward(model, **kwargs)))
    assert lens.look(hidden_of(outputs), 5)  # found out before
    with pytest.raises(UnseenError, match="not understand the output head"):
        LogitLens(model).look(hidden_of(outputs), 5)


class Scaled:
    """Stands for a head that does what nobody knows."""

    @staticmethod
    def of(outputs: Any) -> Any:
        outputs.logits = outputs.logits * 1.1
        return outputs


def test_norms_that_cannot_be_told_apart_are_refused() -> None:
    model = model_of("llama")
    model.model.after_norm = torch.nn.LayerNorm(32)
    LogitLens(model).probe()
    model.model.final_norm = torch.nn.LayerNorm(32)
    with pytest.raises(UnseenError, match=r"which of \['after_norm', 'final_norm', 'norm'\] is the last norm"):
        LogitLens(model)
    bart = model_of("bart")
    bart.model.decoder.after_norm = torch.nn.LayerNorm(32)
    with pytest.raises(UnseenError, match="after_norm"):
        LogitLens(bart)


def test_tokens_and_models_without_an_answer_are_named() -> None:
    model = model_of("llama")
    lens = LogitLens(model)
    lens.probe()
    hidden = hidden_of(forward(model, torch.tensor([[5, 6, 7]])))
    assert len(lens.look(hidden, 299, top=1000)[0].candidates) == 300
    with pytest.raises(UnseenError, match="no token 300; choose from 0 to 299"):
        lens.look(hidden, 300)
    with pytest.raises(UnseenError, match="LlamaModel has no output head"):
        LogitLens(model.model)
