"""An environment as a run: lanes, segments, measures, reuse, stop, pause and step, and what it refuses."""

from __future__ import annotations

import threading
import time
from typing import Any

import pytest
import torch
from transformers import PreTrainedTokenizerFast

from genscope.kernel_side.caching.prefix_cache import PrefixCache
from genscope.kernel_side.engines.environment_engine import EnvironmentEngine
from genscope.kernel_side.engines.in_process import InProcessEngine
from genscope.kernel_side.engines.plan import Draft
from genscope.kernel_side.environment.environment import TextEnvironment
from genscope.kernel_side.record.export import recording_from_json
from genscope.kernel_side.request import Request, SettingsError
from genscope.kernel_side.run import Run
from scripted import TOKENIZER, ids_of, says, turn
from tiny import tiny_model

SCRIPTS = {
    "a prompt": [turn("<request><Say>3<call>", free=9), turn("<request><Say>12<call>", free=2), turn("<submit>")],
    "yz": [turn("<request><Say>1<call>", free=4), turn("w<submit>", free=1)],
    "x": [turn("x", free=7, eos=True)],
}


class Scripted(EnvironmentEngine):
    """Has the model follow scripts, which no setting of a request can ask for."""

    scripts: Any = SCRIPTS

    def make_environment(self, request, plan, **hooks) -> TextEnvironment:
        environment = super().make_environment(request, plan, **hooks)
        environment.generation_kwargs |= {"logits_processor": says(self.scripts)["logits_processor"]}
        return environment


def engine_of(
    kind: str = "llama", *, cache: bool = True, draft: bool = False, tools=None, free: bool = False, **options
):
    model = tiny_model(kind, "sdpa")
    inner = InProcessEngine(
        model,
        TOKENIZER,
        assistant=tiny_model("llama", seed=1) if draft else None,
        prefix_cache=PrefixCache(2**26) if cache else None,
    )
    tools = {"Say": lambda query: "w" * int(query)} if tools is None else tools
    options = {"reward_fn": lambda texts: [float(len(text)) for text in texts], **options}
    return (EnvironmentEngine if free else Scripted)(inner, tools, **options)


def request_of(prompts: Any = tuple(SCRIPTS), **settings: Any) -> Request:
    return Request.make(
        list(prompts) if not isinstance(prompts, str) else prompts, {"max_new_tokens": 80, "seed": 3}, **settings
    )


def until(condition) -> None:
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline, "waited for 30 s in vain"
        time.sleep(0.002)


def played(engine: EnvironmentEngine, request: Request) -> list[Any]:
    """Run the same in a plain environment."""
    from genscope.kernel_side.engines.plan import make_plan

    plan = make_plan(request, engine.engine.model, engine.engine.draft)
    environment = engine.make_environment(request, plan)
    environment._prefix_cache = None
    return environment.run(list(request.prompts))[-1]


def check(run: Run, histories: list[Any]) -> None:
    """Compare the record with histories: ids, whose they are, texts, segments."""
    for index, (lane, history) in enumerate(zip(run.lanes, histories, strict=True)):
        tokens = lane.record[:]
        assert [token.id for token in tokens] == history.tokens.tolist()
        assert lane.prompt_tokens == history.token_spans[0][1]
        assert [int(token.origin == "generated") for token in tokens] == history.token_masks.tolist()
        assert "".join(token.text for token in tokens) + lane.record.tail == TOKENIZER.decode(history.tokens)
        rows = [row for row in run.recording.segments if row.lane == index]
        kinds = ["tool" if system else "model" for system in history.system_spans]
        assert [row.kind for row in rows] == ["prompt", *kinds[1:], "end", "reward"]
        assert [(row.start, row.stop) for row in rows[:-2]] == history.token_spans
        assert [row.turn for row in rows[:-2]] == [
            history.system_spans[: at + 1].count(False) for at in range(len(kinds))
        ]
        assert {(row.start, row.stop) for row in rows[-2:]} == {(len(tokens), len(tokens))}
        for row in rows[:-2]:
            wanted = {"prompt": "prompt", "model": "generated", "tool": "tool"}[row.kind]
            assert {token.origin for token in tokens[row.start : row.stop]} == {wanted}
        assert (rows[-2].text, rows[-1].reward) == (history.why, len(history.last_text_segment))


