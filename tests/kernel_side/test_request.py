"""The settings schema: values, errors with ways out, JSON Schema, arguments of ``generate``."""

from __future__ import annotations

from typing import Any, get_args

import hypothesis.strategies as st
import pytest
from hypothesis import given
from transformers import GenerationConfig

from genscope.kernel_side.request import (
    ChatMessage,
    Problem,
    Request,
    Settings,
    SettingsError,
    make_settings,
    settings_schema,
)
from genscope.kernel_side.settings import Assisted, Beam, DiverseBeam, Greedy, Sample


@pytest.mark.parametrize(
    ("settings", "field", "message"),
    [
        ({"strategy": "sample", "temperature": 0}, "temperature", r"temperature: 0 is not allowed: it must be above 0\. .*'greedy'"),
        ({"strategy": "sample", "top_p": 2}, "top_p", r"top_p: 2 is not allowed: it must be at most 1\. Use a number above 0"),
        ({"strategy": "sample", "top_k": "many"}, "top_k", r"top_k: 'many' is not allowed: it is not a whole number"),
        ({"strategy": "sample", "temperature": float("nan")}, "temperature", r"temperature: nan is not allowed: it is not a number"),
        ({"temperature": 1.0}, "temperature", r"'greedy' has no setting of this name \(given 1\.0\)\. .*choose the strategy 'sample'"),
        ({"max_new_token": 5}, "max_new_token", r"no setting of this name \(given 5\)\. Did you mean 'max_new_tokens'\?"),
        ({"qqq": 5}, "qqq", r"Known settings: alternatives, "),
        ({"strategy": "beams"}, "strategy", r"'beams' is not a strategy\. Choose one of 'greedy', 'sample', 'beam', 'beam_sample'"),
        ({"strategy": "contrastive", "num_beams": 4}, "num_beams", r"'contrastive' has no setting of this name \(given 4\)\. .*choose the strategy 'beam'"),
        ({"strategy": "beam", "num_return_sequences": 5}, "num_return_sequences", r"5 sequences are more than there are beams \(4\)\. Ask for at most num_beams"),
        ({"strategy": "diverse_beam", "num_beam_groups": 3}, "num_beam_groups", r"3 groups cannot share 4 beams equally\. Use a number that divides"),
        ({"strategy": "beam", "early_stopping": "late"}, "early_stopping", r"'late' is not allowed: .*'estimate', 'first' or 'never'"),
        ({"strategy": None}, "strategy", r"None is not a strategy"),
        ({"max_new_tokens": 0}, "max_new_tokens", r"0 is not allowed: it must be at least 1\. Use a whole number from 1 to 1,000,000"),
        ({"max_new_tokens": 2.5}, "max_new_tokens", r"2\.5 is not allowed: it is not a whole number"),
        ({"max_new_tokens": 2, "min_new_tokens": 3}, "min_new_tokens", r"3 is more than max_new_tokens \(2\)"),
        ({"max_new_tokens": ""}, "max_new_tokens", r"'' is not allowed: it is empty"),
        ({"max_new_tokens": None}, "max_new_tokens", r"None is not allowed: it is empty"),
        ({"max_new_tokens": 10**400}, "max_new_tokens", r"it (must be at most 1000000|is too large|does not fit)"),
        ({"stop_at_eos": "maybe"}, "stop_at_eos", r"'maybe' is not allowed: it is neither true nor false"),
        ({"stop_strings": 5}, "stop_strings", r"5 is not allowed: it is no list"),
        ({"stop_strings": [5]}, "stop_strings", r"it holds something that is no text"),
        ({"stop_strings": ["\ud800"]}, "stop_strings", r"it holds half a character"),
        ({"stop_strings": list("abcdefghijklmnopq")}, "stop_strings", r"^stop_strings: \[.{20,40}….{5,20}\] is not allowed: it has 17 entries, and 16 are the most"),
        ({"stop_strings": [""]}, "stop_strings", r"texts that are not empty"),
        ({"seed": 2**53}, "seed", r"9007199254740992 is not allowed: it must be at most 9007199254740991"),
        ({"keep": ["weights"]}, "keep", r"\['weights'\] is not allowed: it holds something else than 'scores', 'logits', 'hidden_states' or 'attentions'"),
    ],
)  # fmt: skip
def test_wrong_values_name_field_value_and_way_out(settings: dict[str, Any], field: str, message: str) -> None:
    with pytest.raises(SettingsError, match=message) as caught:
        make_settings(settings)
    [problem] = caught.value.problems
    assert problem.field == field
    assert repr(problem.value) == repr(settings.get(field))
    assert problem.way_out.endswith((".", "?"))


def test_all_problems_are_named_at_once() -> None:
    with pytest.raises(SettingsError) as caught:
        make_settings(strategy="sample", temperature=-1, top_p=0, wrong=1)
    assert [problem.field for problem in caught.value.problems] == ["temperature", "top_p", "wrong"]
    assert len(str(caught.value).splitlines()) == 3


