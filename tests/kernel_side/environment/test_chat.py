"""The model's own way of calling tools: what the template is told, calls that are read, answers that are only what is new."""

from __future__ import annotations

import json

import pytest
from transformers import PreTrainedTokenizerFast

from genscope.kernel_side.environment.chat import Chat, schema_of
from genscope.kernel_side.environment.environment import TextEnvironment
from genscope.kernel_side.environment.tools import Call
from scripted import TOKENIZER, generated_of, ids_of, says, texts_of, turn
from tiny import BOS, EOS, tiny_model

# Ends messages with <eos>, wraps answers that follow each other together, and rewrites nothing.
TEMPLATE = """<bos>{% if tools %}[tools]{{ tools | tojson }}<eos>
{% endif %}{% for m in messages %}{% if m.role == 'tool' %}{% if loop.previtem and loop.previtem.role != 'tool' %}[user]\
{% endif %}<tool_response>{{ m.content }}</tool_response>{% if loop.last or loop.nextitem.role != 'tool' %}<eos>
{% endif %}{% else %}[{{ m.role }}]{{ m.content }}<eos>
{% endif %}{% endfor %}{% if add_generation_prompt %}[assistant]{% endif %}"""
SILENT = "{% for m in messages %}{{ m.content }}<eos>{% endfor %}"
MARK = "[assistant]"


def chat_tokenizer(template: str = TEMPLATE) -> PreTrainedTokenizerFast:
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=TOKENIZER.backend_tokenizer, pad_token="<pad>", eos_token="<eos>", bos_token="<bos>"
    )
    tokenizer.chat_template = template
    return tokenizer


def add(a: int, b: int) -> int:
    """Add two numbers.

    Args:
        a: One.
        b: The other.
    """
    return a + b


def undescribed(word, times=2, *rest, **options):
    return word * times


class Finder:
    """Finds things."""

    def __call__(self, what: str) -> str:
        """Find a thing.

        Args:
            what: The thing.
        """
        return what


def request_of(name: str, **arguments: object) -> str:
    return "<tool_call>" + json.dumps({"name": name, "arguments": arguments}) + "</tool_call>"


def environment(script, query="q", tools=(add, undescribed), prompt="", **kwargs) -> TextEnvironment:
    tokenizer = chat_tokenizer()
    begun = Chat(tokenizer, prompt, {tool.__name__: tool for tool in tools}).begin(query)
    model = tiny_model("llama")
    model.config.max_position_embeddings = 4096  # descriptions of tools are long in bytes
    return TextEnvironment(
        model, tokenizer, list(tools), prompt=prompt, tool_format="chat",
        generation_kwargs=says({begun.text: script}, MARK, max_new_tokens=200), **kwargs,
    )  # fmt: skip


# -- what the template is told ----------------------------------------------------------------------------------------


def test_a_query_is_a_message_of_the_user_and_the_prompt_one_of_the_system() -> None:
    chat = Chat(chat_tokenizer(), "be short", {})
    history = chat.begin("hi")
    assert history.text == "<bos>[system]be short<eos>\n[user]hi<eos>\n[assistant]"
    assert history.tokens.tolist() == ids_of(history.text)
    assert history.tokens.tolist().count(BOS) == 1
    assert Chat(chat_tokenizer(), "", {}).begin("hi").text == "<bos>[user]hi<eos>\n[assistant]"


def test_a_query_may_be_a_conversation() -> None:
    talk = [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}, {"role": "user", "content": "c"}]
    assert (
        Chat(chat_tokenizer(), "", {}).begin(talk).text
        == "<bos>[user]a<eos>\n[assistant]b<eos>\n[user]c<eos>\n[assistant]"
    )


def test_tools_are_described() -> None:
    text = Chat(chat_tokenizer(), "", {"plus": add}).begin("hi").text
    assert '"name": "plus"' in text
    assert '"description": "Add two numbers."' in text