@pytest.mark.parametrize("batch_size", [1, 2, 16])
@pytest.mark.parametrize("kind", ["llama", "gemma3"])
def test_a_run_records_what_an_environment_gives(kind: str, batch_size: int) -> None:
    engine = engine_of(kind, batch_size=batch_size)
    run = Run(engine, request_of()).wait(60)
    histories = run.output[-1]
    assert [one.tokens.tolist() for one in histories] == [one.tokens.tolist() for one in played(engine, request_of())]
    check(run, histories)
    assert (run.state, run.whys) == ("finished", ("submit", "submit", "eos"))
    assert run.recording.segmented
    assert [row.text for row in run.recording.segments if row.kind == "tool"] == ["Say"] * 3
    assert run.status().generated == max(int(history.token_masks.sum()) for history in histories)
    assert run.status().why == "submit (2), eos (1)"


def test_model_tokens_have_measures_and_times_and_others_have_none() -> None:
    tools = {"Say": lambda query: time.sleep(0.3) or "w" * int(query)}
    run = Run(engine_of(tools=tools), request_of("a prompt", alternatives=3)).wait(60)
    record = run.record
    with torch.no_grad():
        whole = tiny_model("llama", "sdpa")(torch.tensor([record.ids()])).logits[0].log_softmax(-1)
    for token in record:
        if token.origin != "generated":
            assert (token.raw_logprob, token.seconds, token.alternatives) == (None, None, ())
            continue
        assert token.raw_logprob == pytest.approx(float(whole[token.position - 1, token.id]), abs=1e-4)
        assert len(token.alternatives) == 3
        assert 0 < token.seconds < 0.3, "the time of a tool is no token's"
    assert run.status().first_token == record[run.prompt_tokens].seconds


def test_reuse_is_told_of_each_turn_and_of_the_prompt() -> None:
    engine = engine_of(batch_size=1)
    run = Run(engine, request_of("a prompt")).wait(60)
    rows = [row for row in run.recording.segments if row.kind == "model"]
    begun = [row.start for row in rows]
    known = [0, rows[0].stop - 1, rows[1].stop - 1]
    assert [(row.reused, row.computed) for row in rows] == [
        (at, start - at) for at, start in zip(known, begun, strict=True)
    ]
    assert [row.text for row in rows] == ["nothing is known of this model", None, None]
    assert {token.cached for token in run.record if token.origin == "prompt"} == {False}
    assert {token.cached for token in run.record if token.origin != "prompt"} == {None}
    reuse = run.status().reuse
    assert (reuse.reused, reuse.tokens) == (sum(known), sum(begun))
    assert reuse.rows[0].end.position == known[2]
    again = Run(engine, request_of("a prompt")).wait(60)
    prompt = [token.cached for token in again.record if token.origin == "prompt"]
    assert prompt == [True] * (len(prompt) - 1) + [False]
    assert [row.computed for row in again.recording.segments if row.kind == "model"] == [1, 1, 1]


@pytest.mark.parametrize(("cache", "setting"), [(False, True), (True, False)])
def test_without_a_cache_nothing_is_said_of_reuse(cache: bool, setting: bool) -> None:
    engine = engine_of(cache=cache)
    run = Run(engine, request_of(prefix_cache=setting)).wait(60)
    assert run.status().reuse is None
    assert {token.cached for lane in run.lanes for token in lane.record} == {None}
    rows = [row for row in run.recording.segments if row.kind == "model"]
    assert {(row.reused, row.computed, row.text) for row in rows} == {(None, None, None)}
    if cache:
        assert engine.engine.prefix_cache.stats().tokens == 0


STRATEGIES: list[tuple[str, dict[str, Any]]] = [
    ("greedy", {"repetition_penalty": 1.3}),
    ("sample", {"temperature": 2.0}),
    ("beam", {"num_beams": 3}),
    ("beam_sample", {"num_beams": 2}),
    ("diverse_beam", {"num_beams": 4}),
    ("contrastive", {}),
    ("dola", {}),
    ("guidance", {}),
    ("assisted", {}),
    ("prompt_lookup", {}),
    ("early_exit", {"assistant_early_exit": 1}),
]


