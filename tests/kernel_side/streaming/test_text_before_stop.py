"""Nothing of a stop string leaks while text streams: whatever the pieces, the rows, and where the prompt ends."""

from __future__ import annotations

import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st

from genscope.kernel_side.decoding.observe import observe
from genscope.kernel_side.streaming.outputs import PromptOutput, StepOutput
from genscope.kernel_side.streaming.text import AsyncTextIteratorStreamer, TextIteratorStreamer, TextStreamer
from genscope.kernel_side.streaming.text_before_stop import TextBeforeStop
from tiny import tiny_model, tiny_tokenizer
from tokenizers_for_tests import EXACT, tokenizer_named

TOKENIZER = tiny_tokenizer()
TEXTS = st.text(alphabet="abé<>€🙂 ", max_size=16)
STRINGS = st.lists(st.text(alphabet="abé<>€🙂", min_size=1, max_size=4), max_size=3)


def cut(text: str, strings: list[str]) -> str:
    """Cut a text before its first stop string, by looking at each of its beginnings."""
    for stop in range(1, len(text) + 1):
        ends = [one for one in strings if text[:stop].endswith(one)]
        if ends:
            return text[: stop - max(map(len, ends))]
    return text


def byte_ids(text: str) -> list[int]:
    """One token a byte, so that characters and strings are split."""
    vocabulary = TOKENIZER.get_vocab()
    from tokenizers import pre_tokenizers

    level = pre_tokenizers.ByteLevel(add_prefix_space=False)
    return [vocabulary[letter] for letter in "".join(piece for piece, _ in level.pre_tokenize_str(text))]


def streamed(ids: list[int], strings: list[str], prompt: list[int] | None = None, **kwargs) -> list[str]:
    """Return the texts after each token, and at the end."""
    streamer = TextIteratorStreamer(TOKENIZER, stop_strings=strings, timeout=1, **kwargs)
    streamer.put(torch.tensor([prompt or TOKENIZER("x")["input_ids"]]))
    for token in ids:
        streamer.put(torch.tensor([token]))
    streamer.end()
    return list(streamer)


@given(TEXTS, STRINGS, st.data())
@example("abab", ["abb", "ba"], None)
@example("aab", ["ab"], None)
@example("ab", ["b", "ab"], None)
@example("abc", ["abc", "b"], None)
def test_text_is_cut_before_the_first_stop_string_whatever_the_pieces(text, strings, data) -> None:
    before, at, shown = TextBeforeStop(strings), 0, ""
    while at < len(text):
        size = 1 if data is None else data.draw(st.integers(1, 5))
        shown += before.push(text[at : at + size])
        at += size
        # All that is certain is there: no more than the beginning of a stop string waits.
        waiting = cut(text[:at], strings)[len(shown) :]
        assert before.found is not None or not waiting or any(one.startswith(waiting) for one in strings)
    shown += before.end()
    assert shown == cut(text, strings)
    assert (before.found is not None) == (cut(text, strings) != text or any(one in text for one in strings))
    assert before.push("more") == ("" if before.found else "more")


@pytest.mark.parametrize("strings", [["abc", "b"], ["b", "abc"]])
def test_of_several_strings_the_one_that_is_complete_first_counts(strings) -> None:
    assert TextBeforeStop(strings).push("xabcd") == "xa"  # as for the pieces "xab" and "cd"
    assert TextBeforeStop(["bc", "abc", "c"]).push("xabcd") == "x"


@given(TEXTS, STRINGS, st.data())
def test_streamed_text_is_cut_before_the_first_stop_string_whatever_the_tokens(text, strings, data) -> None:
    ids, at = [], 0
    while at < len(text):  # some characters as bytes, some stretches as the tokenizer has them
        size = data.draw(st.integers(1, 6))
        part = text[at : at + size]
        ids += byte_ids(part) if data.draw(st.booleans()) else TOKENIZER(part, add_special_tokens=False)["input_ids"]
        at += size
    assert "".join(streamed(ids, strings, skip_prompt=True)) == cut(text, strings)
    assert "".join(streamed(ids, strings)) == "x" + cut(text, strings)


@pytest.mark.parametrize("name", EXACT)
def test_every_kind_of_tokenizer(name: str) -> None:
    tokenizer = tokenizer_named(name)
    ids = tokenizer("the cat and the hat", add_special_tokens=False)["input_ids"]
    streamer = TextIteratorStreamer(tokenizer, True, 1, stop_strings=["and", "at a hat"])
    streamer.put(torch.tensor([ids[:1]]))
    for token in ids:
        streamer.put(torch.tensor([token]))
    streamer.end()
    whole = tokenizer.decode(ids)
    assert "".join(streamer) == whole[: whole.index("and")]


