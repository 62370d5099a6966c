"""Every strategy as a run: the tokens of plain ``generate``, lanes, rounds, beam steps, and what a model cannot do."""

from __future__ import annotations

import copy
import gc
import logging
import time
from collections.abc import Callable
from typing import Any, get_args

import pytest
import torch
from transformers import Cache, MambaConfig, MambaForCausalLM, PreTrainedModel

from genscope.kernel_side.decoding.contrastive import ContrastiveSearch
from genscope.kernel_side.decoding.diverse_beam import DiverseBeamSearch
from genscope.kernel_side.decoding.dola import DoLa
from genscope.kernel_side.engines.in_process import InProcessEngine
from genscope.kernel_side.observation.unseen import UnseenError
from genscope.kernel_side.record.beams import trace_candidate
from genscope.kernel_side.record.rounds import summarize
from genscope.kernel_side.request import Request, Settings, SettingsError, make_settings
from genscope.kernel_side.run import Run
from tiny import PAD, tiny_model, tiny_tokenizer

PROMPTS = ["the cat and the hat", "on it"]
NAMES = [chosen.model_fields["strategy"].default for chosen in get_args(Settings)]
MODELS = ("llama", "gpt2", "gemma3", "qwen3", "t5", "bart")
ENCODERS = ("t5", "bart")

PLAIN: dict[str, dict[str, Any]] = {
    "greedy": {},
    "sample": {"do_sample": True},
    "beam": {"num_beams": 4},
    "beam_sample": {"num_beams": 4, "do_sample": True},
    "diverse_beam": {"num_beams": 4, "custom_generate": DiverseBeamSearch(2, 0.5)},
    "contrastive": {"custom_generate": ContrastiveSearch(0.6, 4)},
    "dola": {"custom_generate": DoLa("high", 0.1)},
    "guidance": {"guidance_scale": 1.5},
    "assisted": {},
    "prompt_lookup": {"prompt_lookup_num_tokens": 10},
    "early_exit": {"assistant_early_exit": 1},
}
"""What makes plain ``generate`` do the same, with the settings' defaults; drafting changes no greedy token."""
CHANGES: dict[str, dict[str, Any]] = {"early_exit": {"assistant_early_exit": 1}}


def engine(kind: Any, *, assistant: bool = False) -> InProcessEngine:
    return InProcessEngine(
        tiny_model(kind, "sdpa"), tiny_tokenizer(), tiny_model(kind, "sdpa", seed=1) if assistant else None
    )


def request(name: str, prompt: Any = PROMPTS[0], **settings: Any) -> Request:
    base = {"max_new_tokens": 12, "stop_at_eos": False, "seed": 3, "strategy": name} | CHANGES.get(name, {})
    return Request.make(prompt, base, **settings)


def ids_of(prompts: list[str], *, left: bool) -> dict[str, torch.Tensor]:
    tokenizer = copy.deepcopy(tiny_tokenizer())
    tokenizer.padding_side = "left" if left else "right"
    encoded = tokenizer(prompts, return_tensors="pt", padding=True)
    return {"input_ids": encoded["input_ids"], "attention_mask": encoded["attention_mask"]}


def caches() -> set[int]:
    gc.collect()
    return {id(one) for one in gc.get_objects() if issubclass(type(one), Cache)}


def recurrent_model() -> PreTrainedModel:
    config = MambaConfig(vocab_size=300, hidden_size=32, num_hidden_layers=2, state_size=4, eos_token_id=1)
    return MambaForCausalLM(config).eval()


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline, "waited for 30 s in vain"
        time.sleep(0.002)


def plain(model: PreTrainedModel, prompts: list[str], name: str, **more: Any) -> torch.Tensor:
    torch.manual_seed(3)
    kwargs = {"do_sample": False, "max_new_tokens": 12, "eos_token_id": None, "pad_token_id": PAD} | PLAIN[name] | more
    tokens: torch.Tensor = model.generate(**ids_of(prompts, left=not model.config.is_encoder_decoder), **kwargs)
    return tokens


