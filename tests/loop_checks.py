"""What the tests of the decoding loops of our own share: prompts, an observed run, checks that hold for each loop.

The references, which the loops are compared with, stand in the tests themselves.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from transformers import PreTrainedModel

from genscope.kernel_side.decoding.observe import observe
from genscope.kernel_side.decoding.own_loop import OwnLoop
from genscope.kernel_side.streaming.base import OutputStreamer
from genscope.kernel_side.streaming.outputs import ALL_FIELDS, StepOutput
from tiny import PAD

EVERYTHING: dict[str, Any] = {
    "return_dict_in_generate": True,
    "output_scores": True,
    "output_logits": True,
    "output_hidden_states": True,
    "output_attentions": True,
}


def prompts(batch: int, length: int = 11, seed: int = 0) -> dict[str, torch.Tensor]:
    """Make prompts of different lengths, padded on the left; longer than gemma3's sliding window."""
    ids = torch.randint(3, 300, (batch, length), generator=torch.Generator().manual_seed(seed))
    mask = torch.ones_like(ids)
    for row in range(1, batch):
        ids[row, : row * 2] = PAD
        mask[row, : row * 2] = 0
    return {"input_ids": ids, "attention_mask": mask}


def row_of(inputs: dict[str, torch.Tensor], row: int) -> dict[str, torch.Tensor]:
    """Return one prompt without its padding."""
    ids = inputs["input_ids"][row : row + 1, int((inputs["attention_mask"][row] == 0).sum()) :]
    return {"input_ids": ids, "attention_mask": torch.ones_like(ids)}


def run(
    model: Any, inputs: dict[str, torch.Tensor], loop: OwnLoop, *, seed: int | None = None, **kwargs: Any
) -> tuple[Any, list[StepOutput]]:
    """Generate with everything returned and everything streamed."""
    steps: list[StepOutput] = []
    streamer = OutputStreamer(steps.append, fields=ALL_FIELDS - {"prompt_logits"})
    arguments = {"do_sample": False, "max_new_tokens": 10} | EVERYTHING | kwargs
    return model.generate(**inputs, **arguments, **observe(streamer, loop=loop, seed=seed)), steps


def new_tokens(output: Any, inputs: dict[str, torch.Tensor]) -> list[list[int]]:
    """Return the generated tokens."""
    tokens: list[list[int]] = output.sequences[:, inputs["input_ids"].shape[1] :].tolist()
    return tokens


def differences(output: Any, steps: list[StepOutput]) -> list[str]:
    """Name every streamed tensor that is not the returned one."""
    found = [] if len(steps) == len(output.scores) else [f"{len(steps)} steps for {len(output.scores)}"]
    for index, step in enumerate(steps[: len(output.scores)]):
        for name in ("scores", "logits", "attentions", "hidden_states"):
            streamed, returned = getattr(step, name), getattr(output, name)[index]
            if name in ("scores", "logits"):
                streamed, returned = [streamed], [returned]
            assert len(streamed) == len(returned) > 0
            if not all(torch.equal(*pair) for pair in zip(streamed, returned, strict=True)):
                found.append(f"{name} of step {index}")
    return found


@contextmanager
def untouched(model: PreTrainedModel) -> Iterator[None]:
    """Fail when the model's weights, settings or attributes are not what they were."""

    def state() -> Any:
        return copy.deepcopy(
            (sorted(vars(model)), model.config.to_dict(), model.generation_config.to_dict(), dict(model.state_dict()))
        )

    before = state()
    yield
    after = state()
    assert before[:3] == after[:3]
    assert all(torch.equal(value, after[3][name]) for name, value in before[3].items())