def test_defaults_and_changes() -> None:
    assert make_settings() == Greedy()
    settings = make_settings({"strategy": "sample", "temperature": 0.5}, top_k=3)
    assert settings == Sample(temperature=0.5, top_k=3)
    assert make_settings(settings, seed=4) == Sample(temperature=0.5, top_k=3, seed=4)
    assert make_settings(stop_strings="\n").stop_strings == ["\n"]


def test_another_strategy_keeps_what_both_share() -> None:
    settings = make_settings(strategy="sample", temperature=0.5, seed=4, max_new_tokens=9)
    assert make_settings(settings, strategy="greedy") == Greedy(seed=4, max_new_tokens=9)
    assert make_settings(settings, strategy="assisted") == Assisted(seed=4, max_new_tokens=9, temperature=0.5)
    beams = Beam(num_beams=6, num_return_sequences=2, length_penalty=0.5)
    assert make_settings(beams, strategy="diverse_beam") == DiverseBeam(
        num_beams=6, num_return_sequences=2, length_penalty=0.5
    )
    assert make_settings(beams, strategy="sample") == Sample(num_return_sequences=2)


def test_settings_are_frozen() -> None:
    with pytest.raises(ValueError, match="frozen"):
        make_settings().max_new_tokens = 3  # type: ignore[misc]


def test_schema_has_what_the_form_needs() -> None:
    schema = settings_schema()
    assert schema["discriminator"]["propertyName"] == "strategy"
    names = [one["$ref"].rpartition("/")[2] for one in schema["oneOf"]]
    assert names == [
        "Greedy", "Sample", "Beam", "BeamSample", "DiverseBeam", "Contrastive", "Dola", "Guidance", "Assisted",
        "PromptLookup", "EarlyExit",
    ]  # fmt: skip
    for definition in schema["$defs"].values():
        assert definition["title"]
        assert definition["description"]
        for name, field in definition["properties"].items():
            if name != "strategy":
                assert field["group"] in ("strategy", "length", "randomness", "cache", "execution", "observe"), name
                assert field["title"], name
                assert field["wayOut"].endswith("."), name
                assert "default" in field, name
    sample = schema["$defs"]["Sample"]["properties"]
    assert (sample["temperature"]["exclusiveMinimum"], sample["top_p"]["maximum"]) == (0, 1)
    # What is a strategy's own comes before what it shares.
    assert list(schema["$defs"]["Beam"]["properties"])[:4] == [
        "strategy",
        "num_beams",
        "length_penalty",
        "early_stopping",
    ]
    assert list(schema["$defs"]["Assisted"]["properties"])[1:5] == [
        "num_assistant_tokens", "assistant_confidence_threshold", "do_sample", "temperature",
    ]  # fmt: skip


def test_settings_that_count_only_when_sampling_say_so() -> None:
    definitions = settings_schema()["$defs"]
    draws = dict.fromkeys(("temperature", "top_k", "top_p", "min_p", "typical_p"), "do_sample")
    for name, definition in definitions.items():
        switched = name in ("Assisted", "PromptLookup", "EarlyExit", "Dola", "Guidance")
        always = {"verify_cache": "prefix_cache"}
        assert definition["when"] == (draws | always if switched else always), name
    quiet = Assisted(temperature=0.3, top_k=7).generate_kwargs()
    assert (quiet["do_sample"], quiet["temperature"], quiet["top_k"]) == (False, 1.0, 50)
    drawing = Assisted(do_sample=True, temperature=0.3, top_k=7).generate_kwargs()
    assert (drawing["do_sample"], drawing["temperature"], drawing["top_k"]) == (True, 0.3, 7)


@pytest.mark.parametrize(
    "given", [(False, False), (True, True), ("estimate", False), ("first", True), ("never", "never")]
)
def test_the_library_s_own_values_of_early_stopping_are_understood(given: tuple[object, object]) -> None:
    assert make_settings(strategy="beam", early_stopping=given[0]).generate_kwargs()["early_stopping"] == given[1]


def test_defaults_pass_their_own_check() -> None:
    for cls in get_args(Settings):
        assert make_settings(cls().model_dump()) == cls()


def test_ranges_agree_with_the_library() -> None:
    # The library's own checks must find nothing to say about any edge of our ranges.
    for edge in ({"temperature": 1e-6}, {"temperature": 100}, {"top_k": 0}, {"top_p": 1e-6}, {"top_p": 1}, {"min_p": 0},
                 {"min_p": 1}, {"typical_p": 1e-6}, {"typical_p": 1}, {"repetition_penalty": 1e-6}):  # fmt: skip
        kwargs = make_settings(strategy="sample", **edge).generate_kwargs()
        GenerationConfig(**kwargs).validate(strict=True)


