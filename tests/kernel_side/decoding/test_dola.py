"""DoLa against the paper's formulas, computed with a full forward pass a step."""

from __future__ import annotations

import math

import pytest
import torch
from torch.overrides import _get_current_function_mode_stack

from genscope.kernel_side.decoding.dola import DoLa
from genscope.kernel_side.decoding.observe import observe
from genscope.kernel_side.decoding.own_loop import LoopSettingsError
from genscope.kernel_side.streaming.iterate import OutputIteratorStreamer
from genscope.kernel_side.streaming.outputs import PromptOutput
from loop_checks import differences, new_tokens, prompts, row_of, run, untouched
from tiny import KINDS, PAD, Kind, tiny_model

STEPS = 10


def kl(p: list[float], q: list[float]) -> float:
    return sum(a * math.log(a / b) for a, b in zip(p, q, strict=True) if a > 0)


@torch.no_grad()
def scores_of(model, ids: list[int], layers: list[int], alpha: float) -> tuple[torch.Tensor, int]:
    """Section 2 of arXiv:2309.03883 in float64, for the next token of one sequence."""
    output = model(torch.tensor([ids]), output_hidden_states=True)
    q_last = output.logits[0, -1].double().softmax(-1).tolist()
    q_early = {j: model.lm_head(output.hidden_states[j][0, -1]).double().softmax(-1).tolist() for j in layers}
    jsd = {}
    for j, q in q_early.items():
        middle = [(a + b) / 2 for a, b in zip(q_last, q, strict=True)]
        jsd[j] = kl(q_last, middle) / 2 + kl(q, middle) / 2
    premature = max(jsd, key=lambda j: jsd[j])
    threshold = alpha * max(q_last)
    pairs = zip(q_last, q_early[premature], strict=True)
    values = [math.log(n / m) if n >= threshold else -math.inf for n, m in pairs]
    return torch.tensor(values, dtype=torch.float64), premature


def reference(model, ids: list[int], layers: list[int], alpha: float, penalty: float = 1.0):
    generated, values, premature = [], [], []
    for _ in range(STEPS):
        scores, layer = scores_of(model, ids, layers, alpha)
        for token in set(ids):  # the repetition penalty of CTRL, as the library's processor has it
            scores[token] = scores[token] * penalty if scores[token] < 0 else scores[token] / penalty
        generated.append(int(scores.argmax()))
        ids = [*ids, generated[-1]]
        values.append(scores)
        premature.append(layer)
    return generated, values, premature


CASES = [
    ("llama", [0, 1], 0.1, 1.0),
    ("llama", [0, 1], 0.01, 1.3),
    ("gpt2", [0, 1], 0.1, 1.2),
    ("gpt2", [1], 0.3, 1.0),
    ("gemma3", [0, 1, 2, 3], 0.1, 1.0),
    ("gemma3", [1, 3], 0.001, 1.2),
]


@pytest.mark.parametrize(("kind", "layers", "alpha", "penalty"), CASES)
def test_tokens_and_scores_are_those_of_the_formulas(kind: Kind, layers, alpha: float, penalty: float) -> None:
    model, inputs = tiny_model(kind), prompts(1)
    output, _ = run(model, inputs, DoLa(layers, alpha), eos_token_id=None, repetition_penalty=penalty)
    tokens, values, _ = reference(model, inputs["input_ids"][0].tolist(), layers, alpha, penalty)
    assert new_tokens(output, inputs) == [tokens]
    for scores, wanted in zip(output.scores, values, strict=True):
        torch.testing.assert_close(scores[0].double(), wanted, rtol=1e-3, atol=1e-4)


def test_the_premature_layer_of_these_tests_changes_from_token_to_token() -> None:
    model, inputs = tiny_model("gemma3"), prompts(1)
    assert len(set(reference(model, inputs["input_ids"][0].tolist(), [0, 1, 2, 3], 0.1)[2])) > 1


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("layers", ["low", "high", (0, 1)])
def test_a_batch_gives_what_its_rows_give_alone(kind: Kind, layers) -> None:
    model, inputs = tiny_model(kind), prompts(3)
    together = new_tokens(run(model, inputs, DoLa(layers), eos_token_id=None)[0], inputs)
    for row in range(3):
        alone = row_of(inputs, row)
        assert new_tokens(run(model, alone, DoLa(layers), eos_token_id=None)[0], alone) == [together[row]]


