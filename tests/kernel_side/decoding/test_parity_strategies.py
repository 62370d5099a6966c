"""Beam search, assisted decoding and encoder-decoder models, observed: bit for bit what plain ``generate`` returns."""

from __future__ import annotations

import itertools
import random
from typing import Any, get_args

import pytest
import torch
from transformers import PreTrainedModel

from compare import COUNTS, STEPS, check, compare_with_plain, observed, plain, prompts
from genscope.kernel_side.decoding.observe import observe
from genscope.kernel_side.streaming.assisted_outputs import AssistedStepOutput
from genscope.kernel_side.streaming.base import OutputStreamer
from genscope.kernel_side.streaming.beam_outputs import BeamStepOutput
from live_tensors import live_tensors
from tiny import ENCODER_DECODERS, PAD, VOCABULARY, AnyKind, Kind, tiny_model

PROCESSORS = {"repetition_penalty": 1.2, "no_repeat_ngram_size": 3}
NEW_KINDS: tuple[AnyKind, ...] = ("qwen3", *ENCODER_DECODERS)
ALL_KINDS: tuple[AnyKind, ...] = (*get_args(Kind), *NEW_KINDS)
ONE_BY_ONE: dict[str, dict[str, Any]] = {
    "greedy": {"do_sample": False},
    "greedy, processors": {"do_sample": False, **PROCESSORS},
    "sample": {"do_sample": True, "top_k": 0},
    "sample, processors": {"do_sample": True, "temperature": 0.8, "top_k": 40, "top_p": 0.95, **PROCESSORS},
}
BEAMS: dict[str, dict[str, Any]] = {
    "beam": {"do_sample": False, "num_beams": 4},
    "beam, processors": {"do_sample": False, "num_beams": 3, "early_stopping": True, "length_penalty": 0.5, **PROCESSORS},
    "beam sample": {"do_sample": True, "num_beams": 4, "top_k": 0},
    "beam sample, processors": {"do_sample": True, "num_beams": 3, "early_stopping": "never", "top_k": 40, "top_p": 0.9},
}  # fmt: skip
LOOKUP = {"prompt_lookup_num_tokens": 4}
ASSISTED: dict[str, dict[str, Any]] = {
    "lookup": {"do_sample": False, **LOOKUP},
    "lookup, processors": {"do_sample": False, "repetition_penalty": 1.1, **LOOKUP},
    "lookup, sample": {"do_sample": True, "top_k": 5, "temperature": 0.3, **LOOKUP},
    "draft": {"do_sample": False},
    "draft, processors": {"do_sample": False, **PROCESSORS},
    "draft, speculative": {"do_sample": True, "top_k": 20},
    "early exit": {"do_sample": False, "assistant_early_exit": 1},
    "early exit, speculative": {"do_sample": True, "top_k": 20, "assistant_early_exit": 1},
}
GUIDED = {name: {**kwargs, "guidance_scale": 1.7} for name, kwargs in ONE_BY_ONE.items()}
DECODERS: tuple[AnyKind, ...] = (*get_args(Kind), "qwen3")
EXITS_EARLY: tuple[AnyKind, ...] = ("llama", "qwen3")
"""Models whose forward reads the layer count anew."""


def inputs_of(kind: AnyKind, batch: int) -> dict[str, torch.Tensor]:
    return prompts(batch, side="right" if kind in ENCODER_DECODERS else "left")


def repeating() -> dict[str, torch.Tensor]:
    """Make a prompt that repeats itself, so that a look-up finds drafts."""
    ids = torch.tensor([[5, 6, 7, 8, 5, 6, 7, 9, 5, 6, 7]])
    return {"input_ids": ids, "attention_mask": torch.ones_like(ids)}


@pytest.mark.parametrize(
    ("kind", "strategy", "batch", "returned", "eos"),
    [
        case
        for case in itertools.product(NEW_KINDS, ONE_BY_ONE, (1, 3), (1, 2), (False, True))
        if case[3] == 1 or ONE_BY_ONE[case[1]]["do_sample"]
    ],
)
def test_one_by_one(kind: AnyKind, strategy: str, batch: int, returned: int, eos: bool) -> None:
    kwargs = {**ONE_BY_ONE[strategy], "num_return_sequences": returned}
    streamed = check(tiny_model(kind), inputs_of(kind, batch), eos=eos, **kwargs)
    assert (streamed.prompt[0].source is not None) == (kind in ENCODER_DECODERS)