@pytest.mark.parametrize("kind", MODELS)
@pytest.mark.parametrize("name", NAMES)
def test_a_run_gives_the_tokens_of_generate(name: str, kind: str) -> None:
    on = engine(kind, assistant=True)
    before = on.model.config.to_dict(), on.model.generation_config.to_dict()
    if name in on.unavailable():
        with pytest.raises(SettingsError, match=rf"^strategy: '{name}' needs "):
            Run(on, request(name))
        return
    run = Run(on, request(name)).wait(60)
    wanted = plain(on.model, PROMPTS[:1], name)
    assert run.record.ids() == wanted[0].tolist()
    assert (run.state, run.whys, run.status().generated) == ("finished", ("length",), 12)
    assert (on.model.config.to_dict(), on.model.generation_config.to_dict()) == before
    assert all(token.raw_logprob is not None for token in run.record[run.prompt_tokens :])
    chosen = [token.logprob for token in run.record[run.prompt_tokens :]]
    assert all(logprob is None for logprob in chosen) if name == "contrastive" else None not in chosen


def test_what_a_model_cannot_do() -> None:
    assert list(engine("llama").unavailable()) == ["assisted"]
    assert engine("llama", assistant=True).unavailable() == {}
    assert set(engine("t5", assistant=True).unavailable()) == {
        "diverse_beam", "contrastive", "dola", "guidance", "early_exit",
    }  # fmt: skip


@pytest.mark.parametrize("kind", ["llama", "gemma3", "t5"])
@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("greedy", {}),
        ("sample", {"num_return_sequences": 3}),
        ("beam", {"num_return_sequences": 2}),
        ("beam_sample", {"num_return_sequences": 4}),
        ("diverse_beam", {"num_return_sequences": 2}),
        ("contrastive", {}),
        ("dola", {}),
        ("guidance", {}),
    ],
)
def test_a_batch_has_a_lane_for_each_sequence(name: str, settings: dict[str, Any], kind: str) -> None:
    on = engine(kind)
    if name in on.unavailable():
        pytest.skip(on.unavailable()[name])
    run = Run(on, request(name, PROMPTS, **settings)).wait(60)
    wanted = plain(on.model, PROMPTS, name, **settings)
    sequences = settings.get("num_return_sequences", 1)
    assert [(lane.prompt, lane.sequence) for lane in run.lanes] == [(p, s) for p in (0, 1) for s in range(sequences)]
    encoder = kind in ENCODERS
    for lane, ids in zip(run.lanes, wanted.tolist(), strict=True):
        own = tiny_tokenizer()(PROMPTS[lane.prompt])["input_ids"]
        prompt = [PAD] if encoder else own
        assert lane.prompt_tokens == len(prompt)
        assert lane.record.ids("prompt") == prompt
        assert lane.record.ids("generated") == ids[-12:]
        if encoder:
            assert lane.source is not None
            assert lane.source.ids() == own
            assert lane.source is run.lanes[lane.prompt * sequences].source
        else:
            assert lane.source is None
    assert run.whys == ("length",) * len(run.lanes)
    assert run.why == "length"
    assert len(run.texts) == 2 * sequences


def test_lanes_end_for_their_own_reasons() -> None:
    on = engine("llama")
    free = Run(on, request("greedy", PROMPTS)).wait(60)
    eos = free.lanes[1].record.ids("generated")[4]
    assert eos not in free.lanes[0].record.ids("generated")
    on.model.generation_config.eos_token_id = eos
    run = Run(on, request("greedy", PROMPTS, stop_at_eos=True)).wait(60)
    assert run.whys == ("length", "eos")
    assert run.why == "length (1), eos (1)"
    assert run.status().why == run.why
    assert [lane.generated for lane in run.lanes] == [12, 5]


@pytest.mark.parametrize("name", [name for name in NAMES if name not in ("beam", "beam_sample", "diverse_beam")])
def test_a_stop_string_ends_each_lane_where_it_stands(name: str) -> None:
    on = engine("llama", assistant=True)
    prompts = PROMPTS if name in ("greedy", "sample", "dola") else PROMPTS[:1]
    free = Run(on, request(name, prompts)).wait(60)
    text = free.record[free.prompt_tokens + 4].text
    string = text or next(token.text for token in free.record[free.prompt_tokens + 3 :] if token.text.strip())
    run = Run(on, request(name, prompts, stop_strings=[string])).wait(60)
    assert run.whys[0] == f"stop string {string!r}"
    assert string in run.text
    kept = run.record.ids("generated")
    assert kept == free.record.ids("generated")[: len(kept)]
    if not run.settings.drafts:  # a round is kept whole
        assert string not in "".join(token.text for token in run.record[run.prompt_tokens : -1])
    for lane, other in zip(run.lanes[1:], free.lanes[1:], strict=True):
        if string not in other.text:
            assert lane.record.ids() == other.record.ids()