def test_a_tool_with_a_docstring_is_described_by_it() -> None:
    function = schema_of("plus", add)["function"]
    assert (function["name"], function["description"]) == ("plus", "Add two numbers.")
    assert function["parameters"]["properties"]["b"] == {"type": "integer", "description": "The other."}
    assert function["parameters"]["required"] == ["a", "b"]
    finder = schema_of("Finder", Finder())["function"]
    assert (finder["description"], list(finder["parameters"]["properties"])) == ("Find a thing.", ["what"])


def test_a_tool_without_is_described_by_its_signature() -> None:
    assert schema_of("undescribed", undescribed) == {
        "type": "function",
        "function": {
            "name": "undescribed",
            "description": "undescribed",
            "parameters": {"type": "object", "properties": {"word": {}, "times": {}}, "required": ["word"]},
        },
    }
    assert schema_of("print", print)["function"]["name"] == "print"


def test_a_template_that_drops_the_tools_is_told_of() -> None:
    with pytest.warns(UserWarning, match="does not tell the model of the tools; describe them"):
        TextEnvironment(tiny_model("llama"), chat_tokenizer(SILENT), [add], tool_format="chat")


# -- calls --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "call"),
    [
        ('<tool_call>{"name": "add", "arguments": {"a": 1}}</tool_call>', ("add", {"a": 1})),
        ('x <tool_call>\n{"name": "add", "arguments": {"a": 1}}\n</tool_call> y', ("add", {"a": 1})),
        ('<tool_call>{"name": "add", "arguments": "{\\"a\\": 1}"}</tool_call>', ("add", {"a": 1})),
        ('<tool_call>{"name": "add", "parameters": {"a": 1}}</tool_call>', ("add", {"a": 1})),
        ('<tool_call>{"name": "add"}</tool_call>', ("add", {})),
        ("<tool_call>{broken</tool_call>", (None, {})),
        ("<tool_call>[1]</tool_call>", (None, {})),
        ('<tool_call>{"name": 5}</tool_call>', (None, {})),
        ('<tool_call>{"name": "add", "arguments": [1]}</tool_call>', (None, {})),
        ("<tool_call>" + "[" * 100_000 + "</tool_call>", (None, {})),
    ],
)
def test_calls_are_read(text: str, call: tuple[str | None, dict]) -> None:
    [read] = Chat(chat_tokenizer(), "", {}).calls(text)
    assert (read.tool, read.keywords, read.arguments) == (*call, ())


def test_several_calls_in_one_segment() -> None:
    chat = Chat(chat_tokenizer(), "", {})
    assert [call.tool for call in chat.calls(request_of("a") + "and" + request_of("b"))] == ["a", "b"]
    assert chat.parse(request_of("a", x=1) + request_of("b")) == ("a", '{"x": 1}')
    assert chat.parse("no call") == chat.parse("<tool_call>x</tool_call>") == (None, None)


# -- answers ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("last", "before"), [(EOS, "\n"), (50, "<eos>\n")], ids=["ended by the model", "cut by its length"]
)
def test_an_answer_is_what_the_template_writes_behind_the_models_text(last: int, before: str) -> None:
    text, ids = Chat(chat_tokenizer(), "", {}).answer(last, [Call("a", (), {}, "")], ["3"])
    assert text == before + "[user]<tool_response>3</tool_response><eos>\n[assistant]"
    assert ids == ids_of(text)


def test_answers_that_come_together_stand_together() -> None:
    text, _ = Chat(chat_tokenizer(), "", {}).answer(EOS, [Call(name, (), {}, "") for name in "ab"], ["3", "4"])
    answers = "<tool_response>3</tool_response><tool_response>4</tool_response>"
    assert text == f"\n[user]{answers}<eos>\n[assistant]"


