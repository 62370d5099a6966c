"""Branches, replies, walking the tree of runs, and the prefix cache of a scope: from the front end and from Python."""

from __future__ import annotations

import copy
import gc
import threading
import time
import weakref

import pytest

from cached_runs import model_of
from genscope.kernel_side.caching.prefix_cache import PrefixCache
from genscope.kernel_side.caching.shared import DEFAULT_BYTES, prefix_cache_of
from genscope.kernel_side.engines.in_process import InProcessEngine
from genscope.kernel_side.request import SettingsError, make_settings
from genscope.widget.tree import tree_of
from heard import Heard, until
from tiny import tiny_model, tiny_tokenizer

FORM = make_settings(max_new_tokens=5, stop_at_eos=False).model_dump(mode="json")
TEMPLATE = (
    "{% for message in messages %}[{{ message['role'] }}]{{ message['content'] }}<eos>{% endfor %}"
    "{% if add_generation_prompt %}[assistant]{% endif %}"
)


@pytest.fixture
def tokenizer():
    tokenizer = copy.deepcopy(tiny_tokenizer())
    tokenizer.chat_template = TEMPLATE
    return tokenizer


@pytest.fixture
def scope(made, model, tokenizer):
    scope = made(model, tokenizer, prompt="the cat and", settings=FORM, prefix_cache=PrefixCache(2**26))
    scope.generate()
    scope.wait()
    return scope


def test_a_branch_from_the_front_end(scope):
    front, parent = Heard(scope), scope.run
    front.say({"kind": "branch", "run": parent.id, "lane": 0, "position": 4, "token": 77, "settings": FORM})
    scope.wait()
    assert front.problems() == []
    assert scope.run.record.ids()[:5] == [*parent.record.ids()[:4], 77]
    [begin] = front.of_kind("begin")
    assert begin["branch"] == {
        "run": parent.id, "lane": 0, "position": 4, "added": 1, "kind": "branch", "rewritten": False,
    }  # fmt: skip
    reuse = front.of_kind("end")[0]["status"]["reuse"]
    assert (reuse["reused"], reuse["tokens"], reuse["end"]["asked"]) == (4, 5, tiny_tokenizer().decode([77]))
    assert front.tracks[0].columns["cached"] == [1, 1, 1, 1, 0] + [None] * 5
    assert scope.prompt == "the cat and"


def test_a_text_and_going_on_from_the_front_end_with_the_settings_of_the_form(scope):
    front, parent = Heard(scope), scope.run
    form = {**FORM, "max_new_tokens": 7}
    front.say({"kind": "branch", "run": parent.id, "lane": 0, "position": 4, "text": " on", "settings": form})
    scope.wait()
    ids = tiny_tokenizer()(" on")["input_ids"]
    assert scope.run.record.ids()[: 4 + len(ids)] == parent.record.ids()[:4] + ids
    assert scope.settings["max_new_tokens"] == 7
    end = len(scope.run.record)
    front.say({"kind": "branch", "run": scope.run.id, "lane": 0, "position": end, "settings": form})
    until(lambda: len(scope.runs) == 3)
    scope.wait()
    assert scope.run.prompt_tokens == end


@pytest.mark.parametrize(
    ("message", "text"),
    [
        ({"run": "none"}, "this run is none of the scope's"),
        ({"position": 99}, "99 is no position of this lane"),
        ({"lane": 3}, "3 is no lane"),
        ({"token": 5, "text": "a"}, "cannot stand at one position"),
        ({"position": "x"}, "wrong message"),
        ({"settings": {"temperature": 1}}, "has no setting of this name"),
    ],
)
def test_a_wrong_branch_is_answered_by_its_problems(scope, message, text):
    front = Heard(scope)
    right = {"kind": "branch", "run": scope.run.id, "lane": 0, "position": 2, "settings": FORM}
    front.say(right | message)
    assert text in front.problems()[0]["message"]
    assert len(scope.runs) == 1


def test_a_reply_from_the_front_end_becomes_the_prompt(made, model, tokenizer):
    scope = made(model, tokenizer, prompt=[{"role": "user", "content": "hi"}], settings=FORM)
    first = scope.generate()
    scope.wait()
    front = Heard(scope)
    front.say({"kind": "reply", "run": first.id, "lane": 0, "text": "and you", "settings": FORM})
    scope.wait()
    assert front.of_kind("begin")[0]["branch"]["kind"] == "reply"
    assert scope.run.record.ids()[: len(first.record)] == first.record.ids()
    assert scope.prompt == [
        {"role": "user", "content": "hi"},
        {"role": "assistant", "content": first.text},
        {"role": "user", "content": "and you"},
    ]
    front.say({"kind": "reply", "run": first.id, "lane": 0, "text": "", "settings": FORM})
    until(lambda: len(front.of_kind("problems")) == 2)
    assert front.problems()[0]["message"] == "the reply is empty"


def test_an_older_run_is_shown_again_and_its_static_copy_too(scope):
    first = scope.run
    second = scope.branch(3, max_new_tokens=9)
    scope.wait()
    front = Heard(scope)
    front.say({"kind": "show", "run": first.id})
    until(lambda: front.end)
    assert (front.begin["run"], front.tracks[0].n) == (first.id, len(first.record))
    assert scope.run is second  # what was started last
    assert "5 tokens" in scope.to_html()
    scope.show(second)
    until(lambda: front.end and front.begin["run"] == second.id)
    assert "9 tokens" in scope.to_html()
    front.say({"kind": "show", "run": "none"})
    assert front.begin["run"] == second.id
    with pytest.raises(ValueError, match="none of this scope's"):
        scope.show(second.branch(2).wait())


