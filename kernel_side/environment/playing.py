"""Plays the turns of histories, one after the other, until all are over; and what a run returns of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import torch

from .history import TextHistory

if TYPE_CHECKING:
    from .environment import TextEnvironment

__all__ = ["Results", "play", "results_of"]

Results = tuple[list[torch.Tensor], list[torch.Tensor], list[torch.Tensor], list[Any], list[TextHistory]]
"""Queries, responses, masks, rewards, histories: one of each a query."""


def play(
    environment: TextEnvironment, histories: list[TextHistory], rewards_kwargs: Mapping[str, Any]
) -> Iterator[None]:
    """Play all turns, then reward; yields whenever something has come to a history."""
    yield
    for _ in range(environment.max_turns):
        if environment.stopped() or all(history.completed for history in histories):
            break
        environment.generate(histories)
        environment.tasks_end_check(histories)
        yield
        for history in histories:
            if environment.stopped():
                break
            environment.step(history)
            yield
        environment.tasks_end_check(histories, model_turn=False)
    for history in histories:
        if not history.completed:
            history.complete(truncated=True, why="stopped" if environment.stopped() else "max_turns")
    yield
    environment.compute_reward(histories, **rewards_kwargs)
    for history in histories:
        history.rewarded = True
    yield


def results_of(histories: list[TextHistory]) -> Results:
    """Return what a run returns."""
    split = [history.split_query_response_tokens() for history in histories]
    rewards = [history.reward for history in histories]
    return [one[0] for one in split], [one[1] for one in split], [one[2] for one in split], rewards, histories