def negative(rows: int) -> dict[str, torch.Tensor]:
    """Make negative prompts; ``generate`` wants one a returned sequence."""
    made = prompts(1, 5)
    return {f"negative_prompt_{name}": made[key].expand(rows, -1) for name, key in (("ids", "input_ids"), ("attention_mask", "attention_mask"))}  # fmt: skip


@pytest.mark.parametrize(
    ("kind", "strategy", "rows", "eos", "prompted"),
    [
        case
        for case in itertools.product(DECODERS, GUIDED, ((1, 1), (3, 1), (2, 2)), (False, True), (False, True))
        if (case[2][1] == 1 or GUIDED[case[1]]["do_sample"]) and (case[4] or case[2][0] == 1)
    ],
)
def test_guidance(kind: AnyKind, strategy: str, rows: tuple[int, int], eos: bool, prompted: bool) -> None:
    batch, returned = rows
    kwargs = {**GUIDED[strategy], "num_return_sequences": returned}
    if prompted:
        kwargs |= negative(batch * returned)
    check(tiny_model(kind), inputs_of(kind, batch), eos=eos, **kwargs)


@pytest.mark.parametrize("kind", DECODERS)
def test_raw_logits_under_guidance_are_those_of_the_prompt_itself(kind: AnyKind) -> None:
    model, inputs, plainly = tiny_model(kind), prompts(1), {"eos_token_id": None, "pad_token_id": PAD}
    _, guided = observed(model, inputs, do_sample=False, guidance_scale=1.7, **negative(1), **plainly)
    _, bare = observed(model, inputs, do_sample=False, **plainly)
    assert torch.equal(guided.steps[0].logits, bare.steps[0].logits)
    with torch.no_grad():
        other = model(negative(1)["negative_prompt_ids"], use_cache=True).logits[:, -1].log_softmax(-1)
    own = bare.steps[0].logits.log_softmax(-1)
    torch.testing.assert_close(guided.steps[0].scores, 1.7 * (own - other) + other, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("fails", [False, True])
def test_guidance_that_is_stopped_in_the_middle_leaves_nothing_behind(fails: bool) -> None:
    model, inputs = tiny_model("llama"), prompts(1)
    kwargs = {"do_sample": False, "guidance_scale": 1.7, **negative(1), "eos_token_id": None, "pad_token_id": PAD}
    wanted = plain(model, inputs, **kwargs).sequences
    before = {id(tensor) for tensor in live_tensors()}
    calls = iter([False, False, True])

    def stop() -> bool:
        if not next(calls):
            return False
        if fails:
            raise LookupError("on purpose")
        return True

    # The processor that guides holds the model and a cache of its own. What `observe` returned is still held here.
    observing = observe(OutputStreamer(lambda _: None), stop=stop)
    if fails:
        with pytest.raises(LookupError):
            model.generate(**inputs, **kwargs, max_new_tokens=STEPS, **observing)
    else:
        assert model.generate(**inputs, **kwargs, max_new_tokens=STEPS, **observing).shape == (1, 11 + 3)
    assert [tensor.shape for tensor in live_tensors() if id(tensor) not in before] == []
    assert torch.equal(plain(model, inputs, **kwargs).sequences, wanted)


@pytest.mark.parametrize(
    ("kind", "strategy", "rows", "eos"),
    list(itertools.product(ALL_KINDS, BEAMS, ((1, 1), (1, 3), (3, 2)), (False, True))),
)
def test_beams(kind: AnyKind, strategy: str, rows: tuple[int, int], eos: bool) -> None:
    batch, returned = rows
    kwargs = {**BEAMS[strategy], "num_return_sequences": returned}
    streamed = check(tiny_model(kind), inputs_of(kind, batch), eos=eos, **kwargs)
    assert all(isinstance(step, BeamStepOutput) for step in streamed.steps)
    assert len(streamed.prompt[0].tokens) == batch * returned


@pytest.mark.parametrize(
    ("kind", "strategy", "eos"),
    [
        case
        for case in itertools.product(ALL_KINDS, ASSISTED, (False, True))
        if "assistant_early_exit" not in ASSISTED[case[1]] or case[0] in EXITS_EARLY
    ],
)
def test_assisted(kind: AnyKind, strategy: str, eos: bool) -> None:
    model, kwargs = tiny_model(kind), dict(ASSISTED[strategy])
    layers = model.config.num_hidden_layers
    if strategy.startswith("draft"):
        kwargs["assistant_model"] = drafting(kind)
    streamed = check(model, repeating(), eos=eos, **kwargs)
    assert model.config.num_hidden_layers == layers
    for step in streamed.steps:
        assert isinstance(step, AssistedStepOutput)
        assert step.accepted + step.rejected == step.drafted.shape[1]
        assert step.accepted + step.bonus == step.tokens.shape[1]
        assert torch.equal(step.tokens[:, : step.accepted], step.drafted[:, : step.accepted])
        assert step.bonus == 1 or bool(step.finished)
        assert step.check_scores is not None
        assert step.check_scores.shape == (1, step.drafted.shape[1] + 1, VOCABULARY)
        assert torch.equal(step.check_scores[0, : step.tokens.shape[1]], torch.cat(step.scores or ()))
        assert (step.draft_scores is None) == ("lookup" in strategy or not step.drafted.shape[1])
    COUNTS["drafts accepted"] += sum(step.accepted for step in streamed.steps)
    COUNTS["drafts rejected"] += sum(step.rejected for step in streamed.steps)


def drafting(kind: AnyKind) -> PreTrainedModel:
    """Make a draft model that is sometimes right: the model itself with some noise."""
    model = tiny_model(kind)
    with torch.no_grad(), torch.random.fork_rng(devices=[]):
        torch.manual_seed(3)
        for weights in model.parameters():
            weights.add_(torch.randn_like(weights) * weights.std(correction=0) * 0.03)
    model.generation_config.num_assistant_tokens = 3
    model.generation_config.assistant_confidence_threshold = 0.0
    return model


@pytest.mark.parametrize("number", range(24))
def test_unusual_beams(number: int) -> None:
    """Draw settings: many ends of sequence, fewer candidates than beams, one step, negative length penalty."""
    draw = random.Random(number)
    kind, beams = draw.choice(ALL_KINDS), draw.choice([2, 3, 5, 8])
    kwargs: dict[str, Any] = {
        "num_beams": beams,
        "num_return_sequences": draw.randint(1, beams),
        "do_sample": draw.random() < 0.4,
        "early_stopping": draw.choice([True, False, "never"]),
        "length_penalty": draw.choice([-1.0, 0.0, 0.5, 2.0]),
        "eos_token_id": draw.choice([None, 5, list(range(3, 60)), list(range(3, 200))]),
        "pad_token_id": PAD,
        "max_new_tokens": draw.choice([1, 2, 6, STEPS]),
    }
    if kwargs["do_sample"]:
        kwargs |= {"top_k": draw.choice([0, 3, 50]), "top_p": draw.choice([1.0, 0.6]), "temperature": 2.0}
    if draw.random() < 0.3:
        kwargs["suppress_tokens"] = list(range(10, 290))
    compare_with_plain(tiny_model(kind), inputs_of(kind, draw.choice([1, 2, 4])), kwargs)


@pytest.mark.parametrize("number", range(24))
def test_unusual_drafts(number: int) -> None:
    """Draw settings: many ends of sequence, one step, drafts that are never right or always."""
    draw = random.Random(number)
    kind = draw.choice(ALL_KINDS)
    kwargs: dict[str, Any] = {
        "do_sample": draw.random() < 0.5,
        "eos_token_id": draw.choice([None, 5, list(range(3, 60)), list(range(3, 200))]),
        "pad_token_id": PAD,
        "max_new_tokens": draw.choice([1, 2, 6, STEPS]),
    }
    if draw.random() < 0.5:
        kwargs["repetition_penalty"] = 1.3
    if draw.random() < 0.4:
        kwargs["prompt_lookup_num_tokens"] = draw.choice([1, 3, 10])
    else:
        kwargs["assistant_model"] = draw.choice([tiny_model(kind), tiny_model(kind, seed=1), drafting(kind)])
    compare_with_plain(tiny_model(kind), repeating(), kwargs)
