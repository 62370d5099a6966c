"""Compares what was streamed with what plain ``generate`` returns, tensor by tensor, and counts.

``tests/conftest.py`` prints the counts after a test run.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import torch
from transformers import PreTrainedModel

from genscope.kernel_side.decoding.observe import observe
from genscope.kernel_side.decoding.own_loop import OwnLoop
from genscope.kernel_side.streaming.assisted_outputs import AssistedStepOutput
from genscope.kernel_side.streaming.base import OutputStreamer
from genscope.kernel_side.streaming.beam_outputs import BeamResult, BeamStepOutput, trace
from genscope.kernel_side.streaming.outputs import ALL_FIELDS, PromptOutput, StepOutput
from tiny import PAD

STEPS = 12
EVERYTHING: dict[str, Any] = {
    "return_dict_in_generate": True,
    "output_scores": True,
    "output_logits": True,
    "output_hidden_states": True,
    "output_attentions": True,
}
COUNTS: Counter[str] = Counter()
"""Cases and tensors that were compared in this test run."""


@dataclass
class Streamed:
    """What a streamer was handed."""

    prompt: list[PromptOutput] = field(default_factory=list)
    steps: list[Any] = field(default_factory=list)
    result: list[BeamResult] = field(default_factory=list)


def prompts(batch: int, length: int = 11, *, side: str = "left") -> dict[str, torch.Tensor]:
    """Make prompts of different lengths, padded; longer than gemma3's sliding window."""
    generator = torch.Generator().manual_seed(batch)
    ids = torch.randint(3, 300, (batch, length), generator=generator)
    mask = torch.ones_like(ids)
    for row in range(1, batch):
        part = slice(None, row * 2) if side == "left" else slice(length - row * 2, None)
        ids[row, part] = PAD
        mask[row, part] = 0
    return {"input_ids": ids, "attention_mask": mask}


def plain(model: Any, inputs: dict[str, torch.Tensor], *, loop: OwnLoop | None = None, **kwargs: Any) -> Any:
    """Generate without observing, everything returned."""
    torch.manual_seed(7)
    ours = {} if loop is None else {"custom_generate": loop}
    return model.generate(**inputs, **{"max_new_tokens": STEPS, **EVERYTHING, **kwargs}, **ours)


def observed(
    model: Any,
    inputs: dict[str, torch.Tensor],
    *,
    assistant_model: PreTrainedModel | None = None,
    seed: int | None = None,
    stop: Any = None,
    loop: OwnLoop | None = None,
    **kwargs: Any,
) -> tuple[Any, Streamed]:
    """Generate with everything streamed, and only what the arguments say returned."""
    streamed = Streamed()
    streamer = OutputStreamer(
        streamed.steps.append,
        on_prompt=streamed.prompt.append,
        on_result=streamed.result.append,
        fields=ALL_FIELDS - {"prompt_logits"},
    )
    torch.manual_seed(7 if seed is None else 8)
    observing = observe(streamer, seed=seed, stop=stop, assistant_model=assistant_model, loop=loop)
    output = model.generate(**inputs, **{"max_new_tokens": STEPS, **kwargs}, **observing)
    return output, streamed


def differences(output: Any, streamed: Streamed) -> list[str]:
    """Name everything streamed that is not what was returned, in dtype, shape or any bit."""
    comparison = _Comparison()
    [prompt] = streamed.prompt
    _compare_source(comparison, output, prompt)
    first = streamed.steps[0]
    if isinstance(first, BeamStepOutput):
        _compare_beams(comparison, output, streamed)
    for name in ("scores", "logits", "attentions", "hidden_states", "cross_attentions"):
        if isinstance(first, AssistedStepOutput):
            per_token = [entry for step in streamed.steps for entry in (getattr(step, name) or ())]
        else:
            per_token = [entry for step in streamed.steps if (entry := getattr(step, name)) is not None]
        wanted = getattr(output, name, None)
        if wanted is None:
            wanted = getattr(output, f"decoder_{name}", None) or ()
        comparison.all(name, per_token, wanted)
    if not isinstance(first, BeamStepOutput):
        tokens = [step.tokens[:, None] if isinstance(step, StepOutput) else step.tokens for step in streamed.steps]
        comparison.one("sequences", torch.cat([prompt.tokens, *tokens], dim=1), output.sequences)
    return comparison.found


