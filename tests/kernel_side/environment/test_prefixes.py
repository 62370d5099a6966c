"""KV from turn to turn out of a prefix cache: the same tokens as without, the same logits, hits, and reasons where there are none."""

from __future__ import annotations

import pytest
import torch
from transformers import (
    FalconMambaConfig,
    FalconMambaForCausalLM,
    Llama4ForCausalLM,
    Llama4TextConfig,
    LlamaConfig,
    LlamaForCausalLM,
    MistralConfig,
    MistralForCausalLM,
    Qwen3NextConfig,
    Qwen3NextForCausalLM,
)

from cached_runs import model_of
from genscope.kernel_side.caching.prefix_cache import PrefixCache
from genscope.kernel_side.decoding.contrastive import ContrastiveSearch
from genscope.kernel_side.decoding.diverse_beam import DiverseBeamSearch
from genscope.kernel_side.decoding.dola import DoLa
from genscope.kernel_side.decoding.model_view import view_of
from genscope.kernel_side.environment.environment import TextEnvironment
from genscope.kernel_side.streaming.base import OutputStreamer
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


def made(model, *, use_cache: bool = True, scripts=SCRIPTS, generation=None, **kwargs) -> TextEnvironment:
    options = {"keep_logits": True, **kwargs}
    return TextEnvironment(
        model,
        TOKENIZER,
        {"Say": lambda query: "w" * int(query)},
        generation_kwargs=generation or says(scripts),
        use_cache=use_cache,
        **options,
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
    assert [reuse.why for reuse in history.reuses] == ["nothing is known of this model", None, None]


def test_what_is_said_to_be_computed_is_what_the_model_is_given(monkeypatch) -> None:
    given_ids, forward = [], LlamaForCausalLM.forward

    def seen(self, input_ids=None, **kwargs):
        given_ids.append(tuple(input_ids.shape))
        return forward(self, input_ids=input_ids, **kwargs)

    seen.__signature__ = __import__("inspect").signature(forward)
    monkeypatch.setattr(LlamaForCausalLM, "forward", seen)
    *_, histories = made(tiny_model("llama")).run(list(SCRIPTS))
    prefills = [shape for shape in given_ids if shape[1] > 1]
    wanted = [
        (len(rows), max(rows))
        for rows in ([h.reuses[turn].computed for h in histories if len(h.reuses) > turn] for turn in range(4))
    ]
    assert prefills == wanted
    assert wanted[1][1] < wanted[1][0] * 30


def test_a_row_for_which_nothing_is_saved_says_why() -> None:
    scripts = {
        "q": [turn("<request><Say>1<call>"), turn("<submit>")],
        "w": [turn("<request><Say>90<call>"), turn("<submit>")],
    }
    *_, [short, long] = made(tiny_model("llama"), use_cache=True, scripts=scripts).run(["q", "w"])
    assert (short.reuses[1].reused, long.reuses[1].reused > 0) == (0, True)
    known = short.token_spans[1][1]  # its last token too was read, while the other row went on
    assert short.reuses[1].why == f"{known} tokens are known, but less of another row of the batch"
    assert (short.reuses[1].hit.known, short.reuses[1].hit.end.kind) == (known, "batch")


def test_sampling_is_the_same_with_and_without() -> None:
    sampling = says(SCRIPTS, do_sample=True, top_k=0, temperature=3.0)
    cold, warm = (
        made(tiny_model("llama"), use_cache=use_cache, generation=sampling, seed=5).run(list(SCRIPTS))[-1]
        for use_cache in (False, True)
    )
    assert [one.tokens.tolist() for one in cold] == [one.tokens.tolist() for one in warm]


def test_kv_is_let_go_with_the_end_of_the_run() -> None:
    bytes_held = []
    environment = made(tiny_model("llama"))
    environment._on_segment = lambda segment: bytes_held.append(environment._turns.prefixes.stats().nbytes)
    environment.run(list(SCRIPTS))
    assert bytes_held[-1] > bytes_held[5] > bytes_held[0] == 0
    stats = environment._turns.prefixes.stats()
    assert (stats.nbytes, stats.pinned) == (0, 0)
    steps = environment.stream(list(SCRIPTS))
    for _ in range(6):
        next(steps)
    held = environment._turns.prefixes
    assert held.stats().nbytes > 0
    steps.close()
    assert held.stats().nbytes == 0


def test_a_shared_cache_serves_run_after_run_and_stays() -> None:
    prefixes, model = PrefixCache(2**24), tiny_model("llama")
    *_, first = made(model, use_cache=False, prefix_cache=prefixes, batch_size=1).run(list(SCRIPTS))
    held = prefixes.stats()
    *_, second = made(model, prefix_cache=prefixes, batch_size=1).run(list(SCRIPTS))
    assert [one.tokens.tolist() for one in first] == [one.tokens.tolist() for one in second]
    assert [reuse.computed for history in second for reuse in history.reuses] == [1] * 10
    assert prefixes.stats().nbytes == held.nbytes > 0
    assert prefixes.stats().pinned == 0


def test_kv_of_other_tokens_is_not_used() -> None:
    environment = made(tiny_model("llama"))
    [history] = environment.generate([environment.begin("a prompt")])
    environment.step(history)
    history.tokens[0] += 1
    environment._turns._kwargs["logits_processor"] = []
    environment.generate([history])
    assert history.reuses[1].reused == 0
    assert history.reuses[1].why.startswith("at position 0 it has the token ")


def test_a_weight_that_is_changed_between_turns_is_not_missed() -> None:
    model = tiny_model("llama")

    def edit(segment):
        if (segment.kind, segment.turn) == ("system", 1):
            with torch.no_grad():
                model.lm_head.weight[5] += 1

    *_, [history] = made(model, on_segment=edit).run(["a prompt"])
    assert [reuse.reused > 0 for reuse in history.reuses] == [False, False, True]
    assert history.reuses[1].why == "what is known is of the model with other weights"


def test_a_stopped_turn_is_kept_and_a_failed_one_leaves_what_was_computed() -> None:
    prefixes, model = PrefixCache(2**24), tiny_model("llama")
    steps = []
    watch = lambda _: OutputStreamer(steps.append, fields=())  # noqa: E731
    *_, [history] = made(model, prefix_cache=prefixes, watch=watch, stop=lambda: len(steps) == 5).run(["a prompt"])
    assert (history.why, len(history.tokens)) == ("stopped", len(ids_of("a prompt")) + 5)
    assert prefixes.stats().tokens == len(history.tokens) - 1

    def fail(input_ids, scores):
        if input_ids.shape[1] > len(ids_of("another one")) + 2:
            raise RuntimeError("out of memory, say")
        return scores

    generation = {"logits_processor": [fail], "max_new_tokens": 9}
    with pytest.raises(RuntimeError, match="out of memory"):
        made(model, prefix_cache=prefixes, generation=generation).run(["another one"])
    assert prefixes.stats().pinned == 0
    *_, [again] = made(model, prefix_cache=prefixes, generation={"max_new_tokens": 2}).run(["another one"])
    assert again.reuses[0].reused == len(ids_of("another one")) - 1


@pytest.mark.parametrize(
    ("kind", "generation"),
    [
        ("llama", {}),
        ("gemma3", {"cache_implementation": "static"}),
        ("gemma3", {"prompt_lookup_num_tokens": 3}),
        ("llama", {"num_beams": 2}),
    ],
)
def test_runs_that_are_stopped_anywhere_leave_a_right_cache(kind: str, generation) -> None:
    prefixes, model = PrefixCache(2**24), tiny_model(kind)
    queries = ["a prompt"] if "prompt_lookup_num_tokens" in generation else list(SCRIPTS)
    options = {"generation": says(SCRIPTS, **generation), "keep_logits": False}
    *_, cold = made(model, use_cache=False, **options).run(queries)
    for most in range(1, 45, 4):
        steps = []
        watch = lambda _, steps=steps: OutputStreamer(steps.append, fields=())  # noqa: E731
        stop = lambda steps=steps, most=most: len(steps) >= most  # noqa: E731
        made(model, prefix_cache=prefixes, watch=watch, stop=stop, **options).run(queries)
        *_, warm = made(model, prefix_cache=prefixes, **options).run(queries)
        assert [one.tokens.tolist() for one in cold] == [one.tokens.tolist() for one in warm]
        assert prefixes.stats().pinned == 0
        if most % 8 == 1:
            prefixes.clear()


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


def chunked():
    config = Llama4TextConfig(
        **SMALL, head_dim=8, intermediate_size_mlp=64, num_local_experts=2, attention_chunk_size=8, moe_layers=[],
        layer_types=["chunked_attention", "full_attention"],
    )  # fmt: skip
    return seeded(lambda: Llama4ForCausalLM(config))


def looked_up(make, **generation):
    """Return the environment's first history, without a cache and with one, and its reuses."""
    model = make()
    # The ids of an encoder-decoder model's processors are the decoder's, which follow no script.
    generation = {"max_new_tokens": 9} if model.config.is_encoder_decoder else says(SCRIPTS, **generation)
    queries = ["a prompt", "yz"] if "num_beams" in generation or "cache_implementation" in generation else ["a prompt"]
    cold, warm = (
        made(model, use_cache=use_cache, generation=generation, keep_logits=False, seed=3).run(queries)[-1]
        for use_cache in (False, True)
    )
    assert [one.tokens.tolist() for one in cold] == [one.tokens.tolist() for one in warm]
    return warm[0].reuses


@pytest.mark.parametrize(
    ("make", "generation"),
    [
        (mistral, {"cache_implementation": "dynamic"}),
        (lambda: tiny_model("llama"), {"cache_implementation": "static"}),
        (lambda: tiny_model("gemma3"), {"cache_implementation": "static"}),
        (lambda: tiny_model("llama"), {"num_beams": 3}),
        (lambda: tiny_model("gemma3"), {"num_beams": 2, "do_sample": True}),
        (lambda: tiny_model("llama"), {"num_beams": 4, "custom_generate": DiverseBeamSearch(2, 0.5)}),
        (lambda: tiny_model("llama"), {"prompt_lookup_num_tokens": 3}),
        (lambda: tiny_model("gemma3"), {"prompt_lookup_num_tokens": 3, "do_sample": True}),
        (lambda: view_of(tiny_model("llama")), {"assistant_early_exit": 1}),
        (lambda: tiny_model("llama"), {"assistant_model": tiny_model("llama", seed=1)}),
        (lambda: tiny_model("llama"), {"custom_generate": DoLa("low")}),
        (dynamic_rope, {}),
        (chunked, {}),
    ],
)
def test_every_strategy_and_kind_of_cache_reuses(make, generation) -> None:
    reuses = looked_up(make, **generation)
    assert [reuse.why for reuse in reuses] == ["nothing is known of this model", None, None]
    searches = "num_beams" in generation  # of which the prompts alone are kept
    begun = len(ids_of("a prompt"))
    assert reuses[1].reused >= begun if searches else reuses[1].reused > begun + 20
    assert reuses[2].reused > begun + 30


@pytest.mark.parametrize(
    ("make", "generation", "why"),
    [
        (recurrent, {}, "a recurrent state goes on by one token at a time: it is known after "),
        (hybrid, {}, "a recurrent state goes on by one token at a time"),
        (lambda: tiny_model("llama"), {"use_cache": False}, "generation_kwargs say use_cache=False"),
        (lambda: tiny_model("llama"), {"custom_generate": ContrastiveSearch()}, "contrastive search compares hidden"),
        (lambda: tiny_model("llama").train(), {}, "the model is in training mode"),
        (lambda: model_of("t5"), {}, "the encoder has not read this before"),
        (lambda: tiny_model("bart"), {}, "the encoder has not read this before"),
    ],
)
def test_what_cannot_be_reused_is_computed_anew_and_says_why(make, generation, why: str) -> None:
    reuses = looked_up(make, **generation)
    assert [reuse.reused for reuse in reuses] == [0] * (1 if make().config.is_encoder_decoder else 3)
    assert all(reuse.computed > 5 for reuse in reuses)
    assert reuses[-1].why.startswith(why)


def test_rope_that_grows_past_its_length_is_computed_anew() -> None:
    model = dynamic_rope()
    model.config.max_position_embeddings = 130
    made_once = made(model, generation=says(SCRIPTS, max_new_tokens=30))
    *_, [history] = made_once.run(["a prompt"])
    whys = [reuse.why for reuse in history.reuses]
    assert whys[1] is None
    assert whys[2].startswith("its RoPE changes the positions of earlier tokens once there are more than 129")


@pytest.mark.parametrize("kind", ["t5", "bart"])
def test_what_an_encoder_has_read_it_need_not_read_again(kind: str) -> None:
    model = model_of(kind)
    generation = {"max_new_tokens": 7}
    prefixes = PrefixCache(2**24)
    *_, cold = made(model, use_cache=False, generation=generation).run(["a prompt", "another"])
    *_, warm = made(model, prefix_cache=prefixes, generation=generation).run(["a prompt", "another"])
    *_, again = made(model, prefix_cache=prefixes, generation=generation).run(["a prompt", "another"])
    assert [one.tokens.tolist() for one in cold] == [one.tokens.tolist() for one in warm]
    assert [one.tokens.tolist() for one in cold] == [one.tokens.tolist() for one in again]
    lengths = [one.token_spans[0][1] for one in cold]
    assert [(one.reuses[0].reused, one.reuses[0].computed) for one in again] == [(length, 0) for length in lengths]
    *_, [known, other] = made(model, prefix_cache=prefixes, generation=generation).run(["a prompt", "not yet"])
    assert (known.reuses[0].reused, known.reuses[0].why) == (0, "another row of its batch was not read before")
    assert other.reuses[0].why == "the encoder has not read this before"


def test_scripts_leave_the_model_its_own_tokens() -> None:
    """Without this the tests above would compare scripts with themselves."""
    *_, [one] = made(tiny_model("llama"), use_cache=False).run(["a prompt"])
    *_, [other] = made(tiny_model("llama", seed=1), use_cache=False).run(["a prompt"])
    assert one.tokens.tolist() != other.tokens.tolist()
    assert isinstance(says(SCRIPTS)["logits_processor"][0], Says)