@pytest.mark.parametrize(("strategy", "settings"), STRATEGIES)
def test_every_strategy_plays(strategy: str, settings: dict[str, Any]) -> None:
    drafts = strategy in ("assisted", "prompt_lookup", "early_exit")
    engine, prompts = engine_of(draft=True), ["a prompt"] if drafts else ["a prompt", "yz"]
    request = request_of(prompts, strategy=strategy, **settings)
    run = Run(engine, request).wait(60)
    check(run, run.output[-1])
    assert [one.tokens.tolist() for one in run.output[-1]] == [one.tokens.tolist() for one in played(engine, request)]
    assert [one.turns for one in run.output[-1]] == [3, 2][: len(prompts)]
    generated = [token for lane in run.lanes for token in lane.record if token.origin == "generated"]
    assert all(token.raw_logprob is not None and token.seconds is not None for token in generated)
    # The values of contrastive search are no distribution.
    assert {token.logprob is None for token in generated} == {strategy == "contrastive"}
    assert (len(run.recording.beams), len(run.recording.choices)) == (0, 0)
    rounds = run.recording.rounds
    assert sum(one.accepted + one.bonus for one in rounds) == (len(generated) if drafts else 0)
    assert [one.step for one in rounds] == list(range(len(rounds)))
    positions = [one.position for one in rounds]
    assert all(run.record[at].origin == "generated" for at in positions)
    assert run.status().drafts is None or run.status().drafts.generated == len(generated)


def test_what_a_round_has_behind_a_stop_string_is_not_recorded() -> None:
    engine = engine_of(free=True, max_turns=1)
    engine.engine.draft = Draft(tiny_model("llama", "sdpa"))  # drafts what the model itself says
    settings = {"strategy": "assisted", "num_assistant_tokens": 6, "max_new_tokens": 30}
    first = Run(engine, request_of("the cat", **settings)).wait(60)
    generated = "".join(token.text for token in first.record if token.origin == "generated")
    one = next(one for one in first.recording.rounds if one.accepted == 6)
    at, string = next(
        (token.position, token.text)
        for token in first.record[one.position + 1 : one.position + 5]
        if token.text and generated.count(token.text) == 1
    )
    run = Run(engine, request_of("the cat", stop_strings=[string], **settings)).wait(60)
    assert run.record.ids() == first.record.ids()[: at + 1] == run.output[-1][0].tokens.tolist()
    last = run.recording.rounds[-1]
    assert (last.position, last.accepted, last.bonus) == (one.position, at + 1 - one.position, 0)


def test_an_encoder_decoder_model_plays_too() -> None:
    engine = engine_of("t5", free=True)
    run = Run(engine, request_of(["a prompt", "yz"], max_new_tokens=6)).wait(60)
    check(run, run.output[-1])
    assert run.recording.sources == ()
    rows = [row for row in run.recording.segments if row.kind == "model"]
    assert {row.text for row in rows} == {"the encoder has not read this before"}


@pytest.mark.parametrize("step", [1, 12, 30])
def test_a_stop_keeps_what_came(step: int) -> None:
    engine = engine_of()
    run = Run(engine, request_of(), paused=True)
    for count in range(step):
        until(lambda: run.state == "paused")
        assert run.status().generated <= count + 1
        if count < step - 1:
            run.step()
            until(lambda: run.state != "paused" or run.over or steps_of(run) > count)  # noqa: B023 - asked at once
    run.stop()
    run.wait(60)
    assert run.state == "stopped"
    whole = Run(engine, request_of()).wait(60)
    histories = run.output[-1]
    check(run, histories)
    for lane, all_of_it in zip(run.lanes, whole.lanes, strict=True):
        ids = lane.record.ids()
        assert ids == all_of_it.record.ids()[: len(ids)]
        assert len(ids) > lane.prompt_tokens
    assert None in run.whys
    assert engine.engine.prefix_cache.stats().pinned == 0


def steps_of(run: Run) -> int:
    return run._job._recorder.steps


def test_steps_are_one_token_a_lane() -> None:
    run = Run(engine_of(), request_of(), paused=True)
    for steps in range(1, 20):
        until(lambda: run.state == "paused" and steps_of(run) == steps)  # noqa: B023 - asked at once
        assert run.record.ids("generated") == run.record.ids("generated")[: run.status().generated]
        run.step()
    run.resume()
    assert run.wait(60).state == "finished"


def test_a_stop_takes_effect_while_a_tool_works_and_another_run_goes_on() -> None:
    working, never = threading.Event(), threading.Event()

    def hang(query: str) -> str:
        working.set()
        never.wait(30)
        return query

    engine = engine_of(tools={"Say": hang})
    run = Run(engine, request_of("a prompt"))
    other = Run(engine.engine, Request.make("the cat", max_new_tokens=3))
    assert working.wait(30)
    assert other.state == "queued"
    until(lambda: len(run.recording.segments) == 2)
    run.stop()
    run.wait(10)
    never.set()
    assert (run.state, run.whys) == ("stopped", (None,))
    assert [row.kind for row in run.recording.segments] == ["prompt", "model", "end", "reward"]
    assert run.recording.segments[-2].text == "stopped"
    assert other.wait(30).state == "finished"


