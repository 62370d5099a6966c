"""Strings in sequences of tokens: found with the token that completes them, whatever the tokenizer and the prompt."""

from __future__ import annotations

import hypothesis.strategies as st
import pytest
import torch
from hypothesis import given

from genscope.kernel_side.record.string_search import SearchedRows, StringSearch
from tiny import tiny_tokenizer
from tokenizers_for_tests import EXACT, INEXACT, tokenizer_named

TOKENIZER = tiny_tokenizer()


def ids_of(text: str, tokenizer=TOKENIZER) -> list[int]:
    return list(tokenizer(text, add_special_tokens=False)["input_ids"])


def searched(tokens: list[int], strings: list[str], context: list[int] = (), tokenizer=TOKENIZER) -> StringSearch:
    search = StringSearch(tokenizer, strings, context)
    for token in tokens:
        search.push(token)
    return search


@given(st.text("abé🙂 ", max_size=30), st.lists(st.text("abé🙂 ", min_size=1, max_size=4), min_size=1, max_size=3))
def test_the_length_is_of_the_shortest_beginning_that_holds_a_string(text: str, strings: list[str]) -> None:
    tokens = ids_of(text)
    search = searched(tokens, strings)
    holding = [n for n in range(len(tokens) + 1) if any(string in TOKENIZER.decode(tokens[:n]) for string in strings)]
    if not holding:
        assert (search.found, search.length) == (None, len(tokens))
    else:
        assert search.length == holding[0]
        assert search.found == next(one for one in strings if one in TOKENIZER.decode(tokens[: holding[0]]))


def test_a_string_that_was_found_stays_found_and_nothing_more_is_counted() -> None:
    search = searched(ids_of("one stop and stop"), ["stop"])
    assert (search.found, search.length) == ("stop", len(ids_of("one stop")))


@pytest.mark.parametrize("name", sorted(EXACT | INEXACT))
def test_every_tokenizer_is_searched(name: str) -> None:
    tokenizer = tokenizer_named(name)
    tokens = ids_of("The quick brown fox jumps over", tokenizer)
    search = searched(tokens, ["brown"], tokenizer=tokenizer)
    if "brown" not in tokenizer.decode(tokens):  # its words are not in a vocabulary
        assert search.found is None
        return
    assert search.found == "brown"
    assert "brown" in tokenizer.decode(tokens[: search.length])
    assert "brown" not in tokenizer.decode(tokens[: search.length - 1])


@pytest.mark.parametrize("name", ["llama", "gemma", "metaspace_bytes", "fused_replace"])
def test_characters_of_byte_tokens_need_not_wait_for_the_end_of_their_run(name: str) -> None:
    tokenizer = tokenizer_named(name)
    tokens = [tokenizer.convert_tokens_to_ids(f"<0x{byte:02X}>") for byte in "日本語".encode()]
    search = searched(tokens, ["本"], tokenizer=tokenizer)
    assert (search.found, search.length) == ("本", 6)


@pytest.mark.parametrize("name", ["byte_level", "llama", "slow_bytes"])
def test_a_character_that_the_context_began_is_not_found(name: str) -> None:
    tokenizer = tokenizer_named(name)
    if name == "slow_bytes":
        token_of = {bytes([byte]): tokenizer.convert_tokens_to_ids(f"b{byte}") for byte in range(256)}
    elif name == "llama":
        token_of = {bytes([byte]): tokenizer.convert_tokens_to_ids(f"<0x{byte:02X}>") for byte in range(256)}
    else:
        token_of = {bytes([byte]): token for byte in range(256) for token in [_byte_level(tokenizer, byte)]}
    first, second = (token_of[bytes([byte])] for byte in "é".encode())
    assert searched([second], ["é"], [first], tokenizer).found is None
    assert searched([second, first, second], ["é"], [first], tokenizer).length == 3


