"""The recorder as a streamer of a plain ``generate`` call: rows of a batch, padding, prompts in slices."""

from __future__ import annotations

import pytest
import torch

from genscope.kernel_side.decoding.observe import observe
from genscope.kernel_side.record.recorder import Recorder
from genscope.kernel_side.streaming.outputs import StepOutput
from tiny import PAD, tiny_model, tiny_tokenizer

PADDING = (0, 4, 7)


def batch() -> dict[str, torch.Tensor]:
    ids = torch.randint(3, 300, (3, 12), generator=torch.Generator().manual_seed(0))
    mask = torch.ones_like(ids)
    for row, padding in enumerate(PADDING):
        ids[row, :padding], mask[row, :padding] = PAD, 0
    return {"input_ids": ids, "attention_mask": mask}


def recorded(eos: int | None = None, **settings: bool) -> tuple[torch.Tensor, Recorder]:
    recorder = Recorder(tiny_tokenizer(), rows=3, **settings)
    output = tiny_model("llama").generate(
        **batch(), max_new_tokens=8, do_sample=False, eos_token_id=eos, pad_token_id=PAD, **observe(recorder)
    )
    return output, recorder


def test_each_row_is_recorded_without_its_padding() -> None:
    output, recorder = recorded()
    for record, ids, padding in zip(recorder.records, output.tolist(), PADDING, strict=True):
        assert record.ids() == ids[padding:]
        assert record.ids("generated") == ids[12:]
        assert "".join(token.text for token in record) + record.tail == tiny_tokenizer().decode(ids[padding:])
        assert all((token.seconds or 0) > 0 for token in record if token.origin == "generated")
    assert recorder.busy > 0
    assert recorder.record is recorder.records[0]


def test_the_first_rows_of_a_batch_may_be_recorded_alone() -> None:
    recorder = Recorder(tiny_tokenizer(), rows=2)
    output = tiny_model("llama").generate(
        **batch(), max_new_tokens=4, do_sample=False, eos_token_id=None, pad_token_id=PAD, **observe(recorder)
    )
    assert [record.ids("generated") for record in recorder.records] == output[:2, 12:].tolist()


def test_a_row_that_ended_gets_no_padding_behind() -> None:
    output, _ = recorded()
    eos = int(output[1, 12 + 3])
    output, recorder = recorded(eos)
    for record, ids in zip(recorder.records, output[:, 12:].tolist(), strict=True):
        wanted = ids[: ids.index(eos) + 1] if eos in ids else ids
        assert record.ids("generated") == wanted
    assert len(recorder.records[1].ids("generated")) <= 4


def test_prompt_probabilities_of_padded_rows_are_those_of_the_row_alone() -> None:
    model = tiny_model("llama")
    inputs = batch()
    _, recorder = recorded(prompt_probabilities=True)
    for row, (record, padding) in enumerate(zip(recorder.records, PADDING, strict=True)):
        alone = inputs["input_ids"][row : row + 1, padding:]
        with torch.no_grad():
            logprobs = model(alone).logits[0].log_softmax(-1)
        measured = [token.raw_logprob for token in record if token.origin == "prompt"]
        wanted = [logprobs[at - 1, token].item() for at, token in enumerate(alone[0].tolist()) if at]
        assert measured[0] is None
        assert measured[1:] == pytest.approx(wanted, abs=1e-4)


def test_a_long_prompt_is_measured_across_its_slices() -> None:
    model = tiny_model("gemma3")
    ids = torch.randint(3, 300, (1, 600), generator=torch.Generator().manual_seed(1))
    recorder = Recorder(tiny_tokenizer(), prompt_probabilities=True, alternatives=1)
    model.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=1, pad_token_id=PAD, **observe(recorder))
    with torch.no_grad():
        logprobs = model(ids).logits[0].log_softmax(-1)
    wanted = logprobs[:-1].gather(1, ids[0, 1:, None])[:, 0].tolist()
    assert [token.raw_logprob for token in recorder.record[1:600]] == pytest.approx(wanted, abs=1e-4)


def test_a_step_without_logits_is_refused() -> None:
    done = torch.tensor([False])
    step = StepOutput(0, 1, torch.tensor([1]), ~done, done, 0.0)
    with pytest.raises(ValueError, match="without logits and scores cannot be recorded"):
        Recorder(tiny_tokenizer()).put(step)


def test_seconds_of_a_token_are_those_since_the_one_before() -> None:
    class Clock:
        def since_start(self, moment: float) -> float:
            return moment - 100

    recorder = Recorder(tiny_tokenizer(), clock=Clock())
    logits, one = torch.zeros(1, 300), torch.tensor([True])
    for step, moment in enumerate((110.0, 110.5, 112.0)):
        recorder.put(StepOutput(step, step + 1, torch.tensor([5]), one, ~one, moment, scores=logits, logits=logits))
    assert [token.seconds for token in recorder.record] == [10.0, 0.5, 1.5]
