"""Observed generation gives, bit for bit, what plain ``generate`` returns."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
import torch
from transformers import PreTrainedModel

from genscope.kernel_side.decoding.observe import observe
from genscope.kernel_side.streaming.base import OutputStreamer
from genscope.kernel_side.streaming.outputs import ALL_FIELDS, PromptOutput, StepOutput
from tiny import EOS, KINDS, PAD, Kind, tiny_model

STEPS = 12
STRATEGIES: dict[str, dict[str, Any]] = {
    "greedy": {"do_sample": False},
    "greedy, processors": {"do_sample": False, "repetition_penalty": 1.3, "no_repeat_ngram_size": 2, "min_new_tokens": 2},
    "sample": {"do_sample": True, "top_k": 0},
    "sample, processors": {
        "do_sample": True, "temperature": 0.8, "top_k": 40, "top_p": 0.95, "min_p": 0.01, "typical_p": 0.99,
        "repetition_penalty": 1.2,
    },
}  # fmt: skip
EVERYTHING = {
    "return_dict_in_generate": True,
    "output_scores": True,
    "output_logits": True,
    "output_hidden_states": True,
    "output_attentions": True,
}


def prompts(batch: int, length: int = 11) -> dict[str, torch.Tensor]:
    """Make prompts of different lengths, padded on the left; longer than gemma3's sliding window."""
    generator = torch.Generator().manual_seed(batch)
    ids = torch.randint(3, 300, (batch, length), generator=generator)
    mask = torch.ones_like(ids)
    for row in range(1, batch):
        ids[row, : row * 2] = PAD
        mask[row, : row * 2] = 0
    return {"input_ids": ids, "attention_mask": mask}


def plain(model: PreTrainedModel, inputs: dict[str, torch.Tensor], **kwargs: Any) -> Any:
    torch.manual_seed(7)
    return model.generate(**inputs, max_new_tokens=STEPS, **EVERYTHING, **kwargs)


def observed(
    model: PreTrainedModel, inputs: dict[str, torch.Tensor], **kwargs: Any
) -> tuple[Any, PromptOutput, list[StepOutput]]:
    steps: list[StepOutput] = []
    prompt: list[PromptOutput] = []
    streamer = OutputStreamer(steps.append, on_prompt=prompt.append, fields=ALL_FIELDS - {"prompt_logits"})
    torch.manual_seed(7)
    output = model.generate(**inputs, max_new_tokens=STEPS, **kwargs, **observe(streamer))
    [only] = prompt
    return output, only, steps


def differences(output: Any, prompt: PromptOutput, steps: list[StepOutput]) -> list[str]:
    """Name every tensor of the streamed steps that is not equal to the returned one."""
    found = []
    sequences = torch.cat([prompt.tokens, *(step.tokens[:, None] for step in steps)], dim=1)
    if not torch.equal(sequences, output.sequences):
        found.append("sequences")
    returned = len(output.scores)
    if len(steps) != returned:
        found.append(f"{len(steps)} steps for {returned}")
    for index, step in zip(range(returned), steps, strict=False):
        pairs = [("scores", step.scores, output.scores[index]), ("logits", step.logits, output.logits[index])]
        for name in ("attentions", "hidden_states"):
            streamed, wanted = getattr(step, name), getattr(output, name)[index]
            assert len(streamed) == len(wanted) > 0
            pairs += [(f"{name}[{layer}]", *pair) for layer, pair in enumerate(zip(streamed, wanted, strict=True))]
        # equal_nan: attention of a padded position to nothing.
        found += [
            f"{name} of step {index}"
            for name, streamed, wanted in pairs
            if not (streamed.dtype == wanted.dtype and streamed.shape == wanted.shape and _same(streamed, wanted))
        ]
    return found


def _same(one: torch.Tensor, other: torch.Tensor) -> bool:
    return torch.equal(one.nan_to_num(nan=12345.0), other.nan_to_num(nan=12345.0))


