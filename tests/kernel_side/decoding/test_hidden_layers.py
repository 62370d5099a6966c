"""Hidden states of chosen layers: the very tensors, no others held, and a long run that piles nothing up."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from transformers import DynamicCache, LlamaConfig, LlamaForCausalLM

from compare import EVERYTHING, plain, prompts
from genscope.kernel_side.decoding.contrastive import ContrastiveSearch
from genscope.kernel_side.decoding.diverse_beam import DiverseBeamSearch
from genscope.kernel_side.decoding.dola import DoLa
from genscope.kernel_side.decoding.observe import observe
from genscope.kernel_side.decoding.tap import UnobservableError
from genscope.kernel_side.streaming.base import OutputStreamer, StepStreamer
from genscope.kernel_side.streaming.outputs import Output, PromptOutput, StepOutput
from live_tensors import live_tensors
from tiny import ENCODER_DECODERS, KINDS, PAD, AnyKind, tiny_model

PLAIN: dict[str, Any] = {"eos_token_id": None, "pad_token_id": PAD, "max_new_tokens": 6}
STRATEGIES: dict[str, dict[str, Any]] = {
    "greedy": {"do_sample": False},
    "beam": {"do_sample": False, "num_beams": 3},
    "lookup": {"do_sample": False, "prompt_lookup_num_tokens": 3},
    "draft": {"do_sample": False},
}
LOOPS = {
    "contrastive": (ContrastiveSearch(0.6, 4), {}),
    "dola": (DoLa(), {}),
    "diverse": (DiverseBeamSearch(2), {"num_beams": 4}),
}


def run(model: Any, *, layers: Any = None, draft: Any = None, loop: Any = None, **kwargs: Any) -> tuple[Any, list[Any]]:
    steps: list[Any] = []
    streamer = OutputStreamer(steps.append, fields=["hidden_states"])
    observing = observe(streamer, hidden_layers=layers, assistant_model=draft, loop=loop)
    return model.generate(**prompts(1), **PLAIN, **kwargs, **observing), steps


def chosen(states: Any, layers: tuple[int, ...], *, by_token: bool) -> list[torch.Tensor]:
    tokens = states if by_token else [states]
    return [token[layer] for token in tokens for layer in layers]


@pytest.mark.parametrize("kind", [*KINDS, "qwen3", *ENCODER_DECODERS])
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_chosen_layers_are_the_very_tensors_in_the_order_asked_for(kind: AnyKind, strategy: str) -> None:
    model, layers = tiny_model(kind), (-1, 0, 1)
    kwargs = STRATEGIES[strategy] | {"draft": tiny_model(kind) if strategy == "draft" else None}
    _, whole = run(model, **kwargs)
    _, some = run(model, layers=layers, **kwargs)
    by_token = strategy in ("lookup", "draft")
    assert len(some) == len(whole)
    for step, other in zip(some, whole, strict=True):
        states = step.hidden_states if by_token else [step.hidden_states]
        assert {len(token) for token in states} == {3}
        pairs = zip(chosen(step.hidden_states, (0, 1, 2), by_token=by_token), chosen(other.hidden_states, layers, by_token=by_token), strict=True)  # fmt: skip
        assert all(torch.equal(*pair) for pair in pairs)


@pytest.mark.parametrize("name", LOOPS)
def test_loops_of_our_own_give_chosen_layers_too(name: str) -> None:
    loop, kwargs = LOOPS[name]
    model = tiny_model("llama")
    _, whole = run(model, loop=loop, do_sample=False, **kwargs)
    _, some = run(model, layers=[1], loop=loop, do_sample=False, **kwargs)
    for step, other in zip(some, whole, strict=True):
        [state] = step.hidden_states
        assert torch.equal(state, other.hidden_states[1])


@pytest.mark.parametrize("kwargs", STRATEGIES.values())
def test_what_generate_returns_stays_whole(kwargs: dict[str, Any]) -> None:
    model = tiny_model("llama")
    output, steps = run(model, layers=[-1], **kwargs, **EVERYTHING)
    wanted = plain(model, prompts(1), **PLAIN, **kwargs)
    assert [len(states) for states in output.hidden_states] == [3] * len(wanted.hidden_states)
    for one, other in zip(output.hidden_states, wanted.hidden_states, strict=True):
        assert all(map(torch.equal, one, other))
    assert steps


def test_layers_that_were_not_asked_for_are_not_even_given_by_the_model() -> None:
    model: Any = tiny_model("llama")
    given: list[Any] = []
    forward = model.forward

    def note(*args: Any, **kwargs: Any) -> Any:
        outputs = forward(*args, **kwargs)
        given.append(outputs.hidden_states)
        return outputs

    model.forward = note
    run(model, layers=[-1], do_sample=False)
    assert all(states[:2] == (None, None) and states[2] is not None for states in given)


@pytest.mark.parametrize("layers", [[], ["last"], [True], [1.0]])
def test_layers_that_are_no_numbers_are_refused_at_once(layers: Any) -> None:
    with pytest.raises(ValueError, match=r"hidden_layers is .* give layers by number"):
        observe(hidden_layers=layers)


@pytest.mark.parametrize(("kind", "last"), [("llama", 2), ("gemma3", 4), ("t5", 2), ("bart", 2)])
def test_layers_that_the_model_does_not_have_are_refused(kind: AnyKind, last: int) -> None:
    model = tiny_model(kind)
    for wrong in (last + 1, -last - 2):
        with pytest.raises(UnobservableError, match=rf"hidden_layers has \[{wrong}\].* to {last} \(the last layer's\)"):
            run(model, layers=[0, wrong], do_sample=False)


class _LastState(StepStreamer):
    """Keeps the newest hidden state, and what is alive in the process at some steps."""

    fields = frozenset(["hidden_states"])

    def __init__(self, cache: DynamicCache, at: tuple[int, ...]) -> None:
        self.counts: dict[int, int] = {}
        self.bytes: dict[int, int] = {}
        self.last: torch.Tensor | None = None
        self._cache = cache
        self._at = at

    def put(self, output: Output) -> None:
        if isinstance(output, PromptOutput):
            return
        assert isinstance(output, StepOutput)
        assert output.hidden_states is not None
        [self.last] = output.hidden_states
        if output.step in self._at:
            tensors = live_tensors()
            storages = {tensor.untyped_storage().data_ptr(): tensor.untyped_storage().nbytes() for tensor in tensors}
            for layer in self._cache.layers:
                for tensor in (layer.keys, layer.values):
                    assert tensor is not None
                    del storages[tensor.untyped_storage().data_ptr()]
            self.counts[output.step], self.bytes[output.step] = len(tensors), sum(storages.values())

    def end(self, error: BaseException | None = None) -> None:
        assert error is None


def test_memory_is_flat_over_2000_tokens() -> None:
    config = LlamaConfig(
        hidden_size=64,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=2,
        max_position_embeddings=2048,
        vocab_size=300,
        attn_implementation="sdpa",
    )
    with torch.random.fork_rng(devices=[]):
        model: Any = LlamaForCausalLM(config).eval()
    cache, early, late = DynamicCache(config=config), 500, 1999
    streamer, seen = _LastState(cache, (early, late)), []
    calling_back = OutputStreamer(lambda step: seen.append(step.step), fields=["hidden_states"])
    model.generate(
        **prompts(1), do_sample=False, max_new_tokens=2000, eos_token_id=None, pad_token_id=PAD, cache=cache,
        **observe(streamer, calling_back, hidden_layers=[-1]),
    )  # fmt: skip
    assert len(seen) == 2000
    assert streamer.last is not None
    assert streamer.last.shape == (1, 1, 64)
    assert streamer.counts[late] == streamer.counts[early]
    # The ids, the mask and the like grow by 8 bytes a token each; one hidden state kept a step would be 256.
    assert streamer.bytes[late] - streamer.bytes[early] < (late - early) * 8 * 8