def _byte_level(tokenizer, byte: int) -> int:
    from transformers.convert_slow_tokenizer import bytes_to_unicode

    return tokenizer.convert_tokens_to_ids(bytes_to_unicode()[byte])


def test_behind_a_context_a_text_does_not_begin_as_one_of_its_own_would() -> None:
    llama = tokenizer_named("llama")
    space, context = llama.convert_tokens_to_ids("▁"), ids_of("The", llama)
    assert searched([space], [" "], context, llama).found == " "
    assert searched([space], [" "], [], llama).found is None  # the space at the start of a text goes


def test_what_the_context_began_is_not_found() -> None:
    assert searched(ids_of("op"), ["stop"], ids_of("please st")).found is None


def test_broken_bytes_are_found_as_what_they_turn_into() -> None:
    [first, *_] = ids_of("é")
    assert searched([first], ["\ufffd"]).found is None  # not broken yet
    assert searched([first, *ids_of("a")], ["\ufffd"]).found == "\ufffd"


def test_a_fork_goes_its_own_way() -> None:
    search = searched(ids_of("sto"), ["stop", "stow"])
    other = search.fork()
    search.push(*ids_of("p"))
    other.push(*ids_of("w"))
    assert (search.found, other.found) == ("stop", "stow")


def test_tokens_may_end_a_search_too() -> None:
    search = StringSearch(TOKENIZER, ["stop"], end_ids=[1])
    for token in [*ids_of("ab"), 1, *ids_of("stop")]:
        search.push(token)
    assert (search.ended, search.found, search.length) == (True, None, 3)


def test_rows_that_move_fork_and_die_are_followed() -> None:
    rows = SearchedRows(TOKENIZER, ["zxyw"])
    one, other = [5, *ids_of("zxy")], [5, *ids_of("abc")]
    assert len(one) == len(other) == 4
    assert [search.found for search in rows.update(torch.tensor([one, other]), 1)] == [None, None]
    grown = torch.tensor([[*other, *ids_of("z")], [*one, *ids_of("w")], [*one, *ids_of("q")]])
    assert [search.found for search in rows.update(grown, 1)] == [None, "zxyw", None]
    assert [search.found for search in rows.update(grown, 1)] == [None, "zxyw", None]  # asked again in the same step
    assert [search.length for search in rows.update(torch.tensor([other, one]), 1)] == [3, 3]  # a step was taken back


@given(st.lists(st.lists(st.integers(0, 3), min_size=3, max_size=3), min_size=1, max_size=9), st.integers(1, 10))
def test_rows_are_searched_as_each_by_itself(steps: list[list[int]], prompt: int) -> None:
    """Rows go on from any row of the step before, as beams do; written into one tensor, as some loops do."""
    letters = [ids_of(letter)[0] for letter in "stop"]
    ids = torch.full((3, prompt + len(steps)), 5)
    rows = SearchedRows(TOKENIZER, ["to", "ss"])
    for length, step in enumerate(steps, prompt + 1):
        ids[:] = ids[[choice % 3 for choice in step]]
        ids[:, length - 1] = torch.tensor([letters[choice] for choice in step])
        searches = rows.update(ids[:, :length], prompt)
        alone = [searched(row[prompt:], ["to", "ss"], row[:prompt]) for row in ids[:, :length].tolist()]
        assert [(one.found, one.length) for one in searches] == [(one.found, one.length) for one in alone]


def test_a_row_costs_its_new_tokens(monkeypatch: pytest.MonkeyPatch) -> None:
    pushed = []
    push = StringSearch.push
    monkeypatch.setattr(StringSearch, "push", lambda self, token: (pushed.append(token), push(self, token))[1])
    rows, tokens = SearchedRows(TOKENIZER, ["stop"]), ids_of("abcdefgh")
    for length in range(1, len(tokens) + 1):
        rows.update(torch.tensor([[5, *tokens[:length]]]), 1)
    assert pushed == tokens
