"""KV that is kept between turns: the same tokens as without, the same logits, hits, and reasons where there are none."""

from __future__ import annotations

import hypothesis.strategies as st
import pytest
import torch
from hypothesis import given, settings
from transformers import (
    DynamicCache,
    FalconMambaConfig,
    FalconMambaForCausalLM,
    LlamaConfig,
    LlamaForCausalLM,
    MistralConfig,
    MistralForCausalLM,
    Qwen3NextConfig,
    Qwen3NextForCausalLM,
)

from genscope.kernel_side.environment.environment import TextEnvironment
from genscope.kernel_side.environment.kept_cache import KeptRow, empty_cache, kept_rows, pack, why_not_kept
from scripted import TOKENIZER, Says, ids_of, says, turn
from tiny import BOS, EOS, PAD, SLIDING_WINDOW, VOCABULARY, tiny_model

SMALL = {
    "vocab_size": VOCABULARY, "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2,
    "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 512, "initializer_range": 0.3,
    "eos_token_id": EOS, "bos_token_id": BOS, "pad_token_id": PAD,
}  # fmt: skip
SCRIPTS = {
    "a prompt": [
        turn("<request><Say>3<call>", free=9),
        turn("<request><Say>40<call>", free=2),
        turn("<submit>", free=9),
    ],
    "a rather longer prompt": [turn("<request><Say>60<call>", free=3), turn("<submit>", free=12)],
    "x": [turn("x", free=30, eos=True)],
    "yz": [turn("<request><Say>1<call>")] * 5,
}


def made(model, *, use_cache: bool, scripts=SCRIPTS, generation=None, **kwargs) -> TextEnvironment:
    return TextEnvironment(
        model,
        TOKENIZER,
        {"Say": lambda query: "w" * int(query)},
        generation_kwargs=generation or says(scripts),
        use_cache=use_cache,
        keep_logits=True,
        **kwargs,
    )


def seeded(make):
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = make().eval()
    model.generation_config.eos_token_id, model.generation_config.pad_token_id = EOS, PAD
    return model


def mistral():
    return seeded(lambda: MistralForCausalLM(MistralConfig(**SMALL, sliding_window=SLIDING_WINDOW)))


@pytest.mark.parametrize("batch_size", [1, 2, 16])
@pytest.mark.parametrize("attention", ["eager", "sdpa"])
@pytest.mark.parametrize("kind", ["llama", "gpt2", "gemma3", "qwen3", "mistral"])
def test_cached_gives_what_uncached_gives(kind: str, attention: str, batch_size: int) -> None:
    model = mistral() if kind == "mistral" else tiny_model(kind, attention)
    *_, cold = made(model, use_cache=False, batch_size=batch_size).run(list(SCRIPTS))
    *_, warm = made(model, use_cache=True, batch_size=batch_size).run(list(SCRIPTS))
    for one, other in zip(cold, warm, strict=True):
        assert one.tokens.tolist() == other.tokens.tolist()
        assert one.token_masks.tolist() == other.token_masks.tolist()
        torch.testing.assert_close(one.logits, other.logits, atol=1e-4, rtol=0)
        assert all(reuse.why == "use_cache is off" and not reuse.reused for reuse in one.reuses)
    assert all(len(history.tokens) > 2 * SLIDING_WINDOW for history in warm)
    hits = [[reuse.reused for reuse in history.reuses] for history in warm]
    assert hits[1][1] > 3 * SLIDING_WINDOW
    assert sum(map(sum, hits)) > 100


def test_a_row_alone_computes_only_what_is_new() -> None:
    prompt = "a prompt"
    *_, [history] = made(tiny_model("llama"), use_cache=True).run([prompt])
    begins = [history.token_spans[place][0] for place in (1, 3, 5)]
    assert [reuse.reused + reuse.computed for reuse in history.reuses] == begins
    # The KV of a segment's last token is computed with the answer to it.
    assert [reuse.computed for reuse in history.reuses] == [
        begins[0], len(ids_of("www<response>")) + 1, len(ids_of("w" * 40 + "<response>")) + 1
    ]  # fmt: skip
    assert [reuse.why for reuse in history.reuses] == ["nothing of it was computed before", None, None]


def test_what_is_said_to_be_computed_is_what_the_model_is_given() -> None:
    model, given_ids = tiny_model("llama"), []
    model.register_forward_pre_hook(
        lambda module, args, kwargs: given_ids.append(tuple(kwargs["input_ids"].shape)), with_kwargs=True
    )
    *_, histories = made(model, use_cache=True).run(list(SCRIPTS))
    prefills = [shape for shape in given_ids if shape[1] > 1]
    wanted = [
        (len(rows), max(rows))
        for rows in ([h.reuses[turn].computed for h in histories if len(h.reuses) > turn] for turn in range(4))
    ]
    assert prefills == wanted


