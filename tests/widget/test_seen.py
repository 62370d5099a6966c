"""Looks into a run: exact answers, in order, in the right context, and a reason where nothing can be seen."""

from __future__ import annotations

import contextvars
import math
import threading
from types import SimpleNamespace

import pytest
from pydantic import ConfigDict, TypeAdapter

from fake_engine import FakeEngine
from fake_rows import TEXTS
from genscope.widget import wire
from genscope.widget.seen import look
from heard import Heard, until


def asked(what, run="r1", position=5, lane=0, **options):
    return {"kind": "look", "run": run, "lane": lane, "position": position, "what": what, **options}


@pytest.fixture
def seen(made):
    """A run that observes all, and a front end that asks and gets its answer."""
    scope = made(FakeEngine(9, source=4), prompt=["a", "b"], attention=True, logit_lens=True)
    run = scope.generate()
    scope.wait()
    front = Heard(scope)

    def ask(what, run=run.id, **options):
        count = len(front.messages)
        front.say(asked(what, run, **options))
        until(lambda: len(front.messages) > count)
        return front.messages[count]

    ask.run, ask.scope, ask.front = run, scope, front
    return ask


def test_attention(seen):
    assert seen("attention", lane=1, layer=1, head=2) == {
        "kind": "attention", "run": seen.run.id, "lane": 1, "position": 5, "of": "self", "layer": 1, "head": 2,
        "layers": 2, "heads": 3, "weights": [0.3733] * 5,
    }  # fmt: skip


def test_cross_attention_of_all_layers_and_heads(seen):
    answer = seen("attention", of="cross", layer=None)
    assert (answer["of"], answer["layer"], answer["head"], answer["weights"]) == ("cross", None, None, [0.3333] * 4)


def test_a_matrix_begins_where_it_says(seen):
    answer = seen("matrix", position=4, head=1)
    assert (answer["kind"], answer["position"], answer["head"]) == ("matrix", 2, 1)
    assert answer["rows"] == [[0.3433] * 2, [0.3433] * 3, [0.3433] * 4]


def test_a_matrix_of_the_encoder(seen):
    answer = seen("matrix", of="encoder", position=3)
    assert (answer["kind"], answer["of"], len(answer["rows"])) == ("matrix", "encoder", 3)


def test_the_lens(seen):
    answer = seen("lens")
    assert [layer["layer"] for layer in answer["layers"]] == [0, 1, 2]
    assert answer["layers"][1] == {
        "layer": 1, "id": [10, 11, 12, 13, 14], "text": [f"{text}?" for text in TEXTS[5:]],
        "logprob": [-0.3333, -1.333, -2.333, -3.333, -4.333], "chosen_logprob": -0.3333, "chosen_rank": 2,
    }  # fmt: skip


def test_all_answers_are_of_the_wire_schema(seen):
    adapter = TypeAdapter(wire.BackMessage, config=ConfigDict(strict=True, extra="forbid"))
    for what in ("attention", "matrix", "lens"):
        for position in (3, 5000):
            answer = seen(what, position=position)
            assert (answer["kind"] == "unseen") == (position == 5000)
            adapter.validate_python(answer)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"position": 5000}, "There is no token at position 5000."),
        ({"run": "another"}, "This run is not among the scope's; generate again."),
        ({"of": "encoder"}, "What the source's tokens attend to can be seen as a matrix only."),
        ({"lane": 9}, "IndexError: tuple index out of range"),
    ],
)
def test_what_cannot_be_seen_is_told(seen, options, message):
    assert seen("attention", **options) == {
        "kind": "unseen", "run": options.get("run", seen.run.id), "lane": options.get("lane", 0),
        "position": options.get("position", 5), "what": "attention", "message": message,
    }  # fmt: skip


def test_an_older_run_can_be_looked_at_until_the_next_one_observes(seen):
    older = seen.run
    seen.scope.generate(attention=False, logit_lens=False)
    seen.scope.wait()
    assert seen("attention", run=older.id)["kind"] == "attention"
    assert seen("attention", run=seen.scope.run.id)["message"] == "This run did not keep the attention."
    seen.scope.generate(attention=True)
    seen.scope.wait()
    assert seen("attention", run=older.id)["message"] == "It was dropped when the next run began."


def test_an_engine_that_keeps_nothing_says_so():
    answer = look(SimpleNamespace(id="r1", looks=None), asked("lens"))
    assert answer["message"] == "What executes this run keeps nothing to look at."


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_attention_that_is_no_number_is_not_drawn_as_zero(bad):
    looks = SimpleNamespace(attention=lambda *_, **__: SimpleNamespace(weights=[0.5, bad], layers=1, heads=1))
    answer = look(SimpleNamespace(id="r1", looks=looks), asked("attention"))
    assert (answer["kind"], "NaN or infinity" in answer["message"]) == ("unseen", True)


def test_a_model_that_raises_is_told_and_the_stream_goes_on(made):
    gate = threading.Semaphore(0)
    scope = made(FakeEngine(30, gate=gate), prompt="x", attention=True)
    run = scope.generate()
    front = Heard(scope)
    run.looks.attention = lambda *_, **__: 1 / 0
    front.say(asked("attention", run.id))
    until(lambda: front.of_kind("unseen"))
    assert front.of_kind("unseen")[0]["message"] == "ZeroDivisionError: division by zero"
    gate.release(30)
    scope.wait()
    assert front.of_kind("end")


def test_answers_come_in_order_and_in_the_context_of_whoever_asked(seen):
    cell = contextvars.ContextVar("cell")
    contexts = []
    receive = seen.front.receive
    seen.front.receive = lambda message: (contexts.append(cell.get()), receive(message))
    for position in range(1, 9):
        cell.set(f"cell {position}")
        seen.front.say(asked("attention" if position % 2 else "lens", seen.run.id, position=position))
    assert seen.scope._sender.flush(5)
    assert [message["position"] for message in seen.front.messages] == list(range(1, 9))
    assert contexts == [f"cell {position}" for position in range(1, 9)]
