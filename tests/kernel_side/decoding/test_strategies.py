"""What ``observe`` promises under beam search and assisted decoding beside parity: stops, seeds, errors, readers."""

from __future__ import annotations

import inspect
import itertools
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch
from torch.overrides import _get_current_function_mode_stack
from transformers import GenerationMixin
from transformers.generation import candidate_generator
from transformers.generation.utils import _speculative_sampling, _split_model_outputs

from compare import EVERYTHING, STEPS, differences, observed, plain, prompts
from genscope.kernel_side.decoding.observe import observe
from genscope.kernel_side.decoding.tap import UnobservableError
from genscope.kernel_side.decoding.tap_assisted import AssistedTap, _AssistedModel
from genscope.kernel_side.streaming.assisted_outputs import AssistedStepOutput
from genscope.kernel_side.streaming.base import OutputStreamer
from genscope.kernel_side.streaming.beam_outputs import BeamResult, BeamStepOutput, trace
from genscope.kernel_side.streaming.iterate import OutputIteratorStreamer
from genscope.kernel_side.streaming.outputs import PromptOutput
from genscope.kernel_side.streaming.text import TextIteratorStreamer
from tiny import PAD, tiny_model, tiny_tokenizer

PLAIN: dict[str, Any] = {"eos_token_id": None, "pad_token_id": PAD, "max_new_tokens": STEPS}
BEAM = {**PLAIN, "num_beams": 4, "do_sample": False}
BEAM_SAMPLE = {**PLAIN, "num_beams": 4, "do_sample": True, "top_k": 0}
LOOKUP = {**PLAIN, "prompt_lookup_num_tokens": 4, "do_sample": False}
SPECULATIVE = {**PLAIN, "do_sample": True, "top_k": 0}
EARLY_EXIT = {**PLAIN, "do_sample": True, "top_k": 0, "assistant_early_exit": 1}
STRATEGIES = {
    "beam": BEAM,
    "beam sample": BEAM_SAMPLE,
    "lookup": LOOKUP,
    "lookup, sample": {**LOOKUP, "do_sample": True},
    "speculative": SPECULATIVE,
    "early exit": EARLY_EXIT,
}
by_strategy = pytest.mark.parametrize("strategy", STRATEGIES)


def settings(strategy: str) -> dict[str, Any]:
    drafts = {"assistant_model": tiny_model("llama", seed=1)} if strategy == "speculative" else {}
    return STRATEGIES[strategy] | drafts


def state(model: Any) -> dict[str, Any]:
    return {
        "attributes": {name: id(value) for name, value in vars(model).items()},
        "hooks": [len(module._forward_hooks) + len(module._forward_pre_hooks) for module in model.modules()],
        "class": type(model),
        "config": model.config.to_dict(),
        "generation config": model.generation_config.to_dict(),
        "weights": {name: (value.data_ptr(), value._version) for name, value in model.named_parameters()},
    }


def test_private_names_of_beam_search_are_where_the_tap_expects_them() -> None:
    source = inspect.getsource(GenerationMixin._beam_search)
    order = [
        "model_kwargs = self._update_model_kwargs_for_generation(",
        "logits = model_outputs.logits[:, -1, :].to(copy=True, dtype=torch.float32, device=input_ids.device)",
        "logits_processor(flat_running_sequences, log_probs)",
        "raw_logits += (logits.clone(),)",
        "self._get_top_k_continuations(\n",
        "= stopping_criteria(\n",
        "self._get_running_beams_for_next_iteration(\n",
        "self._update_finished_beams(\n",
        "self._beam_search_has_unfinished_sequences(\n",
        "sequences = self._flatten_beam_dim(sequences[:, :num_return_sequences, :])",
    ]
    assert [source.count(call) for call in order] == [1] * len(order)
    assert sorted(order, key=source.index) == order
    # The loop draws in one place, and hands sequences through without looking at their length.
    top_k = inspect.getsource(GenerationMixin._get_top_k_continuations)
    assert "torch.multinomial(" not in source
    assert top_k.count("torch.multinomial(") == 1
    for method in (GenerationMixin._get_running_beams_for_next_iteration, GenerationMixin._update_finished_beams):
        names = list(inspect.signature(method).parameters)
        assert {"topk_running_sequences", "next_token_hits_stopping_criteria", "num_beams"} <= set(names)
        assert "sequences.shape" not in inspect.getsource(method)
    assert "*" not in str(inspect.signature(GenerationMixin._beam_search_has_unfinished_sequences))


