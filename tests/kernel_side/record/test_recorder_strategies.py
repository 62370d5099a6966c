"""The recorder under beam search and assisted decoding: final tokens with the measures of the step they were chosen in."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from compare import EVERYTHING, prompts
from genscope.kernel_side.decoding.observe import observe
from genscope.kernel_side.record.recorder import Recorder
from tiny import PAD, tiny_model, tiny_tokenizer

PLAIN: dict[str, Any] = {"max_new_tokens": 8, "eos_token_id": None, "pad_token_id": PAD}


@pytest.mark.parametrize("do_sample", [False, True])
@pytest.mark.parametrize("eos", [None, 150])
def test_each_returned_beam_is_recorded_with_its_own_measures(do_sample: bool, eos: int | None) -> None:
    recorder = Recorder(tiny_tokenizer(), rows=4, alternatives=3)
    kwargs = PLAIN | {"num_beams": 3, "num_return_sequences": 2, "do_sample": do_sample, "eos_token_id": eos}
    if do_sample:
        kwargs |= {"temperature": 0.7, "top_k": 0}
    output = tiny_model("llama").generate(**prompts(2), **kwargs, **EVERYTHING, **observe(recorder, seed=3))
    for row, record in enumerate(recorder.records):
        generated = [token for token in record if token.origin == "generated"]
        parents = [parent for parent in output.beam_indices[row].tolist() if parent >= 0]
        assert [token.id for token in generated] == output.sequences[row, 11:].tolist()[: len(parents)]
        for step, (token, parent) in enumerate(zip(generated, parents, strict=True)):
            raw = torch.log_softmax(output.logits[step][parent].double(), dim=-1)[token.id]
            assert token.raw_logprob == pytest.approx(float(raw), abs=1e-5)
            processed = torch.log_softmax(output.scores[step][parent].double(), dim=-1)[token.id]
            assert token.logprob == pytest.approx(float(processed), abs=1e-5)
            assert len(token.alternatives) == 3
            assert token.seconds is not None
            assert token.seconds > 0


def test_a_stopped_beam_search_is_recorded_too() -> None:
    recorder = Recorder(tiny_tokenizer())
    answers = iter([False, True])
    observing = observe(recorder, stop=lambda: next(answers))
    output = tiny_model("llama").generate(**prompts(1), **PLAIN, num_beams=3, **observing)
    assert [token.id for token in recorder.record] == output[0].tolist()
    assert len(recorder.record) == 11 + 2


@pytest.mark.parametrize("kwargs", [{"do_sample": False}, {"do_sample": True, "top_k": 20}])
def test_tokens_of_a_round_are_recorded_one_by_one_and_timed_together(kwargs: dict[str, Any]) -> None:
    recorder, draft = Recorder(tiny_tokenizer(), alternatives=3), tiny_model("llama")
    output = tiny_model("llama").generate(
        **prompts(1), **PLAIN, **kwargs, **EVERYTHING, **observe(recorder, seed=3, assistant_model=draft)
    )
    assert [token.id for token in recorder.record] == output.sequences[0].tolist()
    generated = [token for token in recorder.record if token.origin == "generated"]
    for token, logits in zip(generated, output.logits, strict=True):
        raw = torch.log_softmax(logits[0].double(), dim=-1)[token.id]
        assert token.raw_logprob == pytest.approx(float(raw), abs=1e-5)
    assert generated[0].seconds
    assert 0.0 in [token.seconds for token in generated]