def test_a_row_for_which_nothing_is_saved_says_why() -> None:
    scripts = {
        "q": [turn("<request><Say>1<call>"), turn("<submit>")],
        "w": [turn("<request><Say>90<call>"), turn("<submit>")],
    }
    *_, [short, long] = made(tiny_model("llama"), use_cache=True, scripts=scripts).run(["q", "w"])
    assert (short.reuses[1].reused, long.reuses[1].reused > 0) == (0, True)
    assert (
        short.reuses[1].why
        == "a row of its batch has as many new tokens as it has in all, so there was nothing to save"
    )


def test_sampling_is_the_same_with_and_without() -> None:
    sampling = says(SCRIPTS, do_sample=True, top_k=0, temperature=3.0)
    cold, warm = (
        made(tiny_model("llama"), use_cache=use_cache, generation=sampling, seed=5).run(list(SCRIPTS))[-1]
        for use_cache in (False, True)
    )
    assert [one.tokens.tolist() for one in cold] == [one.tokens.tolist() for one in warm]


def test_kv_is_let_go_with_the_end_of_a_history() -> None:
    kept = []

    def see(segment):
        if segment.kind == "system":
            kept.append(segment.history.kept)

    *_, histories = made(tiny_model("llama"), use_cache=True, on_segment=see).run(list(SCRIPTS))
    assert all(isinstance(one, KeptRow) for one in kept)
    assert all(history.kept is None for history in histories)


def test_kv_of_other_tokens_is_not_used() -> None:
    environment = made(tiny_model("llama"), use_cache=True)
    [history] = environment.generate([environment._format.begin("a prompt")])
    environment.step(history)
    history.tokens[0] += 1
    environment._turns._kwargs["logits_processor"] = []
    environment.generate([history])
    assert (history.reuses[1].reused, history.reuses[1].why) == (0, "nothing of it was computed before")


def recurrent():
    return seeded(
        lambda: FalconMambaForCausalLM(
            FalconMambaConfig(
                vocab_size=VOCABULARY,
                hidden_size=32,
                state_size=8,
                num_hidden_layers=2,
                pad_token_id=PAD,
                bos_token_id=BOS,
                eos_token_id=EOS,
            )
        )
    )


def hybrid():
    return seeded(
        lambda: Qwen3NextForCausalLM(
            Qwen3NextConfig(
                **SMALL, head_dim=8, linear_num_key_heads=2, linear_num_value_heads=2, linear_key_head_dim=8, linear_value_head_dim=8,
                num_experts=0, layer_types=["linear_attention", "full_attention"],
            )
        )
    )  # fmt: skip


def dynamic_rope():
    rope = {"rope_type": "dynamic", "factor": 2.0, "rope_theta": 10000.0}
    return seeded(lambda: LlamaForCausalLM(LlamaConfig(**SMALL, rope_parameters=rope)))


@pytest.mark.parametrize(
    ("make", "asked", "reason"),
    [
        (lambda: tiny_model("llama"), {}, None),
        (lambda: tiny_model("llama"), {"cache_implementation": "dynamic"}, None),
        (lambda: tiny_model("gemma3"), {}, None),
        (mistral, {}, None),
        (lambda: tiny_model("t5"), {}, "the encoder of T5ForConditionalGeneration reads the whole history anew"),
        (lambda: tiny_model("bart"), {}, "the encoder of BartForConditionalGeneration reads"),
        (recurrent, {}, "FalconMambaForCausalLM is recurrent"),
        (hybrid, {}, "Qwen3NextForCausalLM (is recurrent|has a cache layer of the kind)"),
        (dynamic_rope, {}, "LlamaForCausalLM has RoPE of the type 'dynamic'"),
        (lambda: tiny_model("llama"), {"cache_implementation": "static"}, "ask for the cache 'static'"),
        (lambda: tiny_model("llama"), {"cache_implementation": "quantized"}, "ask for the cache 'quantized'"),
        (lambda: tiny_model("llama"), {"use_cache": False}, "say use_cache=False"),
        (lambda: tiny_model("llama"), {"num_beams": 2}, "a beam search moves its hypotheses"),
        (lambda: tiny_model("llama"), {"prompt_lookup_num_tokens": 2}, "have prompt_lookup_num_tokens, and drafts"),
    ],
)
def test_reasons(make, asked, reason: str | None) -> None:
    import re

    why = why_not_kept(make(), asked)
    if reason is None:
        assert why is None
    else:
        assert re.search(reason, why)


