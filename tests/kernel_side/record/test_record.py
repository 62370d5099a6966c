"""The record and its exports."""

from __future__ import annotations

import json
import math
import subprocess
import sys
import threading
import time
from typing import Any, get_args

import hypothesis.strategies as st
import pandas as pd
import pytest
from hypothesis import given

from genscope.kernel_side.record.beams import BeamCandidate, BeamChoice, BeamStep, FinishedBeam, trace_candidate
from genscope.kernel_side.record.export import FRAME_DTYPES, recording_from_json, recording_to_json, to_frame
from genscope.kernel_side.record.record import Alternative, Record, Token
from genscope.kernel_side.record.recording import Lane, Recording
from genscope.kernel_side.record.rounds import Draft, DraftSummary, Round, summarize
from genscope.kernel_side.record.segments import Segment, SegmentKind
from genscope.kernel_side.record.table import Table

NASTY = ["<script>alert(1)</script>", '"', "&", "<s>", "👩‍👩‍👧", "\\xE2", "", "\u2028", "\n", "</title>", "\ud7ff"]


def token(position: int, **changes: Any) -> Token:
    values: dict[str, Any] = {
        "position": position, "id": 7, "text": "a", "shown": "a", "bytes": b"a", "group": position, "special": False,
        "origin": "generated", "raw_logprob": math.log(0.25), "logprob": math.log(0.5), "entropy": 1.5, "rank": 2,
        "seconds": 0.01, "alternatives": (Alternative(1, "b", -0.5, -0.25), Alternative(2, "c", -3.0, -math.inf)),
    }  # fmt: skip
    return Token(**values | changes)


def prompt_token(position: int) -> Token:
    return Token(position, 3, "p", "p", None, position, False, "prompt")


def test_derived_measures() -> None:
    assert token(0).probability == pytest.approx(0.25)
    assert token(0).surprisal == pytest.approx(2.0)
    assert token(0).chosen_probability == pytest.approx(0.5)
    assert prompt_token(0).chosen_probability is None
    first, second = token(0).alternatives
    assert (first.probability, first.chosen_probability) == pytest.approx((math.exp(-0.5), math.exp(-0.25)))
    assert second.chosen_probability == 0.0
    assert prompt_token(0).probability is prompt_token(0).surprisal is None
    assert [entry.cut for entry in token(0).alternatives] == [False, True]
    assert not Alternative(1, "a", -1.0, None).cut
    assert token(0, raw_logprob=0.0).surprisal == 0.0
    assert math.copysign(1, token(0, raw_logprob=0.0).surprisal or 0) == 1


def test_positions_must_follow() -> None:
    record = Record()
    record.append(token(0))
    with pytest.raises(ValueError, match="position 2 appended to a record of 1 rows"):
        record.append(token(2))


def test_waiting_for_rows() -> None:
    record = Record([prompt_token(0)])
    assert record.wait_beyond(0, 0)
    assert not record.wait_beyond(1, 0.01)
    threading.Timer(0.05, lambda: record.append(token(1))).start()
    began = time.monotonic()
    assert record.wait_beyond(1, 30)
    assert time.monotonic() - began < 20
    assert record.ids("generated") == [7]
    assert repr(record) == "<Record: 1 prompt and 1 generated tokens>"


def test_frame_columns_dtypes_and_values() -> None:
    frame = to_frame(Record([prompt_token(0), token(1), token(2, raw_logprob=-math.inf, rank=300)]))
    assert {name: str(dtype) for name, dtype in frame.dtypes.items()} == FRAME_DTYPES
    assert frame["probability"].tolist()[1:] == pytest.approx([0.25, 0.0])
    assert frame.loc[0, ["raw_logprob", "entropy", "seconds", "rank"]].isna().all()
    assert frame["rank"].tolist()[1:] == [2, 300]
    assert frame.loc[0, "bytes"] is None
    assert frame.loc[1, "alternatives"] == [
        {"id": 1, "text": "b", "raw_logprob": -0.5, "logprob": -0.25},
        {"id": 2, "text": "c", "raw_logprob": -3.0, "logprob": -math.inf},
    ]
    assert frame["origin"].cat.categories.tolist() == ["prompt", "generated", "tool"]


def test_frame_of_an_empty_record_has_the_same_columns() -> None:
    frame = to_frame(Record())
    assert {name: str(dtype) for name, dtype in frame.dtypes.items()} == FRAME_DTYPES
    assert len(frame) == 0


def test_frame_of_several_lanes_counts_them() -> None:
    frame = to_frame([Record([prompt_token(0), token(1)]), Record(), Record([token(0)])])
    assert frame["lane"].tolist() == [0, 0, 2]


def of(*records: Record, **tables: Any) -> Recording:
    return Recording(tuple(Lane(0, index, record, None, 0) for index, record in enumerate(records)), **tables)