def test_segments_come_while_the_run_goes_on() -> None:
    answer = threading.Event()
    engine = engine_of(tools={"Say": lambda query: answer.wait(30) and "w" * int(query)})
    run = Run(engine, request_of("a prompt"))
    until(lambda: len(run.recording.segments) == 2)
    assert [row.kind for row in run.recording.segments] == ["prompt", "model"]
    assert run.record[-1].id == ids_of("<request><Say>3<call>")[-1]
    assert not run.over
    answer.set()
    assert len(run.wait(60).recording.segments) == 8


def test_a_failing_reward_function_fails_the_run_and_the_record_stays() -> None:
    def fail(texts: list[str]) -> list[float]:
        raise ZeroDivisionError(f"{len(texts)} texts")

    run = Run(engine_of(reward_fn=fail), request_of())
    with pytest.raises(ZeroDivisionError, match="3 texts"):
        run.wait(60)
    assert run.state == "failed"
    kinds = [row.kind for row in run.recording.segments]
    assert (kinds.count("end"), kinds.count("reward")) == (3, 0)


def test_rewards_get_their_arguments_and_none_is_unknown() -> None:
    exact = lambda texts, answers: [float(answer in text) for text, answer in zip(texts, answers, strict=True)]  # noqa: E731
    engine = engine_of(reward_fn=exact, rewards_kwargs={"answers": ["<submit>", "nothing"]})
    run = Run(engine, request_of(["a prompt", "yz"])).wait(60)
    assert [row.reward for row in run.recording.segments if row.kind == "reward"] == [1.0, 0.0]
    assert run.output[3] == [1.0, 0.0]
    run = Run(engine_of(reward_fn=None), request_of(["yz"])).wait(60)
    assert [row.reward for row in run.recording.segments if row.kind == "reward"] == [None]


def test_the_same_seed_draws_the_same_and_a_drawn_one_is_told() -> None:
    engine = engine_of()
    first = Run(engine, request_of(strategy="sample", temperature=4.0, seed=None)).wait(60)
    seed = first.settings.seed
    assert seed is not None
    second = Run(engine, request_of(strategy="sample", temperature=4.0, seed=seed)).wait(60)
    assert [lane.record.ids() for lane in first.lanes] == [lane.record.ids() for lane in second.lanes]
    other = Run(engine, request_of(strategy="sample", temperature=4.0, seed=seed + 1)).wait(60)
    assert [lane.record.ids() for lane in other.lanes] != [lane.record.ids() for lane in first.lanes]


def test_a_query_that_has_no_room_is_recorded_all_the_same() -> None:
    engine = engine_of(max_length=len(ids_of("a prompt")))
    run = Run(engine, request_of(["a prompt", "x"])).wait(60)
    assert run.whys == ("max_length", "max_length")
    check(run, run.output[-1])
    assert run.lanes[0].record.ids() == ids_of("a prompt")
    assert len(run.lanes[1].record) == len(ids_of("a prompt"))


def test_what_was_recorded_survives_json() -> None:
    run = Run(engine_of(), request_of()).wait(60)
    recording, about = recording_from_json(run.to_json())
    assert recording.segmented
    assert recording.segments[:] == run.recording.segments[:]
    assert about["whys"] == ["submit", "submit", "eos"]
    frame = run.to_frame()
    assert set(frame["origin"]) == {"prompt", "generated", "tool"}


@pytest.mark.parametrize(
    ("settings", "field", "message"),
    [
        ({"strategy": "sample", "num_return_sequences": 2}, "num_return_sequences", "2 sequences were asked for"),
        ({"stop_at_eos": False}, "stop_at_eos", "the end of sequence ends a history"),
        ({"attention": True}, "attention", "not there for the turns"),
        ({"logit_lens": True}, "logit_lens", "not there for the turns"),
        ({"prompt_probabilities": True}, "prompt_probabilities", "not there for the turns"),
        ({"keep": ["logits"]}, "keep", "not there for the turns"),
        ({"verify_cache": True}, "verify_cache", "not there for the turns"),
        ({"strategy": "guidance", "negative_prompt": "no"}, "negative_prompt", "grow with each history"),
        ({"strategy": "prompt_lookup"}, "prompt", "follows one prompt, and 3 were given"),
        ({"strategy": "assisted"}, "strategy", "needs a draft model"),
    ],
)
def test_what_does_not_go_with_an_environment_is_refused(settings: dict[str, Any], field: str, message: str) -> None:
    with pytest.raises(SettingsError, match=message) as caught:
        Run(engine_of(), request_of(**settings))
    assert [problem.field for problem in caught.value.problems] == [field]


