"""The environment as a whole: what TRL's tests ask of it, turns, ends, results, batches, live segments, stopping."""

from __future__ import annotations

import threading
from unittest.mock import patch

import pytest
import torch
from transformers import GenerationConfig

from genscope.kernel_side.environment.environment import TextEnvironment
from genscope.kernel_side.environment.history import TextHistory
from genscope.kernel_side.streaming.base import OutputStreamer
from scripted import TOKENIZER, generated_of, ids_of, rows_of, says, texts_of, turn
from tiny import EOS, PAD, tiny_model


class DummyTool:
    def __call__(self, text):
        return text


def add(query: str) -> int:
    return sum(map(int, query.split("+")))


def environment(scripts=None, kind="llama", tools=None, **kwargs) -> TextEnvironment:
    tools = [add, DummyTool()] if tools is None else tools
    generation = kwargs.pop("generation_kwargs", None) or (says(scripts) if scripts else {"max_new_tokens": 6})
    return TextEnvironment(tiny_model(kind), TOKENIZER, tools, generation_kwargs=generation, **kwargs)


def dummy_generate(histories):
    for history in histories:
        history.append_segment("<request><DummyTool>test<call>", torch.tensor([4, 5, 6]), system=False)
    return histories


# -- as TRL's tests -----------------------------------------------------------------------------------------------


def test_setup() -> None:
    made = TextEnvironment(tiny_model("llama"), TOKENIZER, [DummyTool()], lambda x: torch.tensor(1), "I am a prompt!\n")
    assert made.prompt == "I am a prompt!\n"
    assert list(made.tools) == ["DummyTool"]
    assert isinstance(made.tools["DummyTool"], DummyTool)
    assert made.reward_fn("Hello there!") == 1
    assert (made.max_turns, made.max_tool_reponse, made.max_length, made.generation_kwargs) == (4, 100, None, {})


def test_a_wrapper_with_a_value_head_is_taken_off() -> None:
    wrapper = type("WithValueHead", (), {"pretrained_model": tiny_model("llama")})()
    assert TextEnvironment(wrapper, TOKENIZER).model is wrapper.pretrained_model


@pytest.mark.parametrize("kind", ["llama", "gpt2", "gemma3"])
def test_rows_generated_together_are_as_each_alone(kind: str) -> None:
    made, rows = environment(kind=kind), rows_of(["this is a test", "this is another, longer test", "x"])
    together = made._generate_batched(rows, batch_size=2)
    alone = [made._generate_batched([row], batch_size=1)[0] for row in rows]
    assert [row.tolist() for row in together] == [row.tolist() for row in alone]
    assert [len(row) for row in together] == [6, 6, 6]


@pytest.mark.parametrize(
    ("text", "call"),
    [
        ("Something something <request><Tool1>Hello there!<call>", ("Tool1", "Hello there!")),
        ("Something something <Tool1>Hello there!<call>", (None, None)),
        ("Something something <request><Tool1>Hello there!", (None, None)),
        ("Something something <request>|Tool2|Hello there!<call>", (None, None)),
        ("<>abcdefghijklm<>nopqrstuvwxyz<>", (None, None)),
        ("<request><T>a > b\n<c><call>", ("T", "a > b\n<c>")),
        ("<request>a>b<T>q<call>", ("T", "q")),
        ("<request><T><call>", ("T", "")),
        ("<call><request><T>q", (None, None)),
    ],
)
def test_parsing(text: str, call: tuple[str | None, str | None]) -> None:
    assert environment().parse_tool_call(text) == call


def test_truncation_of_answers_counts_characters() -> None:
    made = environment(tools={"dummy": lambda _: "é" * 1000})
    made.model.config.max_position_embeddings = 4096
    for limit, length in [(100, 100), (500, 500), (1001, 1000), (2000, 1000)]:
        made.max_tool_response = limit
        assert made.max_tool_reponse == limit
        history = made.step(TextHistory("<request><dummy>Hello there!<call>", torch.tensor([1, 2, 3])))
        assert len(history.last_text_segment) - len(made.response_token) == length
        assert history.last_text_segment.endswith(("é" if limit > 1000 else "...") + "<response>")