@pytest.mark.parametrize(
    ("make", "generation"),
    [
        (recurrent, {}),
        (dynamic_rope, {}),
        (lambda: tiny_model("llama"), {"cache_implementation": "static"}),
        (lambda: tiny_model("llama"), {"use_cache": False}),
    ],
)
def test_what_cannot_be_kept_is_computed_anew_and_says_why(make, generation) -> None:
    prompts = ["a prompt"]
    model = make()
    generation = says(SCRIPTS, **generation)
    *_, [cold] = made(model, use_cache=False, generation=generation).run(prompts)
    *_, [warm] = made(model, use_cache=True, generation=generation).run(prompts)
    assert cold.tokens.tolist() == warm.tokens.tolist()
    why = why_not_kept(model, generation)
    assert why
    assert [(reuse.reused, reuse.why) for reuse in warm.reuses] == [(0, why)] * 3


@given(
    st.lists(st.tuples(st.integers(1, 12), st.integers(1, 6), st.integers(1, 9)), min_size=1, max_size=4),
    st.lists(st.integers(0, 3), min_size=1, max_size=4, unique=True),
    st.sampled_from(["llama", "gpt2", "gemma3"]),
)
@settings(max_examples=25)
def test_any_rows_of_any_batch_are_packed_right(sizes, chosen: list[int], kind: str) -> None:
    """Prefill rows of any length, take any of them in any order, with any number of new tokens: logits as from scratch."""
    model = tiny_model(kind)
    generator = torch.Generator().manual_seed(sum(map(sum, sizes)))
    draw = lambda count: torch.randint(3, VOCABULARY, (count,), generator=generator).tolist()  # noqa: E731
    rows = [(draw(before), draw(done), draw(new)) for before, done, new in sizes]
    cache, width = empty_cache(model), max(before for before, _, _ in sizes)
    steps = max(done for _, done, _ in sizes) - 1
    ids = torch.tensor([[PAD] * (width - len(a)) + a + (b + draw(steps))[:steps] for a, b, _ in rows])
    mask = (torch.arange(ids.shape[1])[None] >= torch.tensor([[width - len(a)] for a, _, _ in rows])).long()
    positions = (mask.cumsum(-1) - 1).clamp(min=0)
    with torch.no_grad():
        model(input_ids=ids, attention_mask=mask, position_ids=positions, cache=cache)
        kept = kept_rows(cache, [a for a, _, _ in rows], [b for _, b, _ in rows])
        take = [index for index in chosen if index < len(rows)] or [0]
        whole = [rows[index][0] + rows[index][1] + rows[index][2] for index in take]
        packed = pack(model, [kept[index] for index in take], whole)
        longest, columns = max(map(len, whole)), packed.cache.get_seq_length()
        padded = torch.tensor([[PAD] * (longest - len(row)) + row for row in whole])
        mask = (torch.arange(longest)[None] >= torch.tensor([[longest - len(row)] for row in whole])).long()
        positions = (mask.cumsum(-1) - 1).clamp(min=0)
        warm = model(
            input_ids=padded[:, columns:], attention_mask=mask, position_ids=positions[:, columns:], cache=packed.cache
        ).logits[:, -1]
        cold = torch.cat([model(input_ids=torch.tensor([row])).logits[:, -1] for row in whole])
    torch.testing.assert_close(warm, cold, atol=1e-4, rtol=0)
    assert packed.reused == tuple(max(0, len(row) - (longest - columns)) for row in whole)


def test_a_cache_of_another_length_is_not_kept() -> None:
    model = tiny_model("llama")
    cache = DynamicCache(config=model.config)
    assert kept_rows(cache, [[5, 6]], [[7]]) == [None]
    model(input_ids=torch.tensor([[5, 6]]), cache=cache)
    assert kept_rows(cache, [[5, 6]], [[7]])[0].ids == (5, 6)
    cache.layers[1].keys = cache.layers[1].keys[:, :, :1]
    assert kept_rows(cache, [[5, 6]], [[7]]) == [None]


def test_scripts_leave_the_model_its_own_tokens() -> None:
    """Without this the tests above would compare scripts with themselves."""
    *_, [one] = made(tiny_model("llama"), use_cache=False).run(["a prompt"])
    *_, [other] = made(tiny_model("llama", seed=1), use_cache=False).run(["a prompt"])
    assert one.tokens.tolist() != other.tokens.tolist()
    assert isinstance(says(SCRIPTS)["logits_processor"][0], Says)