def test_sampling_draws_from_the_softmax_of_the_scores_with_the_seed() -> None:
    model, inputs = tiny_model("gemma3"), prompts(1)
    output, _ = run(
        model, inputs, DoLa([0, 1, 2, 3], 0.02), seed=11, eos_token_id=None, do_sample=True, temperature=0.7, top_k=0
    )
    generator, ids = torch.Generator().manual_seed(11), inputs["input_ids"][0].tolist()
    for _ in range(STEPS):
        scores, _ = scores_of(model, ids, [0, 1, 2, 3], 0.02)
        ids.append(int(torch.multinomial((scores.float() / 0.7).softmax(-1)[None], 1, generator=generator)))
    assert output.sequences[0].tolist() == ids
    greedy, _ = run(model, inputs, DoLa([0, 1, 2, 3], 0.02), eos_token_id=None)
    assert not torch.equal(greedy.sequences, output.sequences)


def test_sampling_gives_several_sequences_and_leaves_the_global_generator_alone() -> None:
    model, inputs, before = tiny_model("llama"), prompts(2), torch.get_rng_state()
    sampled = {"do_sample": True, "num_return_sequences": 3, "eos_token_id": None, "seed": 4}
    first, steps = run(model, inputs, DoLa("low", 0.01), **sampled)
    second, _ = run(model, inputs, DoLa("low", 0.01), **sampled)
    assert torch.equal(first.sequences, second.sequences)
    assert len({str(row) for row in new_tokens(first, inputs)}) == 6
    assert differences(first, steps) == []
    assert torch.equal(torch.get_rng_state(), before)


def test_an_error_in_the_draw_reaches_the_reader_and_ends_the_seeded_draws() -> None:
    streamer = OutputIteratorStreamer(timeout=5)
    with pytest.raises(RuntimeError, match="probability tensor"):
        tiny_model("llama").generate(
            **prompts(1), do_sample=True, max_new_tokens=STEPS, logits_processor=[lambda _, scores: scores * torch.nan],
            **observe(streamer, loop=DoLa(), seed=1),
        )  # fmt: skip
    assert _get_current_function_mode_stack() == []
    assert isinstance(next(streamer), PromptOutput)
    with pytest.raises(RuntimeError, match="probability tensor"):
        next(streamer)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("use_cache", [True, False])
def test_what_is_streamed_is_what_is_returned(kind: Kind, use_cache: bool) -> None:
    output, steps = run(tiny_model(kind), prompts(3), DoLa(), eos_token_id=None, use_cache=use_cache)
    assert differences(output, steps) == []
    assert torch.equal(torch.stack([step.tokens for step in steps], dim=1), output.sequences[:, 11:])


@pytest.mark.parametrize("kind", KINDS)
def test_a_plausibility_of_one_is_greedy_search(kind: Kind) -> None:
    model, inputs = tiny_model(kind), prompts(3)
    greedy = model.generate(**inputs, do_sample=False, max_new_tokens=STEPS)
    assert torch.equal(run(model, inputs, DoLa(plausibility=1))[0].sequences, greedy)


def test_logits_are_those_of_the_last_layer() -> None:
    model, inputs = tiny_model("llama"), prompts(1)
    output, _ = run(model, inputs, DoLa(), eos_token_id=None, repetition_penalty=1.2)
    with torch.no_grad():
        whole = model(output.sequences).logits[0, 10:-1]
    torch.testing.assert_close(torch.cat(output.logits), whole, rtol=1e-4, atol=1e-4)


def test_a_row_that_met_eos_is_padded_and_the_others_go_on() -> None:
    model, inputs = tiny_model("llama"), prompts(3)
    free = new_tokens(run(model, inputs, DoLa(), eos_token_id=None)[0], inputs)
    eos = free[1][3]
    assert eos not in free[0] + free[2] + free[1][:3]
    output, steps = run(model, inputs, DoLa(), eos_token_id=eos)
    assert new_tokens(output, inputs) == [free[0], free[1][:4] + [PAD] * 6, free[2]]
    assert [step.active.tolist()[1] for step in steps] == [True] * 4 + [False] * 6


