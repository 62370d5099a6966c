"""Drafts by a model with another tokenizer: greedy's tokens, and a draft model that is left as it was."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedModel, PreTrainedTokenizerBase

from compare import COUNTS, EVERYTHING, Streamed, differences
from genscope.kernel_side.decoding.observe import observe
from genscope.kernel_side.decoding.tap import UnobservableError
from genscope.kernel_side.streaming.base import OutputStreamer
from genscope.kernel_side.streaming.outputs import ALL_FIELDS
from loop_checks import untouched
from tiny import PAD, VOCABULARY, tiny_model, tiny_tokenizer
from tokenizers_for_tests import EXACT, tokenizer_named

PLAIN: dict[str, Any] = {"eos_token_id": None, "pad_token_id": PAD, "max_new_tokens": 24}


def drafting(tokenizer: PreTrainedTokenizerBase, size: int | None = None) -> PreTrainedModel:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model: Any = LlamaForCausalLM(
            LlamaConfig(
                vocab_size=size or len(tokenizer),
                hidden_size=32,
                intermediate_size=64,
                num_hidden_layers=1,
                num_attention_heads=2,
                max_position_embeddings=512,
                initializer_range=0.3,
            )
        )
    return model.eval()  # type: ignore[no-any-return]


def inputs() -> dict[str, torch.Tensor]:
    encoded = tiny_tokenizer()("the thing and the other thing", return_tensors="pt")
    return {name: encoded[name] for name in ("input_ids", "attention_mask")}


def watched(model: Any, draft: Any, tokenizer: Any, *, seed: int | None = None, **kwargs: Any) -> tuple[Any, Streamed]:
    streamed = Streamed()
    streamer = OutputStreamer(
        streamed.steps.append, on_prompt=streamed.prompt.append, fields=ALL_FIELDS - {"prompt_logits"}
    )
    observing = observe(
        streamer, seed=seed, assistant_model=draft, tokenizer=tiny_tokenizer(), assistant_tokenizer=tokenizer
    )
    return model.generate(**inputs(), **PLAIN, **kwargs, **EVERYTHING, **observing), streamed


def favour(text: str, tokenizer: PreTrainedTokenizerBase, by: float) -> Any:
    """Make a processor for a model whose text is mostly this, over and over, so that drafts agree."""
    ids = tokenizer(text, add_special_tokens=False)["input_ids"]

    def process(input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        if scores.shape[-1] != VOCABULARY:
            return scores  # the library hands the processors to the draft model too
        scores = scores.clone()
        scores[:, ids[input_ids.shape[1] % len(ids)]] += by
        return scores

    return process


@pytest.mark.parametrize("name", EXACT)
def test_greedy_gives_greedys_tokens_and_what_generate_returns(name: str) -> None:
    model, tokenizer = tiny_model("llama"), tokenizer_named(name)
    greedy = model.generate(**inputs(), **PLAIN, do_sample=False)
    draft = drafting(tokenizer)
    with untouched(model), untouched(draft):
        output, streamed = watched(model, draft, tokenizer, do_sample=False)
    assert torch.equal(output.sequences, greedy)
    wanted = model.generate(
        **inputs(), **PLAIN, **EVERYTHING, do_sample=False, assistant_model=drafting(tokenizer),
        tokenizer=tiny_tokenizer(), assistant_tokenizer=tokenizer,
    )  # fmt: skip
    assert differences(wanted, streamed) == differences(output, streamed) == []
    assert any(step.drafted.shape[1] for step in streamed.steps)
    assert all(step.draft_scores is None for step in streamed.steps)
    COUNTS["cases"] += 1


@pytest.mark.parametrize("do_sample", [False, True])
def test_drafts_in_another_vocabulary_are_accepted_where_the_model_says_the_same(do_sample: bool) -> None:
    model, tokenizer = tiny_model("llama"), tokenizer_named("byte_level")
    text = "the lazy dog. "
    draft: Any = drafting(tokenizer)
    other = tokenizer(text, add_special_tokens=False)["input_ids"]
    forward = draft.forward

    def says_the_same(*args: Any, **kwargs: Any) -> Any:
        outputs = forward(*args, **kwargs)
        outputs.logits[:] = -30.0
        outputs.logits[..., other[0]] = 0.0
        return outputs

    draft.forward = says_the_same
    # The model says the first piece of it again and again, and so does the draft.
    piece = tokenizer.decode(other[:1])
    output, streamed = watched(
        model, draft, tokenizer, seed=1, do_sample=do_sample, logits_processor=[favour(piece, tiny_tokenizer(), 60.0)]
    )
    assert sum(step.accepted for step in streamed.steps) > 8
    assert differences(output, streamed) == []


def test_sampling_draws_from_the_model_and_leaves_the_draft_model_alone() -> None:
    model, tokenizer = tiny_model("llama"), tokenizer_named("llama")
    draft = drafting(tokenizer)
    head, embeddings = draft.get_output_embeddings(), draft.get_input_embeddings()
    with untouched(draft):
        first, streamed = watched(model, draft, tokenizer, seed=4, do_sample=True, top_k=5, temperature=3.0)
        again, _ = watched(model, draft, tokenizer, seed=4, do_sample=True, top_k=5, temperature=3.0)
        other, _ = watched(model, draft, tokenizer, seed=5, do_sample=True, top_k=5, temperature=3.0)
    assert draft.get_output_embeddings() is head
    assert draft.get_input_embeddings() is embeddings
    assert torch.equal(first.sequences, again.sequences)
    assert not torch.equal(first.sequences, other.sequences)
    assert differences(first, streamed) == []
    for step in streamed.steps:
        for token, scores in zip(step.tokens[0].tolist(), step.scores, strict=True):
            assert int((~scores.isneginf()).sum()) == 5
            assert not bool(scores[0, token].isneginf())


def test_the_librarys_own_way_of_sampling_is_still_unsound() -> None:
    # When this fails, `_get_candidate_generator` in `tap_assisted` may let the library choose again.
    model, tokenizer = tiny_model("llama"), tokenizer_named("llama")
    draft = drafting(tokenizer)
    head = draft.get_output_embeddings()
    model.generate(
        **inputs(), **PLAIN, do_sample=True, assistant_model=draft, tokenizer=tiny_tokenizer(),
        assistant_tokenizer=tokenizer,
    )  # fmt: skip
    assert draft.get_output_embeddings() is not head


def test_vocabularies_of_one_size_may_still_differ() -> None:
    model, tokenizer = tiny_model("llama"), tokenizer_named("unigram")
    greedy = model.generate(**inputs(), **PLAIN, do_sample=False)
    output, _ = watched(model, drafting(tokenizer, VOCABULARY), tokenizer, do_sample=False)
    assert torch.equal(output.sequences, greedy)


def test_without_tokenizers_it_is_refused_with_the_way_out() -> None:
    model, tokenizer = tiny_model("llama"), tokenizer_named("byte_level")
    with pytest.raises(UnobservableError, match=r"pass tokenizer= and assistant_tokenizer= to observe\(\)"):
        model.generate(**inputs(), **PLAIN, **observe(assistant_model=drafting(tokenizer)))
    for given in ({"tokenizer": tokenizer}, {"assistant_tokenizer": tokenizer}):
        with pytest.raises(ValueError, match="give both, and it"):
            observe(assistant_model=model, **given)
    with pytest.raises(ValueError, match="give both, and it"):
        observe(tokenizer=tokenizer, assistant_tokenizer=tokenizer)