def eos_of(model: PreTrainedModel, inputs: dict[str, torch.Tensor], kwargs: dict[str, Any]) -> int:
    """Find a token that ends row 0 in the middle and, in a batch, at least one row later or never."""
    sequences = plain(model, inputs, eos_token_id=None, pad_token_id=PAD, **kwargs).sequences[
        :, inputs["input_ids"].shape[1] :
    ]
    return int(sequences[0, STEPS // 2])


CASES = list(itertools.product(KINDS, STRATEGIES, (1, 3), (False, True)))


@pytest.mark.parametrize(("kind", "strategy", "batch", "eos"), CASES)
def test_streamed_steps_equal_returned_output(kind: Kind, strategy: str, batch: int, eos: bool) -> None:
    model, inputs, kwargs = tiny_model(kind), prompts(batch), dict(STRATEGIES[strategy])
    kwargs["pad_token_id"] = PAD
    kwargs["eos_token_id"] = eos_of(model, inputs, STRATEGIES[strategy]) if eos else None
    wanted = plain(model, inputs, **kwargs)
    output, prompt, steps = observed(model, inputs, **EVERYTHING, **kwargs)
    assert torch.equal(output.sequences, wanted.sequences)
    assert differences(wanted, prompt, steps) == []
    assert differences(output, prompt, steps) == []
    assert torch.equal(prompt.tokens, inputs["input_ids"])
    assert [step.step for step in steps] == list(range(len(steps)))
    assert [step.length for step in steps] == [inputs["input_ids"].shape[1] + 1 + index for index in range(len(steps))]
    if eos:
        assert len(steps) < STEPS or batch > 1


@pytest.mark.parametrize("kind", KINDS)
def test_a_tap_moved_by_one_step_is_noticed(kind: Kind) -> None:
    model, inputs = tiny_model(kind), prompts(1)
    output, prompt, steps = observed(model, inputs, **EVERYTHING, do_sample=False, eos_token_id=None)
    moved = differences(output, prompt, steps[1:] + steps[:1])
    assert "sequences" in moved
    for name in ("scores", "logits", "attentions[1]", "hidden_states[1]"):
        assert {f"{name} of step {index}" for index in range(STEPS)} <= set(moved)


def test_rows_that_ended_are_marked() -> None:
    model, inputs = tiny_model("llama"), prompts(3)
    eos = eos_of(model, inputs, STRATEGIES["greedy"])
    output, _, steps = observed(model, inputs, **EVERYTHING, do_sample=False, eos_token_id=eos, pad_token_id=PAD)
    generated = output.sequences[:, inputs["input_ids"].shape[1] :]
    for row, ids in enumerate(generated.tolist()):
        real = ids.index(eos) + 1 if eos in ids else len(ids)
        assert [bool(step.active[row]) for step in steps] == [index < real for index in range(len(steps))]
        assert [bool(step.finished[row]) for step in steps] == [
            index >= real - 1 or index == len(steps) - 1 for index in range(len(steps))
        ] or eos not in ids
    assert bool(steps[-1].finished.all())


def test_processors_in_place_leave_raw_logits_raw() -> None:
    class InPlace:
        def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
            return scores.mul_(0.5)

    model, inputs = tiny_model("llama"), prompts(1)
    bare, _, _ = observed(model, inputs, **EVERYTHING, do_sample=False, eos_token_id=None)
    output, prompt, steps = observed(
        model, inputs, **EVERYTHING, do_sample=False, eos_token_id=None, logits_processor=[InPlace()]
    )
    assert torch.equal(steps[0].logits, bare.logits[0])
    assert torch.equal(steps[0].scores, bare.logits[0] * 0.5)
    assert differences(output, prompt, steps) == []


def test_only_what_was_asked_for_arrives() -> None:
    model, inputs = tiny_model("llama"), prompts(1)
    steps: list[StepOutput] = []
    model.generate(**inputs, max_new_tokens=2, **observe(OutputStreamer(steps.append, fields=["hidden_states"])))
    assert steps[0].scores is steps[0].logits is steps[0].attentions is None
    assert len(steps[0].hidden_states or ()) == model.config.num_hidden_layers + 1


def test_nothing_accumulates_unless_generate_was_told_to() -> None:
    model, inputs = tiny_model("llama"), prompts(1)
    output, _, steps = observed(model, inputs, do_sample=False)
    assert isinstance(output, torch.Tensor)
    assert steps[0].hidden_states is not None
    output, _, _ = observed(model, inputs, do_sample=False, return_dict_in_generate=True)
    assert output.scores is output.logits is output.attentions is output.hidden_states is None


def test_the_model_is_not_touched() -> None:
    model, inputs = tiny_model("llama"), prompts(3)

    def state() -> dict[str, Any]:
        return {
            "attributes": {name: id(value) for name, value in vars(model).items()},
            "hooks": [len(module._forward_hooks) + len(module._forward_pre_hooks) for module in model.modules()],
            "class": type(model),
            "config": model.config.to_dict(),
            "generation config": model.generation_config.to_dict(),
            "weights": {name: (value.data_ptr(), value._version) for name, value in model.named_parameters()},
        }

    plain(model, inputs, **STRATEGIES["greedy"])  # the library itself adds hooks when hidden states are first asked for
    before = state()
    observed(model, inputs, **EVERYTHING, **STRATEGIES["sample, processors"])
    assert state() == before


def test_static_cache_and_chunked_prefill_are_observed() -> None:
    model, inputs = tiny_model("llama"), prompts(1)
    for extra in (
        {"cache_implementation": "static", "disable_compile": True},
        {"prefill_chunk_size": 4},
        {"use_cache": False},
    ):
        kwargs = {"do_sample": False, "eos_token_id": None, **extra}
        wanted = plain(model, inputs, **kwargs)
        _, prompt, steps = observed(model, inputs, **EVERYTHING, **kwargs)
        assert differences(wanted, prompt, steps) == []


def test_eos_of_the_model_ends_the_run_and_is_streamed() -> None:
    model, inputs = tiny_model("llama"), prompts(1)

    def force_eos(input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        if input_ids.shape[1] == inputs["input_ids"].shape[1] + 3:
            return torch.full_like(scores, -torch.inf).index_fill_(1, torch.tensor([EOS]), 0.0)
        return scores

    _, _, steps = observed(model, inputs, do_sample=False, logits_processor=[force_eos])
    assert [int(step.tokens) == EOS for step in steps] == [False, False, False, True]