def test_private_names_of_assisted_decoding_are_where_the_tap_expects_them() -> None:
    source = inspect.getsource(GenerationMixin._assisted_decoding)
    order = [
        "candidate_generator = self._get_candidate_generator(",
        "else self.__call__",
        "candidate_generator.requires_model_outputs",
        "candidate_generator.get_candidates(input_ids)",
        "outputs = self(**model_inputs)",
        "outputs = model_forward(**model_inputs)",
        "new_logits = outputs.logits[:, -candidate_length - 1 :].to(",
        "next_token_logits = new_logits.clone()",
        "_speculative_sampling(",
        "torch.multinomial(",
        "candidate_generator.update_candidate_strategy(input_ids, new_logits, n_matches)",
        "model_kwargs = self._update_model_kwargs_for_generation(",
        "num_new_tokens=n_matches + 1",
        "scores += tuple(new_logits[:, i, :] for i in range(newly_added_length))",
        "stopping_criteria(input_ids, scores)",
    ]
    assert all(call in source for call in order)
    assert sorted(order, key=source.index) == order
    assert list(inspect.signature(_split_model_outputs).parameters) == [
        "outputs", "new_outputs", "cur_len", "added_len", "is_decoder_attention",
    ]  # fmt: skip
    assert inspect.getsource(_speculative_sampling).count("torch.rand_like(") == 1
    assert not candidate_generator.CandidateGenerator.requires_model_outputs
    assert "base_model.config.num_hidden_layers = " in inspect.getsource(
        candidate_generator.EarlyExitCandidateGenerator.get_candidates
    )


@by_strategy
def test_a_tap_moved_by_one_step_is_noticed(strategy: str) -> None:
    output, streamed = observed(tiny_model("llama"), prompts(1), **EVERYTHING, **settings(strategy))
    assert differences(output, streamed) == []
    streamed.steps = streamed.steps[1:] + streamed.steps[:1]
    moved = set(differences(output, streamed))
    assert {"scores[0]", "logits[0]", "hidden_states[0][1]", "attentions[0][1]"} <= moved
    assert ("replayed tokens of row 0" if "beam" in strategy else "sequences") in moved


@by_strategy
@pytest.mark.parametrize("seed", [0, 123])
def test_seed_equals_manual_seed_and_leaves_the_global_generator_alone(strategy: str, seed: int) -> None:
    model, kwargs = tiny_model("llama"), settings(strategy)
    torch.manual_seed(seed)
    wanted = model.generate(**prompts(1), **kwargs)
    output, _ = observed(model, prompts(1), seed=seed, **kwargs)
    assert torch.equal(output, wanted)
    torch.manual_seed(8)  # what `observed` set
    after = torch.rand(3)
    observed(model, prompts(1), seed=seed, **kwargs)
    assert torch.equal(torch.rand(3), after)
    other, _ = observed(model, prompts(1), seed=seed + 1, **kwargs)
    assert torch.equal(other, wanted) == (not kwargs["do_sample"])


