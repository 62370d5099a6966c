"""Made-up rows of records and tables, whose every value says which row it is, and what a front end must know of them."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Sequence
from typing import Any, get_args

from genscope.kernel_side.record.beams import BeamCandidate, BeamChoice, BeamStep, FinishedBeam
from genscope.kernel_side.record.record import Alternative, Origin, Token
from genscope.kernel_side.record.rounds import Draft, Round
from genscope.kernel_side.record.segments import Segment, SegmentKind

TEXTS = ("the", " cat", "", " sat", "é", "<script>alert(1)</script>", '"', "&", "<s>", "👩‍👩‍👧")


def make_token(position: int, origin: Origin = "generated", alternatives: int = 3, lane: int = 0) -> Token:
    """Make a row of a record."""
    text = TEXTS[(position + lane) % len(TEXTS)]
    measured = origin == "generated"
    return Token(
        position=position,
        id=1000 * (lane + 1) + position,
        text=text,
        shown=text,
        bytes=text.encode() if position % 7 else None,
        group=position,
        special=position % 11 == 0,
        origin=origin,
        raw_logprob=-position / 1000 if measured else None,
        logprob=-position / 2000 if measured else None,
        entropy=position / 777 if measured else None,
        rank=1 + position % 5 if measured else None,
        seconds=0.01 if measured else None,
        cached=None if measured else position % 3 == 0,
        alternatives=tuple(
            Alternative(
                k, f"{TEXTS[(position + k) % len(TEXTS)]}{position % 50}", -k - 0.5, -math.inf if k == 2 else -k - 0.25
            )
            for k in range(alternatives if measured else 0)
        ),
    )


def make_round(step: int, position: int, drafts: int, accepted: int, bonus: int = 1) -> Round:
    """Make a round; of every third one the drafts have no probabilities, and each last draft was cut."""
    return Round(
        step=step,
        position=position,
        drafts=tuple(
            Draft(
                id=step + k,
                text=TEXTS[(step + k) % len(TEXTS)],
                draft_logprob=None if step % 3 == 2 else -k / 10,
                target_logprob=-math.inf if k == drafts - 1 else -k / 7,
            )
            for k in range(drafts)
        ),
        accepted=accepted,
        bonus=bonus,
        seconds=None if step == 0 else step / 100,
    )


def make_step(step: int, prompt: int = 0, beams: int = 2) -> BeamStep:
    """Make a step of a beam search with twice as many candidates as beams; the last beam holds nothing at first."""
    return BeamStep(
        prompt=prompt,
        step=step,
        candidates=tuple(
            BeamCandidate(
                id=step * 100 + k,
                text=TEXTS[(step + prompt + k) % len(TEXTS)],
                beam=k % beams,
                score=None if step == 0 and k % beams == beams - 1 else -step - k / 3,
                stops=k == beams,
            )
            for k in range(2 * beams)
        ),
        live=tuple(range(beams)),
        live_scores=tuple(None if step == 0 and k == beams - 1 else -step - k / 3 for k in range(beams)),
        finished=tuple(FinishedBeam(at, beams, -at - 0.125) for at in range(min(step, beams))),
    )


def make_choice(lane: int, prompt: int, step: int) -> BeamChoice:
    """Make a choice; one of step -1 is that of a search that had nothing."""
    return BeamChoice(lane, prompt, step, 0, None if step < 0 else -1.5 - lane)


def make_segment(at: int, lane: int = 0) -> Segment:
    """Make a segment of an environment: prompt, model, tool, end and reward in turn."""
    kind = get_args(SegmentKind)[at % 5]
    told: dict[str, Any] = {
        "model": {"reused": 3 * at, "computed": 2, "text": None if at else "nothing"},
        "tool": {"text": TEXTS[at % len(TEXTS)]},
        "end": {"text": "submit"},
        "reward": {"reward": at / 4},
    }
    return Segment(lane, kind, at // 2, 5 * at, 5 * at + (kind not in ("end", "reward")), **told.get(kind, {}))


def number(value: float | None) -> float | None:
    """Round as the wire does."""
    return None if value is None or not math.isfinite(value) else float(f"{value:.5g}") + 0.0


def wire_rows(record: Iterable[Token]) -> list[dict[str, Any]]:
    """Return what a front end must know of a record, computed the plain way."""
    return [
        {
            "id": token.id,
            "text": token.shown,
            "bytes": None if token.bytes is None else token.bytes.hex(),
            "group": token.group,
            "special": int(token.special),
            "generated": int(token.origin == "generated"),
            "raw_logprob": number(token.raw_logprob),
            "logprob": number(token.logprob),
            "entropy": number(token.entropy),
            "rank": token.rank,
            "seconds": number(token.seconds),
            "alt_n": len(token.alternatives),
            "cached": None if token.cached is None else int(token.cached),
            "alternatives": [
                (entry.id, entry.text, number(entry.raw_logprob), number(entry.logprob)) for entry in token.alternatives
            ],
        }
        for token in record
    ]


def wire_table(rows: Sequence[Round | BeamStep | BeamChoice | Segment]) -> list[dict[str, Any]]:
    """Return what a front end must know of a table, computed the plain way."""
    return [_wire_row(row) for row in rows]


def _wire_row(row: Round | BeamStep | BeamChoice | Segment) -> dict[str, Any]:
    if isinstance(row, Segment):
        return dataclasses.asdict(row)
    if isinstance(row, Round):
        return {
            "step": row.step,
            "position": row.position,
            "id": [draft.id for draft in row.drafts],
            "text": [draft.text for draft in row.drafts],
            "draft_logprob": [number(draft.draft_logprob) for draft in row.drafts],
            "target_logprob": [number(draft.target_logprob) for draft in row.drafts],
            "accepted": row.accepted,
            "bonus": row.bonus,
            "seconds": number(row.seconds),
        }
    if isinstance(row, BeamStep):
        return {
            "prompt": row.prompt,
            "step": row.step,
            "id": [candidate.id for candidate in row.candidates],
            "text": [candidate.text for candidate in row.candidates],
            "beam": [candidate.beam for candidate in row.candidates],
            "score": [number(candidate.score) for candidate in row.candidates],
            "stops": [int(candidate.stops) for candidate in row.candidates],
            "live": list(row.live),
            "live_score": [number(score) for score in row.live_scores],
            "finished": [
                {"step": place.step, "candidate": place.candidate, "score": number(place.score)}
                for place in row.finished
            ],
        }
    return {
        "lane": row.lane,
        "prompt": row.prompt,
        "step": row.step,
        "candidate": row.candidate,
        "score": number(row.score),
    }
