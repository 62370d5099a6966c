"""The decoding loops of our own, observed: bit for bit what they return unobserved."""

from __future__ import annotations

import itertools
from typing import Any, get_args

import pytest

from compare import check, prompts
from genscope.kernel_side.decoding.contrastive import ContrastiveSearch
from genscope.kernel_side.decoding.diverse_beam import DiverseBeamSearch
from genscope.kernel_side.decoding.dola import DoLa
from genscope.kernel_side.decoding.own_loop import OwnLoop
from genscope.kernel_side.streaming.beam_outputs import BeamStepOutput
from genscope.kernel_side.streaming.outputs import StepOutput
from tiny import AnyKind, Kind, tiny_model

DECODERS: tuple[AnyKind, ...] = (*get_args(Kind), "qwen3")
PROCESSORS = {"repetition_penalty": 1.2, "no_repeat_ngram_size": 3}
ONE_BY_ONE: dict[str, tuple[OwnLoop, dict[str, Any]]] = {
    "contrastive": (ContrastiveSearch(0.6, 4), {"do_sample": False}),
    "contrastive, processors": (ContrastiveSearch(0.3, 6), {"do_sample": False, **PROCESSORS}),
    "dola": (DoLa(layers="low"), {"do_sample": False}),
    "dola, sample": (DoLa(layers="high"), {"do_sample": True, "top_k": 20, **PROCESSORS}),
}
DIVERSE: dict[str, tuple[OwnLoop, dict[str, Any]]] = {
    "diverse": (DiverseBeamSearch(2, 0.5), {"num_beams": 4}),
    "diverse, processors": (DiverseBeamSearch(3, 2.0), {"num_beams": 6, "early_stopping": True, **PROCESSORS}),
    "diverse, never early": (
        DiverseBeamSearch(2, 0.2),
        {"num_beams": 6, "early_stopping": "never", "length_penalty": 0.5},
    ),
}


@pytest.mark.parametrize(
    ("kind", "strategy", "rows", "eos"),
    [
        case
        for case in itertools.product(DECODERS, ONE_BY_ONE, ((1, 1), (3, 1), (2, 2)), (False, True))
        if case[2][1] == 1 or ONE_BY_ONE[case[1]][1]["do_sample"]
    ],
)
def test_one_by_one(kind: AnyKind, strategy: str, rows: tuple[int, int], eos: bool) -> None:
    batch, returned = rows
    loop, kwargs = ONE_BY_ONE[strategy]
    streamed = check(tiny_model(kind), prompts(batch), eos=eos, loop=loop, num_return_sequences=returned, **kwargs)
    assert all(isinstance(step, StepOutput) for step in streamed.steps)
    assert len(streamed.steps[0].tokens) == batch * returned


@pytest.mark.parametrize(
    ("kind", "strategy", "rows", "eos"),
    list(itertools.product(DECODERS, DIVERSE, ((1, 1), (1, 3), (3, 2)), (False, True))),
)
def test_diverse_beams(kind: AnyKind, strategy: str, rows: tuple[int, int], eos: bool) -> None:
    batch, returned = rows
    loop, kwargs = DIVERSE[strategy]
    settings = {"do_sample": False, "num_return_sequences": returned, **kwargs}
    streamed = check(tiny_model(kind), prompts(batch), eos=eos, loop=loop, **settings)
    assert all(isinstance(step, BeamStepOutput) for step in streamed.steps)
    assert len(streamed.result[0].sequences) == batch * returned
