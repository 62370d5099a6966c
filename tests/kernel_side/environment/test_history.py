"""Histories: what TRL's tests ask of them, spans and masks of any segments, completion."""

from __future__ import annotations

import hypothesis.strategies as st
import pytest
import torch
from hypothesis import given

from genscope.kernel_side.environment.history import TextHistory

SEGMENTS = st.lists(
    st.tuples(st.text(min_size=1, max_size=9), st.lists(st.integers(0, 299), min_size=1, max_size=9), st.booleans()),
    min_size=1,
    max_size=8,
)


def made_of(segments: list[tuple[str, list[int], bool]]) -> TextHistory:
    (text, tokens, system), *others = segments
    history = TextHistory(text, torch.tensor(tokens), system=system)
    for text, tokens, system in others:
        history.append_segment(text, torch.tensor(tokens), system=system)
    return history


@given(SEGMENTS)
def test_spans_and_masks_give_every_segment_back(segments: list[tuple[str, list[int], bool]]) -> None:
    history = made_of(segments)
    assert [history.text[slice(*span)] for span in history.text_spans] == [text for text, _, _ in segments]
    assert [history.tokens[slice(*span)].tolist() for span in history.token_spans] == [ids for _, ids, _ in segments]
    assert history.system_spans == [system for _, _, system in segments]
    assert history.token_masks.tolist() == [0 if system else 1 for _, ids, system in segments for _ in ids]
    assert history.text == "".join(text for text, _, _ in segments)
    assert history.last_text_segment == segments[-1][0]
    assert history.turns == sum(not system for _, _, system in segments)
    assert history.tokens.dtype == history.token_masks.dtype == torch.int64


@given(SEGMENTS)
def test_query_and_response_are_the_first_segment_and_all_others(segments) -> None:
    query, response, mask = made_of(segments).split_query_response_tokens()
    assert query.tolist() == segments[0][1]
    assert response.tolist() == [token for _, ids, _ in segments[1:] for token in ids]
    assert mask.tolist() == [0 if system else 1 for _, ids, system in segments[1:] for _ in ids]


def test_a_new_history() -> None:
    history = TextHistory("Hello there!", torch.tensor([1, 2, 3]))
    assert (history.text, history.tokens.tolist(), history.token_masks.tolist()) == ("Hello there!", [1, 2, 3], [0] * 3)
    assert (history.completed, history.truncated, history.why, history.reward) == (False, False, None, 0.0)
    assert (history.logits, history.reuses, history.called) == (None, [], [])
    assert TextHistory("Hello there!", torch.tensor([1, 2]), system=False).token_masks.tolist() == [1, 1]


def test_segments_are_the_systems_where_nothing_else_is_said() -> None:
    history = TextHistory("a", torch.tensor([1]), system=False)
    history.append_segment("b", torch.tensor([2]))
    assert history.system_spans == [False, True]


@pytest.mark.parametrize(("text", "tokens"), [("", [1]), ("a", []), ("", [])])
def test_an_empty_segment_is_refused_and_changes_nothing(text: str, tokens: list[int]) -> None:
    with pytest.raises(ValueError, match="needs text and tokens"):
        TextHistory(text, torch.tensor(tokens, dtype=torch.int64))
    history = TextHistory("a", torch.tensor([1]))
    with pytest.raises(ValueError, match=f"given are {text!r} and {len(tokens)} tokens"):
        history.append_segment(text, torch.tensor(tokens, dtype=torch.int64))
    assert (history.text, history.tokens.tolist(), history.text_spans) == ("a", [1], [(0, 1)])


def test_completion() -> None:
    history = TextHistory("a", torch.tensor([1]))
    history.complete()
    assert (history.completed, history.truncated, history.why) == (True, False, None)
    history.complete(truncated=True, why="max_turns")
    assert (history.completed, history.truncated, history.why) == (True, True, "max_turns")