@pytest.mark.parametrize("name", ["beam", "beam_sample", "diverse_beam"])
def test_a_stop_string_finishes_hypotheses(name: str) -> None:
    on = engine("llama")
    free = Run(on, request(name, num_return_sequences=4)).wait(60)
    string = next(token.text for token in free.record[free.prompt_tokens + 2 :] if token.text.strip())
    # Short hypotheses win, so those that a stop string ended are returned.
    short = {"num_return_sequences": 4, "length_penalty": -1.0}
    run = Run(on, request(name, stop_strings=[string], **short)).wait(60)
    assert f"stop string {string!r}" in run.whys
    for lane, why in zip(run.lanes, run.whys, strict=True):
        assert (string in lane.text) == (why == f"stop string {string!r}")
        assert string not in "".join(token.text for token in lane.record[lane.prompt_tokens : -1])


@pytest.mark.parametrize("kind", ["llama", "t5"])
@pytest.mark.parametrize("name", ["beam", "beam_sample", "diverse_beam"])
def test_beam_steps_replay_to_the_returned_sequences(name: str, kind: str) -> None:
    on = engine(kind)
    if name in on.unavailable():
        pytest.skip(on.unavailable()[name])
    run = Run(on, request(name, PROMPTS, num_return_sequences=3, keep=["scores"])).wait(60)
    assert len(run.recording.choices) == 6
    for choice, lane in zip(run.recording.choices, run.lanes, strict=True):
        steps = [step for step in run.recording.beams if step.prompt == lane.prompt]
        path = trace_candidate(steps, choice.step, choice.candidate)
        assert [candidate.id for candidate in path] == lane.record.ids("generated")
        row = choice.lane
        rows = [parent - lane.prompt * 4 for parent in run.output.beam_indices[row].tolist() if parent >= 0]
        assert [candidate.beam for candidate in path] == rows
        assert choice.score == pytest.approx(float(run.output.sequences_scores[row]))
        pool = steps[-1].finished
        assert (choice.step, choice.candidate, choice.score) in [(one.step, one.candidate, one.score) for one in pool]
        total = path[-1].score
        assert total is not None
        assert choice.score == pytest.approx(total / len(path), abs=1e-6)


def test_what_a_search_fills_up_with_has_no_score() -> None:
    on = engine("llama")
    on.model.generation_config.suppress_tokens = list(range(4, on.model.config.vocab_size))  # leaves four tokens
    run = Run(on, request("beam", num_beams=8, num_return_sequences=8, max_new_tokens=1)).wait(60)
    choices = run.recording.choices
    assert [choice.score is None for choice in choices] == 4 * [False] + 4 * [True]
    assert [choice.step for choice in choices] == 7 * [0] + [-1]  # three are copies, for the last there is nothing
    assert run.output.sequences_scores is None  # not asked for
    [step] = run.recording.beams
    assert [place.score is None for place in step.finished] == 4 * [False] + 3 * [True]
    assert [place.score for place in step.finished] == [choice.score for choice in choices[:7]]


@pytest.mark.parametrize("name", ["beam", "beam_sample", "diverse_beam"])
def test_the_steepest_length_penalty_leaves_hypotheses_above_what_fills_the_pool(name: str) -> None:
    steepest = make_settings(strategy=name).model_json_schema()["properties"]["length_penalty"]["minimum"]
    run = Run(engine("llama"), request(name, length_penalty=steepest, num_return_sequences=4, max_new_tokens=60))
    assert run.wait(60).whys == 4 * ("length",)
    assert [lane.generated for lane in run.lanes] == 4 * [60]


def test_the_least_tokens_give_no_warning(caplog: pytest.LogCaptureFixture) -> None:
    library = logging.getLogger("transformers.generation.utils")
    library.addHandler(caplog.handler)
    try:
        run = Run(engine("llama"), request("greedy", min_new_tokens=3, stop_at_eos=True)).wait(60)
    finally:
        library.removeHandler(caplog.handler)
    assert run.state == "finished"
    assert not caplog.records


