"""Ids that go on from ids that stay: texts to the letter, and turns of a conversation without a second BOS."""

from __future__ import annotations

import copy
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import given

from genscope.kernel_side.engines.continuing import ids_behind, next_turn
from genscope.kernel_side.record.record import Token
from genscope.kernel_side.record.row_writer import RowWriter
from genscope.kernel_side.request import ChatMessage, SettingsError
from tiny import tiny_tokenizer
from tokenizers_for_tests import tokenizer_named

PLAIN = (
    "{{ bos_token }}{% for message in messages %}[{{ message['role'] }}]{{ message['content'] }}<eos>\n{% endfor %}"
    "{% if add_generation_prompt %}[assistant]{% endif %}"
)
STRIPPING = PLAIN.replace("{{ message['content'] }}", "{{ message['content'].split('</think>')[-1] }}")
"""Leaves out what the model thought, of earlier turns: as templates of reasoning models do."""


def with_template(template: str) -> Any:
    tokenizer = copy.deepcopy(tiny_tokenizer())
    tokenizer.chat_template = template
    return tokenizer


def rows(tokenizer: Any, ids: list[int]) -> list[Token]:
    writer = RowWriter(tokenizer)
    for one in ids:
        writer.append(one, "prompt")
    return list(writer.record)


def say(*texts: str) -> list[ChatMessage]:
    return [ChatMessage(role="assistant" if at % 2 else "user", content=text) for at, text in enumerate(texts)]


def turn(tokenizer: Any, answer: str, *, ended: bool = True) -> tuple[list[int], int, list[int]]:
    """Return the ids of a first turn with its answer, and what the second one makes of them."""
    first = tokenizer.apply_chat_template([{"role": "user", "content": "hi"}], add_generation_prompt=True)["input_ids"]
    ids = first + tokenizer(answer, add_special_tokens=False)["input_ids"] + [tokenizer.eos_token_id] * ended
    kept, added = next_turn(tokenizer, rows(tokenizer, ids), say("hi", answer, "and you"))
    return ids, kept, added


@pytest.mark.parametrize("name", ["byte_level", "llama", "gemma", "metaspace_bytes", "unigram"])
@pytest.mark.parametrize("text", ["cat", " cat", "  the", "ing", ", and", "\n\nthe", "é"])
def test_a_text_stands_behind_others_to_the_letter(name: str, text: str) -> None:
    tokenizer = tokenizer_named(name)
    if name == "unigram" and ("\n" in text or "  " in text or "é" in text):
        pytest.skip("it does not know these characters")
    before = tokenizer("the cat", add_special_tokens=False)["input_ids"]
    added = ids_behind(tokenizer, before, text)
    assert tokenizer.decode(before + added) == tokenizer.decode(before) + text


@given(st.text(st.characters(exclude_categories=["Cs"]), min_size=1))
def test_any_text_stands_behind_others_to_the_letter(text: str) -> None:
    tokenizer = tokenizer_named("llama")
    before = tokenizer("the cat", add_special_tokens=False)["input_ids"]
    assert tokenizer.decode(before + ids_behind(tokenizer, before, text)) == tokenizer.decode(before) + text


def test_a_text_within_a_character_leaves_what_is_there() -> None:
    tokenizer = tiny_tokenizer()
    before = tokenizer("é")["input_ids"][:1]
    assert ids_behind(tokenizer, before, "at") == tokenizer("at")["input_ids"]


def test_the_next_turn_appends_only_what_is_new() -> None:
    tokenizer = with_template(PLAIN)
    ids, kept, added = turn(tokenizer, "the answer")
    assert kept == len(ids)
    assert tokenizer.decode(added) == "\n[user]and you<eos>\n[assistant]"
    whole = tokenizer.decode(ids + added)
    assert whole == "<bos>[user]hi<eos>\n[assistant]the answer<eos>\n[user]and you<eos>\n[assistant]"
    assert (ids + added).count(tokenizer.bos_token_id) == 1


def test_a_turn_that_did_not_end_is_ended_by_the_template() -> None:
    tokenizer = with_template(PLAIN)
    ids, kept, added = turn(tokenizer, "the answer", ended=False)
    assert (kept, tokenizer.decode(added)) == (len(ids), "<eos>\n[user]and you<eos>\n[assistant]")


def test_ids_that_the_tokenizer_would_write_otherwise_stay() -> None:
    tokenizer = with_template(PLAIN)
    ids, _, _ = turn(tokenizer, "the")
    single = tokenizer("t")["input_ids"] + tokenizer("h")["input_ids"] + tokenizer("e")["input_ids"]
    the = tokenizer("the")["input_ids"]
    assert len(the) == 1
    at = len(ids) - 1 - ids[::-1].index(the[0])
    split = ids[:at] + single + ids[at + 1 :]
    kept, added = next_turn(tokenizer, rows(tokenizer, split), say("hi", "the", "and you"))
    assert kept == len(split)
    assert tokenizer.decode(split + added).startswith("<bos>[user]hi<eos>\n[assistant]the<eos>\n[user]")


def test_a_template_that_rewrites_an_earlier_turn_keeps_the_tokens_before() -> None:
    tokenizer = with_template(STRIPPING)
    ids, kept, added = turn(tokenizer, "so</think>yes")
    begins = tokenizer("<bos>[user]hi<eos>\n[assistant]")["input_ids"]
    assert ids[:kept] == begins
    assert (
        tokenizer.decode(ids[:kept] + added)
        == "<bos>[user]hi<eos>\n[assistant]yes<eos>\n[user]and you<eos>\n[assistant]"
    )


def test_no_character_of_several_tokens_is_cut() -> None:
    tokenizer = with_template(STRIPPING.replace("split('</think>')[-1]", "replace('è', 'é')"))
    ids, kept, added = turn(tokenizer, "aè")
    assert tokenizer.decode(ids[kept - 1]) == "a"
    assert "[assistant]aé<eos>" in tokenizer.decode(ids[:kept] + added)


def test_a_template_that_refuses_is_told() -> None:
    tokenizer = with_template("{{ raise_exception('one turn only') }}")
    with pytest.raises(SettingsError, match="the chat template refuses these messages: one turn only"):
        next_turn(tokenizer, rows(tokenizer, [5]), say("hi", "a", "b"))


def test_a_template_that_adds_nothing_is_told() -> None:
    tokenizer = with_template("the")
    with pytest.raises(SettingsError, match="adds nothing for the new turn"):
        next_turn(tokenizer, rows(tokenizer, tokenizer("the")["input_ids"]), say("hi", "a", "b"))
