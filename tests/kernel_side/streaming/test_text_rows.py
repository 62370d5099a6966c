"""Padding in the rows of bare ids, where nobody says which rows have finished."""

from __future__ import annotations

import pytest
import torch

from genscope.kernel_side.record.detokenize import Detokenizer
from genscope.kernel_side.streaming.text_rows import Rows
from tiny import EOS, PAD, tiny_tokenizer


def texts(columns: list[list[int]], pad_id: int | None) -> list[str]:
    rows = Rows([Detokenizer(tiny_tokenizer()) for _ in range(2)], pad_id, EOS)
    steps = [rows.ids(torch.tensor(column)) for column in columns]
    return ["".join(parts) for parts in zip(*steps, strict=True)]


A, B, C = (tiny_tokenizer()(letter)["input_ids"][0] for letter in "abc")


@pytest.mark.parametrize(
    ("row", "pad_id", "text"),
    [
        ([A, EOS, PAD, PAD], PAD, "a<eos>"),
        ([A, PAD, B, C], PAD, "a<pad>bc"),  # it was none, and comes once
        ([A, PAD, PAD, B], PAD, "a<pad><pad>b"),
        ([A, EOS, EOS, EOS], EOS, "a<eos>"),  # the end is told from the padding behind it
        ([A, EOS, EOS, EOS], None, "a<eos>"),
        ([A, B, C, A], PAD, "abca"),
    ],
)
def test_padding_behind_the_end_is_dropped_and_other_padding_comes_once(
    row: list[int], pad_id: int | None, text: str
) -> None:
    assert texts([[token, A] for token in row], pad_id) == [text, "aaaa"]
