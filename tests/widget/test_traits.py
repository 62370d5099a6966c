"""The scope's traits: what the front end gets, what either side may set, what is refused."""

from __future__ import annotations

import ipywidgets
import pytest
import traitlets

from fake_engine import FakeEngine
from genscope.kernel_side.request import SettingsError, make_settings, settings_schema
from heard import Heard
from tiny import tiny_model, tiny_tokenizer


def test_the_front_end_gets_all_that_it_needs(made):
    scope = made(prompt="Hi", strategy="sample", temperature=0.7, measure="rank", whitespace=True)
    state = scope.get_state()
    assert state["schema"] == settings_schema()
    assert state["settings"] == make_settings(strategy="sample", temperature=0.7).model_dump(mode="json")
    assert (state["prompt"], state["measure"], state["whitespace"], state["state"]) == ("Hi", "rank", True, "idle")
    assert state["status"] == {"phase": "ready", "text": "FakeEngine", "progress": None}
    assert state["about"] == {
        "model": "FakeEngine",
        "chat": False,
        "context": None,
        "unavailable": {},
        "costs": None,
        "prefix_cache": None,
    }
    assert state["widget_id"] == scope.model_id
    assert state["static_class"] != made().static_class


def test_a_real_model_tells_its_context_and_whether_it_chats(made, model):
    about = made(model, tiny_tokenizer()).about
    assert (about["model"], about["chat"], about["context"]) == ("LlamaForCausalLM", False, 512)


def test_it_tells_which_strategies_the_model_cannot_do(made):
    engine = FakeEngine(3)
    engine.unavailable = lambda: {"assisted": "needs a draft model"}
    assert made(engine).about["unavailable"] == {"assisted": "needs a draft model"}


@pytest.mark.parametrize(
    "value",
    [
        {"strategy": "sample", "temperature": 0},
        {"top_p": 2},
        {"nothing": 1},
        5,
        None,
        {"strategy": "sample", "top_k": "x"},
    ],
)
def test_an_invalid_assignment_raises_and_leaves_the_old_value(made, value):
    scope = made(strategy="sample", temperature=0.7)
    old = scope.settings
    with pytest.raises(SettingsError):
        scope.settings = value
    assert scope.settings == old
    with pytest.raises(SettingsError), scope.hold_trait_notifications():
        scope.settings = value
    assert scope.settings == old


def test_settings_may_be_given_in_part_and_are_completed(made):
    scope = made()
    scope.settings = {"strategy": "sample", "top_p": 0.5}
    assert scope.settings == make_settings(strategy="sample", top_p=0.5).model_dump(mode="json")


def test_wrong_settings_are_told_when_a_scope_is_made(made):
    with pytest.raises(SettingsError, match="temperature: -1 is not allowed"):
        made(strategy="sample", temperature=-1)
    with pytest.raises(SettingsError, match="Did you mean 'temperature'"):
        made(temprature=1)


@pytest.mark.parametrize(
    ("model", "tokenizer", "message"),
    [
        (5, None, "cannot look into a int"),
        ("demo", 5, "the tokenizer comes with 'demo'"),
        (tiny_model("gpt2"), None, "give the model's tokenizer as the second argument"),
    ],
)
def test_a_wrong_model_is_told_when_a_scope_is_made(made, model, tokenizer, message):
    with pytest.raises(TypeError, match=message):
        made(model, tokenizer)


CHAT = [{"role": "user", "content": "Hi"}]


@pytest.mark.parametrize("prompt", ["", "Hi", CHAT, [], ["Hi"], ["Hi", "Ho"], ["Hi", CHAT], [CHAT, CHAT], [""], [[]]])
def test_prompts(made, prompt):
    scope = made()
    scope.prompt = prompt
    assert scope.prompt == prompt


@pytest.mark.parametrize(
    "prompt",
    [5, None, b"Hi", [{"role": "user"}], [{"role": "", "content": "x"}], ["Hi", 5], ["Hi", *CHAT], [*CHAT, "Hi"],
     ["Hi", [{"role": "user"}]], [["Hi"]], ["Hi", b"Ho"]],
)  # fmt: skip
def test_wrong_prompts_raise_and_leave_the_old_one(made, prompt):
    scope = made(prompt="old")
    with pytest.raises(SettingsError, match="prompt"):
        scope.prompt = prompt
    assert scope.prompt == "old"


@pytest.mark.parametrize("name", ["schema", "status", "about", "state", "static_class", "widget_id"])
def test_what_only_the_kernel_knows_cannot_be_set_from_either_side(made, name):
    scope = made()
    front, old = Heard(scope), getattr(scope, name)
    with pytest.raises(traitlets.TraitError):
        setattr(scope, name, old)
    front.set(**{name: {"x": 1}, "measure": "rank"})
    assert getattr(scope, name) == old
    assert scope.measure == "rank"  # the rest of the message counts
    assert {name: old} in front.updates  # and the front end is told again


@pytest.mark.parametrize(
    ("name", "good", "bad"),
    [
        ("prompt", [{"role": "user", "content": "x"}], 5),
        ("prompt", ["a", [{"role": "user", "content": "x"}]], ["a", 5]),
        ("measure", "latency", "beauty"),
        ("whitespace", True, "yes"),
        ("settings", {"strategy": "sample", "top_k": 3}, {"strategy": "sample", "top_k": -3}),
    ],
)
def test_the_front_end_sets_traits_but_only_to_valid_values(made, caplog, name, good, bad):
    scope = made()
    front = Heard(scope)
    front.set(**{name: good})
    now = getattr(scope, name)
    assert now == (good if name != "settings" else make_settings(good).model_dump(mode="json"))
    front.set(**{name: bad})
    assert getattr(scope, name) == now
    assert front.updates[-1] == {name: now}
    assert f"ignored values from the front end for {name}" in caplog.text


def test_prompts_can_be_linked(made):
    one, other = made(prompt="a"), made(prompt="b")
    traitlets.link((one, "prompt"), (other, "prompt"))
    Heard(other).set(prompt="c")
    assert one.prompt == "c"
    text = ipywidgets.Text()
    traitlets.link((text, "value"), (one, "prompt"))
    text.value = "d"
    assert other.prompt == "d"