@pytest.mark.parametrize("chosen", get_args(Settings))
def test_the_library_finds_nothing_to_say_about_the_defaults(chosen: type[Settings]) -> None:
    GenerationConfig(**chosen().generate_kwargs()).validate(strict=True)


def test_generate_arguments() -> None:
    assert make_settings(max_new_tokens=5).generate_kwargs() == {
        "num_beams": 1, "num_return_sequences": 1, "max_new_tokens": 5, "min_new_tokens": None,
        "repetition_penalty": 1.0, "no_repeat_ngram_size": 0, "do_sample": False,
        "temperature": 1.0, "top_k": 50, "top_p": 1.0, "typical_p": 1.0, "min_p": None,
        "use_mtp": None, "penalty_alpha": None, "dola_layers": None, "prompt_lookup_num_tokens": None, "assistant_early_exit": None,
        "num_beam_groups": None, "guidance_scale": None,
        "max_time": None, "stop_strings": None, "min_length": 0,
        "exponential_decay_length_penalty": None, "encoder_repetition_penalty": 1.0,
        "encoder_no_repeat_ngram_size": 0, "renormalize_logits": False,
        "top_h": None, "epsilon_cutoff": 0.0, "eta_cutoff": 0.0,
    }  # fmt: skip
    sample = make_settings(strategy="sample", temperature=0.5, top_k=3, min_p=0.1, stop_at_eos=False).generate_kwargs()
    assert (sample["do_sample"], sample["temperature"], sample["top_k"], sample["min_p"]) == (True, 0.5, 3, 0.1)
    assert sample["eos_token_id"] is None


@pytest.mark.parametrize(
    ("prompt", "message"),
    [
        ("", r"prompt: the prompt is empty\. Type some text"),
        ([], r"prompt: the conversation is empty"),
        ([{"role": "user", "content": ""}], r"the conversation is empty"),
        ([{"role": "user"}], r"a chat message is not right: Field required\. Each message is"),
        ([{"role": "user", "content": "x", "name": "y"}], r"a chat message is not right: Extra inputs"),
        (5, r"a prompt cannot be a int\. Give a text or a list"),
        (b"bytes", r"a prompt cannot be a bytes"),
    ],
)
def test_wrong_prompts_are_named(prompt: object, message: str) -> None:
    with pytest.raises(SettingsError, match=message) as caught:
        Request.make(prompt)
    assert caught.value.problems[0].field == "prompt"


def test_problem_reads_as_one_sentence_each() -> None:
    assert str(Problem("a", 1, "1 is wrong", "Use 2.")) == "a: 1 is wrong. Use 2."


@given(
    st.dictionaries(
        st.sampled_from([*Sample.model_fields, "other"]), st.none() | st.integers() | st.floats() | st.text()
    )
)
def test_any_values_give_settings_or_a_settings_error(values: dict[str, Any]) -> None:
    try:
        settings = make_settings(values)
    except SettingsError as error:
        assert error.problems
    else:
        assert make_settings(settings.model_dump()) == settings


def test_a_setting_named_like_a_strategy_is_unknown_under_its_own_name() -> None:
    with pytest.raises(SettingsError, match=r"^greedy: there is no setting of this name \(given True\)"):
        make_settings(greedy=True)


def test_half_a_character_in_a_prompt_is_named() -> None:
    with pytest.raises(
        SettingsError, match=r"^prompt: the prompt has half a character \('\\ud83d'\) at position 2\. Delete"
    ):
        Request.make("hi\ud83d", {})


def test_an_exact_number_of_tokens_may_be_asked_for() -> None:
    assert make_settings(min_new_tokens=5, max_new_tokens=5).min_new_tokens == 5


def test_a_list_of_prompts_is_a_batch() -> None:
    chat = [{"role": "user", "content": "hi"}]
    request = Request.make(["a", chat])
    assert request.batched
    assert request.prompts == ("a", [ChatMessage(role="user", content="hi")])
    assert request.plain_prompt() == ["a", chat]
    assert Request.make(["a"]).plain_prompt() == ["a"]
    assert not Request.make(chat).batched
    assert Request.make(chat).plain_prompt() == chat


@pytest.mark.parametrize(
    ("prompt", "message"),
    [
        (["a", ""], r"the prompt is empty"),
        (["a", {"role": "user", "content": "hi"}], r"a chat message is not right"),
        (["a"] * 257, r"257 prompts, and 256 are the most"),
        (["a"] * 17, r"num_return_sequences: 64 for each of 17 prompts are more than 1024 in all. Use at most 60"),
    ],
)
def test_a_wrong_batch_is_named(prompt: list[Any], message: str) -> None:
    with pytest.raises(SettingsError, match=message):
        Request.make(prompt, strategy="sample", num_return_sequences=64)