def saved_and_loaded(recording: Recording) -> Recording:
    return recording_from_json(recording_to_json(recording))[0]


@pytest.mark.parametrize("text", NASTY)
def test_nasty_texts_stay_literal_in_every_export(text: str) -> None:
    record = Record([token(0, text=text, alternatives=(Alternative(1, text, -1.0, None),))], tail=text)
    loaded = saved_and_loaded(of(record)).lanes[0].record
    assert (loaded[0].text, loaded[0].alternatives[0].text, loaded.tail) == (text, text, text)
    frame = to_frame(record)
    assert frame.loc[0, "text"] == text
    assert frame.loc[0, "alternatives"][0]["text"] == text


logprobs = st.floats(max_value=0, allow_nan=False) | st.just(-math.inf)
texts = st.text(st.characters(exclude_categories=["Cs"]))
tokens = st.builds(
    token,
    st.just(0),
    text=texts,
    bytes=st.none() | st.binary(),
    cached=st.none() | st.booleans(),
    raw_logprob=st.none() | logprobs,
    logprob=st.none() | logprobs,
    alternatives=st.lists(st.builds(Alternative, st.integers(0), texts, logprobs, st.none() | logprobs)).map(tuple),
)


@given(st.lists(tokens, max_size=4), texts, st.dictionaries(texts, texts, max_size=2))
def test_json_round_trip(rows: list[Token], tail: str, about: dict[str, str]) -> None:
    record = Record(rows, tail)
    text = recording_to_json(of(record), about)
    json.loads(text, parse_constant=lambda name: pytest.fail(f"{name} is no JSON"))
    loaded, loaded_about = recording_from_json(text)
    [lane] = loaded.lanes
    assert list(lane.record) == rows
    assert (lane.record.tail, loaded_about) == (tail, about)


rounds = st.builds(
    Round,
    step=st.integers(0),
    position=st.integers(0),
    drafts=st.lists(
        st.builds(Draft, st.integers(0), texts, st.none() | logprobs, st.none() | logprobs), max_size=3
    ).map(tuple),
    accepted=st.integers(0),
    bonus=st.integers(0, 1),
    seconds=st.none() | st.floats(0, 1e6),
)
scores = st.floats(allow_nan=False, allow_infinity=False)
steps = st.builds(
    BeamStep,
    prompt=st.integers(0),
    step=st.integers(0),
    candidates=st.lists(
        st.builds(BeamCandidate, st.integers(0), texts, st.integers(0), st.none() | scores, st.booleans()), max_size=3
    ).map(tuple),
    live=st.lists(st.integers(0), max_size=3).map(tuple),
    live_scores=st.lists(st.none() | scores, max_size=3).map(tuple),
    finished=st.lists(st.builds(FinishedBeam, st.integers(0), st.integers(0), st.none() | scores), max_size=2).map(
        tuple
    ),
)
choices = st.builds(BeamChoice, st.integers(0), st.integers(0), st.integers(-1), st.integers(-1), st.none() | scores)


segments = st.builds(
    Segment,
    st.integers(0),
    st.sampled_from(get_args(SegmentKind)),
    st.integers(0),
    st.integers(0),
    st.integers(0),
    st.none() | st.integers(0),
    st.none() | st.integers(0),
    st.none() | texts,
    st.none() | scores,
)


@given(
    st.lists(rounds, max_size=2),
    st.lists(steps, max_size=2),
    st.lists(choices, max_size=2),
    st.lists(segments, max_size=3),
)
def test_tables_survive_a_round_trip(
    one: list[Round], two: list[BeamStep], three: list[BeamChoice], four: list[Segment]
) -> None:
    tables = {"rounds": Table(one), "beams": Table(two), "choices": Table(three), "segments": Table(four)}
    loaded = saved_and_loaded(of(Record(), **tables, segmented=bool(four)))
    assert [list(getattr(loaded, name)) for name in tables] == [one, two, three, four]
    assert loaded.segmented == bool(four)


def test_what_the_second_version_lacks_is_unknown_after_loading() -> None:
    new = json.loads(recording_to_json(of(Record([prompt_token(0)]))))
    new["version"] = 2
    del new["segments"], new["segmented"], new["lanes"][0]["record"]["tokens"][0]["cached"]
    recording, _ = recording_from_json(json.dumps(new))
    assert (recording.lanes[0].record[0].cached, len(recording.segments), recording.segmented) == (None, 0, False)


