"""What runs and lanes are, in words: what makes the tokens again and no more, lanes by whose they are."""

from __future__ import annotations

import threading
from types import SimpleNamespace

import pytest

from fake_engine import FakeEngine
from genscope.kernel_side.record.beams import BeamChoice
from genscope.kernel_side.record.record import Record
from genscope.kernel_side.record.recording import Lane, Recording
from genscope.kernel_side.record.table import Table
from genscope.kernel_side.request import Request
from genscope.kernel_side.run import Run
from genscope.widget.captions import caption, lane_labels, plain_text
from heard import until


def run_of(prompt="x", engine=None, **settings):
    return Run(engine or FakeEngine(2), Request.make(prompt, settings)).wait(30)


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({}, "greedy"),
        ({"stop_strings": ["\n"]}, "greedy (stop strings ['\\n'])"),
        # What is observed changes no token.
        ({"alternatives": 3, "attention": True, "logit_lens": True, "keep": ["logits"]}, "greedy"),
        ({"prompt_probabilities": True}, "greedy"),
        # Last digits may decide between two tokens.
        ({"execution": "traced"}, "greedy (execution traced)"),
        ({"strategy": "sample", "temperature": 0.7, "seed": 5}, "sample (temperature 0.7, seed 5)"),
        # A search, or a contrast, draws nothing; what is switched off does not count.
        ({"strategy": "contrastive", "penalty_alpha": 0.5, "seed": 5}, "contrastive (penalty alpha 0.5)"),
        ({"strategy": "dola", "temperature": 0.5, "seed": 5, "dola_layers": "low"}, "dola (dola layers low)"),
        (
            {"strategy": "dola", "temperature": 0.5, "seed": 5, "do_sample": True},
            "dola (do sample True, temperature 0.5, seed 5)",
        ),
        ({"strategy": "guidance", "negative_prompt": "not\nthis"}, "guidance (negative prompt 'not\\nthis')"),
    ],
)
def test_the_caption_tells_what_makes_the_tokens_again(settings, told):
    run = run_of(**settings, max_new_tokens=2)
    assert caption(run, "tiny") == f"tiny, {told}, 2 tokens, finished (length)"


def test_a_long_text_is_shortened():
    assert len(caption(run_of(strategy="guidance", negative_prompt="no " * 30_000), "tiny")) < 200


def test_the_caption_counts_sequences():
    run = run_of(["a", "b"], FakeEngine(5, ragged=True), strategy="sample", num_return_sequences=2, seed=1)
    told = "sample (num return sequences 2, seed 1), 4 sequences of up to 5 tokens, finished (eos (3), length (1))"
    assert caption(run, "tiny") == f"tiny, {told}"


def test_a_search_that_goes_on_has_steps_and_no_tokens():
    gate = threading.Semaphore(2)
    run = Run(FakeEngine(5, gate=gate), Request.make("x", strategy="beam"))
    until(lambda: run.status().generated == 2)
    assert "beam, 2 steps, " in caption(run, "tiny")
    gate.release(3)
    run.wait(30)
    assert caption(run, "tiny") == "tiny, beam, 5 tokens, finished (length)"
    assert lane_labels(run) == ["score -1.500"]


def test_a_score_is_told_where_there_is_one_however_small():
    lanes = tuple(Lane(0, index, Record(), None, 0) for index in range(3))
    scores = (-4.1e-10, -24.5706, None)
    choices = Table([BeamChoice(lane, 0, 3, 0, score) for lane, score in enumerate(scores)])
    run = SimpleNamespace(recording=Recording(lanes, choices=choices), whys=("eos", "length", "no hypothesis"))
    assert lane_labels(run) == [
        "sequence 1 (eos, score -4.1e-10)",
        "sequence 2 (length, score -24.571)",
        "sequence 3 (no hypothesis)",
    ]


def test_the_text_of_one_lane_is_plain_and_several_have_labels():
    run = run_of()
    assert plain_text(run) == run.text
    run = run_of(["a", "b"], FakeEngine(3, ragged=True))
    assert plain_text(run) == f"[prompt 1 (length)]\n{run.texts[0]}\n\n[prompt 2 (eos)]\n{run.texts[1]}"
