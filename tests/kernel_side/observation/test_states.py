"""What is kept of each token is what plain ``generate`` returns for it, and what the model thinks of the finished text.

Two references: ``generate``'s own output, step by step and to the bit (attention to its float16); and one forward pass
over the finished sequence, in which row ``p - 1`` is the choice of token ``p`` whatever the strategy was.
"""

from __future__ import annotations

import contextlib
import itertools
import threading
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from compare import EVERYTHING, prompts
from genscope.kernel_side.decoding.contrastive import ContrastiveSearch
from genscope.kernel_side.decoding.observe import observe
from genscope.kernel_side.observation import states as states_module
from genscope.kernel_side.observation.kept import Kept
from genscope.kernel_side.observation.states import States, UnseenError
from genscope.kernel_side.streaming.base import OutputStreamer
from genscope.kernel_side.streaming.beam_outputs import BeamResult
from genscope.kernel_side.streaming.outputs import PromptOutput, StepOutput
from tiny import ENCODER_DECODERS, KINDS, PAD, AnyKind, tiny_model

STEPS = 6
ALL_KINDS: tuple[AnyKind, ...] = (*KINDS, "qwen3", *ENCODER_DECODERS)


def watch(model: Any, inputs: dict[str, torch.Tensor], lanes: int, **kwargs: Any) -> tuple[Any, States, Any]:
    """Generate with states kept and all returned; returns the output, the states, and what a beam search chose."""
    states, results = States(lanes, attention=True, hidden=True), []
    result = OutputStreamer(lambda _: None, on_result=results.append, fields=())
    assistant, loop = kwargs.pop("assistant_model", None), kwargs.pop("loop", None)
    kwargs = {"max_new_tokens": STEPS, "pad_token_id": PAD, "eos_token_id": None, "do_sample": False, **kwargs}
    observing = observe(states, result, seed=3, assistant_model=assistant, loop=loop)
    output = model.generate(**inputs, **EVERYTHING, **kwargs, **observing)
    return output, states, results[0] if results else None


def inputs_of(kind: AnyKind, batch: int, length: int = 11) -> dict[str, torch.Tensor]:
    return prompts(batch, length, side="right" if kind in ENCODER_DECODERS else "left")