def eos_in_the_middle(model: PreTrainedModel, inputs: dict[str, torch.Tensor], **kwargs: Any) -> int:
    """Return a token that ends the first row in the middle."""
    output = plain(model, inputs, eos_token_id=None, **kwargs)
    start = 1 if model.config.is_encoder_decoder else inputs["input_ids"].shape[1]
    return int(output.sequences[0, start + STEPS // 2])


def check(model: PreTrainedModel, inputs: dict[str, torch.Tensor], *, eos: bool, **kwargs: Any) -> Streamed:
    """Compare with plain ``generate``, with or without an end of sequence in the middle; return what was streamed."""
    kwargs["pad_token_id"] = PAD
    kwargs["eos_token_id"] = eos_in_the_middle(model, inputs, **kwargs) if eos else None
    streamed = compare_with_plain(model, inputs, kwargs)
    assert [step.step for step in streamed.steps] == list(range(len(streamed.steps)))
    return streamed


def compare_with_plain(model: PreTrainedModel, inputs: dict[str, torch.Tensor], kwargs: dict[str, Any]) -> Streamed:
    """Compare with plain ``generate``, once returning everything and once nothing but the sequences."""
    wanted = plain(model, inputs, **kwargs)
    output, streamed = observed(model, inputs, **EVERYTHING, **kwargs)
    assert differences(wanted, streamed) == []
    assert differences(output, streamed) == []
    bare, again = observed(model, inputs, **kwargs)
    assert torch.equal(bare, wanted.sequences)
    assert differences(wanted, again) == []
    COUNTS["cases"] += 1
    return streamed


class _Comparison:
    def __init__(self) -> None:
        self.found: list[str] = []

    def one(self, name: str, streamed: torch.Tensor, wanted: torch.Tensor) -> None:
        COUNTS["tensors"] += 1
        # NaN equals NaN: attention of a padded position to nothing.
        same = streamed.dtype == wanted.dtype and streamed.shape == wanted.shape
        if not (same and torch.equal(streamed.nan_to_num(nan=12345.0), wanted.nan_to_num(nan=12345.0))):
            self.found.append(name)

    def all(self, name: str, streamed: Any, wanted: Any) -> None:
        if isinstance(wanted, torch.Tensor):
            self.one(name, streamed, wanted)
            return
        if len(streamed) != len(wanted):
            self.found.append(f"{len(streamed)} {name} for {len(wanted)}")
        for index, pair in enumerate(zip(streamed, wanted, strict=False)):
            self.all(f"{name}[{index}]", *pair)


def _compare_source(comparison: _Comparison, output: Any, prompt: PromptOutput) -> None:
    if prompt.source is not None:
        for name in ("attentions", "hidden_states"):
            comparison.all(f"encoder_{name}", getattr(prompt.source, name), getattr(output, f"encoder_{name}"))


def _compare_beams(comparison: _Comparison, output: Any, streamed: Streamed) -> None:
    """Compare the result, and the final pool, replayed from (token, parent), with the returned sequences."""
    [result] = streamed.result
    comparison.one("sequences", result.sequences, output.sequences)
    comparison.one("sequences_scores", result.scores, output.sequences_scores)
    comparison.one("beam_indices", result.beam_indices, output.beam_indices)
    rows = len(output.sequences)
    per_prompt = rows // len(streamed.steps[0].candidate_tokens)
    for row in range(rows):
        step, candidate = int(result.steps[row]), int(result.candidates[row])
        tokens, parents = trace(streamed.steps, row // per_prompt, step, candidate)
        fill = output.sequences.shape[1] - result.prompt_length - len(tokens)
        comparison.one(f"replayed beam_indices of row {row}", torch.tensor(parents + [-1] * fill, dtype=torch.int32), output.beam_indices[row])  # fmt: skip
        generated = output.sequences[row, result.prompt_length :]
        comparison.one(
            f"replayed tokens of row {row}", torch.tensor(tokens, dtype=torch.int64), generated[: len(tokens)]
        )
        if int(result.lengths[row]) != len(tokens):
            comparison.found.append(f"length of row {row}")
    for index, step in enumerate(streamed.steps[1:], start=1):
        # Each beam goes on from the candidate that it was said to hold: their scores add up.
        before = streamed.steps[index - 1].live_scores.reshape(-1)[step.candidate_parents]
        added = step.scores[step.candidate_parents, step.candidate_tokens]
        comparison.one(f"candidate scores of step {index}", added + before, step.candidate_scores)