def test_seeded_runs_in_threads_do_not_mix() -> None:
    model = tiny_model("llama")

    def tokens(job: tuple[int, dict[str, Any], Any]) -> list[list[int]]:
        seed, kwargs, draft = job
        observing = observe(seed=seed, assistant_model=draft)
        return model.generate(**prompts(1), **kwargs, **observing).tolist()

    # Not early exit: while it drafts it changes the layer count that other threads read.
    jobs = []
    for strategy, seed in itertools.product(STRATEGIES, range(4)):
        if strategy != "early exit":
            kwargs = settings(strategy)
            jobs.append((seed, kwargs, kwargs.pop("assistant_model", None)))
    alone = [tokens(job) for job in jobs]
    with ThreadPoolExecutor(4) as threads:
        assert list(threads.map(tokens, jobs)) == alone


@by_strategy
def test_draws_are_seeded_where_tokens_are_chosen_and_nowhere_else(strategy: str) -> None:
    model, kwargs = tiny_model("llama"), settings(strategy)
    draft = kwargs.pop("assistant_model", None)
    depths = []

    def note() -> bool:
        depths.append(len(_get_current_function_mode_stack()))
        return False

    observing = observe(seed=1, stop=note, assistant_model=draft)
    model.generate(**prompts(1), **kwargs, **observing)
    assert set(depths) == {0}
    broken = [lambda ids, scores: scores * torch.nan if ids.shape[1] > 13 else scores]
    if kwargs["do_sample"]:
        with pytest.raises(RuntimeError, match="probability tensor"):  # of torch.multinomial
            model.generate(**prompts(1), **kwargs, logits_processor=broken, **observing)
    assert _get_current_function_mode_stack() == []


@by_strategy
def test_a_stop_in_the_middle_keeps_what_came_and_leaves_the_model_usable(strategy: str) -> None:
    model, kwargs = tiny_model("llama"), settings(strategy)
    whole = plain(model, prompts(1), **kwargs)
    before = state(model)
    answers = iter([False, False, True])
    output, streamed = observed(model, prompts(1), stop=lambda: next(answers), **EVERYTHING, **kwargs)
    assert len(streamed.steps) == 3
    assert differences(output, streamed) == []
    assert output.sequences.shape[1] == streamed.steps[-1].length < whole.sequences.shape[1]
    assert state(model) == before
    assert torch.equal(plain(model, prompts(1), **kwargs).sequences, whole.sequences)


def test_a_stopped_beam_search_returns_its_best_live_hypotheses() -> None:
    output, streamed = observed(
        tiny_model("llama"), prompts(3), stop=lambda: True, **BEAM, **EVERYTHING, num_return_sequences=4
    )
    [step] = streamed.steps
    assert torch.equal(output.sequences[:, -1].view(3, 4), step.live_tokens)
    assert torch.equal(output.sequences_scores.view(3, 4), step.live_scores)  # one token: the length changes nothing
    assert not step.finished.any()
    assert streamed.result[0].lengths.tolist() == [1] * 12


def test_a_stopped_beam_search_keeps_what_had_finished() -> None:
    model = tiny_model("llama")
    eos = int(plain(model, prompts(1), **BEAM).sequences[0, 11 + 2])
    kwargs = BEAM | {"eos_token_id": eos, "num_return_sequences": 4}
    _, streamed = observed(model, prompts(1), **kwargs)
    first = next(step for step in streamed.steps if bool(step.finished.any()))
    at = first.step + 1
    answers = iter([False] * at + [True])
    output, streamed = observed(model, prompts(1), stop=lambda: next(answers), **EVERYTHING, **kwargs)
    assert len(streamed.steps) == at + 1
    assert differences(output, streamed) == []
    ends = [row[11:][: int(length)][-1] == eos for row, length in zip(output.sequences, streamed.result[0].lengths, strict=True)]  # fmt: skip
    assert True in ends
    assert False in ends


