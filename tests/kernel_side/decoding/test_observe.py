"""What ``observe`` promises beside parity: errors, stopping, prompts, the library's private names."""

from __future__ import annotations

import gc
import inspect
import threading

import pytest
import torch
import transformers
from torch.overrides import _get_current_function_mode_stack
from transformers import GenerationMixin

from genscope.kernel_side.decoding.observe import observe
from genscope.kernel_side.decoding.tap import TESTED_TRANSFORMERS, Tap, UnobservableError
from genscope.kernel_side.decoding.tap_prompt import prompt_logits
from genscope.kernel_side.streaming.base import OutputStreamer
from genscope.kernel_side.streaming.iterate import OutputIteratorStreamer
from genscope.kernel_side.streaming.outputs import PromptOutput, StepOutput
from tiny import KINDS, Kind, tiny_model


def inputs(length: int = 9, batch: int = 1) -> dict[str, torch.Tensor]:
    ids = torch.randint(3, 300, (batch, length), generator=torch.Generator().manual_seed(0))
    return {"input_ids": ids, "attention_mask": torch.ones_like(ids)}


PLAIN = {"max_new_tokens": 8, "eos_token_id": None, "pad_token_id": 0, "do_sample": False}


def test_this_transformers_is_a_tested_one() -> None:
    assert transformers.__version__.rpartition(".")[0] in TESTED_TRANSFORMERS


def test_private_names_are_where_the_tap_expects_them() -> None:
    assert list(inspect.signature(GenerationMixin._sample).parameters) == [
        "self", "input_ids", "logits_processor", "stopping_criteria", "generation_config", "synced_gpus", "streamer",
        "model_kwargs",
    ]  # fmt: skip
    source = inspect.getsource(GenerationMixin._sample)
    for call in (
        "self._update_model_kwargs_for_generation(",
        "logits_processor(input_ids, next_token_logits)",
        "stopping_criteria(input_ids, scores)",
        "torch.multinomial(",
    ):
        assert source.count(call) == 1, call


def test_other_strategies_are_refused_with_the_way_out_and_the_reader_learns_of_it() -> None:
    streamer = OutputIteratorStreamer(timeout=5)
    with pytest.raises(UnobservableError, match=r"'contrastive_search' cannot be observed; observed are: greedy"):
        tiny_model("llama").generate(**inputs(), **PLAIN, penalty_alpha=0.6, top_k=4, **observe(streamer))
    assert isinstance(next(streamer), PromptOutput)
    with pytest.raises(UnobservableError):
        next(streamer)
    assert list(streamer) == []


def test_attentions_of_sdpa_are_refused_with_the_way_out() -> None:
    streamer = OutputStreamer(print, fields=["attentions"])
    with pytest.raises(UnobservableError, match=r"'sdpa'.*view_of\(model, attention='eager'\)\.generate"):
        tiny_model("llama", "sdpa").generate(**inputs(), **PLAIN, **observe(streamer))