@pytest.mark.parametrize("name", ["assisted", "prompt_lookup", "early_exit"])
@pytest.mark.parametrize("sampling", [{}, {"do_sample": True, "top_k": 20}])
def test_rounds_add_up(name: str, sampling: dict[str, Any]) -> None:
    on = engine("llama", assistant=True)
    run = Run(on, request(name, "to the top, to the top, to the", **sampling)).wait(60)
    rounds = run.recording.rounds
    position = run.prompt_tokens
    for index, one in enumerate(rounds):
        assert (one.step, one.position) == (index, position)
        assert one.accepted + one.rejected == len(one.drafts)
        assert one.bonus in (0, 1)
        kept = [token.id for token in run.record[position : position + one.accepted]]
        assert kept == [draft.id for draft in one.drafts[: one.accepted]]
        for draft, token in zip(one.drafts, run.record[position : position + one.accepted], strict=False):
            assert draft.target_logprob == pytest.approx(token.logprob, abs=1e-5)
            assert (draft.draft_logprob is None) == (name == "prompt_lookup")
        position += one.accepted + one.bonus
    assert position == len(run.record)
    summary = summarize(rounds)
    assert run.status().drafts == summary
    assert summary.generated == 12
    assert summary.wasted == sum(one.rejected for one in rounds)
    assert summary.tokens_per_forward == 12 / len(rounds)
    if not sampling:
        assert run.record.ids() == Run(on, request("greedy", "to the top, to the top, to the")).wait(60).record.ids()


def test_drafts_are_as_long_as_the_setting_says() -> None:
    on = InProcessEngine(tiny_model("llama", "sdpa"), tiny_tokenizer(), tiny_model("llama", "sdpa"))
    before = on.draft.model.generation_config.to_dict() if on.draft else None
    for count in (1, 4):
        run = Run(on, request("assisted", num_assistant_tokens=count, max_new_tokens=20)).wait(60)
        assert [len(one.drafts) for one in run.recording.rounds[:2]] == [count, count]
        assert run.recording.rounds[0].accepted == count  # the draft model is the model itself
    assert on.draft is not None
    assert on.draft.model.generation_config.to_dict() == before


@pytest.mark.parametrize("name", ["assisted", "early_exit"])
@pytest.mark.parametrize(
    "hidden",
    [
        {"stop_strings": ["e"]},
        {"penalty_alpha": 0.3},
        {"dola_layers": "low"},
        {"max_time": 0.0},
        {"guidance_scale": 3.0},
        {"prompt_lookup_num_tokens": 1},
    ],
    ids=str,
)
def test_the_drafting_model_s_own_defaults_change_no_draft(name: str, hidden: dict[str, Any]) -> None:
    on = engine("llama", assistant=name == "assisted")
    drafting = on.draft.model if on.draft else on.model

    def drafts() -> list[list[int]]:
        run = Run(on, request(name)).wait(60)
        return [[draft.id for draft in one.drafts] for one in run.recording.rounds]

    before = drafts()
    assert any(before)
    for field, value in hidden.items():
        setattr(drafting.generation_config, field, value)
    assert drafts() == before


@pytest.mark.parametrize("name", NAMES)
def test_a_stop_in_the_middle_leaves_the_record_whole_and_the_model_usable(name: str) -> None:
    on = engine("llama", assistant=True)
    before = on.model.config.to_dict()
    run = Run(on, request(name, max_new_tokens=200), paused=True)
    for _ in range(3):
        run.step()
    until(lambda: run.status().generated >= 3 or run.over)
    run.stop()
    run.wait(60)
    assert run.state == "stopped"
    assert run.whys == (None,)
    assert 3 <= run.status().generated < 200
    assert run.record.ids() == run.output.sequences[0].tolist()
    assert on.model.config.to_dict() == before
    whole = Run(on, request(name)).wait(60)
    assert whole.record.ids() == plain(on.model, PROMPTS[:1], name)[0].tolist()


@pytest.mark.parametrize("name", ["beam", "diverse_beam"])
def test_a_search_that_is_stopped_is_not_finished_however_its_best_ended(name: str) -> None:
    on = engine("llama")
    settings = {"early_stopping": "never", "max_new_tokens": 40, "stop_at_eos": True}
    # Among these tokens are the ends of some hypotheses, and the search goes on for better ones.
    on.model.generation_config.eos_token_id = list(range(0, 300, 2))
    run = Run(on, request(name, **settings), paused=True)
    until(lambda: run.state == "paused")
    run.stop()
    run.wait(30)
    assert run.lanes[0].record[-1].id in on.eos_ids()
    assert (run.state, run.whys) == ("stopped", (None,))