@pytest.mark.parametrize("turns", [1, 2, 4])
def test_the_number_of_turns(turns: int) -> None:
    with patch.object(TextEnvironment, "generate", side_effect=dummy_generate):
        made = environment(prompt="I am a prompt!\n", max_turns=turns)
        *_, [history] = made.run(["test"])
    assert history.text == "I am a prompt!\ntest" + turns * "<request><DummyTool>test<call>test<response>"


def test_rewards_of_histories() -> None:
    made = environment(reward_fn=lambda texts: [torch.tensor(i) for i, _ in enumerate(texts)])
    histories = [TextHistory("<request><DummyTool>test<call>", torch.tensor([1, 2, 3])) for _ in range(8)]
    assert made.compute_reward(histories) is histories
    assert [int(history.reward) for history in histories] == list(range(8))


def test_results() -> None:
    with patch.object(TextEnvironment, "generate", side_effect=dummy_generate):
        made = environment(prompt="P:", max_turns=2, reward_fn=lambda x: [torch.tensor(i) for i, _ in enumerate(x)])
        queries, responses, masks, rewards, histories = made.run(["one", "another one"])
    answer = ids_of("test<response>")
    for index, query in enumerate(["P:one", "P:another one"]):
        assert queries[index].tolist() == ids_of(query)
        assert responses[index].tolist() == [4, 5, 6, *answer] * 2
        assert masks[index].tolist() == ([1] * 3 + [0] * len(answer)) * 2
        assert rewards[index] == index
        assert texts_of(histories[index])[0] == query


def test_another_spelling_of_the_limit() -> None:
    assert environment(max_tool_response=7).max_tool_reponse == 7


# -- turns and ends -----------------------------------------------------------------------------------------------


def test_a_conversation_with_tools() -> None:
    script = [turn("<request><add>1+2<call>", free=2), turn("<request><DummyTool>x<call>"), turn("it is 3<submit>")]
    queries, responses, _, rewards, [history] = environment({"q": script}).run(["q"])
    texts = texts_of(history)
    assert texts[0] == "q"
    assert texts[1].endswith("<request><add>1+2<call>")
    assert texts[2:] == ["3<response>", "<request><DummyTool>x<call>", "x<response>", "it is 3<submit>"]
    assert history.system_spans == [True, False, True, False, True, False]
    assert (history.completed, history.truncated, history.why) == (True, False, "submit")
    assert torch.equal(torch.cat([queries[0], responses[0]]), history.tokens)
    assert history.tokens[history.token_masks == 1].tolist() == [one for ids in generated_of(history) for one in ids]
    assert rewards == [0.0]


@pytest.mark.parametrize(
    ("script", "why", "truncated"),
    [
        ([turn("a<submit>")], "submit", False),
        ([turn("<request><add>1+1<call>"), turn("a", eos=True)], "eos", False),
        ([turn("<request><add>1+1", eos=True)], "eos", False),
        ([[None] * 90], "no call", False),
        ([turn("<request><add>1+1<call>")] * 5, "max_turns", True),
    ],
)
def test_ends(script, why: str, truncated: bool) -> None:
    *_, [history] = environment({"q": script}).run(["q"])
    assert (history.completed, history.why, history.truncated) == (True, why, truncated)


def test_each_history_has_its_own_end() -> None:
    scripts = {
        "q": [turn("<request><add>1+2<call>"), turn("<submit>")],
        "w": [turn("done", eos=True)],
        "another": [turn("<request><add>3+4<call>", free=7)] * 4,
    }
    *_, histories = environment(scripts).run(list(scripts))
    assert [history.why for history in histories] == ["submit", "eos", "max_turns"]
    assert [history.turns for history in histories] == [2, 1, 4]
    assert texts_of(histories[2])[2::2] == ["7<response>"] * 4


