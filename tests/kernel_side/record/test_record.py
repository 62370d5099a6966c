"""The record and its exports."""

from __future__ import annotations

import json
import math
import subprocess
import sys
import threading
import time
from typing import Any

import hypothesis.strategies as st
import pandas as pd
import pytest
from hypothesis import given

from genscope.kernel_side.record.export import FRAME_DTYPES, record_from_json, record_to_json, to_frame
from genscope.kernel_side.record.record import Alternative, Record, Token

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
    assert frame["origin"].cat.categories.tolist() == ["prompt", "generated"]


def test_frame_of_an_empty_record_has_the_same_columns() -> None:
    frame = to_frame(Record())
    assert {name: str(dtype) for name, dtype in frame.dtypes.items()} == FRAME_DTYPES
    assert len(frame) == 0


@pytest.mark.parametrize("text", NASTY)
def test_nasty_texts_stay_literal_in_every_export(text: str) -> None:
    record = Record([token(0, text=text, alternatives=(Alternative(1, text, -1.0, None),))], tail=text)
    loaded, _ = record_from_json(record_to_json(record))
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
    raw_logprob=st.none() | logprobs,
    logprob=st.none() | logprobs,
    alternatives=st.lists(st.builds(Alternative, st.integers(0), texts, logprobs, st.none() | logprobs)).map(tuple),
)


@given(st.lists(tokens, max_size=4), texts, st.dictionaries(texts, texts, max_size=2))
def test_json_round_trip(rows: list[Token], tail: str, about: dict[str, str]) -> None:
    record = Record(rows, tail)
    text = record_to_json(record, about)
    json.loads(text, parse_constant=lambda name: pytest.fail(f"{name} is no JSON"))
    loaded, loaded_about = record_from_json(text)
    assert list(loaded) == rows
    assert (loaded.tail, loaded_about) == (tail, about)


@pytest.mark.parametrize("text", ['{"schema": "other"}', "[]", "1"])
def test_other_documents_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"not a saved record"):
        record_from_json(text)


def test_a_newer_version_is_refused() -> None:
    text = record_to_json(Record()).replace('"version": 1', '"version": 2')
    with pytest.raises(ValueError, match=r"newer genscope \(record version 2, known up to 1\)"):
        record_from_json(text)


def test_loading_needs_neither_torch_nor_pandas(tmp_path: Any) -> None:
    path = tmp_path / "record.json"
    path.write_text(record_to_json(Record([token(0)])), encoding="utf-8")
    code = (
        "import sys\n"
        "from genscope.kernel_side.record.export import record_from_json\n"
        f"record, _ = record_from_json(open({str(path)!r}, encoding='utf-8').read())\n"
        "print(record[0].text, [name for name in ('torch', 'pandas', 'transformers', 'ipywidgets') if name in sys.modules])"
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
        record_to_json(Record(), {"temperature": math.nan})
