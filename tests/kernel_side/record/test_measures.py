"""The measures against their definitions, in double precision."""

from __future__ import annotations

import math

import hypothesis.extra.numpy as hnp
import hypothesis.strategies as st
import numpy as np
import pytest
import torch
from hypothesis import given

from genscope.kernel_side.record.measures import NonFiniteLogitsError, measure

INF = math.inf


def test_known_distribution() -> None:
    logits = torch.tensor([[0.5, 0.25, 0.125, 0.125]]).log()
    scores = torch.tensor([[0.8, 0.2, 0.0, 0.0]]).log()
    [got] = measure(logits, scores, torch.tensor([1]), candidates=3)
    assert got.raw_logprob == pytest.approx(math.log(0.25))
    assert got.logprob == pytest.approx(math.log(0.2))
    assert got.entropy == pytest.approx(1.75)
    assert got.rank == 2
    assert [candidate.id for candidate in got.candidates][:2] == [0, 1]
    assert got.candidates[2].logprob == -INF
    assert got.candidates[2].raw_logprob == pytest.approx(math.log(0.125))


def test_without_scores_the_processed_side_is_unknown() -> None:
    [got] = measure(torch.zeros(1, 4), None, torch.tensor([2]), candidates=2)
    assert got.logprob is None
    assert got.candidates[0].logprob is None
    assert got.entropy == pytest.approx(2)
    assert got.rank == 1


def test_a_candidate_that_only_processing_made_probable_is_shown() -> None:
    logits = torch.tensor([[5.0, 4.0, -5.0]])
    scores = torch.tensor([[-INF, -INF, 0.0]])
    [got] = measure(logits, scores, torch.tensor([2]), candidates=1)
    assert got.candidates[0].id == 2
    assert got.candidates[0].logprob == 0.0


def test_one_possible_token_and_more_candidates_than_words() -> None:
    [got] = measure(torch.tensor([[-INF, 0.0, -INF]]), None, torch.tensor([1]), candidates=10)
    assert (got.raw_logprob, got.entropy, got.rank) == (0.0, 0.0, 1)
    assert [candidate.raw_logprob for candidate in got.candidates] == [0.0, -INF, -INF]


@pytest.mark.parametrize("logits", [[0.0, math.nan], [-INF, -INF], [INF, 0.0]])
def test_no_distribution_is_an_error(logits: list[float]) -> None:
    with pytest.raises(NonFiniteLogitsError, match="not numbers"):
        measure(torch.tensor([logits]), None, torch.tensor([0]), candidates=1)


def test_no_candidates() -> None:
    assert measure(torch.zeros(1, 4), torch.zeros(1, 4), torch.tensor([0]), candidates=0)[0].candidates == ()


def test_many_rows_equal_each_row_alone() -> None:
    generator = torch.Generator().manual_seed(0)
    logits, tokens = torch.randn(150, 33, generator=generator), torch.randint(33, (150,), generator=generator)
    alone = [measure(logits[row : row + 1], None, tokens[row : row + 1], 3)[0] for row in range(150)]
    assert measure(logits, None, tokens, 3) == alone


@given(
    hnp.arrays(np.float32, (2, 17), elements=st.floats(-60, 60, width=32)),
    st.lists(st.integers(0, 16), min_size=2, max_size=2),
    st.sampled_from([torch.float32, torch.bfloat16]),
)
def test_against_numpy_in_double_precision(values: np.ndarray, tokens: list[int], dtype: torch.dtype) -> None:
    logits = torch.from_numpy(values).to(dtype)
    exact = logits.double().numpy()
    for row, got in enumerate(measure(logits, None, torch.tensor(tokens), candidates=5)):
        logprobs = exact[row] - np.logaddexp.reduce(exact[row])
        assert got.raw_logprob == pytest.approx(logprobs[tokens[row]], abs=1e-4)
        assert got.entropy == pytest.approx(-(np.exp(logprobs) * logprobs).sum() / math.log(2), abs=1e-3)
        assert got.rank == 1 + int((exact[row] > exact[row][tokens[row]]).sum())
        assert [candidate.raw_logprob for candidate in got.candidates] == pytest.approx(
            np.sort(logprobs)[::-1][:5], abs=1e-4
        )


def test_scores_that_leave_no_token_possible_are_an_error() -> None:
    with pytest.raises(NonFiniteLogitsError, match="all -inf"):
        measure(torch.zeros(1, 4), torch.full((1, 4), -INF), torch.tensor([1]), candidates=2)


def test_no_entropy_is_zero_without_a_sign() -> None:
    [got] = measure(torch.tensor([[0.0, -INF, -INF]]), None, torch.tensor([0]), candidates=1)
    assert str(got.entropy) == "0.0"