@pytest.mark.parametrize("kind", ["llama", "gpt2", "gemma3"])
def test_a_batch_gives_what_single_runs_give(kind: str) -> None:
    scripts = {
        "a prompt": [turn("<request><add>1+2<call>", free=9), turn("<submit>", free=12)],
        "a rather longer one": [turn("<request><DummyTool>yesyesyes<call>", free=3), turn("<submit>", free=5)],
        "x": [turn("x", free=20, eos=True)],
    }
    *_, together = environment(scripts, kind).run(list(scripts))
    for prompt, history in zip(scripts, together, strict=True):
        *_, [alone] = environment(scripts, kind).run([prompt])
        assert history.tokens.tolist() == alone.tokens.tolist()
        assert history.text == alone.text
    *_, in_twos = environment(scripts, kind, batch_size=2).run(list(scripts))
    assert [one.tokens.tolist() for one in in_twos] == [one.tokens.tolist() for one in together]


def test_no_queries() -> None:
    assert environment(reward_fn=lambda texts: [1 / len(texts)]).run([]) == ([], [], [], [], [])


def test_a_segment_that_decodes_to_nothing_is_text_all_the_same() -> None:
    model = tiny_model("llama")
    model.resize_token_embeddings(310)
    made = TextEnvironment(
        model, TOKENIZER, generation_kwargs={"max_new_tokens": 2, "suppress_tokens": list(range(300))}
    )
    *_, [history] = made.run(["q"])
    assert history.last_text_segment == "\ufffd"
    assert all(token >= 300 for token in generated_of(history)[0])


def test_a_character_may_begin_in_one_segment_and_end_in_the_next() -> None:
    first, second = ids_of("é")
    history = TextHistory("\ufffd", torch.tensor([first]))

    def script(input_ids, scores):
        scores = torch.full_like(scores, -torch.inf)
        scores[:, second if input_ids.shape[1] == 1 else EOS] = 0.0
        return scores

    environment(generation_kwargs={"logits_processor": [script], "max_new_tokens": 5}).generate([history])
    assert history.last_text_segment == "é<eos>"


def test_history_is_not_tokenized_anew() -> None:
    # "t" and "h" would be one token.
    t, h = TOKENIZER.convert_tokens_to_ids(["t", "h"])
    *_, [history] = environment({"q": [[t, h, *ids_of("<request><add>1+1<call>")], turn("<submit>")]}).run(["q"])
    assert history.tokens.tolist()[1:3] == [t, h]
    assert texts_of(history)[1] == "th<request><add>1+1<call>"


# -- lengths --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("others", [[], ["a prompt that is much longer than that"]])
def test_no_history_gets_longer_than_it_may(others: list[str]) -> None:
    prompts = ["q", *others]
    made = environment({prompt: [[None] * 90] for prompt in prompts}, max_length=40)
    *_, histories = made.run(prompts)
    for history in histories:
        assert (len(history.tokens), history.why, history.truncated) == (40, "max_length", True)


def test_a_length_asked_of_generate_leaves_padding_out() -> None:
    made = environment(generation_kwargs={"max_length": 30, "suppress_tokens": [EOS, PAD]})
    *_, histories = made.run(["q", "a prompt that is longer"])
    assert [len(history.tokens) for history in histories] == [30, 30]
    assert made.run(["q"])[-1][0].tokens.tolist() == histories[0].tokens.tolist()


def test_twenty_new_tokens_where_nothing_is_asked() -> None:
    made = TextEnvironment(tiny_model("llama"), TOKENIZER, generation_kwargs={"suppress_tokens": [EOS]})
    assert [len(ids) for ids in generated_of(made.run(["q"])[-1][0])] == [20]


def test_an_answer_is_cut_where_the_length_is_used_up() -> None:
    call = "<request><DummyTool>abcdefghi<call>"
    length = 1 + len(ids_of(call)) + 4
    *_, [history] = environment({"q": [turn(call)]}, max_length=length).run(["q"])
    assert texts_of(history)[2] == "abcd"
    assert (len(history.tokens), history.why, history.truncated) == (length, "max_length", True)
    *_, [full] = environment({"q": [turn(call)]}, max_length=length - 4).run(["q"])
    assert (len(full.text_spans), full.why) == (2, "max_length")


def test_a_submission_with_the_last_token_is_one() -> None:
    length = 1 + len(ids_of("ab<submit>"))
    *_, [history] = environment({"q": [turn("ab<submit>")]}, max_length=length).run(["q"])
    assert (history.why, history.truncated, len(history.tokens)) == ("submit", False, length)