def test_a_pause_holds_a_beam_search_after_the_step_is_seen() -> None:
    streamer, go, paused = OutputIteratorStreamer(timeout=10), threading.Event(), threading.Event()

    def pause() -> bool:
        paused.set()
        return not go.wait(10)

    model = tiny_model("llama")
    with ThreadPoolExecutor(1) as threads:
        job = threads.submit(
            model.generate, **prompts(1), **BEAM | {"max_new_tokens": 3}, **observe(streamer, stop=pause)
        )
        assert isinstance(next(streamer), PromptOutput)
        assert isinstance(next(streamer), BeamStepOutput)
        assert paused.wait(10)
        assert streamer._channel._items == type(streamer._channel._items)()
        go.set()
        assert [type(output) for output in streamer] == [BeamStepOutput, BeamStepOutput, BeamResult]
        assert job.result(10).shape == (1, 11 + 3)


@by_strategy
def test_an_error_in_the_middle_reaches_the_reader_and_leaves_the_model_usable(strategy: str) -> None:
    model, kwargs = tiny_model("llama"), settings(strategy)
    whole = plain(model, prompts(1), **kwargs)
    before = state(model)

    def fail(input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        if input_ids.shape[1] > 13:
            raise LookupError("on purpose")
        return scores

    draft = kwargs.pop("assistant_model", None)
    streamer = OutputIteratorStreamer(timeout=5)
    with pytest.raises(LookupError):
        model.generate(
            **prompts(1), **kwargs, logits_processor=[fail],
            **observe(streamer, assistant_model=draft),
        )  # fmt: skip
    with pytest.raises(LookupError, match="on purpose"):
        list(streamer)
    assert state(model) == before
    again = kwargs | ({} if draft is None else {"assistant_model": draft})
    assert torch.equal(plain(model, prompts(1), **again).sequences, whole.sequences)


def test_early_exit_restores_the_layer_count_also_when_drafting_fails() -> None:
    model = tiny_model("llama")

    def fail(input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        assert model.config.num_hidden_layers == 1  # drafts come first
        raise LookupError("while drafting")

    with pytest.raises(LookupError, match="while drafting"):
        model.generate(**prompts(1), **EARLY_EXIT, logits_processor=[fail], **observe())
    assert model.config.num_hidden_layers == 2


def test_greedy_assisted_gives_the_tokens_of_greedy() -> None:
    model = tiny_model("llama")
    greedy = plain(model, prompts(1), **PLAIN, do_sample=False).sequences
    draft = tiny_model("llama", seed=1)
    for kwargs in (LOOKUP, EARLY_EXIT | {"do_sample": False, "top_k": None}, {**PLAIN, "do_sample": False, "assistant_model": draft}):  # fmt: skip
        output, streamed = observed(model, prompts(1), **kwargs)
        assert all(isinstance(step, AssistedStepOutput) for step in streamed.steps)
        assert torch.equal(output, greedy)


def test_a_perfect_draft_is_always_accepted_and_rounds_are_single_steps() -> None:
    model, same = tiny_model("llama"), tiny_model("llama")
    same.generation_config.num_assistant_tokens = 3
    same.generation_config.num_assistant_tokens_schedule = "constant"
    same.generation_config.assistant_confidence_threshold = 0.0
    _, streamed = observed(model, prompts(1), **PLAIN, do_sample=False, assistant_model=same)
    assert [(step.accepted, step.rejected, step.bonus) for step in streamed.steps] == [(3, 0, 1)] * 3
    assert [step.length for step in streamed.steps] == [15, 19, 23]


def test_a_draft_model_given_to_generate_and_not_to_observe_is_documented_to_do_nothing() -> None:
    # `generate` drops it on the way, and nothing that we are called with tells.
    steps: list[object] = []
    draft = tiny_model("llama", seed=1)
    observing = observe(OutputStreamer(steps.append))
    tiny_model("llama").generate(**prompts(1), **PLAIN, assistant_model=draft, **observing)
    assert not any(isinstance(step, AssistedStepOutput) for step in steps)
    assert "Give it here and not to ``generate``" in str(observe.__doc__)


def test_drafts_that_cannot_be_observed_are_refused_with_the_way_out() -> None:
    model, other = tiny_model("llama"), tiny_model("llama")
    other.config.vocab_size = 200
    with pytest.raises(UnobservableError, match=r"200 tokens.*300.*prompt_lookup_num_tokens"):
        model.generate(**prompts(1), **PLAIN, **observe(assistant_model=other))
    with pytest.raises(ValueError, match="num_return_sequences has to be 1"):
        model.generate(**prompts(1), **PLAIN, do_sample=True, num_return_sequences=2, **observe(assistant_model=model))
    with pytest.raises(ValueError, match="batch_size = 1"):
        model.generate(**prompts(2), **LOOKUP, **observe())


def test_prompt_logits_of_an_encoder_decoder_model_are_refused_with_the_way_out() -> None:
    streamer = OutputStreamer(print, fields=["prompt_logits"])
    with pytest.raises(UnobservableError, match="leave prompt_logits out"):
        tiny_model("t5").generate(**prompts(1), **PLAIN, **observe(streamer))


def test_prompt_logits_under_beams_are_those_of_the_returned_rows() -> None:
    model, streamed = tiny_model("llama"), []
    streamer = OutputStreamer(lambda _: None, on_prompt=streamed.append, fields=["prompt_logits"])
    model.generate(**prompts(3), **BEAM, num_return_sequences=2, **observe(streamer))
    [prompt] = streamed
    single: list[PromptOutput] = []
    streamer = OutputStreamer(lambda _: None, on_prompt=single.append, fields=["prompt_logits"])
    model.generate(**prompts(3), **PLAIN, **observe(streamer))
    assert torch.equal(prompt.tokens, prompts(3)["input_ids"].repeat_interleave(2, dim=0))
    torch.testing.assert_close(prompt.logits, single[0].logits.repeat_interleave(2, dim=0), rtol=1e-5, atol=1e-5)


def test_source_of_an_encoder_decoder_model_arrives_as_given() -> None:
    inputs = prompts(3, side="right")
    for kwargs in (BEAM, PLAIN | {"do_sample": True, "num_return_sequences": 2}):
        _, streamed = observed(tiny_model("t5"), inputs, **kwargs)
        [prompt] = streamed.prompt
        assert prompt.source is not None
        assert torch.equal(prompt.source.tokens, inputs["input_ids"])
        assert torch.equal(prompt.source.attention_mask, inputs["attention_mask"])
        assert prompt.tokens.shape[1] == 1


def test_source_states_of_other_input_than_ids_come_only_if_the_run_computes_them() -> None:
    model = tiny_model("t5")
    embedded = {"inputs_embeds": model.get_input_embeddings()(prompts(1)["input_ids"]).detach()}
    output, streamed = observed(model, embedded, **EVERYTHING, **PLAIN)
    assert differences(output, streamed) == []
    assert streamed.prompt[0].source.tokens is None
    with pytest.raises(UnobservableError, match="pass return_dict_in_generate=True"):
        observed(model, embedded, **PLAIN)


def test_caches_and_prefill_in_chunks_are_observed_under_beams_and_drafts() -> None:
    model = tiny_model("llama")
    extras: list[dict[str, Any]] = [
        {**BEAM, "cache_implementation": "static", "disable_compile": True},
        {**BEAM, "prefill_chunk_size": 4},
        {**BEAM, "use_cache": False},
        {**LOOKUP, "prefill_chunk_size": 4},
    ]
    for kwargs in extras:
        wanted = plain(model, prompts(1), **kwargs)
        output, streamed = observed(model, prompts(1), **EVERYTHING, **kwargs)
        assert differences(wanted, streamed) == differences(output, streamed) == []


def test_processors_in_place_leave_raw_logits_raw() -> None:
    def halve(ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        return scores.mul_(0.5)

    for strategy in ("beam", "speculative", "lookup"):
        kwargs = settings(strategy)
        bare, _ = observed(tiny_model("llama"), prompts(1), **EVERYTHING, **kwargs)
        output, streamed = observed(tiny_model("llama"), prompts(1), **EVERYTHING, **kwargs, logits_processor=[halve])
        raw = streamed.steps[0].logits
        assert torch.equal(raw if strategy == "beam" else raw[0], bare.logits[0])
        assert differences(output, streamed) == []


def test_every_live_hypothesis_replays_to_its_score() -> None:
    _, streamed = observed(tiny_model("llama"), prompts(3), **BEAM_SAMPLE)
    last = streamed.steps[-2]  # all candidates of the last end
    for prompt in range(3):
        for beam in range(4):
            tokens, rows = trace(streamed.steps, prompt, last.step, int(last.live[prompt, beam]))
            score = sum(
                (step.scores[row, token] for step, token, row in zip(streamed.steps, tokens, rows, strict=False)),
                start=torch.tensor(0.0),
            )
            assert torch.equal(score, last.live_scores[prompt, beam])
            assert all(row // 4 == prompt for row in rows)


@by_strategy
def test_only_what_was_asked_for_arrives_and_text_streamers_cost_nothing(strategy: str) -> None:
    kwargs = settings(strategy)
    draft = kwargs.pop("assistant_model", None)
    steps: list[Any] = []
    streamer = OutputStreamer(steps.append, fields=["hidden_states"])
    tiny_model("llama").generate(**prompts(1), **kwargs, **observe(streamer, assistant_model=draft))
    step = steps[0]
    assert step.scores is step.logits is step.attentions is step.cross_attentions is None
    assert getattr(step, "draft_scores", None) is None
    assert len(step.hidden_states if "beam" in strategy else step.hidden_states[0]) == 3


@by_strategy
def test_text_of_any_strategy_is_that_of_the_returned_rows(strategy: str) -> None:
    model, tokenizer, kwargs = tiny_model("llama"), tiny_tokenizer(), settings(strategy)
    batch, returned = (3, 2) if "beam" in strategy else (1, 1)
    kwargs |= {"num_return_sequences": returned, "eos_token_id": 150}
    draft = kwargs.pop("assistant_model", None)
    streamer = TextIteratorStreamer(tokenizer, skip_prompt=True, timeout=30)
    output = model.generate(**prompts(batch), **kwargs, **observe(streamer, seed=7, assistant_model=draft))
    texts = [""] * len(output)
    for row, text in streamer.rows():
        texts[row] += text
    for row, ids in enumerate(output[:, 11:].tolist()):
        kept = ids[: ids.index(150) + 1] if 150 in ids else ids
        assert texts[row] == tokenizer.decode(kept)


def test_beam_sampling_with_a_reader_in_another_thread_does_not_hang() -> None:
    # The library's own streamers get the prompt and then nothing, not even the end.
    for streamer in (TextIteratorStreamer(tiny_tokenizer(), timeout=30), OutputIteratorStreamer(timeout=30)):
        thread = threading.Thread(
            target=tiny_model("llama").generate, kwargs={**prompts(1), **BEAM_SAMPLE, **observe(streamer)}
        )
        thread.start()
        assert len(list(streamer)) >= 2
        thread.join(30)
        assert not thread.is_alive()


def test_a_compiled_checking_pass_is_tapped_like_any_other() -> None:
    # The library compiles on accelerators with a static cache only, so that no CPU run comes by here.
    model, tap = tiny_model("llama"), AssistedTap(frozenset(["logits"]), lambda _: False)
    model.get_compiled_call = lambda config: model.__call__
    tap.on_drafts(3, torch.tensor([[5, 6, 7, 8, 9]]), None)
    with torch.no_grad():
        outputs = _AssistedModel(model, tap).get_compiled_call(None)(torch.tensor([[5, 6, 7, 8, 9]]))
    tap.on_choice(torch.zeros(1, 3, 300), 2)
    assert torch.equal(torch.stack(tap._parts["logits"], dim=1), outputs.logits[:, 2:])