def test_what_was_held_back_and_is_none_comes_with_the_next_token_or_the_end() -> None:
    ids = byte_ids("a<b<s>c")
    streamer = TextIteratorStreamer(TOKENIZER, True, 0.05, stop_strings=["<s>"])
    streamer.put(torch.tensor([[5]]))
    seen = []
    for token in ids:
        streamer.put(torch.tensor([token]))
        seen.append("".join(item for item in iter_now(streamer)))
    assert seen == ["a", "", "<b", "", "", "", ""]
    streamer.end()
    assert list(streamer) == []
    assert streamed(byte_ids("a<s"), ["<s>"], skip_prompt=True) == ["a", "<s"]


def iter_now(streamer: TextIteratorStreamer) -> list[str]:
    items = []
    while not streamer.text_queue.empty():
        items.append(streamer.text_queue.get())
    return items


@pytest.mark.parametrize("skip_prompt", [False, True])
def test_a_stop_string_that_begins_in_the_prompt_is_none(skip_prompt: bool) -> None:
    prompt = byte_ids("ab <s")
    shown = "".join(streamed(byte_ids("> ab<s> c"), ["<s>"], prompt, skip_prompt=skip_prompt))
    assert shown == ("" if skip_prompt else "ab <s") + "> ab"
    # Nor is one whose first character does.
    euro = byte_ids("€")
    assert "".join(streamed([*euro[1:], *byte_ids("b€b")], ["€b"], euro[:1])) == "€b"
    assert "".join(streamed(byte_ids("<s>"), ["<s>"], byte_ids("x<s>"))) == "x<s>"


def test_rows_of_a_batch_are_apart() -> None:
    rows = [byte_ids("ab<s>ab"), byte_ids("<s>abab"), byte_ids("<sabab<")]
    streamer = TextIteratorStreamer(TOKENIZER, True, 1, stop_strings=["<s>"])
    streamer.put(PromptOutput(torch.tensor([[5], [6], [7]]), None))
    for step, tokens in enumerate(zip(*rows, strict=True)):
        output = StepOutput(
            step=step,
            length=step + 2,
            tokens=torch.tensor(tokens),
            active=torch.ones(3, dtype=torch.bool),
            finished=torch.full((3,), step == len(rows[0]) - 1),
            seconds=0.0,
        )
        streamer.put(output)
    streamer.end()
    texts = ["", "", ""]
    for row, text in streamer.rows():
        texts[row] += text
    assert texts == ["ab", "", "<sabab<"]


@pytest.mark.parametrize("kwargs", [{}, {"num_beams": 2}, {"prompt_lookup_num_tokens": 3}])
def test_every_strategy_gives_text_before_the_string_alone(kwargs, capsys) -> None:
    model, prompt = tiny_model("llama"), torch.tensor([[5, 77, 5, 77]])
    settings = {"max_new_tokens": 12, "do_sample": False, "eos_token_id": None, **kwargs}
    ids = model.generate(prompt, **settings)[0, 4:].tolist()
    whole = TOKENIZER.decode(ids)
    string = whole[6:8]
    streamer = TextStreamer(TOKENIZER, skip_prompt=True, stop_strings=string)
    model.generate(prompt, **settings, **observe(streamer))
    assert capsys.readouterr().out == whole[: whole.index(string)] + "\n"


async def test_async_text_is_cut_too() -> None:
    streamer = AsyncTextIteratorStreamer(TOKENIZER, True, 1, stop_strings=["<s>"])
    streamer.put(torch.tensor([[5]]))
    for token in byte_ids("ab<s>c"):
        streamer.put(torch.tensor([token]))
    streamer.end()
    assert [text async for text in streamer] == ["a", "b"]


def test_a_streamer_forgets_the_string_with_the_next_generation() -> None:
    streamer = TextIteratorStreamer(TOKENIZER, True, 1, stop_strings=["b"])
    for _ in range(2):
        streamer.put(torch.tensor([[5]]))
        for token in byte_ids("abc"):
            streamer.put(torch.tensor([token]))
        streamer.end()
        assert list(streamer) == ["a"]


def test_empty_stop_strings_are_refused() -> None:
    with pytest.raises(ValueError, match="give texts that are not empty"):
        TextStreamer(TOKENIZER, stop_strings=["a", ""])