@pytest.mark.parametrize("length", [3, 4, 5])
def test_a_prompt_without_room_behind_it_is_truncated_and_the_others_go_on(length: int) -> None:
    scripts = {"abcdef": [turn("x" * 9)], "q": [turn("<submit>")]}
    made = environment(scripts, max_length=length)
    *_, [long, short] = made.run(["abcdef", "q"])
    assert (long.text, long.why, long.truncated) == ("abcdef", "max_length", True)
    assert long.turns == 0
    assert len(short.tokens) == length


def test_the_context_of_the_model_is_a_length_too() -> None:
    model = tiny_model("gpt2")
    model.config.n_positions = 24
    made = TextEnvironment(model, TOKENIZER, generation_kwargs={"max_new_tokens": 50, "suppress_tokens": [EOS, PAD]})
    *_, [history] = made.run(["q"])
    assert (len(history.tokens), history.why, history.truncated) == (24, "context", True)


# -- what generate is asked -----------------------------------------------------------------------------------------


def test_settings_may_come_as_a_generation_config_which_stays_as_it_is() -> None:
    config = GenerationConfig(
        max_new_tokens=7, max_length=9, suppress_tokens=[EOS, PAD], eos_token_id=EOS, pad_token_id=PAD
    )
    before = config.to_dict()
    made = environment(generation_kwargs={"generation_config": config})
    *_, [history] = made.run(["q"])
    assert [len(ids) for ids in generated_of(history)] == [7]
    assert config.to_dict() == before


def test_stop_strings_of_ones_own_end_a_segment_too() -> None:
    generation = says({"q": [turn("abc. def<submit>")]}, stop_strings=".")
    *_, [history] = environment(generation_kwargs=generation).run(["q"])
    assert (texts_of(history)[1], history.why) == ("abc.", "no call")


def test_stop_strings_of_the_models_own_config_end_a_segment_too() -> None:
    made = environment({"q": [turn("abc. def<submit>")]})
    made.model.generation_config.stop_strings = ["."]
    *_, [history] = made.run(["q"])
    assert (texts_of(history)[1], history.why) == ("abc.", "no call")
    assert made.model.generation_config.stop_strings == ["."]


def test_a_beam_search_writes_segments() -> None:
    scripts = {"q": [turn("<request><add>1+2<call>", free=2), turn("<submit>")], "prompt": [turn("<submit>", free=3)]}
    *_, histories = environment(generation_kwargs=says(scripts, num_beams=2)).run(list(scripts))
    assert [history.why for history in histories] == ["submit", "submit"]
    assert texts_of(histories[0])[2] == "3<response>"


def sure():
    """A draft model whose drafts are all kept, so that a round goes on past the end of a segment."""
    model = tiny_model("llama")
    model.generation_config.assistant_confidence_threshold = 0.0
    return model


@pytest.mark.parametrize(
    "drafts",
    [
        {"prompt_lookup_num_tokens": 3},
        {"assistant_model": tiny_model("llama", seed=1)},
        {"assistant_model": sure()},
    ],
)
def test_drafts_write_what_the_model_alone_writes(drafts) -> None:
    plain = environment(generation_kwargs={"max_new_tokens": 30}).run(["ab ab ab ab"])[-1][0]
    *_, [history] = environment(generation_kwargs={"max_new_tokens": 30, **drafts}).run(["ab ab ab ab"])
    assert history.tokens.tolist() == plain.tokens.tolist()
    tokens = generated_of(plain)[0]
    string = next(TOKENIZER.decode([token]) for token in tokens[5:] if token not in tokens[:5] and token < 90)
    both = [
        environment(generation_kwargs={"max_new_tokens": 30, "stop_strings": [string], **more}).run(["ab ab ab ab"])
        for more in ({}, drafts)
    ]
    assert both[0][1][0].tolist() == both[1][1][0].tolist()
    assert len(both[0][1][0]) < 30


