"""Tools: their names, and text of whatever they do."""

from __future__ import annotations

import contextvars
import threading
import time

import pytest

from genscope.kernel_side.environment.new_tokens import closing_of, ids_of_data, ids_of_parts, text_after
from genscope.kernel_side.environment.tools import Call, answer_of, cut, tools_by_name
from scripted import TOKENIZER, ids_of
from tokenizers_for_tests import EXACT, INEXACT, tokenizer_named

CELL = contextvars.ContextVar("cell", default="none")


def call(name: str | None, *arguments, **keywords) -> Call:
    return Call(name, arguments, keywords, f"the call of {name}")


def double(query: str) -> str:
    return query * 2


class Tool:
    def __call__(self, query: str) -> str:
        return query


def test_names() -> None:
    tool = Tool()
    assert tools_by_name([double, tool, len]) == {"double": double, "Tool": tool, "len": len}
    assert tools_by_name({"a b": double}) == {"a b": double}
    assert tools_by_name(None) == tools_by_name([]) == {}


@pytest.mark.parametrize(
    ("tools", "error", "message"),
    [
        ([Tool(), Tool()], ValueError, "two tools are named 'Tool'"),
        ([lambda query: query], ValueError, "'<lambda>' is no name"),
        ({"": double}, ValueError, "'' is no name"),
        ({"a\nb": double}, ValueError, "is no name"),
        ({"a": 5}, TypeError, "the tool 'a' is a int, which cannot be called"),
    ],
)
def test_tools_that_cannot_be_called_are_refused(tools, error, message: str) -> None:
    with pytest.raises(error, match=message):
        tools_by_name(tools)


@pytest.mark.parametrize("timeout", [None, 30.0])
def test_answers(timeout: float | None) -> None:
    def fail(query):
        raise KeyError(query)

    def fail_silently(query):
        raise RuntimeError

    tools = {
        "double": double,
        "fail": fail,
        "silent": fail_silently,
        "deep": lambda _: loop,
        "half": lambda _: "\ud800!",
    }
    loop: list = []
    loop.append(loop)
    answers = {
        "double": "abab", "fail": "Tool error: 'ab'", "silent": "Tool error: RuntimeError", "deep": "[[...]]", "half": "?!",
        "nix": "Unknown tool nix.", None: "Unknown tool call: the call of None",
    }  # fmt: skip
    for name, answer in answers.items():
        assert answer_of(call(name, "ab"), tools, timeout) == answer


def test_wrong_arguments_are_an_answer() -> None:
    assert answer_of(call("double", word="a"), {"double": double}).startswith("Tool error: double() got an unexpected")
    assert answer_of(call("double", query="a"), {"double": double}) == "aa"


def test_a_value_that_cannot_be_written_is_an_answer() -> None:
    class Bad:
        def __str__(self):
            raise ValueError("no text")

    assert answer_of(call("bad", 1), {"bad": lambda _: Bad()}) == "Tool error: no text"


def test_a_tool_that_takes_too_long_is_left_behind() -> None:
    release, ended = threading.Event(), threading.Event()

    def slow(query):
        release.wait(60)
        ended.set()

    assert answer_of(call("slow", 1), {"slow": slow}, timeout=0.05) == "Tool error: no answer within 0.05 s"
    assert not ended.is_set()
    release.set()
    assert ended.wait(30)


def test_a_stop_leaves_a_tool_behind() -> None:
    release, stop = threading.Event(), threading.Event()

    def slow(query):
        stop.set()
        release.wait(60)

    assert answer_of(call("slow", 1), {"slow": slow}, stopped=stop.is_set) is None
    release.set()


def test_what_is_no_error_of_a_tool_comes_out() -> None:
    def leave(query):
        raise SystemExit(3)

    for timeout in (None, 30.0):
        with pytest.raises(SystemExit):
            answer_of(call("leave", 1), {"leave": leave}, timeout)


def test_a_tool_in_its_thread_has_the_context_of_the_caller() -> None:
    CELL.set("7")
    assert answer_of(call("see", 1), {"see": lambda _: CELL.get()}, timeout=30) == "7"


def test_a_quick_tool_is_not_waited_for() -> None:
    begin = time.monotonic()
    assert answer_of(call("double", "a"), {"double": double}, timeout=600) == "aa"
    assert time.monotonic() - begin < 60


def test_huge_answers_are_cut() -> None:
    assert cut("a" * 10_000_000, 10) == "aaaaaaa..."
    assert cut("abc", 3) == "abc"


# -- ids of what is new -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", sorted(EXACT | INEXACT))
def test_special_tokens_in_data_are_plain_text(name: str) -> None:
    tokenizer = tokenizer_named(name)
    special = {tokenizer.convert_tokens_to_ids(token) for token in ("<s>", "</s>", "<pad>")}
    ids = ids_of_data(tokenizer, "The </s> quick <s><pad> brown")
    assert ids
    assert not special & set(ids)
    if name in EXACT and name != "unigram":  # whose special tokens are words of its vocabulary too
        split = tokenizer("The </s> quick <s><pad> brown", add_special_tokens=False, split_special_tokens=True)
        assert ids == split["input_ids"]
    assert ids_of_data(tokenizer, "The quick") == tokenizer("The quick", add_special_tokens=False)["input_ids"]


def test_markup_keeps_its_special_tokens_and_data_has_none() -> None:
    ids = ids_of_parts(TOKENIZER, [("<bos>", False), ("the <eos>", True), ("<eos>", False)])
    assert (ids[0], ids[-1], ids.count(1), ids.count(2)) == (2, 1, 1, 1)
    assert TOKENIZER.decode(ids) == "<bos>the <eos><eos>"


def test_markup_and_data_without_special_tokens_are_one_text() -> None:
    assert ids_of_parts(TOKENIZER, [("t", True), ("he", False)]) == ids_of("the")


def test_text_behind_other_tokens() -> None:
    first, second = ids_of("é")
    assert text_after(TOKENIZER, [first], [second]) == "é"
    assert text_after(TOKENIZER, ids_of("ab"), [*ids_of("c"), first]) == "c\ufffd"
    assert text_after(TOKENIZER, [], [5000]) == "\ufffd"
    llama = tokenizer_named("llama")
    space = llama("a b", add_special_tokens=False)["input_ids"]
    assert "".join(text_after(llama, space[:at], [space[at]]) for at in range(len(space))) == "a b"


def test_what_closes_a_text() -> None:
    assert closing_of(TOKENIZER) == []