def test_an_error_in_the_loop_reaches_every_reader_after_what_came() -> None:
    def fail_late(input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        if input_ids.shape[1] == 11:
            raise LookupError("on purpose")
        return scores

    ends: list[BaseException | None] = []
    first, second = OutputIteratorStreamer(timeout=5), OutputStreamer(lambda _: None, on_end=ends.append)
    with pytest.raises(LookupError, match="on purpose"):
        tiny_model("llama").generate(**inputs(), **PLAIN, logits_processor=[fail_late], **observe(first, second))
    assert [type(next(first)) for _ in range(3)] == [PromptOutput, StepOutput, StepOutput]
    with pytest.raises(LookupError):
        next(first)
    assert [type(error) for error in ends] == [LookupError]


def test_an_error_before_the_loop_ends_the_streamer_too() -> None:
    streamer = OutputIteratorStreamer(timeout=5)
    with pytest.raises(ValueError, match="no_such_argument"):
        tiny_model("llama").generate(**inputs(), **PLAIN, no_such_argument=1, **observe(streamer))
    gc.collect()
    with pytest.raises(RuntimeError, match="ended before it began to decode"):
        next(streamer)


def test_stop_ends_all_rows_after_the_step() -> None:
    asked = iter([False, False, True])
    output = tiny_model("llama").generate(**inputs(batch=2), **PLAIN, **observe(stop=lambda: next(asked)))
    assert output.shape == (2, 9 + 3)


def test_a_reader_that_hangs_up_stops_the_generation() -> None:
    streamer = OutputIteratorStreamer(timeout=5)

    def close_after_two(step: StepOutput) -> None:
        if step.step == 1:
            streamer.close()

    other = OutputStreamer(close_after_two)
    assert tiny_model("llama").generate(**inputs(), **PLAIN, **observe(streamer, other)).shape[1] == 9 + 8
    streamer = OutputIteratorStreamer(timeout=5)
    streamer.close()
    assert tiny_model("llama").generate(**inputs(), **PLAIN, **observe(streamer)).shape[1] == 9 + 1


@pytest.mark.parametrize("kind", KINDS)
def test_prompt_logits_are_those_of_one_forward_pass(kind: Kind) -> None:
    model, prompt = tiny_model(kind), inputs(batch=2)
    prompts: list[PromptOutput] = []
    streamer = OutputStreamer(lambda _: None, on_prompt=prompts.append, fields=["prompt_logits"])
    bare = model.generate(**prompt, **PLAIN)
    assert torch.equal(model.generate(**prompt, **PLAIN, **observe(streamer)), bare)
    [output] = prompts
    assert output.logits is not None
    with torch.no_grad():
        assert torch.equal(output.logits, model(prompt["input_ids"]).logits)


@pytest.mark.parametrize("kind", ["llama", "gemma3"])
def test_prompt_logits_of_a_long_prompt_come_in_slices(kind: Kind) -> None:
    model = tiny_model(kind)
    model.config.max_position_embeddings = 2048
    prompt = inputs(length=1100)
    prompts: list[PromptOutput] = []
    whole: list[PromptOutput] = []
    streamer = OutputStreamer(lambda _: None, on_prompt=prompts.append, fields=["prompt_logits"])
    other = OutputStreamer(lambda _: None, on_prompt=whole.append)
    model.generate(**prompt, **PLAIN | {"max_new_tokens": 1}, **observe(streamer, other))
    assert [(output.start, output.tokens.shape[1]) for output in prompts] == [(0, 512), (512, 512), (1024, 76)]
    logits = torch.cat([output.logits for output in prompts if output.logits is not None], dim=1)
    with torch.no_grad():
        torch.testing.assert_close(logits, model(prompt["input_ids"]).logits, rtol=1e-4, atol=1e-4)
    assert [output.tokens.shape[1] for output in whole] == [1100]


def test_a_streamer_whose_end_raises_does_not_leave_the_others_waiting() -> None:
    def on_end(error: BaseException | None) -> None:
        raise KeyError("of the first streamer")

    streamer = OutputIteratorStreamer(timeout=5)
    with pytest.raises(KeyError, match="of the first streamer"):
        tiny_model("llama").generate(**inputs(), **PLAIN, **observe(OutputStreamer(print, on_end=on_end), streamer))
    assert len(list(streamer)) == 1 + 8

    def fail(input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        raise LookupError("of the generation")

    streamer = OutputIteratorStreamer(timeout=5)
    with pytest.raises(KeyError) as caught:
        tiny_model("llama").generate(
            **inputs(), **PLAIN, logits_processor=[fail], **observe(OutputStreamer(print, on_end=on_end), streamer)
        )
    assert isinstance(caught.value.__context__, LookupError)
    assert isinstance(next(streamer), PromptOutput)
    with pytest.raises(LookupError, match="of the generation"):
        next(streamer)


def test_one_observe_serves_generations_in_several_threads() -> None:
    model, observed, results = tiny_model("llama"), observe(seed=5), []
    sampled = PLAIN | {"do_sample": True, "max_new_tokens": 20}
    threads = [
        threading.Thread(target=lambda: results.append(model.generate(**inputs(batch=2), **sampled, **observed)))
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    torch.manual_seed(5)
    wanted = model.generate(**inputs(batch=2), **sampled)
    assert len(results) == 4
    assert all(torch.equal(result, wanted) for result in results)


@pytest.mark.parametrize(("rows", "sizes"), [(1, [70]), (16, [32, 32, 6]), (100, [16, 16, 16, 16, 6])])
def test_prompt_logits_of_many_rows_come_in_smaller_slices(rows: int, sizes: list[int]) -> None:
    model, ids = tiny_model("llama"), inputs(length=70, batch=1)["input_ids"].repeat(rows, 1)
    with torch.no_grad():
        slices = [logits for _, logits in prompt_logits(model, ids)]
        assert [logits.shape[1] for logits in slices] == sizes
        torch.testing.assert_close(torch.cat(slices, dim=1), model(ids).logits, atol=1e-4, rtol=0)


@pytest.mark.parametrize("masked", [True, False])
def test_prompt_logits_of_a_recurrent_model_come_in_one_pass(masked: bool) -> None:
    # Its state cannot be continued by several tokens at once: slices would be wrong, or crash.
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        config = transformers.MambaConfig(
            vocab_size=300, hidden_size=16, num_hidden_layers=2, state_size=4, initializer_range=0.3
        )
        model = transformers.MambaForCausalLM(config).eval()
    ids = inputs(length=530)["input_ids"]
    with torch.no_grad():
        [(start, logits)] = prompt_logits(model, ids, torch.ones_like(ids) if masked else None)
        assert torch.equal(logits, model(ids).logits)
    assert start == 0


@pytest.mark.parametrize("kind", KINDS)
def test_prompt_logits_do_not_depend_on_left_padding(kind: Kind) -> None:
    model, prompt = tiny_model(kind), inputs(batch=2)
    prompt["input_ids"][1, :3] = 0
    prompt["attention_mask"][1, :3] = 0
    prompts: list[PromptOutput] = []
    streamer = OutputStreamer(lambda _: None, on_prompt=prompts.append, fields=["prompt_logits"])
    model.generate(**prompt, **PLAIN, **observe(streamer))
    assert prompts[0].logits is not None
    with torch.no_grad():
        alone = model(prompt["input_ids"][1:, 3:]).logits
    torch.testing.assert_close(prompts[0].logits[1:, 3:], alone, rtol=1e-4, atol=1e-4)


def test_draws_are_seeded_where_tokens_are_chosen_and_nowhere_else() -> None:
    model, sampled = tiny_model("llama"), PLAIN | {"do_sample": True}
    depths: list[int] = []

    def note() -> bool:
        depths.append(len(_get_current_function_mode_stack()))
        return False

    model.generate(**inputs(), **sampled, **observe(seed=1, stop=note))
    assert depths == [0] * 8
    with pytest.raises(RuntimeError, match="probability tensor"):  # of torch.multinomial
        model.generate(
            **inputs(), **sampled, logits_processor=[lambda _, scores: scores * torch.nan], **observe(seed=1)
        )
    assert _get_current_function_mode_stack() == []


def test_a_step_after_all_rows_have_ended_is_not_committed() -> None:
    # As on Apple's MPS, where the library notices the end one step late and undoes that step.
    steps: list[StepOutput] = []
    tap = Tap(frozenset(["scores"]), lambda step: steps.append(step) is not None)
    sequences, scores = torch.tensor([[7, 8], [7, 9]]), torch.zeros(2, 300)
    for ended in ([True, False], [False, True], [False, False]):
        tap.on_logits(scores, scores)
        tap.on_tokens(sequences, lambda ended=ended: torch.tensor(ended))  # type: ignore[misc]
    assert [(step.step, step.active.tolist(), step.finished.tolist()) for step in steps] == [
        (0, [True, True], [True, False]),
        (1, [False, True], [True, True]),
    ]


def test_what_one_step_gave_is_never_handed_out_with_the_next() -> None:
    steps: list[StepOutput] = []
    tap = Tap(frozenset(["scores"]), lambda step: steps.append(step) is not None)
    tap.on_logits(torch.zeros(1, 300), torch.ones(1, 300))
    for _ in range(2):
        tap.on_tokens(torch.tensor([[7, 8]]), lambda: torch.tensor([False]))
    assert steps[0].scores is not None
    assert steps[1].scores is None


@pytest.mark.parametrize("fields", [[], ["logits"], ["hidden_states"]])
def test_only_what_was_asked_for_is_computed(fields: list[str]) -> None:
    model, asked = tiny_model("llama"), set()
    forward = model.forward

    def note(*args: object, **kwargs: object) -> object:
        asked.update(name for name, value in kwargs.items() if name.startswith("output_") and value)
        return forward(*args, **kwargs)

    model.forward = note
    model.generate(**inputs(), **PLAIN, **observe(OutputStreamer(lambda _: None, fields=fields)))  # type: ignore[arg-type]
    assert asked == {f"output_{name}" for name in fields if name == "hidden_states"}