@pytest.mark.parametrize("name", NAMES)
def test_nobody_is_asked_to_step_on_behind_the_last_token(name: str) -> None:
    run = Run(engine("llama", assistant=True), request(name, max_new_tokens=1), paused=True).wait(30)
    assert (run.state, run.whys) == ("finished", ("length",))


@pytest.mark.parametrize("kind", ["llama", "t5"])
@pytest.mark.parametrize("name", NAMES)
def test_a_run_that_is_over_keeps_no_cache(name: str, kind: str) -> None:
    on = engine(kind, assistant=True)
    if name in on.unavailable():
        pytest.skip(on.unavailable()[name])
    before = caches()
    run = Run(on, request(name, keep=["logits"])).wait(60)
    assert run.output.cache is None
    assert len(run.output.logits) == run.output.sequences.shape[1] - max(lane.prompt_tokens for lane in run.lanes)
    assert caches() <= before


@pytest.mark.parametrize("name", NAMES)
def test_a_failure_in_the_middle_keeps_what_came_and_the_model_usable(name: str) -> None:
    on = engine("llama", assistant=True)
    before = on.model.config.to_dict()
    layer, calls = on.model.model.layers[0].mlp, 0

    def fail(*_: Any) -> None:
        nonlocal calls
        calls += 1
        if calls == 9:
            raise RuntimeError("out of order")

    handle = layer.register_forward_pre_hook(fail)
    run = Run(on, request(name, max_new_tokens=100))
    with pytest.raises(RuntimeError, match="out of order"):
        run.wait(60)
    handle.remove()
    assert run.state == "failed"
    assert on.model.config.to_dict() == before
    assert Run(on, request(name)).wait(60).record.ids() == plain(on.model, PROMPTS[:1], name)[0].tolist()


@pytest.mark.parametrize(
    ("name", "prompt", "settings", "message"),
    [
        ("prompt_lookup", PROMPTS, {}, r"prompt: the strategy 'prompt_lookup' follows one prompt, and 2 were given"),
        ("early_exit", "a", {"assistant_early_exit": 2}, r"assistant_early_exit: 2 are not fewer than the model's 2"),
        (
            "guidance",
            "a",
            {"negative_prompt": "x" * 600},
            r"negative_prompt: it has 600 tokens, and with 12 .* holds 512",
        ),
    ],
)
def test_what_does_not_go_together_is_refused(name: str, prompt: Any, settings: dict[str, Any], message: str) -> None:
    with pytest.raises(SettingsError, match=message):
        Run(engine("llama"), request(name, prompt, **settings))


def test_prompt_probabilities_of_an_encoder_decoder_model_are_refused() -> None:
    with pytest.raises(SettingsError, match=r"prompt_probabilities: .*which its encoder reads. Switch it off"):
        Run(engine("t5"), request("greedy", prompt_probabilities=True))


def test_a_draft_model_with_another_vocabulary_needs_its_tokenizer() -> None:
    draft = tiny_model("llama", "sdpa")
    draft.resize_token_embeddings(310)
    on = InProcessEngine(tiny_model("llama", "sdpa"), tiny_tokenizer(), draft)
    with pytest.raises(
        SettingsError,
        match=r"needs a draft model with the same tokens: this one has 310 and the model 300\. .*its tokenizer\)",
    ):
        Run(on, request("assisted"))


@pytest.mark.parametrize(
    ("kind", "draft", "reason"),
    [
        (
            "t5",
            "llama",
            r"needs a draft model of the same kind, and LlamaForCausalLM has no encoder, which this model has\.",
        ),
        (
            "llama",
            "t5",
            r"needs a draft model of the same kind, and T5ForConditionalGeneration has an encoder, which this model",
        ),
        ("llama", "mamba", r"needs a draft model with a cache that can go back, and MambaForCausalLM is recurrent"),
    ],
)
def test_a_draft_model_of_another_make_is_refused(kind: Any, draft: Any, reason: str) -> None:
    drafting = recurrent_model() if draft == "mamba" else tiny_model(draft)
    on = InProcessEngine(tiny_model(kind), tiny_tokenizer(), drafting)
    with pytest.raises(SettingsError, match=reason):
        Run(on, request("assisted"))
    assert "assisted" in on.unavailable()