def test_lanes_that_share_a_source_share_it_after_loading() -> None:
    first, second = Record([prompt_token(0)]), Record([prompt_token(0), prompt_token(1)])
    lanes = tuple(
        Lane(row // 2, row % 2, Record([prompt_token(0), token(1, logprob=-row)]), (first, second)[row // 2], 1)
        for row in range(4)
    )
    loaded = saved_and_loaded(Recording(lanes))
    assert [(lane.prompt, lane.sequence, lane.prompt_tokens) for lane in loaded.lanes] == [
        (0, 0, 1), (0, 1, 1), (1, 0, 1), (1, 1, 1),
    ]  # fmt: skip
    assert [lane.record[1].logprob for lane in loaded.lanes] == [0, -1, -2, -3]
    assert loaded.lanes[0].source is loaded.lanes[1].source is loaded.sources[0]
    assert [len(source) for source in loaded.sources] == [1, 2]
    assert [lane.generated for lane in loaded.lanes] == [1] * 4


def test_a_record_saved_by_the_first_version_is_read() -> None:
    [lane] = json.loads(recording_to_json(of(Record([prompt_token(0), token(1)], "é"))))["lanes"]
    old = {"schema": "genscope.record", "version": 1, "about": {"seed": 3}, **lane["record"]}
    recording, about = recording_from_json(json.dumps(old))
    assert list(recording.lanes[0].record) == [prompt_token(0), token(1)]
    assert (recording.lanes[0].prompt_tokens, recording.lanes[0].record.tail, about) == (1, "é", {"seed": 3})


def test_a_candidate_is_followed_back_through_the_beams() -> None:
    def step(at: int, parents: list[int], live: tuple[int, ...]) -> BeamStep:
        candidates = tuple(BeamCandidate(10 * at + i, "", beam, 0.0, False) for i, beam in enumerate(parents))
        return BeamStep(0, at, candidates, live, (0.0, 0.0), ())

    run = [step(0, [0, 0, 0, 0], (3, 1)), step(1, [1, 0, 0, 1], (0, 2)), step(2, [1, 0, 1, 0], (0, 1))]
    assert [candidate.id for candidate in trace_candidate(run, 2, 2)] == [3, 12, 22]
    assert [candidate.id for candidate in trace_candidate(run, 2, 1)] == [1, 10, 21]
    assert [candidate.id for candidate in trace_candidate(run, 0, 2)] == [2]


def test_what_drafting_was_worth() -> None:
    draft = Draft(5, "a", -1.0, math.log(0.25))
    assert (draft.draft_probability, draft.target_probability) == (pytest.approx(math.exp(-1)), 0.25)
    table = [Round(0, 3, (draft,) * 4, 2, 1, 0.1), Round(1, 6, (draft,) * 2, 2, 0, 0.1), Round(2, 8, (), 0, 1, 0.1)]
    summary = summarize(table)
    assert summary == DraftSummary(rounds=3, drafted=6, accepted=4, generated=6)
    assert (summary.acceptance, summary.wasted, summary.tokens_per_forward) == (4 / 6, 2, 2.0)
    assert [one.rejected for one in table] == [2, 0, 0]
    assert (summarize([]).acceptance, summarize([]).tokens_per_forward) == (None, None)


@pytest.mark.parametrize("text", ['{"schema": "other"}', "[]", "1"])
def test_other_documents_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"not a saved record"):
        recording_from_json(text)


def test_a_newer_version_is_refused() -> None:
    text = recording_to_json(of(Record())).replace('"version": 3', '"version": 4')
    with pytest.raises(ValueError, match=r"newer genscope \(record version 4, known up to 3\)"):
        recording_from_json(text)


def test_loading_needs_neither_torch_nor_pandas(tmp_path: Any) -> None:
    path = tmp_path / "record.json"
    path.write_text(recording_to_json(of(Record([token(0)]))), encoding="utf-8")
    code = (
        "import sys\n"
        "from genscope.kernel_side.record.export import recording_from_json\n"
        f"recording, _ = recording_from_json(open({str(path)!r}, encoding='utf-8').read())\n"
        "print(recording.lanes[0].record[0].text, [name for name in ('torch', 'pandas', 'transformers', 'ipywidgets') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "a []"


def test_frame_survives_csv() -> None:
    from io import StringIO

    frame = to_frame(
        Record([token(0, text=text) if i == 0 else token(i, text=text) for i, text in enumerate(NASTY[:5])])
    )
    back = pd.read_csv(StringIO(frame.to_csv(index=False)))
    assert back["text"].tolist() == NASTY[:5]


def test_no_surprisal_is_zero_without_a_sign() -> None:
    certain = Token(0, 5, "a", shown="a", bytes=b"a", group=0, special=False, origin="generated", raw_logprob=0.0)
    assert str(certain.surprisal) == "0.0"


def test_json_refuses_what_strict_json_cannot_hold() -> None:
    with pytest.raises(ValueError, match="not JSON compliant"):
        recording_to_json(of(Record()), {"temperature": math.nan})
