"""What a page must show of a run, computed the plain way. Kernels of the browser tests import it; all of it is JSON."""

from __future__ import annotations

import json
import re
import unicodedata
from typing import Any

from genscope.kernel_side.record.beams import BeamStep, trace_candidate
from genscope.kernel_side.record.rounds import summarize
from genscope.kernel_side.run import Run

MARKS = str.maketrans({"\n": "⏎", "\t": "→", "\r": "␍"})


def literal(text: str) -> str:
    """Write a text as the page writes a token: as in code, or the bytes inside a character."""
    if re.fullmatch(r"(\\x[0-9A-F]{2})+", text):
        return text[2:].replace("\\x", " ")
    hidden = ("Cc", "Cf", "Zl", "Zp", "Zs")
    return "".join(
        f"\\u{ord(char):04x}" if char != " " and unicodedata.category(char) in hidden else char
        for char in json.dumps(text, ensure_ascii=False)
    )


def tokens(run: Run) -> list[list[str]]:
    """Return each lane's tokens as they are shown."""
    return [[token.shown for token in lane.record] for lane in run.lanes]


def steps_of(run: Run, prompt: int = 0) -> list[BeamStep]:
    """Return the steps of one prompt's search."""
    return [row for row in run.recording.beams if row.prompt == prompt]


def hypothesis(steps: list[BeamStep], step: int, candidate: int, score: float | None) -> dict[str, Any]:
    """Replay a hypothesis: its text on one line, and the candidates on its way as ``step:candidate``."""
    text = "".join(one.text for one in trace_candidate(steps, step, candidate)).translate(MARKS)
    path = []
    for at in range(step, -1, -1):
        path.append(f"{at}:{candidate}")
        if at:
            candidate = steps[at - 1].live[steps[at].candidates[candidate].beam]
    return {"key": path[0], "score": score, "text": text, "path": path[::-1]}


def live(run: Run, step: int = -1, prompt: int = 0) -> list[dict[str, Any]]:
    """Return the hypotheses that live after a step, best first."""
    steps = steps_of(run, prompt)
    row = steps[step]
    found = [
        hypothesis(steps, row.step, candidate, score)
        for candidate, score in zip(row.live, row.live_scores, strict=True)
        if score is not None
    ]
    return sorted(found, key=lambda one: -one["score"])


def pool(run: Run, step: int = -1, prompt: int = 0) -> list[dict[str, Any]]:
    """Return the finished hypotheses after a step, best first."""
    steps = steps_of(run, prompt)
    return [hypothesis(steps, one.step, one.candidate, one.score) for one in steps[step].finished]


def chosen(run: Run, prompt: int = 0) -> list[dict[str, Any]]:
    """Return what the search chose, sequence after sequence."""
    steps = steps_of(run, prompt)
    return [
        hypothesis(steps, one.step, one.candidate, one.score) for one in run.recording.choices if one.prompt == prompt
    ]


def drafts(run: Run) -> dict[str, Any]:
    """Return where drafts of a run were kept, where they were dropped, and what they were worth in words."""
    rounds = run.recording.rounds
    kept = [position for one in rounds for position in range(one.position, one.position + one.accepted)]
    summary = summarize(rounds)
    worth = f"{(summary.tokens_per_forward or 0):.1f} tokens a forward pass"
    share = round(100 * (summary.acceptance or 0))
    return {
        "accepted": kept,
        "own": [one.position + one.accepted for one in rounds if one.bonus],
        "rounds": [one.position for one in rounds],
        "rejected": [
            [draft.text.translate(MARKS) or "∅", one.position + one.accepted]
            for one in rounds
            for draft in one.drafts[one.accepted :]
        ],
        "status": f"{share}\u202f% of {summary.drafted:,} drafts kept, {summary.wasted:,} wasted, {worth}",
    }


def attention(run: Run, position: int, **which: Any) -> list[float]:
    """Return what the model looked at when it chose a token."""
    assert run.looks is not None
    return run.looks.attention(position, **which).weights


def matrix(run: Run, position: int, **which: Any) -> dict[str, Any]:
    """Return that of the tokens up to a position."""
    assert run.looks is not None
    seen = run.looks.matrix(position, **which)
    return {"position": seen.position, "rows": seen.rows}


def lens(run: Run, position: int) -> list[dict[str, Any]]:
    """Return what each layer would have said, the last layer first."""
    assert run.looks is not None
    return [
        {
            "layer": look.layer,
            "says": literal(look.candidates[0].text),
            "others": [literal(one.text) for one in look.candidates[1:3]],
            "hit": look.candidates[0].id == run.record[position].id,
            "logprob": look.candidates[0].logprob,
            "chosen": look.logprob,
            "rank": look.rank,
        }
        for look in reversed(run.looks.lens(position))
    ]
