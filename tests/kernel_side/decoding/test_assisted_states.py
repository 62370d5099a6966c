"""States and scores of assisted rounds, against plain greedy decoding of the same tokens."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from transformers import StaticCache

from compare import EVERYTHING, observed, plain, prompts
from genscope.kernel_side.decoding.observe import observe
from genscope.kernel_side.streaming.assisted_outputs import AssistedStepOutput
from genscope.kernel_side.streaming.base import OutputStreamer
from tiny import PAD, VOCABULARY, AnyKind, tiny_model

KINDS: tuple[AnyKind, ...] = ("llama", "gpt2", "gemma3", "qwen3", "t5", "bart")
PLAIN: dict[str, Any] = {"eos_token_id": None, "pad_token_id": PAD, "do_sample": False, "max_new_tokens": 14}
NAMES = ("attentions", "cross_attentions", "hidden_states")


def rounds(kind: AnyKind, **kwargs: Any) -> tuple[Any, list[AssistedStepOutput]]:
    """Decode with a draft model that is always right, four drafts a round."""
    draft = tiny_model(kind)
    draft.generation_config.num_assistant_tokens = 4
    draft.generation_config.num_assistant_tokens_schedule = "constant"
    draft.generation_config.assistant_confidence_threshold = 0.0
    output, streamed = observed(tiny_model(kind), prompts(1), assistant_model=draft, **PLAIN, **kwargs)
    return output, streamed.steps


def of_greedy(output: Any, name: str) -> Any:
    return getattr(output, f"decoder_{name}", None) or getattr(output, name, None)


def agree(one: torch.Tensor, other: torch.Tensor, name: str) -> bool:
    """Compare; of attentions the columns from the right, those that only one has being zeros."""
    if name == "attentions":
        shared = min(one.shape[-1], other.shape[-1])
        if any(bool(side[..., : side.shape[-1] - shared].any()) for side in (one, other)):
            return False
        one, other = one[..., -shared:], other[..., -shared:]
    return one.shape == other.shape and torch.allclose(one, other, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("kind", KINDS)
def test_each_token_has_its_own_rows_as_in_greedy_decoding(kind: AnyKind) -> None:
    greedy = plain(tiny_model(kind), prompts(1), **PLAIN)
    output, steps = rounds(kind)
    assert torch.equal(output, greedy.sequences)
    assert steps[0].accepted == 4
    compared = 0
    for name in NAMES:
        wanted = of_greedy(greedy, name)
        if wanted is None:
            assert getattr(steps[0], f"own_{name}") is None
            continue
        own = [token for step in steps for token in getattr(step, f"own_{name}")]
        assert len(own) == len(wanted) == 14
        for mine, theirs in zip(own, wanted, strict=True):
            assert len(mine) == len(theirs)
            for pair in zip(mine, theirs, strict=True):
                assert agree(*pair, name)
                compared += 1
        # What the library returns is of other positions in the first round, behind its first token.
        of_library = [token for step in steps for token in getattr(step, name)]
        wrong = [index for index in range(1, 5) if not agree(of_library[index][-1], wanted[index][-1], name)]
        if name != "cross_attentions":  # the decoder's prompt is a single token, cross attention may come close
            assert wrong == [1, 2, 3, 4]
    assert compared >= 2 * 14 * 2


@pytest.mark.parametrize("kind", KINDS)
def test_where_the_library_is_right_it_is_the_same_tensor(kind: AnyKind) -> None:
    _, steps = rounds(kind)
    assert len(steps) == 3
    for name in NAMES:
        if getattr(steps[0], name) is None:
            continue
        tokens = [
            (mine, theirs)
            for step in steps
            for index, (mine, theirs) in enumerate(zip(getattr(step, f"own_{name}"), getattr(step, name), strict=True))
            if step.step or not index
        ]
        assert len(tokens) == 14 - 4
        for mine, theirs in tokens:
            same = [one is other for one, other in zip(mine, theirs, strict=True)]
            # Layers 0 and 2 of gemma3 have a sliding window, which has dropped keys behind the first round.
            sliding = kind == "gemma3" and name == "attentions"
            assert all(same[1::2] if sliding else same)


def test_a_sliding_window_ends_at_the_rows_own_position() -> None:
    _, steps = rounds("gemma3")
    later = steps[1]
    assert later.own_attentions is not None
    for index, layers in enumerate(later.own_attentions):
        length = later.length - later.tokens.shape[1] + index  # tokens that the choice could see
        for layer in layers:
            assert layer.shape[-1] <= length
            assert bool((layer[..., -1] > 0).all())  # each head looks at its own position


def test_a_cached_beginning_of_the_prompt_is_looked_at_too() -> None:
    model: Any = tiny_model("llama")
    ids = torch.tensor([[9, 8, 7, 4, 5, 6, 30, 4, 5, 6, 31, 4, 5]])

    def rest() -> dict[str, Any]:
        with torch.no_grad():
            cache = model(ids[:, :3], use_cache=True).cache
        return {"input_ids": ids[:, 3:], "attention_mask": torch.ones_like(ids), "cache": cache}

    greedy = plain(model, rest(), **PLAIN)
    _, streamed = observed(model, rest(), prompt_lookup_num_tokens=3, **PLAIN)
    tokens = torch.cat([step.tokens for step in streamed.steps], dim=1)
    assert torch.equal(tokens, greedy.sequences[:, 10:])
    assert streamed.steps[0].drafted.shape[1] == 3
    for name in ("attentions", "hidden_states"):
        own = [token for step in streamed.steps for token in getattr(step, f"own_{name}")]
        for mine, theirs in zip(own, getattr(greedy, name), strict=True):
            for pair in zip(mine, theirs, strict=True):
                torch.testing.assert_close(*pair, rtol=1e-4, atol=1e-4)


def test_a_static_cache_has_no_columns_behind_the_position() -> None:
    model = tiny_model("llama")
    greedy = plain(model, prompts(1), **PLAIN)
    # Longer than the run, since the library lets drafts of a look-up go past the maximal length.
    cache = StaticCache(config=model.config, max_cache_len=40)
    _, streamed = observed(model, prompts(1), prompt_lookup_num_tokens=3, cache=cache, disable_compile=True, **PLAIN)
    own = [token for step in streamed.steps for token in step.own_attentions]
    for mine, theirs in zip(own, greedy.attentions, strict=True):
        for pair in zip(mine, theirs, strict=True):
            torch.testing.assert_close(*pair, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("processors", [{}, {"repetition_penalty": 1.3}, {"top_k": 5, "do_sample": True}])
def test_scores_of_all_drafts_are_the_models_rejected_ones_too(kind: AnyKind, processors: dict[str, Any]) -> None:
    model, inputs = tiny_model(kind), prompts(1)
    kwargs = PLAIN | processors
    _, streamed = observed(model, inputs, assistant_model=tiny_model(kind, seed=1), **kwargs)
    step = next(step for step in streamed.steps if step.rejected)
    assert step.check_scores.shape == (1, step.drafted.shape[1] + 1, VOCABULARY)
    # Force the drafts upon the model: at each its scores, given the drafts before it, are those of a greedy step.
    before = torch.cat([streamed.prompt[0].tokens, *(s.tokens for s in streamed.steps[: step.step])], dim=1)
    whole = torch.cat([before, step.drafted], dim=1)
    decoder = {"decoder_input_ids": whole} if model.config.is_encoder_decoder else {"input_ids": whole}
    source = inputs if model.config.is_encoder_decoder else {}
    with torch.no_grad():
        logits = model(**source, **decoder).logits[:, before.shape[1] - 1 :].float()
    if "repetition_penalty" in processors:
        for index in range(logits.shape[1]):
            said = whole[:, : before.shape[1] + index]
            value = logits[:, index].gather(1, said)
            logits[:, index].scatter_(1, said, torch.where(value < 0, value * 1.3, value / 1.3))
    kept = ~step.check_scores.isneginf()
    if "top_k" in processors:
        assert set(kept.sum(dim=-1).flatten().tolist()) == {5}
    else:
        assert kept.all()
    torch.testing.assert_close(step.check_scores[kept], logits[kept], rtol=1e-4, atol=1e-4)


def test_nothing_of_it_comes_unasked() -> None:
    _, steps = rounds("llama", **EVERYTHING)
    assert steps[0].check_scores is not None
    bare: list[AssistedStepOutput] = []
    streamer = OutputStreamer(bare.append, fields=["logits"])
    tiny_model("llama").generate(**prompts(1), **PLAIN, **observe(streamer, assistant_model=tiny_model("llama")))
    assert bare[0].check_scores is bare[0].own_attentions is bare[0].own_hidden_states is None