def test_branches_and_replies_from_python_start_from_the_run_that_is_shown(scope, made, model, tokenizer):
    first = scope.run
    branch = scope.branch(3, " on", strategy="sample", temperature=0.5).wait()
    assert (branch.request.branch.run, scope.settings["strategy"], scope.settings["seed"]) == (first.id, "sample", None)
    scope.show(first)
    assert scope.branch(2).request.branch.run == first.id
    assert scope.branch(2, run=branch).request.branch.run == branch.id
    with pytest.raises(ValueError, match="is of another model"):
        made(tiny_model("llama", seed=9), tokenizer).branch(2, run=first)
    empty = made(model, tokenizer)
    with pytest.raises(RuntimeError, match="no run to go on from"):
        empty.branch(0)
    chat = made(model, tokenizer, prompt=[{"role": "user", "content": "hi"}], settings=FORM)
    with pytest.raises(RuntimeError, match="no run to go on from"):
        chat.reply("x")
    chat.generate().wait()
    assert chat.reply("so").wait().request.branch.kind == "reply"
    with pytest.raises(SettingsError, match="no conversation"):
        scope.reply("so")


def test_the_tree_is_told_at_each_start_and_end(scope):
    front, first = Heard(scope), scope.run
    branch = scope.branch(2, "<b>")
    scope.wait()
    until(lambda: scope.tree and scope.tree[-1]["state"] == "finished")
    assert scope.tree == tree_of(scope.runs)
    root, row = scope.tree
    assert (root["id"], root["parent"], root["kind"], root["position"]) == (first.id, None, "run", 0)
    assert root["title"] == f"the cat and{first.text}"
    assert (row["parent"], row["lane"], row["position"], row["kind"]) == (first.id, 0, 2, "branch")
    assert row["title"].startswith("<b>")
    assert (row["strategy"], row["tokens"], row["state"]) == ("greedy", 5, "finished")
    assert any(update.get("tree") for update in front.updates)
    assert tree_of([branch])[0]["parent"] is None  # the other is none of these


def test_titles_are_short(made, model):
    scope = made(model, tiny_tokenizer(), prompt="the cat " * 30, settings=FORM, max_new_tokens=90)
    scope.generate()
    scope.wait()
    title = tree_of(scope.runs)[0]["title"]
    assert title.startswith("…")
    assert title.endswith("…")
    assert len(title) <= 100


def test_scopes_of_a_model_share_a_prefix_cache_unless_told_otherwise(made, tokenizer):
    model = tiny_model("llama", seed=5)
    one, other = made(model, tokenizer), made(model, tokenizer)
    shared = prefix_cache_of(model, True)
    assert one._source.engine().prefix_cache is other._source.engine().prefix_cache is shared
    assert one.about["prefix_cache"] == shared.max_bytes == DEFAULT_BYTES
    own = made(model, tokenizer, prefix_cache=2**20)
    assert own.about["prefix_cache"] == 2**20
    for none in (None, False):
        assert made(model, tokenizer, prefix_cache=none).about["prefix_cache"] is None
    mine = PrefixCache(5)
    assert made(model, tokenizer, prefix_cache=mine)._source.engine().prefix_cache is mine
    assert made(one)._source.engine().prefix_cache is shared


def test_a_shared_cache_goes_with_its_model():
    model = tiny_model("llama", seed=6)
    cache = weakref.ref(prefix_cache_of(model, True))
    assert cache() is not None
    del model
    gc.collect()
    assert cache() is None


def test_what_is_no_prefix_cache_is_refused(made, model, tokenizer, scope):
    with pytest.raises(TypeError, match="prefix_cache cannot be a str"):
        made(model, tokenizer, prefix_cache="big")
    with pytest.raises(ValueError, match="max_bytes is 0"):
        made(model, tokenizer, prefix_cache=0)
    with pytest.raises(TypeError, match="an engine has its prefix cache, or none"):
        made(InProcessEngine(model, tokenizer), prefix_cache=5)
    with pytest.raises(TypeError, match="comes with that scope's prefix cache"):
        made(scope, prefix_cache=None)


def test_the_tree_of_a_run_that_ends_does_not_hide_the_one_that_was_started_meanwhile(scope, monkeypatch):
    reading, go_on = threading.Event(), threading.Event()

    def slowly(runs, comparisons):
        rows = tree_of(runs, comparisons)
        if not reading.is_set():
            reading.set()
            go_on.wait(10)
        return rows

    monkeypatch.setattr("genscope.widget.runs.tree_of", slowly)
    ending = threading.Thread(target=scope._runs._tell_tree)  # as the thread of a run that ends
    ending.start()
    assert reading.wait(10)
    starting = threading.Thread(target=scope.generate)
    starting.start()
    until(lambda: len(scope.runs) == 2)
    time.sleep(0.1)
    go_on.set()
    ending.join(10)
    starting.join(10)
    posted = []
    scope.observe(lambda change: posted.append(len(change["new"])), "tree")
    scope._sender.flush(5)
    assert len(scope.tree) == 2
    assert posted in ([], [2], [2, 2])


def test_the_title_of_an_encoder_decoder_run_begins_with_what_its_encoder_reads(made):
    scope = made(model_of("t5"), tiny_tokenizer(), prompt="the cat and", settings=FORM)
    scope.generate()
    run = scope.wait()
    [row] = tree_of([run])
    assert row["title"].startswith("the cat and")
    [_, branched] = tree_of([run, scope.branch(1, " on").wait(10)])
    assert branched["title"].startswith(" on")
