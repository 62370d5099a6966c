"""The tree of a scope's runs, as its trait holds it: which run goes on from which. No runs are started here."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal, TypedDict

from .plain import sendable

if TYPE_CHECKING:
    from ..kernel_side.comparison.comparison import Comparison
    from ..kernel_side.record.record import Token
    from ..kernel_side.run import Run, RunState

__all__ = ["TreeRow", "tree_of"]

_GIVEN, _GENERATED = 32, 64
"""Characters of a title, at most: of what a run was given, and of what it generated."""


class TreeRow(TypedDict):
    """A run in the tree.

    Attributes
    ----------
    id : str
    parent : str or None
        The run that it goes on from; None where that is none of the scope's.
    lane, position : int
        Where it leaves its parent: how many tokens of which lane stay.
    kind : str
    title : str
        The end of what it added to its parent's tokens (of a run of its own: of its prompt), then the beginning of what
        it generated.
    strategy, state : str
        Of a comparison how many lanes it has in place of the strategy.
    execution : str or None
        How its forward passes run where that is not eagerly.
    tokens : int
        Generated so far, of the longest sequence.
    """

    id: str
    parent: str | None
    lane: int
    position: int
    kind: Literal["run", "branch", "reply", "environment", "comparison"]
    title: str
    strategy: str
    execution: str | None
    state: RunState
    tokens: int


def tree_of(runs: Sequence[Run], comparisons: Sequence[Comparison] = ()) -> list[TreeRow]:
    """Return the tree of runs, oldest first; the runs of a comparison are one row."""
    known = {run.id for run in runs}
    of = {run.id: one for one in comparisons for run in one.runs}
    rows = []
    for run in runs:
        comparison = of.get(run.id)
        row = _row(run, known)
        above = None if row["parent"] is None else of.get(row["parent"])
        if above is not None:
            lanes = [(lane.run.id, lane.index) for lane in above.lanes]
            row["lane"], row["parent"] = lanes.index((str(row["parent"]), row["lane"])), above.id
        if comparison is None:
            rows.append(row)
        elif run is comparison.runs[0]:
            tokens = comparison.status().generated
            count = f"{len(comparison.lanes)} lanes"
            rows.append(
                row
                | {
                    "id": comparison.id,
                    "kind": "comparison",
                    "strategy": count,
                    "tokens": tokens,
                    "state": comparison.state,
                }
            )
    return rows


def _row(run: Run, known: set[str]) -> TreeRow:
    branch, lane = run.request.branch, run.lanes[0]
    kept = 0 if branch is None else branch.position
    read = lane.record[kept : lane.prompt_tokens] if lane.source is None or branch is not None else lane.source[:]
    given = _text(read)
    generated = _text(lane.record[lane.prompt_tokens : lane.prompt_tokens + _GENERATED])
    given = given if len(given) <= _GIVEN else f"…{given[-_GIVEN:]}"
    generated = generated if len(generated) <= _GENERATED else f"{generated[:_GENERATED]}…"
    return {
        "id": run.id,
        "parent": None if branch is None or branch.run not in known else branch.run,
        "lane": 0 if branch is None else branch.lane,
        "position": kept,
        "kind": "environment" if run.recording.segmented else "run" if branch is None else branch.kind,
        "title": sendable(given + generated),
        "strategy": run.settings.strategy,
        "execution": None if run.settings.execution == "eager" else run.settings.execution,
        "state": run.state,
        "tokens": run.status().generated,
    }


def _text(tokens: Sequence[Token]) -> str:
    return "".join(token.text for token in tokens if not token.special)