def ends(kind: AnyKind, inputs: dict[str, torch.Tensor], output: Any, copies: int, result: BeamResult | None) -> Any:
    """Give of each lane its padding, the real tokens of its prompt, and all of its tokens."""
    for lane in range(len(output.sequences)):
        if kind in ENCODER_DECODERS:
            pad, prompt = 0, 1
        else:
            mask = inputs["attention_mask"][lane // copies]
            prompt = int(mask.sum())
            pad = len(mask) - prompt
        generated = output.sequences.shape[1] - pad - prompt
        yield lane, pad, prompt, prompt + (generated if result is None else int(result.lengths[lane]))


def of_generate(values: Any, step: int, row: int, query: int, pad: int, seen: int) -> torch.Tensor:
    """Take one query's attention ``(layers, heads, keys)`` out of what ``generate`` returned, window filled with 0."""
    layers = []
    for layer in values[step]:
        weights = layer[row, :, query]
        missing = seen - weights.shape[-1]
        layers.append(torch.cat([torch.zeros(len(weights), max(0, missing)), weights], dim=-1)[:, pad:seen])
    return torch.stack(layers)


def check(kind: AnyKind, inputs: dict[str, torch.Tensor], copies: int = 1, **kwargs: Any) -> States:
    """Compare every token of every lane with ``generate``'s output."""
    model = tiny_model(kind)
    output, states, result = watch(model, inputs, len(inputs["input_ids"]) * copies, **kwargs)
    prefix = "decoder_" if kind in ENCODER_DECODERS else ""
    attentions, hidden = output[f"{prefix}attentions"], output[f"{prefix}hidden_states"]
    beams = kwargs.get("num_beams", 1)
    for lane, pad, prompt, length in ends(kind, inputs, output, copies, result):
        for position in range(1, length):
            step = max(0, position - prompt)
            row = lane // copies * beams if beams > 1 else lane
            if position < prompt:
                row = lane // copies * max(beams, copies)  # lanes with one prompt share the states of it
            elif result is not None:
                row = int(result.beam_indices[lane, step])
            query = pad + position - 1 if position <= prompt and hidden[0][-1].shape[1] > 1 else -1
            wanted = of_generate(attentions, step, row, query, pad, pad + position).half().float()
            assert states.shape() == wanted.shape[:2]
            for layer, head in itertools.product(range(wanted.shape[0]), range(wanted.shape[1])):
                assert torch.equal(states.attention(lane, position, layer=layer, head=head), wanted[layer, head])
            assert torch.allclose(states.attention(lane, position), wanted.mean(dim=(0, 1)), atol=1e-6)
            layers = torch.stack([layer[row, query] for layer in hidden[step]])
            assert torch.equal(states.hidden(lane, position), layers)
            if prefix:
                source = inputs["attention_mask"][lane // copies].bool()
                cross = torch.stack([layer[row, :, query] for layer in output.cross_attentions[step]])
                cross = cross[..., source].half().float()
                assert torch.equal(states.attention(lane, position, "cross", layer=1, head=2), cross[1, 2])
                assert states.shape("cross") == cross.shape[:2]
        with pytest.raises(UnseenError, match=f"no token at position {length} "):
            states.attention(lane, length)
    return states


@pytest.mark.parametrize("kind", ALL_KINDS)
@pytest.mark.parametrize("batch", [1, 3])
def test_one_by_one(kind: AnyKind, batch: int) -> None:
    check(kind, inputs_of(kind, batch))


@pytest.mark.parametrize("kind", ["llama", "gemma3", "t5"])
def test_several_sequences_a_prompt(kind: AnyKind) -> None:
    check(kind, inputs_of(kind, 2), copies=2, do_sample=True, num_return_sequences=2)


@pytest.mark.parametrize("kind", ALL_KINDS)
def test_beams(kind: AnyKind) -> None:
    check(kind, inputs_of(kind, 2), copies=2, num_beams=3, num_return_sequences=2)


def test_beams_that_end_early() -> None:
    states = check(
        "llama", inputs_of("llama", 2), copies=3, num_beams=3, num_return_sequences=3, eos_token_id=list(range(3, 120))
    )
    assert states.nbytes > 0


@pytest.mark.parametrize("kind", ["llama", "gemma3", "gpt2"])
@pytest.mark.parametrize("length", [3, 11])
@pytest.mark.parametrize("cache", [{"cache_implementation": "static"}, {"use_cache": False}])
def test_caches(kind: AnyKind, length: int, cache: dict[str, Any]) -> None:
    """Static caches give keys that are not there yet; without a cache each pass gives the whole square."""
    inputs = inputs_of(kind, 1, length)
    _, dynamic, _ = watch(tiny_model(kind), inputs, 1)
    _, states, _ = watch(tiny_model(kind), inputs, 1, **cache)
    for position in range(1, length + STEPS):
        for layer in range(states.shape()[0]):
            wanted = dynamic.attention(0, position, layer=layer)
            assert torch.allclose(states.attention(0, position, layer=layer), wanted, atol=1e-3)
        assert torch.allclose(states.hidden(0, position), dynamic.hidden(0, position), rtol=1e-3, atol=1e-4)


def whole_pass(model: Any, inputs: dict[str, torch.Tensor], row: int, tokens: torch.Tensor) -> Any:
    """Run the model once over a finished sequence without padding."""
    asked = {"output_attentions": True, "output_hidden_states": True, "return_dict": True}
    with torch.inference_mode():
        if model.config.is_encoder_decoder:
            source = inputs["input_ids"][row, inputs["attention_mask"][row].bool()]
            return model(input_ids=source[None], decoder_input_ids=tokens[None], **asked)
        return model(input_ids=tokens[None], **asked)


def check_with_one_pass(kind: AnyKind, inputs: dict[str, torch.Tensor], copies: int = 1, **kwargs: Any) -> States:
    """Compare every token of every lane with one forward pass over the finished sequence."""
    model = tiny_model(kind)
    output, states, result = watch(model, inputs, len(inputs["input_ids"]) * copies, **kwargs)
    prefix = "decoder_" if kind in ENCODER_DECODERS else ""
    for lane, pad, _, length in ends(kind, inputs, output, copies, result):
        tokens = output.sequences[lane, pad : pad + length]
        one = whole_pass(model, inputs, lane // copies, tokens)
        attentions, hidden = (
            torch.stack(one[f"{prefix}attentions"])[:, 0],
            torch.stack(one[f"{prefix}hidden_states"])[:, 0],
        )
        for position in range(1, length):
            for layer, head in itertools.product(*map(range, states.shape())):
                wanted = attentions[layer, head, position - 1, :position]
                assert torch.allclose(states.attention(lane, position, layer=layer, head=head), wanted, atol=2e-3)
            assert torch.allclose(states.hidden(lane, position), hidden[:, position - 1], rtol=1e-2, atol=2e-3)
            if prefix:
                cross = torch.stack(one.cross_attentions)[:, 0, :, position - 1].mean(dim=(0, 1))
                assert torch.allclose(states.attention(lane, position, "cross"), cross, atol=2e-3)
        if prefix:
            whole = torch.stack(one.encoder_attentions)[:, 0]
            last = whole.shape[-1] - 1
            first, rows = states.matrix(lane, last, "encoder", layer=1, head=3)
            assert first == 0
            assert torch.allclose(torch.stack(rows), whole[1, 3], atol=2e-3)
            assert states.shape("encoder") == whole.shape[:2]
    return states


@pytest.mark.parametrize("kind", ENCODER_DECODERS)
@pytest.mark.parametrize("rows", [{}, {"num_beams": 3, "num_return_sequences": 2}])
def test_padded_sources(kind: AnyKind, rows: dict[str, Any]) -> None:
    check_with_one_pass(kind, inputs_of(kind, 3), copies=rows.get("num_return_sequences", 1), **rows)


def repeating() -> dict[str, torch.Tensor]:
    """Make a prompt that repeats itself, so that a look-up finds drafts."""
    ids = torch.tensor([[5, 6, 7, 8, 5, 6, 7, 9, 5, 6, 7]])
    return {"input_ids": ids, "attention_mask": torch.ones_like(ids)}


@pytest.mark.parametrize("kind", ALL_KINDS)
@pytest.mark.parametrize("strategy", ["lookup", "same model drafts", "another model drafts"])
def test_assisted(kind: AnyKind, strategy: str) -> None:
    kwargs: dict[str, Any] = {"prompt_lookup_num_tokens": 4, "max_new_tokens": 14}
    if strategy != "lookup":
        kwargs = {"assistant_model": tiny_model(kind, seed=0 if strategy.startswith("same") else 1)}
        kwargs["assistant_model"].generation_config.assistant_confidence_threshold = 0.0
    check_with_one_pass(kind, repeating(), **kwargs)


def test_contrastive() -> None:
    check_with_one_pass("llama", inputs_of("llama", 2), loop=ContrastiveSearch(top_k=3))


@settings(max_examples=25)
@given(
    kind=st.sampled_from(ALL_KINDS),
    batch=st.integers(1, 3),
    copies=st.integers(1, 3),
    beams=st.sampled_from([1, 3]),
    length=st.integers(7, 12),
    steps=st.integers(1, 12),
    eos=st.sampled_from([None, list(range(3, 60))]),
)
def test_any_generation(**drawn: Any) -> None:
    kind, batch, copies, beams = (drawn[name] for name in ("kind", "batch", "copies", "beams"))
    kwargs: dict[str, Any] = {"num_return_sequences": copies, "num_beams": beams, "max_new_tokens": drawn["steps"]}
    kwargs |= {"do_sample": beams == 1, "eos_token_id": drawn["eos"] if beams > 1 else None}
    check_with_one_pass(kind, inputs_of(kind, batch, drawn["length"]), copies=copies, **kwargs)


def test_rows_that_ended_grow_no_more() -> None:
    model, inputs = tiny_model("llama"), inputs_of("llama", 3)
    free, _, _ = watch(model, inputs, 3)
    eos = int(free.sequences[1, 13])  # ends row 1 with its third token at the latest
    output, states, _ = watch(model, inputs, 3, eos_token_id=eos)
    for lane in range(3):
        generated = output.sequences[lane, 11:].tolist()
        length = int(inputs["attention_mask"][lane].sum()) + (
            generated.index(eos) + 1 if eos in generated else len(generated)
        )
        assert len(states.attention(lane, length - 1)) == length - 1
        with pytest.raises(UnseenError, match=f"no token at position {length} "):
            states.attention(lane, length)
    assert eos in output.sequences[1, 11:14].tolist()


def test_matrix_ends_with_the_token_and_has_so_many_rows() -> None:
    _, states, _ = watch(tiny_model("llama"), inputs_of("llama", 1), 1)
    first, rows = states.matrix(0, 12, rows=5, head=1)
    assert first == 8
    assert [len(row) for row in rows] == [8, 9, 10, 11, 12]
    for offset, row in enumerate(rows):
        assert torch.equal(row, states.attention(0, 8 + offset, head=1))
    assert states.matrix(0, 3)[0] == 1


def test_weights_sum_to_one() -> None:
    _, states, _ = watch(tiny_model("gemma3"), inputs_of("gemma3", 2), 2)
    for lane, position in itertools.product(range(2), range(1, 14)):
        assert states.attention(lane, position).dtype == torch.float32
        assert float(states.attention(lane, position, layer=0, head=0).sum()) == pytest.approx(1, abs=2e-3)


def test_sliding_layers_look_back_no_further_than_their_window() -> None:
    _, states, _ = watch(tiny_model("gemma3"), inputs_of("gemma3", 1), 1)
    for position in (10, 15):  # in the prompt, and behind it
        sliding, full = (states.attention(0, position, layer=layer) for layer in (0, 1))
        assert sliding[: position - 8].tolist() == [0] * (position - 8)
        assert bool((sliding[-8:] > 0).all())
        assert bool((full > 0).all())


def test_nbytes_counts_what_is_held_and_clear_frees_it() -> None:
    _, states, _ = watch(tiny_model("llama"), inputs_of("llama", 1), 1)
    tokens = range(1, 11 + STEPS)
    attention = sum(2 * 4 * position * 2 for position in tokens)  # layers, heads, keys, bytes
    hidden = len(tokens) * 3 * 32 * 4
    assert states.nbytes == attention + hidden
    states.clear()
    assert states.nbytes == 0
    with pytest.raises(UnseenError, match="dropped to free memory; run again"):
        states.hidden(0, 3)


def test_lanes_with_one_prompt_share_its_memory() -> None:
    model, inputs = tiny_model("llama"), inputs_of("llama", 1)
    _, one, _ = watch(model, inputs, 1, do_sample=True, max_new_tokens=1)
    _, three, _ = watch(model, inputs, 3, do_sample=True, max_new_tokens=1, num_return_sequences=3)
    own = 2 * 4 * 11 * 2 + 3 * 32 * 4
    assert three.nbytes == one.nbytes + 2 * own


def test_other_hypotheses_of_a_beam_search_are_dropped_at_its_end() -> None:
    states, during = States(1, attention=True, hidden=True), []
    look = OutputStreamer(lambda step: during.append((step.step, states.nbytes)), fields=())
    model, inputs = tiny_model("llama"), inputs_of("llama", 1)
    with pytest.raises(UnseenError, match="no position has attention"):
        states.attention(0, 3)
    model.generate(
        **inputs, num_beams=4, do_sample=False, max_new_tokens=STEPS, eos_token_id=None, **observe(states, look)
    )
    _, greedy, _ = watch(model, inputs, 1)
    assert [step for step, _ in during] == list(range(STEPS))
    assert during[-1][1] > 1.5 * states.nbytes
    assert states.nbytes == greedy.nbytes


def test_prompt_can_be_seen_while_a_beam_search_goes_on() -> None:
    states, seen = States(1, attention=True, hidden=False), []

    def look(step: Any) -> None:
        seen.append(len(states.attention(0, 10)))
        with pytest.raises(UnseenError, match=r"at position 11 yet: positions 1 to 10 have attention\. A beam search"):
            states.attention(0, 11)

    model, inputs = tiny_model("llama"), inputs_of("llama", 1)
    model.generate(
        **inputs, num_beams=2, do_sample=False, max_new_tokens=2, **observe(states, OutputStreamer(look, fields=()))
    )
    assert seen == [10, 10]


def test_a_search_that_fails_leaves_its_prompt() -> None:
    states = States(1, attention=True, hidden=False)

    def fail(step: Any) -> None:
        raise RuntimeError("enough")

    model, inputs = tiny_model("llama"), inputs_of("llama", 1)
    with pytest.raises(RuntimeError, match="enough"):
        model.generate(
            **inputs, num_beams=2, do_sample=False, max_new_tokens=2, **observe(states, OutputStreamer(fail, fields=()))
        )
    assert len(states.attention(0, 10)) == 10
    assert states.nbytes == sum(2 * 4 * position * 2 for position in range(1, 11))


def test_what_is_there_already_can_be_seen_while_the_run_goes_on() -> None:
    states, seen = States(1, attention=True, hidden=True), []
    look = OutputStreamer(
        lambda step: seen.append((len(states.attention(0, step.length - 1)), states.hidden(0, step.length - 1).shape)),
        fields=(),
    )
    model, inputs = tiny_model("llama"), inputs_of("llama", 1)
    model.generate(**inputs, do_sample=False, max_new_tokens=2, **observe(states, look))
    assert seen == [(11, (3, 32)), (12, (3, 32))]


def test_clearing_within_a_run_is_final() -> None:
    states = States(1, attention=True, hidden=True)
    look = OutputStreamer(lambda step: states.clear() if step.step == 1 else None, fields=())
    tiny_model("llama").generate(**inputs_of("llama", 1), do_sample=False, max_new_tokens=4, **observe(states, look))
    assert states.nbytes == 0


def test_what_comes_while_it_is_cleared_is_not_kept() -> None:
    kept = Kept(1, ["self"])
    kept.begin([3], ())
    kept.add(0, 1, {"self": [torch.zeros(2, 4, 3)]})
    kept.clear()
    kept.add(0, 1, {"self": [torch.zeros(2, 4, 4)]})
    assert kept.nbytes == 0


def test_other_threads_look_while_the_run_goes_on() -> None:
    states, over, sums = States(2, attention=True, hidden=True), threading.Event(), []

    def look() -> None:
        while not over.is_set():
            for position in range(1, 40):
                with contextlib.suppress(UnseenError):
                    sums.append(float(states.attention(1, position, layer=1, head=0).sum()))
            states.nbytes  # noqa: B018 - may be asked for at any time too

    readers = [threading.Thread(target=look) for _ in range(2)]
    for reader in readers:
        reader.start()
    try:
        tiny_model("llama").generate(
            **inputs_of("llama", 2), do_sample=False, max_new_tokens=30, eos_token_id=None, **observe(states)
        )
    finally:
        over.set()
        for reader in readers:
            reader.join()
    assert sums
    assert sums == pytest.approx([1.0] * len(sums), abs=2e-3)


def test_busy_is_the_time_spent_in_here(monkeypatch: pytest.MonkeyPatch) -> None:
    moments = itertools.count()
    monkeypatch.setattr(states_module.time, "perf_counter", lambda: next(moments))
    states = States(1, attention=True, hidden=False)
    tokens = torch.tensor([[4, 5]])
    states.put(PromptOutput(tokens))
    states.put(PromptOutput(tokens))
    assert states.busy == 2


def test_layers_of_different_shapes_are_not_kept_and_said_so() -> None:
    states = States(1, attention=True, hidden=True)
    states.put(PromptOutput(torch.tensor([[4, 5]])))
    active = torch.ones(1, dtype=torch.bool)
    layers = (torch.ones(1, 2, 2, 2) / 2, torch.ones(1, 4, 2, 2) / 2)
    hidden = (torch.ones(1, 2, 8), torch.ones(1, 2, 8))
    states.put(StepOutput(0, 3, torch.tensor([7]), active, ~active, 0.0, attentions=layers, hidden_states=hidden))
    assert states.hidden(0, 2).shape == (2, 8)
    with pytest.raises(UnseenError, match=r"the layers of this model give it in different shapes\. Read it from"):
        states.attention(0, 2)


@pytest.mark.parametrize(
    ("look", "message"),
    [
        (lambda states: states.attention(2, 3), "no lane 2; this run has 2"),
        (lambda states: states.attention(-1, 3), "no lane -1"),
        (lambda states: states.attention(0, 0), "position 0 was not chosen by the model; choose a later"),
        (lambda states: states.attention(0, 17), "no token at position 17 yet: positions 1 to 16 have attention. Wait"),
        (lambda states: states.attention(0, -2), "position -2 of lane 0, nor can there be. Choose a position from 1 to 16"),
        (lambda states: states.attention(0, 3, layer=2), "Attention has no layer 2; choose from 0 to 1"),
        (lambda states: states.attention(0, 3, head=-1), "Attention has no head -1; choose from 0 to 3"),
        (lambda states: states.attention(0, 3, "cross"), "no cross attention: this model has no encoder"),
        (lambda states: states.matrix(0, 3, "encoder"), "no attention of the encoder: this model has no encoder"),
        (lambda states: states.matrix(0, 3, "both"), "'both' is no attention; choose"),
        (lambda states: states.hidden(0, 3), "did not keep hidden states; switch the logit lens on"),
    ],
)  # fmt: skip
def test_what_cannot_be_seen_is_named_with_a_way_out(look: Any, message: str) -> None:
    states = States(2, attention=True, hidden=False)
    tiny_model("llama").generate(
        **inputs_of("llama", 2), do_sample=False, max_new_tokens=6, eos_token_id=None, **observe(states)
    )
    with pytest.raises(UnseenError, match=message):
        look(states)


def test_positions_outside_a_source_are_named() -> None:
    _, states, _ = watch(tiny_model("t5"), inputs_of("t5", 2), 2)
    assert len(states.attention(1, 8, "encoder")) == 9
    with pytest.raises(UnseenError, match="source has no position 9; choose from 0 to 8"):
        states.attention(1, 9, "encoder")


def test_lanes_with_one_decoder_prompt_and_other_sources_share_nothing() -> None:
    model, inputs = tiny_model("t5"), inputs_of("t5", 2)
    begun = torch.tensor([[PAD, 5, 6]] * 2)
    output, states, _ = watch(model, inputs, 2, decoder_input_ids=begun)
    for lane, position in itertools.product(range(2), range(1, 3 + STEPS)):
        one = whole_pass(model, inputs, lane, output.sequences[lane])
        wanted = torch.stack(one.cross_attentions)[:, 0, :, position - 1].mean(dim=(0, 1))
        assert torch.allclose(states.attention(lane, position, "cross"), wanted, atol=2e-3)


def test_matrix_of_a_source_has_so_many_rows() -> None:
    _, states, _ = watch(tiny_model("t5"), inputs_of("t5", 1), 1)
    first, rows = states.matrix(0, 9, "encoder", rows=4)
    assert (first, len(rows)) == (6, 4)
    assert torch.equal(rows[0], states.attention(0, 6, "encoder"))


def test_tokens_before_a_cached_prefix_are_named() -> None:
    """A chunked prefill gives the states of its last chunk only."""
    _, states, _ = watch(tiny_model("gemma3"), inputs_of("gemma3", 1), 1, prefill_chunk_size=4)
    _, whole, _ = watch(tiny_model("gemma3"), inputs_of("gemma3", 1), 1)
    for position in range(9, 17):
        assert torch.allclose(states.attention(0, position, layer=2), whole.attention(0, position, layer=2), atol=1e-3)
    with pytest.raises(UnseenError, match=r"position 8 of lane 0, and the forward passes .* from 9 to 16"):
        states.attention(0, 8)


def test_fields_are_what_was_asked_for() -> None:
    assert States(1, attention=True, hidden=False).fields == {"attentions"}
    assert States(1, attention=False, hidden=True).fields == {"hidden_states"}


def test_states_for_another_number_of_lanes_are_refused() -> None:
    with pytest.raises(ValueError, match="2 sequences came for the states of 1"):
        tiny_model("llama").generate(
            **inputs_of("llama", 2), max_new_tokens=2, **observe(States(1, attention=True, hidden=False))
        )
