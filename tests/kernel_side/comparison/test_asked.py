"""What a comparison is asked for: lanes, labels, seeds, which share a batch, and clear errors."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from genscope.kernel_side.comparison.asked import MOST_LANES, OF_A_ROW, asked_for, batches, request_of
from genscope.kernel_side.request import SettingsError, make_settings
from genscope.kernel_side.settings import Greedy, Sample

SAMPLE: dict[str, Any] = {"strategy": "sample"}


def test_settings_times_seeds_in_order() -> None:
    lanes = asked_for([{"temperature": 0.5}, {"temperature": 1.5}], [7, 8], SAMPLE)
    assert [(lane.label, lane.settings.seed, lane.group) for lane in lanes] == [
        ("temperature 0.5, seed 7", 7, 0),
        ("temperature 0.5, seed 8", 8, 0),
        ("temperature 1.5, seed 7", 7, 1),
        ("temperature 1.5, seed 8", 8, 1),
    ]


def test_a_number_of_seeds_draws_as_many_and_uses_each_with_all_settings() -> None:
    lanes = asked_for([{"top_k": 5}, {"top_k": 9}], 3, SAMPLE)
    seeds = [lane.settings.seed for lane in lanes]
    assert len(lanes) == 6
    assert len(set(seeds)) == 3
    assert seeds[:3] == seeds[3:]


def test_without_seeds_settings_keep_their_own_and_others_share_one() -> None:
    lanes = asked_for([{"seed": 5, "top_p": 0.4}, {"top_p": 0.6}, {"top_p": 0.8}], None, SAMPLE)
    first, second, third = (lane.settings.seed for lane in lanes)
    assert first == 5
    assert second == third is not None
    assert lanes[0].label == "top_p 0.4, seed 5"


def test_one_seed_is_not_named() -> None:
    assert [one.label for one in asked_for([{"top_p": 0.4}, {"top_p": 0.6}], [3], SAMPLE)] == ["top_p 0.4", "top_p 0.6"]


def test_where_nothing_is_drawn_there_is_one_lane() -> None:
    lanes = asked_for([{"strategy": "greedy"}, {"strategy": "sample"}], [1, 2])
    assert [lane.label for lane in lanes] == ["greedy", "sample, seed 1", "sample, seed 2"]
    assert [lane.group for lane in lanes] == [0, 1, 1]


def test_labels_name_what_differs_among_settings_of_a_strategy() -> None:
    lanes = asked_for(
        [{"temperature": 0.5}, {"temperature": 0.5, "stop_strings": ["x" * 40]}, {"strategy": "beam", "num_beams": 3}],
        [1],
        SAMPLE,
    )
    assert [lane.label for lane in lanes] == ["sample, stop_strings []", f"sample, stop_strings ['{'x' * 21}…", "beam"]


def test_of_one_settings_the_strategy_is_the_label() -> None:
    assert [one.label for one in asked_for([SAMPLE], [4, 5])] == ["sample, seed 4", "sample, seed 5"]


def test_what_shares_a_batch() -> None:
    settings = [
        {"temperature": 0.5},
        {"strategy": "greedy"},
        {"strategy": "beam", "num_beams": 2},
        {"alternatives": 3},
        {"top_k": 3, "max_new_tokens": 9, "stop_strings": ["a"]},
        {"num_return_sequences": 2},
        {"alternatives": 3, "top_p": 0.5},
    ]
    assert batches(asked_for(settings, [1], SAMPLE)) == [[0, 1, 4], [2], [3, 6], [5]]


def test_every_setting_of_a_row_is_one_and_no_other_differs_in_a_batch() -> None:
    known = set(Sample.model_fields) | set(Greedy.model_fields)
    assert known >= OF_A_ROW
    shared = known - OF_A_ROW
    assert {"execution", "prefix_cache", "alternatives", "attention", "logit_lens", "keep"} <= shared


@given(order=st.permutations(range(6)))
def test_each_lane_is_in_one_batch(order: list[int]) -> None:
    kinds: list[dict[str, Any]] = [
        {},
        {"top_k": 2},
        {"strategy": "greedy"},
        {"strategy": "contrastive"},
        {"alternatives": 1},
        {"num_return_sequences": 3},
    ]
    lanes = asked_for([kinds[at] for at in order], [1], SAMPLE)
    assert sorted(at for batch in batches(lanes) for at in batch) == list(range(6))


def test_the_request_of_a_batch_chooses_nothing_itself() -> None:
    lanes = asked_for([{"temperature": 0.5, "max_new_tokens": 5}, {"top_k": 3, "max_new_tokens": 9}], [1, 2], SAMPLE)
    request = request_of("hello", lanes)
    assert request.variants == tuple(lane.settings for lane in lanes)
    settings = request.settings
    assert isinstance(settings, Sample)
    assert (settings.sequences, settings.max_new_tokens, settings.stop_at_eos) == (4, 9, False)
    assert (settings.temperature, settings.top_k, settings.top_p) == (1.0, 0, 1.0)


def test_a_single_lane_is_a_plain_request() -> None:
    [lane] = asked_for([{"temperature": 0.5}], [1], SAMPLE)
    request = request_of("hello", [lane])
    assert request.variants == ()
    assert request.settings == make_settings(strategy="sample", temperature=0.5, seed=1)


@pytest.mark.parametrize(
    ("settings", "seeds", "said"),
    [
        ([], None, "takes a list of settings"),
        ({"temperature": 1.0}, None, "takes a list of settings"),
        ("greedy", None, "takes a list of settings"),
        ([{"temperature": 0.5}, {"temperature": -1}], None, r"temperature: -1 is not allowed.*settings 2"),
        ([{"temprature": 0.5}], None, "Did you mean 'temperature'"),
        ([{}], 0, "0 is no number of seeds"),
        ([{}], True, "True is no number of seeds"),
        ([{}], [], "holds no seed"),
        ([{}], [None], "holds no seed"),
        ([{}], [-1], "seed: -1 is not allowed"),
        ([{}], MOST_LANES + 1, "are more than 64"),
        ([{}, {"top_k": 1}], MOST_LANES, "these are 128 lanes"),
    ],
)
def test_what_is_wrong_is_named(settings: Any, seeds: Any, said: str) -> None:
    with pytest.raises(SettingsError, match=said):
        asked_for(settings, seeds, SAMPLE)


def test_a_batch_of_prompts_is_refused() -> None:
    with pytest.raises(SettingsError, match="a comparison is of one prompt"):
        request_of(["a", "b"], asked_for([{}], [1], SAMPLE))
