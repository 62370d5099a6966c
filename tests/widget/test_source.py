"""Models that are loaded in the background."""

from __future__ import annotations

import threading
import time

import pytest

from genscope.kernel_side import models
from genscope.kernel_side.engines import in_process
from heard import Heard, until
from tiny import tiny_model, tiny_tokenizer


class Loading:
    """`load_model` that goes on when it is told to."""

    def __init__(self, result):
        self.result, self.go, self.calls = result, threading.Event(), []

    def __call__(self, name, *, progress):
        self.calls.append(str(name))
        progress(0.25, "reading")
        assert self.go.wait(10)
        if isinstance(self.result, BaseException):
            raise self.result
        return self.result


@pytest.fixture
def loading(monkeypatch, model):
    loading = Loading((model, tiny_tokenizer()))
    monkeypatch.setattr(models, "load_model", loading)
    return loading


def test_a_name_is_loaded_in_the_background_with_its_progress_shown(made, loading, model):
    scope = made("demo", prompt="a", max_new_tokens=2)
    assert scope.status["phase"] == "loading"
    until(lambda: scope.status == {"phase": "loading", "text": "reading", "progress": 0.25})
    threading.Timer(0.2, loading.go.set).start()
    began = time.monotonic()
    run = scope.generate()  # waits
    assert time.monotonic() - began > 0.1
    assert run.wait(10).status().generated <= 2
    until(lambda: scope.status["phase"] == "ready")
    assert scope.about["context"] == 512
    assert scope.model is model
    assert scope.tokenizer is tiny_tokenizer()
    assert loading.calls == ["demo"]


def test_generate_pressed_while_loading_starts_when_it_is_loaded_and_stop_takes_it_back(made, loading):
    scope, other = made("demo", max_new_tokens=2), made("demo", max_new_tokens=2)
    front, others = Heard(scope), Heard(other)
    for heard in (front, others):
        heard.say({"kind": "generate", "prompt": "first", "settings": {"max_new_tokens": 2}})
        heard.say({"kind": "generate", "prompt": "a", "settings": {"max_new_tokens": 2}})
        assert heard.problems() == []
    others.say({"kind": "stop"})
    loading.go.set()
    until(lambda: scope.run is not None)
    scope.wait(10)
    assert [run.request.prompt for run in scope.runs] == ["a"]
    until(lambda: other.status["phase"] == "ready")
    assert other.runs == []


def test_a_failed_load_is_shown_and_raised(made, loading):
    loading.result = models.ModelLoadError("there is no such model; check the name")
    scope = made("no/such", prompt="a")
    front = Heard(scope)
    front.say({"kind": "generate", "prompt": "a", "settings": {}})
    loading.go.set()
    with pytest.raises(models.ModelLoadError, match="check the name"):
        scope.generate()
    until(lambda: scope.status["phase"] == "error")
    assert scope.status["text"] == "there is no such model; check the name"
    until(front.problems)
    assert "check the name" in front.problems()[0]["message"]
    with pytest.raises(models.ModelLoadError):
        _ = scope.model


def test_scopes_share_a_model_that_is_being_loaded(made, loading):
    one = made("demo")
    other = made(one, prompt="a", max_new_tokens=2)
    loading.go.set()
    other.generate()
    other.wait(10)
    assert other.model is one.model
    assert len(loading.calls) == 1
    until(lambda: one.status["phase"] == other.status["phase"] == "ready")


@pytest.fixture
def assistants(monkeypatch):
    """What engines were given to draft."""
    given = []
    make = in_process.InProcessEngine.__init__

    def init(self, model, tokenizer, assistant=None, prefix_cache=None):
        given.append(assistant)
        make(self, model, tokenizer, assistant, prefix_cache)

    monkeypatch.setattr(in_process.InProcessEngine, "__init__", init)
    return given


def test_a_draft_model_is_given_to_the_engine(made, model, assistants):
    draft = tiny_model("llama", seed=1)
    made(model, tiny_tokenizer(), assistant=draft)
    made(model, tiny_tokenizer(), assistant=(draft, tiny_tokenizer()))
    made(model, tiny_tokenizer())
    assert assistants == [draft, (draft, tiny_tokenizer()), None]


def test_a_draft_model_is_loaded_in_the_background_for_a_model_that_is_there(made, model, loading, assistants):
    scope = made(model, tiny_tokenizer(), assistant="small", prompt="a", max_new_tokens=2)
    assert scope.status == {"phase": "loading", "text": "Loading small", "progress": None} or loading.calls
    assert scope.about["model"] == "LlamaForCausalLM"
    loading.go.set()
    assert scope.generate().wait(10).status().generated <= 2
    assert loading.calls == ["small"]
    assert assistants == [model]  # of the same vocabulary, so that no tokens need to be translated
    assert scope.about["unavailable"].get("assisted") is None


def test_a_draft_model_with_more_rows_for_the_same_tokens_keeps_its_tokenizer(made, model, loading, assistants):
    draft = tiny_model("llama", seed=1)
    draft.resize_token_embeddings(310)  # as small and large models of one family may be padded differently
    loading.result = (draft, tiny_tokenizer())
    settings = {"strategy": "assisted", "max_new_tokens": 6}
    scope = made(model, tiny_tokenizer(), assistant="small", prompt="the cat", settings=settings)
    loading.go.set()
    run = scope.generate().wait(30)
    assert assistants == [loading.result]
    assert run.texts == made(model, tiny_tokenizer(), prompt="the cat", max_new_tokens=6).generate().wait(30).texts
    assert run.status().drafts.drafted > 0


def test_model_and_draft_model_are_loaded_one_after_the_other(made, loading, assistants):
    scope = made("demo", assistant="small")
    loading.go.set()
    until(lambda: scope.status["phase"] == "ready")
    assert loading.calls == ["demo", "small"]
    assert len(assistants) == 1


class OtherTokenizer:
    def get_vocab(self):
        return {"a": 1}


def test_a_draft_model_of_another_vocabulary_keeps_its_tokenizer(made, model, loading, monkeypatch):
    from genscope.widget import source

    given = []
    monkeypatch.setattr(source, "_engine_of", lambda *parts: given.append(parts) or 1 / 0)
    loading.result = (model, OtherTokenizer())
    scope = made(model, tiny_tokenizer(), assistant="other")
    loading.go.set()
    until(lambda: scope.status["phase"] == "error")
    assert given == [(model, tiny_tokenizer(), loading.result, True)]


@pytest.mark.parametrize("assistant", [5, object(), (1, 2), ("a", "b")])
def test_a_wrong_draft_model_is_told_when_a_scope_is_made(made, model, loading, assistant):
    with pytest.raises(TypeError, match="the assistant cannot be"):
        made(model, tiny_tokenizer(), assistant=assistant)
    with pytest.raises(TypeError, match="the assistant cannot be"):
        made("demo", assistant=assistant)
    assert loading.calls == []


def test_a_model_that_comes_with_its_draft_model_takes_no_other(made, model):
    with pytest.raises(TypeError, match="give the assistant to the engine"):
        made(assistant=model)
    with pytest.raises(TypeError, match="comes with that scope's assistant"):
        made(made(), assistant=model)
    with pytest.raises(TypeError, match="give the model's tokenizer"):
        made(model, assistant="small")