def test_conversations_need_the_chat_template() -> None:
    with pytest.raises(SettingsError, match="through the chat template, and the tools are called in tags"):
        Run(engine_of(), request_of([[{"role": "user", "content": "x"}]]))


CHAT = """{% if tools %}[tools]{{ tools | tojson }}<eos>{% endif %}{% for m in messages %}[{{ m.role }}]{{ m.content }}<eos>\
{% endfor %}{% if add_generation_prompt %}[assistant]{% endif %}"""


def test_conversations_and_calls_of_the_models_own_format() -> None:
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=TOKENIZER.backend_tokenizer, pad_token="<pad>", eos_token="<eos>", bos_token="<bos>"
    )
    tokenizer.chat_template = CHAT
    model = tiny_model("llama", "sdpa")
    model.config.max_position_embeddings = 4096  # descriptions of tools are long in bytes
    inner = InProcessEngine(model, tokenizer, prefix_cache=PrefixCache(2**26))
    engine = EnvironmentEngine(inner, {"Say": lambda query: "w" * int(query)}, tool_format="chat", prompt="Be brief.")
    messages = [
        {"role": "user", "content": "a"},
        {"role": "assistant", "content": "b"},
        {"role": "user", "content": "c"},
    ]
    begun = engine.prepare(request_of([messages]))._histories[0].text
    call = '<tool_call>{"name": "Say", "arguments": {"query": "2"}}</tool_call>'
    script = {begun: [turn(call, free=2, eos=True), turn("done", eos=True)]}
    make = engine.make_environment

    def scripted(*args, **hooks):
        environment = make(*args, **hooks)
        environment.generation_kwargs |= {**says(script, "[assistant]")}
        return environment

    engine.make_environment = scripted
    run = Run(engine, request_of([messages], max_new_tokens=200)).wait(60)
    assert "[system]Be brief.<eos>[user]a<eos>[assistant]b<eos>[user]c<eos>[assistant]" in begun
    rows = run.recording.segments[:]
    assert [row.kind for row in rows] == ["prompt", "model", "tool", "model", "end", "reward"]
    assert [row.text for row in rows][-4:] == ["Say", None, "eos", None]
    assert "[tool]ww<eos>[assistant]" in "".join(token.text for token in run.record[rows[2].start : rows[2].stop])
    assert rows[3].reused == rows[1].stop - 1


def test_a_branch_off_an_environment_goes_on_without_tools() -> None:
    engine = engine_of()
    run = Run(engine, request_of(["a prompt", "yz"])).wait(60)
    tool = next(row for row in run.recording.segments if row.kind == "tool" and row.lane == 1)
    branch = run.branch(tool.stop, "and", lane=1, max_new_tokens=4).wait(60)
    kept = run.lanes[1].record.ids()[: tool.stop]
    assert branch.record.ids("prompt") == [*kept, *ids_of("and")]
    assert not branch.recording.segmented
    assert branch.request.answer is None  # what tools wrote is no turn of a conversation
    assert branch.status().reuse.reused == len(kept)
    with pytest.raises(SettingsError, match="cannot go on from tokens"):
        Run(engine_of("t5", free=True), request_of(["a prompt"], max_new_tokens=2)).wait(60).branch(3)


def test_wrong_tools_are_told_at_once() -> None:
    with pytest.raises(TypeError, match="cannot be called"):
        engine_of(tools={"Say": 3})


def test_a_query_that_has_no_turn_keeps_its_place_in_what_is_reused() -> None:
    run = Run(engine_of(max_length=40), request_of(("a prompt" * 20, "yz", "x"))).wait(60)
    reuse = run.status().reuse
    assert reuse is not None
    assert [row.tokens > 0 for row in reuse.rows] == [False, True, True]
    left = [row.tokens - row.reused for row in reuse.rows]
    assert reuse.worst == left.index(max(left)) == 1
    computed = sum(row.computed for row in run.recording.segments if row.lane == 1 and row.kind == "model")
    assert left[1] == computed
