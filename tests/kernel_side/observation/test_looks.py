"""Looks at tokens of a run: what the library gives for the same token, texts of candidates, and what is not there."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from genscope.kernel_side.engines.in_process import InProcessEngine
from genscope.kernel_side.observation.unseen import UnseenError
from genscope.kernel_side.request import Request
from genscope.kernel_side.run import Run
from tiny import PAD, tiny_model, tiny_tokenizer


def run_of(kind: Any, prompt: Any = "to the top", **settings: Any) -> Run:
    on = InProcessEngine(tiny_model(kind, "sdpa"), tiny_tokenizer())
    base = {"max_new_tokens": 6, "stop_at_eos": False, "seed": 3}
    return Run(on, Request.make(prompt, base, **settings)).wait(60)


def returned(kind: Any, **kwargs: Any) -> Any:
    ids = tiny_tokenizer()("to the top", return_tensors="pt")["input_ids"]
    return tiny_model(kind, "eager").generate(
        ids, attention_mask=torch.ones_like(ids), max_new_tokens=6, eos_token_id=None, pad_token_id=PAD, do_sample=False,
        return_dict_in_generate=True, output_attentions=True, output_hidden_states=True, output_logits=True, **kwargs,
    )  # fmt: skip


@pytest.mark.parametrize("kind", ["llama", "gpt2", "qwen3"])
def test_attention_is_that_of_the_choice(kind: str) -> None:
    run, output = run_of(kind, attention=True), returned(kind)
    looks, first = run.looks, run.prompt_tokens
    assert looks is not None
    assert looks.observed == ("attention",)
    for step in range(6):
        layer = torch.stack([part[0, :, -1] for part in output.attentions[step]])  # layers, heads, keys
        for options, wanted in (
            ({}, layer.mean(dim=(0, 1))),
            ({"layer": 1}, layer[1].mean(dim=0)),
            ({"layer": 0, "head": 2}, layer[0, 2]),
        ):
            look = looks.attention(first + step, **options)
            assert look.weights == pytest.approx(wanted.tolist(), abs=1e-3)
            assert (look.layers, look.heads) == (2, 4)
    matrix = looks.matrix(len(run.record) - 1)
    assert matrix.rows[-1] == looks.attention(len(run.record) - 1).weights
    assert matrix.position + len(matrix.rows) == len(run.record)


def test_the_lens_ends_with_the_model_s_own_distribution() -> None:
    run = run_of("llama", logit_lens=True, alternatives=4)
    assert run.looks is not None
    assert run.looks.observed == ("lens",)
    for token in run.record[run.prompt_tokens :]:
        layers = run.looks.lens(token.position, top=4)
        assert [layer.layer for layer in layers] == [0, 1, 2]
        own = layers[-1]
        assert [(one.id, one.text) for one in own.candidates] == [(one.id, one.text) for one in token.alternatives]
        assert [one.logprob for one in own.candidates] == pytest.approx([one.raw_logprob for one in token.alternatives])
        assert (own.logprob, own.rank) == (pytest.approx(token.raw_logprob), token.rank)


def test_a_source_is_looked_at() -> None:
    run, output = run_of("t5", attention=True), returned("t5")
    assert run.looks is not None
    assert run.looks.observed == ("attention", "cross", "encoder")
    layer = torch.stack([part[0, :, -1] for part in output.cross_attentions[2]])
    look = run.looks.attention(1 + 2, of="cross")
    assert look.weights == pytest.approx(layer.mean(dim=(0, 1)).tolist(), abs=1e-3)
    source = len(run.lanes[0].source or ())
    matrix = run.looks.matrix(source - 1, of="encoder", layer=0, head=0)
    assert torch.allclose(torch.tensor(matrix.rows), output.encoder_attentions[0][0, 0], atol=1e-3)


@pytest.mark.parametrize(
    ("settings", "look", "message"),
    [
        ({}, lambda looks: looks.attention(5), r"did not keep it; set attention=True"),
        ({"attention": True}, lambda looks: looks.lens(5), r"did not keep it; set logit_lens=True"),
        (
            {"attention": True},
            lambda looks: looks.attention(999),
            r"There is no token at position 999; the lane has \d+",
        ),
        ({"attention": True}, lambda looks: looks.attention(5, 1), r"There is no lane 1; the run has 1"),
        ({"attention": True}, lambda looks: looks.attention(0), r"0"),
        ({"attention": True}, lambda looks: looks.attention(5, layer=2), r"no layer 2"),
        ({"attention": True}, lambda looks: looks.attention(5, of="cross"), r"cross"),
    ],
)
def test_what_is_not_there_is_named(settings: dict[str, Any], look: Any, message: str) -> None:
    run = run_of("llama", **settings)
    with pytest.raises(UnseenError, match=message):
        look(run.looks)


def test_what_was_dropped_is_named() -> None:
    run = run_of("llama", attention=True, logit_lens=True)
    assert run.looks is not None
    assert run.looks.nbytes > 0
    run.looks.clear()
    assert run.looks.nbytes == 0
    with pytest.raises(UnseenError, match=r"drop"):
        run.looks.attention(5)
