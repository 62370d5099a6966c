"""What is said of costs is what was measured; the model is left as it was."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch

from genscope.kernel_side.decoding import tap
from genscope.kernel_side.observation import costs
from genscope.kernel_side.observation.costs import Cost, measure_costs
from genscope.kernel_side.observation.states import States
from tiny import ENCODER_DECODERS, KINDS, AnyKind, tiny_model


@pytest.mark.parametrize("kind", [*KINDS, *ENCODER_DECODERS])
@pytest.mark.parametrize("implementation", ["sdpa", "eager"])
def test_both_settings_are_measured_and_the_model_is_left_alone(kind: AnyKind, implementation: str) -> None:
    model = tiny_model(kind, implementation)
    model.generation_config.pad_token_id = None
    weights = {name: value.clone() for name, value in model.state_dict().items()}
    config, generation = model.config.to_dict(), copy.deepcopy(model.generation_config.to_dict())
    hooks = sum(len(module._forward_hooks) for module in model.modules())
    torch.manual_seed(3)
    state = torch.get_rng_state()
    found = measure_costs(model)
    assert set(found) == {"attention", "logit_lens"}
    assert all(0 < cost.time < float("inf") and cost.context == 64 for cost in found.values())
    layers = model.config.num_hidden_layers
    both = 2 if kind in ENCODER_DECODERS else 1  # the own tokens, and the source's
    assert found["attention"].bytes_a_token == both * layers * 4 * 64 * 2
    assert found["logit_lens"].bytes_a_token == (layers + 1) * 32 * 4
    assert torch.equal(torch.get_rng_state(), state)
    assert all(torch.equal(value, weights[name]) for name, value in model.state_dict().items())
    assert (model.config.to_dict(), model.generation_config.to_dict()) == (config, generation)
    assert model.config._attn_implementation == implementation
    assert sum(len(module._forward_hooks) for module in model.modules()) == hooks
    assert not model.training


def test_bytes_are_those_that_a_run_keeps() -> None:
    model = tiny_model("llama")
    [cost] = [cost for setting, cost in measure_costs(model, context=20).items() if setting == "attention"]
    states, sizes = States(1, attention=True, hidden=False), []
    step = costs.OutputStreamer(lambda _: sizes.append(states.nbytes), fields=())
    model.generate(torch.arange(3, 22)[None], max_new_tokens=3, do_sample=False, **costs.observe(states, step))
    assert cost.context == 20
    assert sizes[1] - sizes[0] == cost.bytes_a_token  # the second new token was chosen looking at 20


def test_time_is_that_of_a_step_with_over_one_without(monkeypatch: pytest.MonkeyPatch) -> None:
    class Clock:
        now = 0.0

        @classmethod
        def perf_counter(cls) -> float:
            cls.now += 1
            return cls.now

    def put(self: States, output: Any) -> None:
        kept(self, output)
        if not hasattr(output, "source"):  # a step and not the prompt
            Clock.now += 0.5 if "attentions" in self.fields else 0.25

    kept = States.put
    monkeypatch.setattr(tap, "time", Clock)
    monkeypatch.setattr(States, "put", put)
    found = measure_costs(tiny_model("llama"))
    assert found["attention"].time == pytest.approx(1.5)
    assert found["logit_lens"].time == pytest.approx(1.25)


def test_short_contexts_are_kept_within() -> None:
    model = tiny_model("gpt2")
    model.config.max_position_embeddings = model.config.n_positions = 40
    model.transformer.wpe = torch.nn.Embedding(40, 32)
    assert {cost.context for cost in measure_costs(model).values()} == {28}


def test_what_a_model_does_not_give_is_left_out() -> None:
    model = tiny_model("llama", "sdpa")
    forward = type(model).forward
    model.forward = lambda *args, **kwargs: forward(model, *args, **kwargs)  # as hooks for offloading do
    assert set(measure_costs(model)) == {"logit_lens"}


@pytest.mark.parametrize(
    ("cost", "text"),
    [
        (Cost(1.42, 69_120, 64), "about 1.4 times the time a token, 69 kB a token at 64 tokens (measured here)"),
        (Cost(0.97, 640, 64), "about the same time a token, 640 bytes a token at 64 tokens (measured here)"),
        (Cost(1.04, 9_700, 28), "about the same time a token, 9.7 kB a token at 28 tokens (measured here)"),
        (Cost(2.0, 12_300_000, 64), "about 2.0 times the time a token, 12 MB a token at 64 tokens (measured here)"),
    ],
)
def test_text(cost: Cost, text: str) -> None:
    assert cost.text() == text
