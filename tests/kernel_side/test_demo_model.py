"""The whole kernel side on the real small model: the demo model, fp32, on this machine."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from genscope.kernel_side.engines.in_process import InProcessEngine
from genscope.kernel_side.models import LoadedModel
from genscope.kernel_side.request import Request
from genscope.kernel_side.run import Run

PROMPT = "The café's menu 🙂, in short:"


@pytest.mark.parametrize(
    "settings",
    [
        {"keep": ["scores", "logits", "hidden_states"]},
        {"strategy": "sample", "seed": 11, "temperature": 0.9, "top_p": 0.95, "keep": ["scores", "logits"]},
    ],
)
def test_tokens_and_kept_outputs_equal_plain_generate(demo: LoadedModel, settings: dict[str, Any]) -> None:
    model, tokenizer = demo
    run = Run(InProcessEngine(model, tokenizer), Request.make(PROMPT, settings, max_new_tokens=24, stop_at_eos=False))
    run.wait(240)
    known = {name: settings[name] for name in ("temperature", "top_p") if name in settings}
    torch.manual_seed(11)
    wanted = model.generate(
        **tokenizer(PROMPT, return_tensors="pt"), max_new_tokens=24, eos_token_id=None, do_sample="seed" in settings,
        return_dict_in_generate=True, output_scores=True, output_logits=True, output_hidden_states=True, **known,
    )  # fmt: skip
    assert torch.equal(run.output.sequences, wanted.sequences)
    for field in settings["keep"]:
        for step, (kept, plain) in enumerate(zip(getattr(run.output, field), getattr(wanted, field), strict=True)):
            pairs = zip(kept, plain, strict=True) if field == "hidden_states" else [(kept, plain)]
            assert all(torch.equal(*pair) for pair in pairs), (field, step)


def test_the_record_tells_text_bytes_and_groups_exactly(demo: LoadedModel) -> None:
    model, tokenizer = demo
    run = Run(InProcessEngine(model, tokenizer), Request.make(PROMPT, max_new_tokens=24, prompt_probabilities=True))
    record = run.wait(240).record
    whole = tokenizer.decode(record.ids(), clean_up_tokenization_spaces=False)
    assert "".join(token.text for token in record) + record.tail == whole
    assert b"".join(token.bytes or b"" for token in record).decode() == whole
    assert "".join(token.shown for token in record) == whole
    assert whole.startswith(PROMPT)
    face = next(token for token in record if token.text.endswith("🙂"))
    members = [token for token in record if token.group == face.group]
    assert b"".join(token.bytes or b"" for token in members).decode().strip() == "🙂"
    ids = torch.tensor([record.ids("prompt")])
    with torch.no_grad():
        logprobs = model(ids).logits[0].log_softmax(-1)
    for token in record[1 : run.prompt_tokens]:
        assert token.raw_logprob == pytest.approx(logprobs[token.position - 1, token.id].item(), abs=1e-4)


def test_chat_ends_by_itself(demo: LoadedModel) -> None:
    messages = [{"role": "user", "content": "What is the capital of France? Answer in one short sentence."}]
    run = Run(InProcessEngine(*demo), Request.make(messages, max_new_tokens=40)).wait(240)
    assert (run.state, run.why) == ("finished", "eos")
    assert "Paris" in run.text
    assert "<|im_end|>" not in run.text
    assert (run.record[-1].text, run.record[-1].special) == ("<|im_end|>", True)
    prompt = "".join(token.text for token in run.record[: run.prompt_tokens])
    assert prompt.count("<|im_start|>") == 3  # the template's system message, ours, and the answer's begin
