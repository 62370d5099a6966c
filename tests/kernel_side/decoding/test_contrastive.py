"""Contrastive search against the paper's formula, computed slowly and without a cache."""

from __future__ import annotations

import pytest
import torch
from transformers import DynamicCache, T5Config, T5ForConditionalGeneration

from genscope.kernel_side.decoding.contrastive import ContrastiveSearch
from genscope.kernel_side.decoding.observe import observe
from genscope.kernel_side.decoding.own_loop import LoopSettingsError
from loop_checks import EVERYTHING, differences, new_tokens, prompts, row_of, run, untouched
from tiny import EOS, KINDS, PAD, Kind, tiny_model

STEPS = 10


@torch.no_grad()
def reference(
    model, ids: list[int], alpha: float, k: int, steps: int = STEPS
) -> tuple[list[int], list[dict[int, float]]]:
    """Equation 5 of arXiv:2202.06417, one full forward pass a candidate."""
    generated, values = [], []
    for _ in range(steps):
        probabilities = model(torch.tensor([ids])).logits[0, -1].softmax(-1)
        value = {}
        for candidate in probabilities.topk(k).indices.tolist():
            hidden = model(torch.tensor([[*ids, candidate]]), output_hidden_states=True).hidden_states[-1][0]
            similarity = torch.cosine_similarity(hidden[-1:], hidden[:-1], dim=1).max().item()
            value[candidate] = (1 - alpha) * probabilities[candidate].item() - alpha * similarity
        chosen = max(value, key=lambda token: value[token])
        ids = [*ids, chosen]
        generated.append(chosen)
        values.append(value)
    return generated, values


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("alpha", "k"), [(0.6, 4), (0.3, 8), (0.95, 2), (1.0, 5)])
def test_tokens_and_scores_are_those_of_the_formula(kind: Kind, alpha: float, k: int) -> None:
    model, inputs = tiny_model(kind), prompts(1)
    output, _ = run(model, inputs, ContrastiveSearch(alpha, k), eos_token_id=None)
    tokens, values = reference(model, inputs["input_ids"][0].tolist(), alpha, k)
    assert new_tokens(output, inputs) == [tokens]
    for scores, value in zip(output.scores, values, strict=True):
        wanted = torch.full((300,), -torch.inf)
        wanted[list(value)] = torch.tensor(list(value.values()))
        torch.testing.assert_close(scores[0], wanted, rtol=1e-4, atol=1e-5)


def test_the_settings_of_these_tests_lead_to_different_tokens() -> None:
    model, inputs = tiny_model("llama"), prompts(1)
    found = {
        str(new_tokens(run(model, inputs, loop, eos_token_id=None)[0], inputs))
        for loop in (ContrastiveSearch(0, 4), ContrastiveSearch(0.6, 4), ContrastiveSearch(0.3, 8))
    }
    assert len(found) == 3


@pytest.mark.parametrize("kind", KINDS)
def test_a_batch_gives_what_its_rows_give_alone(kind: Kind) -> None:
    model, inputs = tiny_model(kind), prompts(3)
    together = new_tokens(run(model, inputs, ContrastiveSearch(), eos_token_id=None)[0], inputs)
    for row in range(3):
        alone = row_of(inputs, row)
        assert new_tokens(run(model, alone, ContrastiveSearch(), eos_token_id=None)[0], alone) == [together[row]]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("use_cache", [True, False])
def test_what_is_streamed_is_what_is_returned(kind: Kind, use_cache: bool) -> None:
    output, steps = run(tiny_model(kind), prompts(3), ContrastiveSearch(), eos_token_id=None, use_cache=use_cache)
    assert differences(output, steps) == []
    assert torch.equal(torch.stack([step.tokens for step in steps], dim=1), output.sequences[:, 11:])