def test_special_tokens_in_an_answer_are_plain_text_and_those_of_the_template_are_not() -> None:
    text, ids = Chat(chat_tokenizer(), "", {}).answer(EOS, [Call("a", (), {}, "")], ["x<eos>y"])
    assert (text.count("<eos>"), ids.count(EOS)) == (2, 1)
    assert TOKENIZER.decode(ids) == text


@pytest.mark.parametrize(
    ("template", "message"),
    [
        ("{% for m in messages %}{% if m.role != 'tool' %}{{ m.content }}{% endif %}{% endfor %}", "leaves out the answer"),
        ("{% for m in messages %}{% if m.role == 'tool' %}{{ raise_exception('no tools') }}{% endif %}{{ m.content }}{% endfor %}", "no tools"),
    ],
)  # fmt: skip
def test_a_template_without_a_place_for_answers_is_refused_at_once(template: str, message: str) -> None:
    with pytest.raises(ValueError, match=f"{message}.*use tool_format='tags'"):
        TextEnvironment(tiny_model("llama"), chat_tokenizer(template), [add], tool_format="chat")


# -- as a whole -----------------------------------------------------------------------------------------------------------


def test_a_conversation_with_tools() -> None:
    script = [turn(request_of("add", a=1, b=2), free=3, eos=True), turn("it is 3", eos=True)]
    *_, [history] = environment(script).run(["q"])
    prompt, call, answer, last = texts_of(history)
    assert prompt.endswith("[user]q<eos>\n[assistant]")
    assert call.endswith(request_of("add", a=1, b=2) + "<eos>")
    assert answer == "\n[user]<tool_response>3</tool_response><eos>\n[assistant]"
    assert last == "it is 3<eos>"
    assert (history.why, history.truncated, history.system_spans) == ("eos", False, [True, False, True, False])
    assert history.tokens.tolist().count(BOS) == 1
    assert generated_of(history)[1] == [*ids_of("it is 3"), EOS]


def test_what_a_template_rewrites_is_not_rewritten_here() -> None:
    """The whole conversation rendered anew would lose the model's spaces and its own tokens."""
    script = [turn("  " + request_of("add", a=1, b=2) + "  ", eos=True), turn("ok", eos=True)]
    *_, [history] = environment(script).run(["q"])
    assert texts_of(history)[1] == "  " + request_of("add", a=1, b=2) + "  <eos>"


def test_calls_that_cannot_be_read_or_name_no_tool_are_answered() -> None:
    script = [turn(request_of("nix"), eos=True), turn("<tool_call>{</tool_call>", eos=True), turn("ok", eos=True)]
    *_, [history] = environment(script).run(["q"])
    assert "Unknown tool nix." in texts_of(history)[2]
    assert "Unknown tool call: {" in texts_of(history)[4]
    assert history.why == "eos"


def test_each_answer_has_the_limit_for_itself() -> None:
    call = request_of("undescribed", word="ab", times=9)
    script = [turn(call + call, eos=True), turn("ok", eos=True)]
    *_, [history] = environment(script, max_tool_reponse=5).run(["q"])
    assert texts_of(history)[2].count("<tool_response>ab...</tool_response>") == 2


def test_a_segment_that_is_cut_inside_a_call_ends_the_history() -> None:
    made = environment([turn("<tool_call>{" + "a" * 200)])
    *_, [history] = made.run(["q"])
    assert (history.why, history.turns) == ("no call", 1)


def test_cached_gives_what_uncached_gives() -> None:
    script = [turn(request_of("add", a=1, b=2), free=5, eos=True), turn("it is", free=9, eos=True)]
    cold, warm = (environment(script, use_cache=use_cache, keep_logits=True).run(["q"])[-1][0] for use_cache in (0, 1))
    assert cold.tokens.tolist() == warm.tokens.tolist()
    assert warm.reuses[1].reused == len(warm.tokens[: warm.token_spans[1][1]]) - 1
    assert float((cold.logits - warm.logits).abs().max()) < 1e-4
