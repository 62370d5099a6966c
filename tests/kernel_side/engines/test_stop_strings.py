"""Stop strings as a criterion: any rows, any number of new tokens, what the prompt began does not count."""

from __future__ import annotations

import hypothesis.strategies as st
import torch
from hypothesis import given

from genscope.kernel_side.engines.stop_strings import StopStrings
from tiny import tiny_tokenizer

TOKENIZER = tiny_tokenizer()


def ids_of(text: str) -> list[int]:
    return list(TOKENIZER(text)["input_ids"])


def asked(criterion: StopStrings, *rows: list[int]) -> list[bool]:
    return [bool(found) for found in criterion(torch.tensor(rows), None)]


@given(
    st.text("abé🙂 ", min_size=0, max_size=12),
    st.text("abé🙂 ", min_size=1, max_size=30),
    st.lists(st.text("abé🙂 ", min_size=1, max_size=3), min_size=1, max_size=3),
    st.data(),
)
def test_a_row_ends_with_the_token_that_completes_a_string(
    prompt: str, text: str, strings: list[str], data: st.DataObject
) -> None:
    before, tokens = ids_of(prompt) or [5], ids_of(text)
    criterion, shown, done = StopStrings(TOKENIZER, strings, len(before)), 0, False
    while shown < len(tokens) and not done:
        shown += data.draw(st.integers(1, 4))  # assisted rounds bring several
        shown = min(shown, len(tokens))
        [done] = asked(criterion, before + tokens[:shown])
        # Half a character at the end is not text yet.
        so_far = TOKENIZER.decode(tokens[:shown]).rstrip("\ufffd")
        assert done == any(string in so_far for string in strings)


def test_rows_may_change_places() -> None:
    criterion = StopStrings(TOKENIZER, ["stop"], 1)
    one, other = [5, *ids_of("please stop")], [5, *ids_of("please go ")]
    length = min(len(one), len(other))
    one, other = one[:1] + one[-length + 1 :], other[:1] + other[-length + 1 :]
    assert asked(criterion, one, other) == [True, False]
    assert asked(criterion, other, one) == [False, True]  # asked again in the same step
    assert asked(criterion, [*other, 50], [*other, 51]) == [False, False]


def test_what_the_prompt_began_does_not_count() -> None:
    prompt = ids_of("ab")
    assert asked(StopStrings(TOKENIZER, ["abc"], len(prompt)), prompt + ids_of("c")) == [False]
    assert asked(StopStrings(TOKENIZER, ["abc"], len(prompt)), prompt + ids_of("abc")) == [True]