@pytest.mark.parametrize("kind", KINDS)
def test_logits_and_hidden_states_are_those_before_the_token(kind: Kind) -> None:
    model, inputs = tiny_model(kind), prompts(2)
    output, _ = run(model, inputs, ContrastiveSearch(), eos_token_id=None)
    mask = torch.cat([inputs["attention_mask"], torch.ones(2, STEPS, dtype=torch.int64)], dim=1)
    positions = (mask.cumsum(1) - 1).clamp(min=0)
    with torch.no_grad():
        whole = model(output.sequences, attention_mask=mask, position_ids=positions, output_hidden_states=True)
    for step in range(STEPS):
        torch.testing.assert_close(output.logits[step], whole.logits[:, 10 + step], rtol=1e-4, atol=1e-4)
        for layer, hidden in enumerate(output.hidden_states[step]):
            wanted = whole.hidden_states[layer][:, 10 + step]
            torch.testing.assert_close(hidden[:, -1], wanted, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("k", [1, 4])
def test_without_penalty_it_is_greedy_search(kind: Kind, k: int) -> None:
    model, inputs = tiny_model(kind), prompts(3)
    greedy = model.generate(**inputs, do_sample=False, max_new_tokens=STEPS)
    output, _ = run(model, inputs, ContrastiveSearch(0, k))
    assert torch.equal(output.sequences, greedy)


def test_one_candidate_is_greedy_search_whatever_the_penalty() -> None:
    model, inputs = tiny_model("llama"), prompts(2)
    greedy = model.generate(**inputs, do_sample=False, max_new_tokens=STEPS)
    assert torch.equal(run(model, inputs, ContrastiveSearch(1, 1))[0].sequences, greedy)


def test_a_row_that_met_eos_is_padded_and_the_others_go_on() -> None:
    model, inputs = tiny_model("llama"), prompts(3)
    free = new_tokens(run(model, inputs, ContrastiveSearch(), eos_token_id=None)[0], inputs)
    eos = free[1][3]
    assert eos not in free[0] + free[2] + free[1][:3]
    output, steps = run(model, inputs, ContrastiveSearch(), eos_token_id=eos)
    assert new_tokens(output, inputs) == [free[0], free[1][:4] + [PAD] * 6, free[2]]
    assert [step.active.tolist()[1] for step in steps] == [True] * 4 + [False] * 6
    assert [step.finished.tolist()[1] for step in steps] == [False] * 3 + [True] * 7


def test_all_rows_at_eos_end_the_search() -> None:
    model, inputs = tiny_model("llama"), prompts(1)
    free = new_tokens(run(model, inputs, ContrastiveSearch(), eos_token_id=None)[0], inputs)
    output, _ = run(model, inputs, ContrastiveSearch(), eos_token_id=free[0][2])
    assert new_tokens(output, inputs) == [free[0][:3]]


def test_processors_decide_who_is_a_candidate() -> None:
    model, inputs = tiny_model("llama"), prompts(2)
    allowed = [40, 41]
    output, steps = run(
        model, inputs, ContrastiveSearch(0.9, 6), suppress_tokens=[t for t in range(300) if t not in allowed]
    )
    assert {token for row in new_tokens(output, inputs) for token in row} <= set(allowed)
    assert all((~step.scores.isneginf()).sum(dim=1).tolist() == [2, 2] for step in steps)
    assert all(torch.isfinite(step.logits).all() for step in steps)
    kept, _ = run(model, inputs, ContrastiveSearch(), eos_token_id=None, min_new_tokens=3, no_repeat_ngram_size=1)
    for row in new_tokens(kept, inputs):
        assert len(set(row)) == len(row)


def test_a_processor_that_works_in_place_leaves_the_logits_raw() -> None:
    def forbid(input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        scores[:, :100] = -torch.inf
        return scores

    output, steps = run(tiny_model("llama"), prompts(2), ContrastiveSearch(), logits_processor=[forbid])
    assert all(torch.isfinite(logits).all() for logits in output.logits)
    assert all((step.tokens >= 100).all() for step in steps)


def test_stop_ends_it_after_the_step_and_keeps_the_model_usable() -> None:
    model, inputs = tiny_model("llama"), prompts(2)
    whole = new_tokens(run(model, inputs, ContrastiveSearch(), eos_token_id=None)[0], inputs)
    asked = iter([False, False, True])
    stopped = model.generate(
        **inputs, do_sample=False, max_new_tokens=STEPS, eos_token_id=None,
        **observe(loop=ContrastiveSearch(), stop=lambda: next(asked)),
    )  # fmt: skip
    assert stopped[:, 11:].tolist() == [row[:3] for row in whole]
    assert new_tokens(run(model, inputs, ContrastiveSearch(), eos_token_id=None)[0], inputs) == whole


@pytest.mark.parametrize("kind", KINDS)
def test_the_model_is_left_as_it_was(kind: Kind) -> None:
    model = tiny_model(kind)
    with untouched(model):
        run(model, prompts(2), ContrastiveSearch())


def test_bfloat16_runs_with_scores_in_float32() -> None:
    output, steps = run(tiny_model("llama").to(torch.bfloat16), prompts(2), ContrastiveSearch(), eos_token_id=None)
    assert output.sequences.shape == (2, 11 + STEPS)
    assert {step.scores.dtype for step in steps} == {step.logits.dtype for step in steps} == {torch.float32}


def test_an_empty_cache_may_be_passed_and_holds_the_sequences() -> None:
    model, inputs, cache = tiny_model("llama"), prompts(2), DynamicCache()
    output, _ = run(model, inputs, ContrastiveSearch(), eos_token_id=None, cache=cache)
    assert output.cache is cache
    assert (cache.get_seq_length(), len(cache.layers[0].keys)) == (11 + STEPS, 2)


def test_it_is_a_custom_generate_by_itself_and_returns_ids_where_no_dict_was_asked_for() -> None:
    model, inputs = tiny_model("llama"), prompts(2)
    plain = model.generate(**inputs, do_sample=False, max_new_tokens=STEPS, custom_generate=ContrastiveSearch())
    output, _ = run(model, inputs, ContrastiveSearch())
    assert type(output).__name__ == "GenerateDecoderOnlyOutput"
    assert torch.equal(plain, output.sequences)
    partly = run(model, inputs, ContrastiveSearch(), **EVERYTHING | {"output_scores": False})[0]
    assert partly.scores is None
    assert len(partly.logits) == STEPS


@pytest.mark.parametrize(
    ("kwargs", "message"),
    [
        ({"do_sample": True}, "do_sample is True; pass do_sample=False"),
        ({"num_beams": 2}, "num_beams is 2; pass num_beams=1"),
        ({"cache_implementation": "static"}, "StaticCache; use a dynamic cache"),
        ({"prefill_chunk_size": 4}, "prefill_chunk_size is 4"),
        ({"prompt_lookup_num_tokens": 2}, "an assistant was set"),
    ],
)
def test_settings_that_do_not_go_together_are_refused(kwargs, message: str) -> None:
    with pytest.raises(LoopSettingsError, match=message):
        run(tiny_model("llama"), prompts(1), ContrastiveSearch(), **kwargs)


def test_a_model_with_an_encoder_is_refused() -> None:
    config = T5Config(
        vocab_size=300, d_model=16, d_kv=8, d_ff=16, num_layers=1, num_heads=2, decoder_start_token_id=0,
        attn_implementation="eager",
    )  # fmt: skip
    with pytest.raises(LoopSettingsError, match="T5ForConditionalGeneration has an encoder"):
        run(T5ForConditionalGeneration(config).eval(), prompts(1), ContrastiveSearch())


def test_a_cache_that_is_not_empty_is_refused() -> None:
    model, inputs, cache = tiny_model("llama"), prompts(1), DynamicCache()
    with torch.no_grad():
        model(inputs["input_ids"][:, :5], cache=cache)
    with pytest.raises(LoopSettingsError, match=r"holds 5 positions.*pass no cache"):
        run(model, inputs, ContrastiveSearch(), cache=cache)


@pytest.mark.parametrize(("alpha", "k"), [(-0.1, 4), (1.1, 4), (0.5, 0)])
def test_settings_out_of_range_are_refused(alpha: float, k: int) -> None:
    with pytest.raises(ValueError, match=r"penalty_alpha is|top_k is 0"):
        ContrastiveSearch(alpha, k)


def test_more_candidates_than_tokens_are_all_tokens() -> None:
    model, inputs = tiny_model("llama"), prompts(1)
    few = run(model, inputs, ContrastiveSearch(0.6, 300), max_new_tokens=2, eos_token_id=EOS)[0]
    many = run(model, inputs, ContrastiveSearch(0.6, 1000), max_new_tokens=2, eos_token_id=EOS)[0]
    assert torch.equal(few.sequences, many.sequences)