@pytest.mark.parametrize(
    ("settings", "field"), [({"attention": True}, "attention"), ({"keep": ["attentions"]}, "keep")]
)
def test_attention_that_a_view_cannot_give_is_refused_before_the_run(settings: dict[str, Any], field: str) -> None:
    on = engine("llama")
    forward = on.model.forward
    on.model.forward = forward  # on the object, as hooks for offloading do
    message = rf"{field}: forward\(\) of the model was replaced .*set_attn_implementation\('eager'\).*switch it off"
    with pytest.raises(SettingsError, match=message):
        Run(on, request("greedy", **settings))
    assert Run(on, request("greedy", logit_lens=True)).wait(60).state == "finished"


def test_a_model_without_attention_runs_and_says_that_it_has_none() -> None:
    on = InProcessEngine(recurrent_model(), tiny_tokenizer())
    run = Run(on, request("greedy", attention=True, logit_lens=True)).wait(60)
    position = len(run.record) - 1
    assert run.looks is not None
    assert len(run.looks.lens(position)) == 3
    with pytest.raises(UnseenError, match="this model gives none"):
        run.looks.attention(position)


def test_guidance_goes_away_from_the_negative_prompt() -> None:
    on = engine("llama")
    run = Run(on, request("guidance", negative_prompt="on it", guidance_scale=3.0)).wait(60)
    negative = torch.tensor([tiny_tokenizer()("on it")["input_ids"]])
    wanted = plain(
        on.model, PROMPTS[:1], "guidance", guidance_scale=3.0, negative_prompt_ids=negative,
        negative_prompt_attention_mask=torch.ones_like(negative),
    )  # fmt: skip
    assert run.record.ids() == wanted[0].tolist()
    assert wanted[0].tolist() != plain(on.model, PROMPTS[:1], "guidance", guidance_scale=3.0)[0].tolist()


def test_attentions_are_kept_of_a_model_that_gives_none() -> None:
    on = engine("llama")
    run = Run(on, request("greedy", keep=["attentions"])).wait(60)
    wanted = tiny_model("llama", "eager").generate(
        **ids_of(PROMPTS[:1], left=True), max_new_tokens=12, eos_token_id=None, pad_token_id=PAD, do_sample=False,
        return_dict_in_generate=True, output_attentions=True,
    )  # fmt: skip
    assert torch.equal(run.output.attentions[3][1], wanted.attentions[3][1])
    assert on.model.config._attn_implementation == "sdpa"


@pytest.mark.parametrize(
    "settings",
    [
        {"logit_lens": True},
        {"attention": True},
        {"keep": ["hidden_states"]},
        *({"strategy": name} | CHANGES.get(name, {}) for name in NAMES),
    ],
    ids=str,
)
def test_a_run_leaves_nothing_on_the_model(settings: dict[str, Any]) -> None:
    def hooks(module: torch.nn.Module) -> list[int]:
        return [len(part._forward_hooks) + len(part._forward_pre_hooks) for part in module.modules()]

    on = engine("llama", assistant=True)
    assert on.draft is not None
    models = on.model, on.draft.model
    before = [(hooks(model), sorted(vars(model))) for model in models]
    Run(on, Request.make(PROMPTS[0], settings, max_new_tokens=2)).wait(60)
    assert [(hooks(model), sorted(vars(model))) for model in models] == before


def test_a_context_is_not_shared_with_what_an_encoder_reads() -> None:
    on = engine("bart")
    run = Run(on, request("greedy", "x" * 510, max_new_tokens=3)).wait(60)
    assert len(run.lanes[0].source or ()) == 510
    with pytest.raises(
        SettingsError, match=r"max_new_tokens: 512 do not fit: the prompt takes 1 of the 512.*at most 511"
    ):
        Run(on, request("greedy", max_new_tokens=512))


@pytest.mark.parametrize("name", ["diverse_beam", "contrastive", "assisted", "prompt_lookup", "early_exit"])
@pytest.mark.parametrize(
    "config", [{"use_cache": False}, {"cache_implementation": "static"}, {"prefill_chunk_size": 4}]
)
def test_a_cache_that_cannot_go_back_is_not_taken_from_the_config(name: str, config: dict[str, Any]) -> None:
    on = engine("llama", assistant=True)
    assert on.draft is not None
    wanted = Run(on, request(name)).wait(60).record.ids()
    for model in (on.model, on.draft.model):
        for key, value in config.items():
            setattr(model.generation_config, key, value)
    assert Run(on, request(name)).wait(60).record.ids() == wanted
