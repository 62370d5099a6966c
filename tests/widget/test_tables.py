"""Rows of the tables beside the records, on the wire: exact values, unknown and impossible as null, bounded slices."""

from __future__ import annotations

import json
import math

import pytest

from fake_rows import make_choice, make_round, make_step, wire_table
from genscope.kernel_side.record.beams import BeamCandidate, BeamChoice, BeamStep, FinishedBeam
from genscope.kernel_side.record.rounds import Draft, Round
from genscope.widget.tables import ENTRIES, slice_end, wire_rows


def test_a_round():
    drafts = (Draft(5, " a", -0.123456789, -math.inf), Draft(6, "\ud800", None, -0.5))
    assert wire_rows("rounds", [Round(3, 17, drafts, 1, 0, 0.0123456789)]) == [
        {
            "step": 3, "position": 17, "id": [5, 6], "text": [" a", "?"], "draft_logprob": [-0.12346, None],
            "target_logprob": [None, -0.5], "accepted": 1, "bonus": 0, "seconds": 0.012346,
        }
    ]  # fmt: skip


def test_a_step_of_a_beam_search():
    candidates = (BeamCandidate(5, "\udfffx", 1, -0.123456789, True), BeamCandidate(6, "", 0, None, False))
    step = BeamStep(2, 4, candidates, (1, 0), (-0.5, None), (FinishedBeam(3, 1, -1.23456789),))
    assert wire_rows("beams", [step]) == [
        {
            "prompt": 2, "step": 4, "id": [5, 6], "text": ["?x", ""], "beam": [1, 0], "score": [-0.12346, None],
            "stops": [1, 0], "live": [1, 0], "live_score": [-0.5, None],
            "finished": [{"step": 3, "candidate": 1, "score": -1.2346}],
        }
    ]  # fmt: skip


def test_choices():
    assert wire_rows("choices", [BeamChoice(3, 1, 7, 2, -0.123456789), BeamChoice(4, 1, -1, -1, -math.inf)]) == [
        {"lane": 3, "prompt": 1, "step": 7, "candidate": 2, "score": -0.12346},
        {"lane": 4, "prompt": 1, "step": -1, "candidate": -1, "score": None},
    ]


@pytest.mark.parametrize(
    ("name", "rows"),
    [
        ("rounds", [make_round(step, 3, 4, step % 5) for step in range(7)]),
        ("beams", [make_step(step, step % 2, 4) for step in range(7)]),
        ("choices", [make_choice(0, 0, 5), make_choice(1, 0, -1)]),
    ],
)
def test_rows_are_as_the_plain_way_computes_them_and_strict_json(name, rows):
    made = wire_rows(name, rows)
    assert made == wire_table(rows)
    assert json.loads(json.dumps(made, allow_nan=False)) == made


def test_slices_are_bounded_by_what_their_rows_hold():
    steps = [make_step(step, beams=8) for step in range(1000)]  # with 16 candidates each
    stop = slice_end(steps, 100)
    entries = sum(1 + len(s.candidates) + len(s.live) + len(s.finished) for s in steps[100:stop])
    assert entries <= ENTRIES < entries + 33
    # Rows that hold little come in large slices, and what is left in one.
    assert slice_end([make_choice(lane, 0, 1) for lane in range(3000)], 0) == 3000
    assert slice_end(steps, 990) == 1000


def test_a_row_of_any_size_is_sent_by_itself():
    rounds = [make_round(0, 0, ENTRIES * 2, 0), make_round(1, 1, 3, 0), make_round(2, 2, ENTRIES * 2, 0)]
    assert [slice_end(rounds, start) for start in range(4)] == [1, 2, 3, 3]
