"""Lets a model write the next segment of each history that is open, batch after batch."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch

from ..streaming.base import StepStreamer
from .history import Reuse, TextHistory
from .new_tokens import text_after
from .stopping import StringStoppingCriteria
from .turn import Generated, Turns

__all__ = ["Watch", "generate_rows", "write_segments"]

Watch = Callable[[tuple[int, ...]], StepStreamer | None]
"""Gets the indices of the histories of a batch; returns what sees its steps."""


def write_segments(
    turns: Turns,
    histories: Sequence[TextHistory],
    stopping: StringStoppingCriteria,
    *,
    max_length: int | None = None,
    batch_size: int = 16,
    seed: int | None = None,
    stop: Callable[[], bool] | None = None,
    watch: Watch | None = None,
) -> None:
    """Append a segment of the model to each history that is not complete.

    One that has no room for another token is completed instead. What was generated when `stop` says so is kept.

    Parameters
    ----------
    turns : Turns
    histories : sequence of TextHistory
    stopping : StringStoppingCriteria
        Ends a segment.
    max_length, batch_size, seed, stop, watch
        As of :class:`~genscope.kernel_side.environment.environment.TextEnvironment`.
    """
    active = []
    for index, history in enumerate(histories):
        if history.completed:
            continue
        if room := turns.room(len(history.tokens), max_length):
            active.append((index, history, room))
        else:
            history.complete(truncated=True, why=turns.limit(max_length)[1])
    batches = -(-len(histories) // batch_size)
    for number, begin in enumerate(range(0, len(active), batch_size)):
        if number and stop is not None and stop():
            break
        batch = active[begin : begin + batch_size]
        results = turns.generate(
            [history.tokens.tolist() for _, history, _ in batch],
            [room for _, _, room in batch],
            stopping,
            on_reuse=_noting([history for _, history, _ in batch]),
            seed=seed,
            number=batch[0][1].turns * batches + number,
            stop=stop,
            watch=None if watch is None else watch(tuple(index for index, _, _ in batch)),
        )
        for (_, history, _), result in zip(batch, results, strict=True):
            if result.tokens:
                _append(turns, history, result)
            else:
                history.reuses.pop()


def generate_rows(
    turns: Turns, rows: Sequence[torch.Tensor], stopping: StringStoppingCriteria, batch_size: int
) -> list[torch.Tensor]:
    """Return what the model writes behind each row of ids, shape ``(new,)``; keeps nothing."""
    outputs: list[torch.Tensor] = []
    for begin in range(0, len(rows), batch_size):
        batch = [row.tolist() for row in rows[begin : begin + batch_size]]
        results = turns.generate(batch, [turns.room(len(row)) for row in batch], stopping)
        outputs += [torch.tensor(result.tokens, dtype=torch.int64) for result in results]
    return outputs


def _noting(histories: Sequence[TextHistory]) -> Callable[[Sequence[Reuse]], None]:
    def note(reuses: Sequence[Reuse]) -> None:
        for history, reuse in zip(histories, reuses, strict=True):
            history.reuses.append(reuse)

    return note


def _append(turns: Turns, history: TextHistory, result: Generated) -> None:
    # The decoder of an encoder-decoder model does not go on from the history: its text begins anew.
    before = [] if turns.model.config.is_encoder_decoder else history.tokens.tolist()
    text = text_after(turns.tokenizer, before, result.tokens)
    history.append_segment(text, torch.tensor(result.tokens, dtype=torch.int64), system=False)
    if result.logits is not None:
        known = [] if history.logits is None else [history.logits]
        history.logits = torch.cat([*known, result.logits])
