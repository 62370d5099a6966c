"""Runs that go on from the tokens of others: from any position, of any strategy, and the turns of a conversation."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest

from cached_runs import model_of
from genscope.kernel_side.caching.prefix_cache import PrefixCache
from genscope.kernel_side.engines.in_process import InProcessEngine
from genscope.kernel_side.request import Branch, Request, SettingsError
from genscope.kernel_side.run import Run
from tiny import BOS, tiny_model, tiny_tokenizer

TEXT = "the cat and the hat"
TEMPLATE = (
    "{{ bos_token }}{% for message in messages %}[{{ message['role'] }}]{{ message['content'] }}<eos>\n{% endfor %}"
    "{% if add_generation_prompt %}[assistant]{% endif %}"
)


def engine(kind: str = "llama", *, cached: bool = True) -> InProcessEngine:
    tokenizer = copy.deepcopy(tiny_tokenizer())
    tokenizer.chat_template = TEMPLATE
    draft = tiny_model("llama", "sdpa", seed=1) if kind == "llama" else None
    return InProcessEngine(model_of(kind), tokenizer, draft, PrefixCache(2**26) if cached else None)


def run_of(on: InProcessEngine, prompt: Any = TEXT, **settings: Any) -> Run:
    base = {"max_new_tokens": 8, "stop_at_eos": False, "seed": 3}
    return Run(on, Request.make(prompt, base | settings)).wait(60)


def alone(on: InProcessEngine, ids: list[int], count: int) -> list[int]:
    """Generate behind ids greedily, without anything of ours."""
    import torch

    given = torch.tensor([ids])
    mask = torch.ones_like(given)
    made: list[int] = on.model.generate(
        given, attention_mask=mask, max_new_tokens=count, do_sample=False, eos_token_id=None, pad_token_id=0
    )[0].tolist()
    return made


@pytest.mark.parametrize("kind", ["llama", "gpt2", "gemma3", "mistral"])
@pytest.mark.parametrize("cached", [True, False])
def test_a_branch_goes_on_from_the_very_ids(kind: str, cached: bool) -> None:
    on = engine(kind, cached=cached)
    run = run_of(on)
    whole = run.record.ids()
    for at in (1, 4, run.prompt_tokens, run.prompt_tokens + 3, len(whole) - 1, len(whole)):
        branch = run.branch(at).wait(60)
        assert branch.record.ids() == alone(on, whole[:at], 8)
        assert branch.prompt_tokens == at
        assert branch.request.branch == Branch(run.id, 0, at, 0)
        reuse = branch.status().reuse
        assert (reuse is not None) == cached
        if reuse is not None:
            assert reuse.reused == at - 1  # one token is left to compute: a decode step
    assert [token.origin for token in branch.record[-9:]] == ["prompt"] + ["generated"] * 8


def test_a_token_or_a_text_stands_in_place() -> None:
    on = engine()
    run = run_of(on)
    at, whole = run.prompt_tokens + 2, run.record.ids()
    other = run.branch(at, 77).wait(60)
    assert other.record.ids() == alone(on, [*whole[:at], 77], 8)
    assert other.request.branch == Branch(run.id, 0, at, 1)
    assert other.status().reuse.reused == at
    text = run.branch(at, " the end").wait(60)
    ids = tiny_tokenizer()(" the end")["input_ids"]
    assert text.record.ids()[: at + len(ids)] == whole[:at] + ids
    assert text.request.branch == Branch(run.id, 0, at, len(ids))
    # The prompt of the request stays the one that was asked for: it is what a person edits.
    assert text.request.prompt == TEXT


def test_at_position_0_a_text_begins_or_the_beginning_of_all_texts() -> None:
    on = engine()
    run = run_of(on)
    assert run.branch(0).wait(60).record.ids() == alone(on, [BOS], 8)
    ids = tiny_tokenizer()("of it")["input_ids"]
    assert run.branch(0, "of it").wait(60).record.ids()[: len(ids)] == ids
    assert run.branch(0, 55).wait(60).record.ids() == alone(on, [55], 8)
    on.model.generation_config.bos_token_id = None
    on.tokenizer.bos_token = None
    with pytest.raises(SettingsError, match="at: nothing stands before position 0"):
        run.branch(0)


def test_within_a_character_of_several_tokens() -> None:
    on = engine()
    run = run_of(on, "a é the")
    first = next(token.position for token in run.record if token.group != token.position) - 1
    branch = run.branch(first + 1).wait(60)
    assert branch.record.ids()[: first + 1] == run.record.ids()[: first + 1]
    done = run.branch(first + 1, run.record[first + 1].id).wait(60)
    assert "".join(token.text for token in done.record[: first + 2]) == "a é"


@pytest.mark.parametrize(
    "settings",
    [
        {"strategy": "beam", "num_beams": 3, "num_return_sequences": 2},
        {"strategy": "assisted"},
        {"strategy": "prompt_lookup"},
        {"strategy": "sample", "num_return_sequences": 2},
        {"strategy": "contrastive"},
    ],
)
def test_a_run_of_any_strategy_can_be_gone_on_from(settings: dict[str, Any]) -> None:
    on = engine()
    run = run_of(on, **settings)
    lane = len(run.lanes) - 1
    whole = run.lanes[lane].record.ids()
    at = len(whole) - 2
    greedy = run.branch(at, lane=lane, strategy="greedy").wait(60)
    assert greedy.record.ids() == alone(on, whole[:at], 8)
    again = run.branch(at, lane=lane).wait(60)
    assert again.settings.strategy == settings["strategy"]
    assert again.lanes[0].record.ids()[:at] == whole[:at]


def test_a_lane_of_a_batch_is_gone_on_from_alone() -> None:
    on = engine()
    run = run_of(on, [TEXT, "on it", "of"])
    branch = run.branch(len(run.lanes[1].record), lane=1).wait(60)
    assert (len(branch.lanes), branch.request.prompt) == (1, "on it")
    assert branch.record.ids() == alone(on, run.lanes[1].record.ids(), 8)


@pytest.mark.parametrize("kind", ["t5", "bart"])
def test_behind_an_encoder_the_decoder_goes_on(kind: str) -> None:
    on = engine(kind)
    run = run_of(on)
    long = run_of(on, max_new_tokens=16)
    more = run.branch(len(run.record)).wait(60)
    assert more.record.ids() == long.record.ids()
    assert more.recording.sources[0].ids() == run.recording.sources[0].ids()
    reuse = more.status().reuse
    assert (reuse.sources_reused, reuse.reused) == (1, len(run.record) - 1)
    assert run.branch(0).wait(60).record.ids() == run.record.ids()
    with pytest.raises(SettingsError, match="position 0 is what the decoder begins with"):
        run.branch(0, 5)


def test_a_branch_of_a_branch_and_what_is_saved_of_it() -> None:
    on = engine()
    first = run_of(on)
    second = first.branch(first.prompt_tokens + 1, 77).wait(60)
    third = second.branch(len(second.record)).wait(60)
    assert third.record.ids()[: first.prompt_tokens + 1] == first.record.ids()[: first.prompt_tokens + 1]
    saved = json.loads(third.to_json())["about"]["branch"]
    assert (saved["run"], saved["position"], saved["kind"]) == (second.id, len(second.record), "branch")
    assert json.loads(first.to_json())["about"]["branch"] is None


def test_settings_and_the_seed_stay_unless_changed() -> None:
    run = run_of(engine(), strategy="sample", temperature=0.7, seed=None)
    twice = [run.branch(4).wait(60) for _ in range(2)]
    assert twice[0].settings == run.settings
    assert twice[0].record.ids() == twice[1].record.ids()
    other = run.branch(4, seed=None, temperature=1.5).wait(60)
    assert (other.settings.temperature, other.settings.seed == run.settings.seed) == (1.5, False)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"at": -1}, "at: -1 is no position of this lane. Use a whole number from 0 to "),
        ({"at": 1000}, "at: 1000 is no position"),
        ({"at": True}, "at: True is no position"),
        ({"at": 1.0}, "at: 1.0 is no position"),
        ({"at": 3, "lane": 1}, "lane: 1 is no lane of this run. Use a whole number from 0 to 0."),
        ({"at": 3, "token": ""}, "token: the text is empty"),
        ({"at": 3, "token": 300}, "has the id 300, but the model knows 300 tokens"),
        ({"at": 3, "token": -1}, "has the id -1"),
        ({"at": 3, "temprature": 1}, "there is no setting of this name"),
        ({"at": 3, "max_new_tokens": 10_000}, "do not fit"),
    ],
)
def test_what_is_wrong_is_told(arguments: dict[str, Any], message: str) -> None:
    run = run_of(engine(cached=False))
    with pytest.raises(SettingsError) as caught:
        run.branch(**arguments)
    assert message in str(caught.value)


def test_a_run_that_goes_on_can_be_branched_off() -> None:
    on = engine()
    run = Run(on, Request.make(TEXT, max_new_tokens=300, stop_at_eos=False), paused=True)
    run.record.wait_beyond(3, 30)
    branch = run.branch(3, max_new_tokens=4)  # queued behind it
    run.stop()
    assert branch.wait(60).record.ids() == alone(on, run.record.ids()[:3], 4)


def test_a_conversation_goes_on_turn_by_turn() -> None:
    on = engine()
    first = run_of(on, [{"role": "user", "content": "hi"}])
    before = first.record.ids()
    second = first.reply("and you").wait(60)
    assert second.record.ids()[: len(before)] == before
    assert second.request.branch.kind == "reply"
    assert (second.request.branch.position, second.request.branch.rewritten) == (len(before), False)
    assert second.status().reuse.reused == len(before) - 1
    told = [(message.role, message.content) for message in second.request.prompts[0]]
    assert told == [("user", "hi"), ("assistant", first.text), ("user", "and you")]
    # In the middle of the answer another one is made: what was said before it stays part of the answer.
    at = second.prompt_tokens + 2
    other = second.branch(at, 77).wait(60)
    third = other.reply("so").wait(60)
    answer = third.request.prompts[0][3].content
    assert (
        answer
        == "".join(token.text for token in other.record[second.prompt_tokens :] if not token.special)
        + other.record.tail
    )
    assert third.record.ids()[: len(other.record)] == other.record.ids()
    assert third.record.ids().count(BOS) == first.record.ids().count(BOS)


def test_what_cannot_be_replied_to_is_told() -> None:
    on = engine()
    text = run_of(on)
    with pytest.raises(SettingsError, match="is a text and no conversation"):
        text.reply("hi")
    chat = run_of(on, [{"role": "user", "content": "hi"}])
    with pytest.raises(SettingsError, match="the reply is empty"):
        chat.reply("")
    within = chat.branch(2, "x").wait(60)
    with pytest.raises(SettingsError, match="branched off within its conversation"):
        within.reply("hi")
    encoder = run_of(engine("t5"), [{"role": "user", "content": "hi"}])
    with pytest.raises(SettingsError, match="encoder reads each conversation as a whole"):
        encoder.reply("hi")


@pytest.mark.parametrize("token", [True, 1.5, [3], "\ud800x"])
def test_what_is_neither_an_id_nor_a_text_is_refused(token: Any) -> None:
    run = run_of(engine())
    with pytest.raises(SettingsError) as refused:
        run.branch(3, token)
    assert [one.field for one in refused.value.problems] == ["token"]


def test_a_reply_with_half_a_character_is_refused() -> None:
    run = run_of(engine(), [{"role": "user", "content": "hi"}])
    with pytest.raises(SettingsError, match="half a character"):
        run.reply("\ud800x")


def test_an_encoder_decoder_run_that_never_began_branches_at_its_beginning() -> None:
    on = engine("t5")
    ticket = on.turnstile.join()
    on.turnstile.wait(ticket, lambda: False)
    request = Request.make(TEXT, {"max_new_tokens": 8, "stop_at_eos": False, "seed": 3})
    never = Run(on, request)
    never.stop()
    never.wait(60)
    again = never.branch(0)
    on.turnstile.leave(ticket)
    assert len(never.record) == 0
    assert again.wait(60).record.ids() == Run(on, request).wait(60).record.ids()
    assert again.request.branch == Branch(never.id, 0, 0, 0)
