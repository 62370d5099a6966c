"""What all executions are held to: the cases of the issue, each against eager generation of the same model."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from genscope.kernel_side.caching.prefix_cache import PrefixCache
from genscope.kernel_side.decoding.observe import observe
from genscope.kernel_side.streaming.base import OutputStreamer
from genscope.kernel_side.streaming.outputs import PromptOutput
from genscope.kernel_side.tracing.graphs import difference_of
from tiny import PAD

__all__ = ["CASES", "KINDS", "Case", "check", "check_streamed", "every_token", "generate", "prompt"]

KINDS = ("llama", "gpt2", "gemma3", "mistral", "qwen3", "t5", "bart")
"""Models of ``cached_runs.model_of``: gemma3 and mistral have sliding windows that the runs here outgrow."""

STEPS = 12

Case = Callable[[Any, Any, str], tuple[torch.Tensor, tuple[torch.Tensor, ...]]]
"""Runs a model (the one given first), or a view of it (the second): returns all tokens, and the logits of each step."""


def prompt(rows: int = 1, length: int = 11, *, seed: int = 0) -> dict[str, torch.Tensor]:
    """Make prompts of one length; rows behind the first are padded on the left."""
    generator = torch.Generator().manual_seed(seed)
    ids = torch.randint(3, 300, (rows, length), generator=generator)
    mask = torch.ones_like(ids)
    for row in range(1, rows):
        ids[row, : 2 * row], mask[row, : 2 * row] = PAD, 0
    return {"input_ids": ids, "attention_mask": mask}


def every_token() -> dict[str, torch.Tensor]:
    """Make a prompt of all tokens, so that prompt lookup finds something behind each."""
    ids = 3 + torch.randperm(297, generator=torch.Generator().manual_seed(0))[None]
    return {"input_ids": ids, "attention_mask": torch.ones_like(ids)}


def generate(model: Any, inputs: dict[str, Any], **arguments: Any) -> Any:
    """Generate with logits kept, and nothing left to chance."""
    torch.manual_seed(7)
    plain = {"max_new_tokens": STEPS, "do_sample": False, "eos_token_id": None}
    returned = {"return_dict_in_generate": True, "output_logits": True}
    return model.generate(**inputs, **plain | arguments, **returned)


def _case(rows: int = 1, **arguments: Any) -> Case:
    def run(_model: Any, view: Any, _execution: str) -> tuple[torch.Tensor, tuple[torch.Tensor, ...]]:
        output = generate(view, prompt(rows), **arguments)
        return output.sequences, output.logits

    return run


def _lookup(_model: Any, view: Any, _execution: str) -> tuple[torch.Tensor, tuple[torch.Tensor, ...]]:
    output = generate(view, every_token(), prompt_lookup_num_tokens=3, max_new_tokens=2 * STEPS)
    return output.sequences, output.logits


def _cached(model: Any, view: Any, execution: str) -> tuple[torch.Tensor, tuple[torch.Tensor, ...]]:
    """Begin with a fork of what an earlier run of another prompt left: several tokens on a filled cache."""
    cache, inputs = PrefixCache(2**24), prompt()
    encoder = bool(model.config.is_encoder_decoder)
    ids = inputs["input_ids"].tolist()
    start: Any = getattr(model.config, "decoder_start_token_id", None)
    known: list[list[int]] = [[start, 17, 5]] if encoder else [[*ids[0][:6], 9]]
    asked = [[start, 17, 8, 9]] if encoder else ids
    output: Any = None
    for prompts in (known, asked):
        with cache.lease(model, prompts, sources=ids if encoder else None, execution=execution) as lease:
            own = torch.tensor(prompts)
            mine = (
                {**inputs, "decoder_input_ids": own, "decoder_attention_mask": torch.ones_like(own)}
                if encoder
                else {"input_ids": own, "attention_mask": torch.ones_like(own)}
            )
            observed = observe(OutputStreamer(lambda _: None), held=lease.columns)
            output = generate(view, mine | lease.arguments(inputs if encoder else None), **observed)
            assert lease.columns == (0 if prompts is known else 2 if encoder else 6)
            lease.store(output.sequences.tolist())
    return output.sequences, output.logits


CASES: dict[str, Case] = {
    "greedy": _case(),
    "sampling": _case(do_sample=True, temperature=0.9, top_k=20),
    "beam": _case(num_beams=4),
    "padded batch": _case(rows=3),
    "several sequences": _case(do_sample=True, num_return_sequences=3),
    "prompt lookup": _lookup,
    "cached prefix": _cached,
}


def check(case: str, model: Any, view: Any, *, exact: bool, times: int = 2) -> None:
    """Run a case eagerly and in a view: the same tokens, and logits that are equal to the bit, or within 2e-4.

    Twice: a graph's first passes run both ways, and hand on what is eager.
    """
    run, execution = CASES[case], view.execution
    tokens, logits = run(model, model, "eager")
    for _ in range(times):
        passes = execution.passes
        ours, our_logits = run(model, view, execution.name)
        assert torch.equal(ours, tokens)
        assert len(our_logits) == len(logits)
        assert execution.passes > passes
        for mine, theirs in zip(our_logits, logits, strict=True):
            if exact:
                assert torch.equal(mine, theirs)
            else:
                assert difference_of(mine, theirs) <= 2e-4 * max(1.0, float(theirs.abs().max()))


def check_streamed(view: Any, *, rows: int = 1, **arguments: Any) -> None:
    """Stream the steps of a generation in a view: they are what plain ``generate`` of that view returns."""
    generate(view, prompt(rows), **arguments)  # so that nothing is compared any more
    returned = generate(view, prompt(rows), output_scores=True, **arguments)
    steps: list[Any] = []
    observed = observe(OutputStreamer(steps.append, fields=["logits", "scores"]))
    passes = view.execution.passes
    again = generate(view, prompt(rows), output_scores=True, **arguments, **observed)
    assert view.execution.passes > passes
    assert torch.equal(again.sequences, returned.sequences)
    told = [step for step in steps if not isinstance(step, PromptOutput) and hasattr(step, "logits")]
    assert len(told) >= len(returned.logits)
    for step, logits, scores in zip(told, returned.logits, returned.scores, strict=False):
        assert torch.equal(step.logits, logits)
        assert torch.equal(step.scores.reshape(scores.shape), scores)