def test_where_processors_forbid_all_plausible_tokens_the_last_layer_decides() -> None:
    model, inputs = tiny_model("llama"), prompts(2)
    plain = model.generate(**inputs, do_sample=False, max_new_tokens=1)[:, -1].tolist()
    output, steps = run(
        model, inputs, DoLa(plausibility=1), suppress_tokens=plain[:1], eos_token_id=None, max_new_tokens=1
    )
    wanted = output.logits[0].log_softmax(-1)
    wanted[:, plain[0]] = -torch.inf
    assert torch.equal(steps[0].tokens, wanted.argmax(-1))
    assert torch.equal(steps[0].scores[0], wanted[0])
    assert torch.isfinite(steps[0].scores[1]).sum() == 1


def test_stop_ends_it_after_the_step() -> None:
    model, inputs = tiny_model("llama"), prompts(2)
    whole = new_tokens(run(model, inputs, DoLa(), eos_token_id=None)[0], inputs)
    asked = iter([False, False, True])
    stopped = model.generate(
        **inputs, do_sample=False, max_new_tokens=STEPS, eos_token_id=None,
        **observe(loop=DoLa(), stop=lambda: next(asked)),
    )  # fmt: skip
    assert stopped[:, 11:].tolist() == [row[:3] for row in whole]


@pytest.mark.parametrize("kind", KINDS)
def test_the_model_is_left_as_it_was(kind: Kind) -> None:
    model = tiny_model(kind)
    with untouched(model):
        run(model, prompts(2), DoLa())


@pytest.mark.parametrize("kind", KINDS)
def test_bfloat16_runs_with_scores_in_float32(kind: Kind) -> None:
    output, steps = run(tiny_model(kind).to(torch.bfloat16), prompts(2), DoLa("low"), eos_token_id=None)
    assert output.sequences.shape == (2, 11 + STEPS)
    assert {step.scores.dtype for step in steps} == {step.logits.dtype for step in steps} == {torch.float32}


@pytest.mark.parametrize(
    ("count", "tied", "low", "high"),
    [
        (2, False, (0,), (1,)),
        (2, True, (1,), (1,)),
        (32, False, tuple(range(0, 16, 2)), tuple(range(16, 32, 2))),  # LLaMA 7B in the paper
        (30, True, tuple(range(2, 15, 2)), tuple(range(15, 30, 2))),
        (60, False, tuple(range(0, 20, 2)), tuple(range(40, 60, 2))),  # LLaMA 33B
    ],
)
def test_low_and_high_layers_are_those_of_the_paper(count: int, tied: bool, low, high) -> None:
    model = tiny_model("llama")
    model.config.num_hidden_layers, model.config.tie_word_embeddings = count, tied
    assert (DoLa("low").candidates(model), DoLa("high").candidates(model)) == (low, high)


@pytest.mark.parametrize(
    ("loop", "kwargs", "message"),
    [
        (DoLa(), {"num_beams": 2}, "num_beams is 2; pass num_beams=1"),
        (DoLa([0, 2]), {}, r"layers has \[2\]; choose from 0 \(the embeddings\) to 1"),
        (DoLa([-1]), {}, r"layers has \[-1\]"),
    ],
)
def test_settings_that_do_not_go_together_are_refused(loop: DoLa, kwargs, message: str) -> None:
    with pytest.raises(LoopSettingsError, match=message):
        run(tiny_model("llama"), prompts(1), loop, **kwargs)


def test_a_head_that_does_more_than_project_is_refused() -> None:
    model = tiny_model("gemma3")
    model.config.final_logit_softcapping = 1.0
    with pytest.raises(LoopSettingsError, match=r"only projects the last hidden state.*soft-capping"):
        run(model, prompts(1), DoLa())


@pytest.mark.parametrize("kwargs", [{"layers": "middle"}, {"layers": []}, {"layers": [1.5]}, {"plausibility": 1.1}])
def test_settings_out_of_range_are_refused(kwargs) -> None:
    with pytest.raises(ValueError, match=r"layers is|plausibility is"):
        DoLa(**kwargs)
