"""Asks a reward function about histories, all at once or one at a time."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from .history import TextHistory

__all__ = ["give_rewards"]


def give_rewards(
    reward_fn: Callable[..., Any], histories: Sequence[TextHistory], kwargs: Mapping[str, Any], *, each: bool
) -> None:
    """Set the reward of each history.

    Parameters
    ----------
    reward_fn : callable
        Gets the texts of the last segments as one list, or each by itself.
    histories : sequence of TextHistory
    kwargs : mapping
        For the function. One text at a time gets one entry of each list or tuple, and the whole of anything else.
    each : bool
        Whether it is asked about one text at a time.

    Raises
    ------
    ValueError
        For a list that has not one entry a history, and for rewards that are not one a history.
    """
    texts = [history.last_text_segment for history in histories]
    if each:
        for name, value in kwargs.items():
            if isinstance(value, (list, tuple)) and len(value) != len(texts):
                msg = f"{name} has {len(value)} entries for {len(texts)} queries; give one each"
                raise ValueError(msg)
        rewards = [
            reward_fn(
                text,
                **{name: value[index] if isinstance(value, (list, tuple)) else value for name, value in kwargs.items()},
            )
            for index, text in enumerate(texts)
        ]
    else:
        rewards = list(reward_fn(texts, **kwargs))
    if len(rewards) != len(texts):
        msg = f"the reward function gave {len(rewards)} rewards for {len(texts)} histories; it must give one each"
        raise ValueError(msg)
    for history, reward in zip(histories, rewards, strict=True):
        history.reward = reward