def test_a_model_without_a_pad_token_is_given_one(caplog: pytest.LogCaptureFixture) -> None:
    model = tiny_model("llama")
    model.generation_config.pad_token_id = None
    *_, histories = TextEnvironment(model, TOKENIZER, generation_kwargs={"max_new_tokens": 3}).run(["q", "longer"])
    plain = environment(generation_kwargs={"max_new_tokens": 3}).run(["q", "longer"])[-1]
    assert [one.tokens.tolist() for one in histories] == [one.tokens.tolist() for one in plain]
    assert not caplog.records


@pytest.mark.parametrize(
    ("kwargs", "message"),
    [
        ({"generation_kwargs": {"input_ids": 1}}, "have 'input_ids', which the environment makes itself"),
        ({"generation_kwargs": {"past_key_values": 1}}, "have 'past_key_values'"),
        ({"generation_kwargs": {"streamer": 1}}, "give watch= to the environment"),
        ({"generation_kwargs": {"num_return_sequences": 2}}, "num_return_sequences=2; a history goes on in one way"),
        ({"generation_kwargs": {"num_beams": 2}, "keep_logits": True}, "leave num_beams=2 out"),
        ({"generation_kwargs": {"prompt_lookup_num_tokens": 2}, "keep_logits": True}, "leave prompt_lookup_num_tokens"),
        ({"tool_format": "xml"}, "tool_format is 'xml'; use 'tags' or 'chat'"),
        ({"tool_format": "chat"}, "no chat template"),
        ({"max_turns": 0}, "max_turns=0.*use at least 1"),
        ({"batch_size": 0}, "batch_size=0"),
        ({"max_tool_reponse": -1}, "max_tool_reponse=-1"),
    ],
)
def test_what_does_not_go_together_is_refused_at_once(kwargs, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        TextEnvironment(tiny_model("llama"), TOKENIZER, **kwargs)


# -- sampling, logits -------------------------------------------------------------------------------------------------


def test_a_seed_makes_sampling_reproducible_and_leaves_the_global_generator_alone() -> None:
    sampling = {"do_sample": True, "top_k": 0, "temperature": 1.5, "max_new_tokens": 12}
    state = torch.random.get_rng_state()
    one, again, other = (
        environment(generation_kwargs=sampling, seed=seed).run(["q"])[-1][0].tokens.tolist() for seed in (7, 7, 8)
    )
    assert one == again != other
    assert torch.equal(torch.random.get_rng_state(), state)


def test_the_first_turn_draws_as_generate_does_and_each_turn_otherwise() -> None:
    scripts = {"q": [turn("<request><add>1+1<call>", free=5)] * 3}
    sampling = says(scripts, do_sample=True, top_k=0, temperature=50.0)
    *_, [history] = environment(generation_kwargs=sampling, seed=3, max_turns=3).run(["q"])
    turns = [ids[:5] for ids in generated_of(history)]
    assert len({tuple(ids) for ids in turns}) == 3
    ids = torch.tensor([ids_of("q")])
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(3)
        plain = tiny_model("llama").generate(
            ids, attention_mask=torch.ones_like(ids), **sampling | {"max_new_tokens": 5}
        )
    assert plain[0, 1:].tolist() == turns[0]


@pytest.mark.parametrize("kind", ["llama", "gpt2", "gemma3", "t5"])
def test_logits_are_those_of_the_models_tokens(kind: str) -> None:
    scripts = {"q": [turn("<request><add>1+2<call>", free=3)] * 2, "longer": [turn("ab", eos=True)]}
    generation = {"max_new_tokens": 5} if kind == "t5" else says(scripts)
    model = tiny_model(kind)
    made = TextEnvironment(model, TOKENIZER, [add], generation_kwargs=generation, keep_logits=True, max_turns=2)
    *_, histories = made.run(list(scripts))
    for history in histories:
        assert history.logits.shape == (int(history.token_masks.sum()), 300)
        if kind != "t5":
            whole = model(history.tokens[None]).logits[0, :-1]
            torch.testing.assert_close(history.logits, whole[history.token_masks[1:] == 1], atol=1e-4, rtol=0)
    assert environment({"q": [turn("a<submit>")]}).run(["q"])[-1][0].logits is None


def test_an_encoder_decoder_model_reads_the_whole_history_each_turn() -> None:
    model, read = tiny_model("t5"), []
    model.get_encoder().register_forward_pre_hook(
        lambda module, args, kwargs: read.append((kwargs["input_ids"].tolist(), kwargs["attention_mask"].tolist())),
        with_kwargs=True,
    )
    segment = ids_of("<request><add>1+2<call>")

    def script(input_ids, scores):
        scores = torch.full_like(scores, -torch.inf)
        scores[:, segment[input_ids.shape[1] - 1]] = 0.0
        return scores

    generation = {"max_new_tokens": 60, "logits_processor": [script]}
    made = TextEnvironment(model, TOKENIZER, [add], generation_kwargs=generation, max_turns=2, use_cache=True)
    *_, [short, long] = made.run(["q", "prompt"])
    assert texts_of(short) == ["q", *["<request><add>1+2<call>", "3<response>"] * 2]
    first, second = read
    assert first[0] == [ids_of("q") + [PAD] * (len(ids_of("prompt")) - 1), ids_of("prompt")]
    assert first[1][0] == [1] + [0] * (len(ids_of("prompt")) - 1)
    assert second[0][1] == long.tokens[: long.token_spans[2][1]].tolist()
    assert [reuse.why for reuse in short.reuses] == ["a forward hook on encoder may change what it computes"] * 2


def test_what_closes_the_input_of_an_encoder_is_no_part_of_the_history() -> None:
    from tokenizers import processors

    from tokenizers_for_tests import unigram

    tokenizer, read = unigram(), []
    eos = tokenizer.eos_token_id
    tokenizer.backend_tokenizer.post_processor = processors.TemplateProcessing(
        single="$A </s>", special_tokens=[("</s>", eos)]
    )
    model = tiny_model("t5")
    model.resize_token_embeddings(400)
    model.get_encoder().register_forward_pre_hook(
        lambda module, args, kwargs: read.append(kwargs["input_ids"].tolist()), with_kwargs=True
    )
    made = TextEnvironment(model, tokenizer, generation_kwargs={"max_new_tokens": 3, "max_length": None})
    *_, [history] = made.run(["The quick brown fox"])
    prompt = tokenizer("The quick brown fox", add_special_tokens=False)["input_ids"]
    assert history.tokens.tolist()[: len(prompt)] == prompt
    assert eos not in prompt
    assert read == [[[*prompt, eos]]]


# -- live, stopping ---------------------------------------------------------------------------------------------------


def test_segments_are_told_as_they_come() -> None:
    told = []
    scripts = {"q": [turn("<request><add>1+2<call>"), turn("<submit>")], "w": [turn("x", eos=True)]}
    made = environment(
        scripts, on_segment=told.append, reward_fn=lambda texts: [len(text) for text in texts], use_cache=True
    )
    steps, seen = made.stream(["q", "w"]), []
    for segment in steps:
        assert told[-1] is segment
        seen.append((segment.kind, segment.index, segment.turn, segment.text))
        if segment.kind in ("model", "system", "prompt"):
            assert TOKENIZER.decode(list(segment.tokens)) == segment.text
    assert seen == [
        ("prompt", 0, 0, "q"),
        ("prompt", 1, 0, "w"),
        ("model", 0, 1, "<request><add>1+2<call>"),
        ("model", 1, 1, "x<eos>"),
        ("end", 1, 1, "eos"),
        ("system", 0, 1, "3<response>"),
        ("model", 0, 2, "<submit>"),
        ("end", 0, 2, "submit"),
        ("reward", 0, 2, ""),
        ("reward", 1, 1, ""),
    ]
    models = [segment for segment in told if segment.kind == "model"]
    assert [segment.reuse.reused for segment in models] == [0, 0, len(ids_of("q<request><add>1+2<call>")) - 1]
    assert told[-1].history.reward == len("x<eos>")


def test_steps_can_be_watched() -> None:
    batches, steps = [], []

    def watch(indices):
        batches.append(indices)
        return OutputStreamer(lambda step: steps.append(step.tokens.tolist()), fields=())

    scripts = {"q": [turn("<request><add>1+2<call>"), turn("ab<submit>")], "w": [turn("x", eos=True)]}
    environment(scripts, watch=watch).run(["q", "w"])
    assert batches == [(0, 1), (0,)]
    assert [tokens[0] for tokens in steps if len(tokens) == 1] == ids_of("ab<submit>")


@pytest.mark.parametrize("as_event", [True, False])
def test_a_run_can_be_stopped_while_it_generates_and_keeps_what_came(as_event: bool) -> None:
    event, steps = threading.Event(), []

    def on_step(step):
        steps.append(step)
        if len(steps) == 4:
            event.set()

    made = environment(
        {"q": [[None] * 70], "w": [turn("ab", eos=True)]},
        stop=event if as_event else event.is_set,
        watch=lambda _: OutputStreamer(on_step, fields=()),
        reward_fn=lambda texts: [len(text) for text in texts],
    )
    _, _, masks, rewards, [history, ended] = made.run(["q", "w"])
    assert (len(generated_of(history)[0]), history.why, history.truncated, history.completed) == (
        4,
        "stopped",
        True,
        True,
    )
    assert (ended.why, ended.truncated) == ("eos", False)
    assert masks[0].tolist() == [1] * 4
    assert rewards == [len(history.last_text_segment), len("ab<eos>")]


def test_a_run_can_be_stopped_between_segments() -> None:
    stop = threading.Event()
    scripts = {"q": [turn("<request><add>1+2<call>")] * 4}
    made = environment(scripts, stop=stop)
    for segment in made.stream(["q"]):
        if segment.kind == "system":
            stop.set()
    assert (segment.history.turns, segment.history.why, segment.history.truncated) == (1, "stopped", True)
    assert texts_of(segment.history)[-1] == "3<response>"


def test_a_run_that_is_stopped_before_it_begins_has_its_prompts() -> None:
    _, responses, masks, _, [history] = environment(stop=lambda: True).run(["q"])
    assert (history.text, history.why, len(responses[0]), len(masks[0])) == ("q", "stopped", 0, 0)


def test_a_tool_does_not_hold_up_a_stop() -> None:
    stop, release = threading.Event(), threading.Event()

    def slow(query):
        stop.set()
        release.wait(60)

    *_, [history] = environment({"q": [turn("<request><slow>1<call>")]}, tools=[slow], stop=stop).run(["q"])
    release.set()
    assert (texts_of(history), history.why) == (["q", "<request><slow>1<call>"], "stopped")


def test_nothing_of_jupyter_is_imported() -> None:
    import subprocess
    import sys

    code = "import sys, genscope.kernel_side.environment.environment\n"
    code += "print([name for name in ('IPython', 'ipywidgets', 'anywidget', 'traitlets') if name in sys.modules])"
    assert (
        subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip() == "[]"
    )


# -- rewards --------------------------------------------------------------------------------------------------------


def test_keyword_arguments_of_a_run_go_to_the_reward_function() -> None:
    scripts = {"q": [turn("3<submit>")], "w": [turn("5<submit>")]}

    def exact(texts, answers, scale=1.0):
        return [scale * (text.startswith(answer)) for text, answer in zip(texts, answers, strict=True)]

    assert environment(scripts, reward_fn=exact).run(["q", "w"], answers=["3", "4"], scale=2.0)[3] == [2.0, 0.0]


def test_lists_are_distributed_where_each_text_is_rewarded_by_itself() -> None:
    scripts = {"q": [turn("3<submit>")], "w": [turn("5<submit>")]}

    def exact(text, answer, scale):
        return scale * text.startswith(answer)

    made = environment(scripts, reward_fn=exact, reward_each=True)
    assert made.run(["q", "w"], answer=["3", "4"], scale=2.0)[3] == [2.0, 0.0]
    with pytest.raises(ValueError, match="answer has 1 entries for 2 queries"):
        made.run(["q", "w"], answer=["3"], scale=2.0)


def test_rewards_that_are_not_one_each_are_refused() -> None:
    with pytest.raises(ValueError, match="gave 1 rewards for 2 histories"):
        environment(reward_fn=lambda texts: [1]).run(["q", "w"])
