"""Runs: states, stop, pause, step, waiting, errors, order."""

from __future__ import annotations

import asyncio
import contextvars
import gc
import signal
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from genscope.kernel_side.engines.in_process import InProcessEngine
from genscope.kernel_side.record.export import recording_from_json
from genscope.kernel_side.record.measures import NonFiniteLogitsError
from genscope.kernel_side.request import Request, SettingsError
from genscope.kernel_side.run import Run
from tiny import EOS, tiny_model, tiny_tokenizer


def engine(kind: Any = "llama", seed: int = 0) -> InProcessEngine:
    return InProcessEngine(tiny_model(kind, "sdpa", seed=seed), tiny_tokenizer())


def request(prompt: Any = "the cat and the hat", **settings: Any) -> Request:
    return Request.make(prompt, {"max_new_tokens": 12, "stop_at_eos": False}, **settings)


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline, "waited for 30 s in vain"
        time.sleep(0.002)


@pytest.mark.parametrize("kind", ["llama", "gpt2", "gemma3"])
@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"repetition_penalty": 1.3, "no_repeat_ngram_size": 2},
        {
            "strategy": "sample",
            "seed": 7,
            "temperature": 0.8,
            "top_k": 0,
            "top_p": 0.9,
            "min_p": 0.01,
            "typical_p": 0.95,
        },
        {"strategy": "sample", "seed": 2**40},
    ],
)
def test_a_run_gives_the_tokens_of_generate(kind: str, settings: dict[str, Any]) -> None:
    on = engine(kind)
    run = Run(on, request(**settings)).wait(60)
    ids = on.tokenizer("the cat and the hat", return_tensors="pt")
    torch.manual_seed(settings.get("seed", 0))
    known = {key: value for key, value in settings.items() if key not in ("strategy", "seed")}
    wanted = on.model.generate(**ids, max_new_tokens=12, eos_token_id=None, do_sample="strategy" in settings, **known)
    assert run.record.ids() == wanted[0].tolist()
    assert torch.equal(run.output.sequences, wanted)
    assert (run.state, run.why) == ("finished", "length")
    assert [token.origin for token in run.record] == ["prompt"] * run.prompt_tokens + ["generated"] * 12
    assert [token.position for token in run.record] == list(range(run.prompt_tokens + 12))


def test_model_defaults_do_not_change_what_the_settings_say() -> None:
    on = engine()
    wanted = Run(on, request()).wait(60).record.ids()
    config = on.model.generation_config
    config.do_sample, config.temperature, config.top_k, config.repetition_penalty = True, 5.0, 3, 9.0
    config.max_new_tokens, config.num_beams, config.no_repeat_ngram_size = 3, 2, 1
    before = config.to_dict()
    assert Run(on, request()).wait(60).record.ids() == wanted
    assert config.to_dict() == before


def test_measures_are_those_of_the_kept_output() -> None:
    run = Run(engine(), request(strategy="sample", top_k=5, seed=1, keep=["scores", "logits"], alternatives=100)).wait(
        60
    )
    for step, token in enumerate(run.record[run.prompt_tokens :]):
        raw = run.output.logits[step][0].log_softmax(-1)
        processed = run.output.scores[step][0].log_softmax(-1)
        assert token.raw_logprob == pytest.approx(raw[token.id].item())
        assert token.logprob == pytest.approx(processed[token.id].item())
        assert token.rank == 1 + int((raw > raw[token.id]).sum())
        assert {entry.id for entry in token.alternatives if not entry.cut} == set(
            processed.isfinite().nonzero()[:, 0].tolist()
        )
        assert sum(not entry.cut for entry in token.alternatives) == 5
        assert token.probability == pytest.approx(raw.softmax(-1)[token.id].item())


def test_prompt_probabilities() -> None:
    on = engine()
    run = Run(on, request(prompt_probabilities=True, alternatives=4)).wait(60)
    ids = torch.tensor([run.record.ids("prompt")])
    with torch.no_grad():
        logprobs = on.model(ids).logits[0].log_softmax(-1)
    first, *others = run.record[: run.prompt_tokens]
    assert (first.raw_logprob, first.entropy, first.rank, first.alternatives) == (None, None, None, ())
    for token in others:
        assert token.raw_logprob == pytest.approx(logprobs[token.position - 1, token.id].item(), abs=1e-5)
        assert (token.logprob, token.seconds) == (None, None)
        assert [entry.id for entry in token.alternatives] == logprobs[token.position - 1].topk(4).indices.tolist()
    assert run.record.ids() == Run(on, request()).wait(60).record.ids()


def test_keep_nothing_by_default() -> None:
    output = Run(engine(), request()).wait(60).output
    assert output.scores is output.logits is output.attentions is output.hidden_states is None
    assert output.cache is None


def test_text_joins_and_equals_the_decode() -> None:
    on = engine()
    run = Run(on, request(max_new_tokens=60, strategy="sample", seed=3)).wait(60)
    whole = "".join(token.text for token in run.record) + run.record.tail
    assert whole == on.tokenizer.decode(run.record.ids(), clean_up_tokenization_spaces=False)
    assert whole.endswith(run.text[-3:])


def test_eos_ends_the_run() -> None:
    on = engine()
    tokens = Run(on, request()).wait(60).record.ids("generated")
    on.model.generation_config.eos_token_id = [EOS, tokens[4]]
    run = Run(on, request(stop_at_eos=True)).wait(60)
    assert run.why == "eos"
    assert run.record.ids("generated") == tokens[: tokens.index(tokens[4]) + 1]
    assert Run(on, request(stop_at_eos=False)).wait(60).why == "length"


def test_stop_string_ends_the_run_and_one_across_the_prompt_does_not() -> None:
    on = engine()
    full = Run(on, request(max_new_tokens=30)).wait(60)
    texts = [token.text for token in full.record[full.prompt_tokens :]]
    # Over two tokens; the texts of random tokens are mostly single bytes, so look for two complete ones.
    at = next(
        i
        for i in range(3, 29)
        if texts[i] and texts[i + 1] and (texts[i] + texts[i + 1]) not in "".join(texts[: i + 1])
    )
    string = texts[at][-1] + texts[at + 1][0]
    run = Run(on, request(max_new_tokens=30, stop_strings=["never this", string])).wait(60)
    assert run.why == f"stop string {string!r}"
    assert string in run.text
    assert string not in "".join(texts[:at])
    first = next(text for text in texts if text)
    across = Run(on, request(max_new_tokens=3, stop_strings=["hat" + first[0]])).wait(60)
    assert across.why == "length"


def test_stop_keeps_what_came() -> None:
    on = engine()
    run = Run(on, request(max_new_tokens=400))
    tokens = iter(run)
    for _ in range(5):
        next(tokens)
    run.stop()
    run.wait(60)
    count = len(run.record) - run.prompt_tokens
    assert run.state == "stopped"
    assert run.why is None
    assert 5 <= count < 400
    assert run.output.sequences.shape[1] == len(run.record)
    assert run.record.ids("generated") == Run(on, request(max_new_tokens=count)).wait(60).record.ids("generated")


def test_pause_step_resume() -> None:
    run = Run(engine(), request(max_new_tokens=20), paused=True)
    until(lambda: run.state == "paused")
    assert len(run.record) == run.prompt_tokens + 1
    for count in (2, 3):
        run.step()
        until(lambda count=count: run.state == "paused" and len(run.record) == run.prompt_tokens + count)  # type: ignore[misc]
    run.resume()
    assert len(run.wait(60).record) == run.prompt_tokens + 20


def test_a_pause_is_in_no_time() -> None:
    run = Run(engine(), request(max_new_tokens=4), paused=True)
    until(lambda: run.state == "paused")
    time.sleep(1.0)
    shown = run.status().elapsed
    run.resume()
    run.wait(60)
    status = run.status()
    assert shown is not None
    assert status.elapsed is not None
    assert shown < status.elapsed < 1.0
    assert max(token.seconds or 0 for token in run.record) < 1.0
    times = [token.seconds for token in run.record[run.prompt_tokens :]]
    assert status.first_token == times[0]
    assert status.tokens_per_second == pytest.approx(3 / sum(times[1:]))  # type: ignore[arg-type]
    assert status.observation_share is not None
    assert 0 < status.observation_share < 1


def test_stop_while_paused_and_while_queued() -> None:
    on = engine()
    first = Run(on, request(), paused=True)
    until(lambda: first.state == "paused")
    second, third = Run(on, request()), Run(on, request())
    assert (second.state, second.status().queue_ahead, third.status().queue_ahead) == ("queued", 1, 2)
    second.stop()
    second.wait(30)
    assert (second.state, len(second.record), second.status().elapsed) == ("stopped", 0, None)
    assert third.status().queue_ahead == 1
    first.stop()
    assert first.wait(30).state == "stopped"
    assert third.wait(30).state == "finished"


def test_runs_on_one_model_go_in_order_and_on_two_side_by_side() -> None:
    on, other = engine(), engine(seed=1)
    held = Run(on, request(), paused=True)
    until(lambda: held.state == "paused")
    ended: list[str] = []
    waiting = [Run(InProcessEngine(on.model, on.tokenizer), request()) for _ in range(4)]
    for run in waiting:
        run.add_done_callback(lambda run: ended.append(run.id))
    assert Run(other, request()).wait(30).state == "finished"
    assert {run.state for run in waiting} == {"queued"}
    held.resume()
    for run in waiting:
        run.wait(30)
    assert ended == [run.id for run in waiting]


def test_an_exception_fails_the_run_keeps_the_tokens_and_the_next_run_works() -> None:
    on = engine()
    run = Run(on, request(max_new_tokens=50), paused=True)
    until(lambda: run.state == "paused")
    forward = on.model.forward

    def out_of_memory(*args: Any, **kwargs: Any) -> Any:
        raise torch.OutOfMemoryError("on purpose")

    on.model.forward = out_of_memory
    try:
        run.resume()
        with pytest.raises(torch.OutOfMemoryError, match="on purpose"):
            run.wait(30)
    finally:
        on.model.forward = forward
    assert run.state == "failed"
    assert run.status().error == "OutOfMemoryError: on purpose"
    assert len(run.record) == run.prompt_tokens + 1
    with pytest.raises(torch.OutOfMemoryError):
        list(run)
    assert Run(on, request()).wait(30).state == "finished"


def test_nan_logits_fail_the_run() -> None:
    on = engine()
    with torch.no_grad():
        on.model.lm_head.weight.fill_(float("nan"))
    run = Run(on, request())
    with pytest.raises(NonFiniteLogitsError, match="NaN"):
        run.wait(30)
    assert run.state == "failed"


def test_wait_times_out_and_the_run_goes_on() -> None:
    run = Run(engine(), request(), paused=True)
    with pytest.raises(TimeoutError, match=rf"run {run.id} is still (queued|prefilling|decoding|paused) after 0\.2 s"):
        run.wait(0.2)
    run.resume()
    assert run.wait(30).state == "finished"


def test_keyboard_interrupt_in_wait_stops_the_run() -> None:
    run = Run(engine(), request(max_new_tokens=400), paused=True)
    until(lambda: run.state == "paused")
    main = threading.main_thread().ident
    assert main is not None
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background job ignores it
    threading.Timer(0.3, lambda: signal.pthread_kill(main, signal.SIGINT)).start()
    try:
        with pytest.raises(KeyboardInterrupt):
            run.wait(30)
    finally:
        signal.signal(signal.SIGINT, before)
    until(lambda: run.state == "stopped")


def test_keyboard_interrupt_in_iteration_stops_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    run = Run(engine(), request(max_new_tokens=400), paused=True)
    tokens = iter(run)
    next(tokens)
    until(lambda: run.state == "paused")

    def interrupted(*_: object) -> bool:
        raise KeyboardInterrupt

    monkeypatch.setattr(run.record, "wait_beyond", interrupted)
    with pytest.raises(KeyboardInterrupt):
        next(tokens)
    until(lambda: run.state == "stopped")


def test_leaving_the_iteration_lets_the_run_go_on() -> None:
    run = Run(engine(), request())
    for _ in run:
        break
    assert run.wait(30).state == "finished"


async def test_await_lets_the_loop_run_and_raises_errors() -> None:
    on = engine()
    run = Run(on, request(max_new_tokens=100))
    ticks = 0

    async def tick() -> None:
        nonlocal ticks
        while True:
            ticks += 1
            await asyncio.sleep(0)

    ticking = asyncio.create_task(tick())
    assert await run is run
    ticking.cancel()
    assert run.state == "finished"
    assert ticks > 1
    assert await run is run
    with torch.no_grad():
        on.model.lm_head.weight.fill_(float("nan"))
    with pytest.raises(NonFiniteLogitsError):
        await Run(on, request())


def test_iteration_gives_each_token_once_also_after_the_end() -> None:
    run = Run(engine(), request())
    live = list(run)
    assert live == run.record[run.prompt_tokens :]
    assert list(run) == live
    assert len(live) == 12


def test_a_callback_after_the_end_is_called_at_once() -> None:
    run = Run(engine(), request()).wait(30)
    called: list[Run] = []
    run.add_done_callback(called.append)
    assert called == [run]


def test_seed_is_drawn_reported_and_reproduces() -> None:
    on = engine()
    runs = [Run(on, request(strategy="sample", top_k=0)).wait(30) for _ in range(2)]
    assert runs[0].settings.seed != runs[1].settings.seed
    again = Run(on, request(strategy="sample", top_k=0, seed=runs[0].settings.seed)).wait(30)
    assert again.record.ids() == runs[0].record.ids() != runs[1].record.ids()


def test_save_and_load(tmp_path: Any) -> None:
    run = Run(engine(), request(strategy="sample", top_k=3, seed=5, prompt_probabilities=True)).wait(30)
    run.save(tmp_path / "run.json")
    recording, about = recording_from_json((tmp_path / "run.json").read_text(encoding="utf-8"))
    [lane] = recording.lanes
    assert list(lane.record) == list(run.record)
    assert (lane.record.tail, lane.prompt_tokens) == (run.record.tail, run.prompt_tokens)
    assert about["prompt"] == "the cat and the hat"
    assert about["settings"]["seed"] == 5
    assert about["status"]["state"] == "finished"


def test_repr_says_state_and_text() -> None:
    run = Run(engine(), request()).wait(30)
    assert repr(run) == f"<Run {run.id}: finished, length, 12 tokens: {run.text!r}>"


CHAT = "{% for m in messages %}[{{ m.role }}]{{ m.content }}{% endfor %}{% if add_generation_prompt %}[assistant]{% endif %}"


def test_chat_goes_through_the_template() -> None:
    on = InProcessEngine(tiny_model("llama", "sdpa"), _chat_tokenizer(CHAT))
    run = Run(on, request([{"role": "user", "content": "hi"}])).wait(30)
    assert "".join(token.text for token in run.record[: run.prompt_tokens]) == "[user]hi[assistant]"


def test_a_saved_conversation_has_all_its_messages() -> None:
    messages = [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "what?"}]
    run = Run(InProcessEngine(tiny_model("llama", "sdpa"), _chat_tokenizer(CHAT)), request(messages)).wait(30)
    assert recording_from_json(run.to_json())[1]["prompt"] == messages


def _chat_tokenizer(template: str | None) -> Any:
    import copy

    tokenizer = copy.deepcopy(tiny_tokenizer())
    tokenizer.chat_template = template
    return tokenizer


@pytest.mark.parametrize(
    ("prompt", "settings", "template", "message"),
    [
        (
            "x" * 600,
            {},
            None,
            r"prompt: the prompt has 600 tokens, but the model's context holds 512. Shorten it to at most 511",
        ),
        ("x" * 500, {"max_new_tokens": 13}, None, r"max_new_tokens: 13 do not fit.*500 of the 512.*Use at most 12"),
        (
            [{"role": "user", "content": "hi"}],
            {},
            None,
            r"prompt: the tokenizer has no chat template.*Give the prompt as text",
        ),
        (
            [{"role": "user", "content": "hi"}],
            {},
            "{{ raise_exception('no users here') }}",
            r"refuses these.*no users here",
        ),
    ],
)
def test_what_does_not_fit_the_model_is_refused(
    prompt: Any, settings: dict[str, Any], template: str | None, message: str
) -> None:
    on = InProcessEngine(tiny_model("llama", "sdpa"), _chat_tokenizer(template))
    with pytest.raises(SettingsError, match=message):
        Run(on, request(prompt, **settings))
    assert Run(on, request()).wait(30).state == "finished"


def test_a_callback_that_raises_is_logged_and_the_others_are_called(caplog: pytest.LogCaptureFixture) -> None:
    run = Run(engine(), request(), paused=True)
    called: list[Run] = []
    run.add_done_callback(lambda _: dict[int, int]()[5])
    run.add_done_callback(called.append)
    run.resume()
    run.wait(30)
    until(lambda: bool(called))
    assert called == [run]
    [entry] = caplog.records
    assert entry.getMessage() == f"a callback of run {run.id} failed"
    assert entry.exc_info is not None
    assert entry.exc_info[0] is KeyError


def test_an_await_whose_loop_is_gone_troubles_nobody(caplog: pytest.LogCaptureFixture) -> None:
    run = Run(engine(), request(), paused=True)

    async def give_up() -> None:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                await run

    asyncio.run(give_up())
    called: list[Run] = []
    run.add_done_callback(called.append)
    run.resume()
    until(lambda: called == [run])
    assert run.state == "finished"
    assert caplog.records == []


def test_waiting_again_and_again_does_not_lengthen_the_traceback() -> None:
    on = engine()

    def broken(*args: Any, **kwargs: Any) -> Any:
        raise LookupError("on purpose")

    on.model.forward = broken
    run = Run(on, request())
    lengths = []
    for _ in range(3):
        with pytest.raises(LookupError) as caught:
            run.wait(30)
        lengths.append(len(caught.traceback))
    assert lengths == [lengths[0]] * 3
    assert caught.traceback[-1].name == "broken"


@pytest.mark.parametrize("explicit", [True, False])
def test_a_failed_run_lets_go_of_the_tensors_of_its_frames(explicit: bool) -> None:
    on = engine()
    alive: list[weakref.ref[torch.Tensor]] = []

    def inner() -> None:
        tensor = torch.zeros(3)
        alive.append(weakref.ref(tensor))
        raise ValueError("first")

    def broken(*args: Any, **kwargs: Any) -> Any:
        tensor = torch.zeros(3)
        alive.append(weakref.ref(tensor))
        try:
            inner()
        except ValueError as error:
            if explicit:
                raise LookupError("then") from error
            raise LookupError("then")  # noqa: B904 - the implicit chain is what is tested

    on.model.forward = broken
    run = Run(on, request())
    with pytest.raises(LookupError):
        run.wait(30)
    assert len(alive) == 2
    assert [tensor() for tensor in alive] == [None, None]


def test_an_error_that_is_its_own_cause_ends_the_run_too() -> None:
    on = engine()

    def broken(*args: Any, **kwargs: Any) -> Any:
        error = LookupError("on purpose")
        raise error from error

    on.model.forward = broken
    with pytest.raises(LookupError, match="on purpose"):
        Run(on, request()).wait(30)


def test_nothing_keeps_the_model_or_a_run_alive() -> None:
    on = engine()
    run = Run(on, request()).wait(30)
    run._thread.join(30)
    references = [weakref.ref(on.model), weakref.ref(run), weakref.ref(run.output.sequences)]
    del on, run
    gc.collect()
    assert [reference() for reference in references] == [None] * 3


def test_when_no_thread_can_be_started_the_next_run_works(monkeypatch: pytest.MonkeyPatch) -> None:
    on = engine()

    def refuse(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", refuse)
        with pytest.raises(RuntimeError, match="can't start"):
            Run(on, request())
    assert Run(on, request()).wait(30).state == "finished"


def test_steps_asked_for_by_several_threads_are_all_taken() -> None:
    run = Run(engine(), request(max_new_tokens=200), paused=True)
    until(lambda: run.state == "paused")
    threads = [threading.Thread(target=lambda: [run.step() for _ in range(20)]) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    until(lambda: run.status().generated == 81 and run.state == "paused")
    run.stop()
    assert run.wait(30).status().generated == 81


@pytest.mark.slow
@pytest.mark.parametrize("queued", [False, True])
def test_the_interpreter_exits_in_peace_while_runs_go_on(queued: bool) -> None:
    # Without the stop at exit Python ends the thread inside of torch, which aborts: -6.
    script = f"""
import sys
sys.path.insert(0, {str(Path(__file__).parents[1])!r})
from genscope.kernel_side.engines.in_process import InProcessEngine
from genscope.kernel_side.request import Request
from genscope.kernel_side.run import Run
from tiny import tiny_model, tiny_tokenizer
engine = InProcessEngine(tiny_model("llama", "sdpa"), tiny_tokenizer())
request = Request.make("the cat", max_new_tokens=500, stop_at_eos=False)
run = Run(engine, request)
waiting = Run(engine, request) if {queued} else None
next(iter(run))
print(run.over)
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stdout.strip()) == (0, "False"), done.stderr


HIDDEN: dict[str, Any] = {
    "use_mtp": True,
    "penalty_alpha": 0.6,
    "prompt_lookup_num_tokens": 3,
    "assistant_early_exit": 1,
    "dola_layers": "high",
    "max_time": 0.0,
    "stop_strings": ["a"],
    "min_length": 500,
    "min_new_tokens": 12,
    "min_p": 0.5,
    "top_h": 0.3,
    "epsilon_cutoff": 0.5,
    "eta_cutoff": 0.5,
    "encoder_repetition_penalty": 3.0,
    "exponential_decay_length_penalty": (1, 5.0),
    "output_scores": True,
    "output_hidden_states": True,
}


@pytest.mark.parametrize("strategy", ["greedy", "sample"])
@pytest.mark.parametrize("name", HIDDEN)
def test_what_the_form_does_not_show_is_off(name: str, strategy: str) -> None:
    on = engine()
    settings = {"strategy": strategy, "seed": 3} | ({"top_k": 0} if strategy == "sample" else {})
    free = Run(on, request(**settings)).wait(60).record.ids("generated")
    on.model.generation_config.eos_token_id = free[6]
    setattr(on.model.generation_config, name, HIDDEN[name])
    run = Run(on, request(**settings, stop_at_eos=True)).wait(60)
    assert run.record.ids("generated") == free[: free.index(free[6]) + 1]
    assert run.why == "eos"
    assert run.output.scores is run.output.hidden_states is None


@pytest.mark.parametrize("pad", [None, 0])
@pytest.mark.parametrize("kind", [int, list, tuple, torch.tensor, "tensor of two"])
def test_end_of_sequence_in_every_form_the_config_may_have(kind: Any, pad: int | None) -> None:
    on = engine()
    eos = Run(on, request()).wait(30).record.ids("generated")[4]
    config = on.model.generation_config
    config.eos_token_id = (
        torch.tensor([eos, 299]) if kind == "tensor of two" else kind([eos, 299] if kind in (list, tuple) else eos)
    )
    config.pad_token_id = pad
    run = Run(on, request(stop_at_eos=True)).wait(30)
    assert (run.why, run.record[-1].id) == ("eos", eos)


def test_a_tokenizer_with_more_tokens_than_the_model_is_refused_before_it_runs() -> None:
    tokenizer = _chat_tokenizer(None)
    tokenizer.add_tokens(["ZZZ"])
    on = InProcessEngine(tiny_model("llama", "sdpa"), tokenizer)
    with pytest.raises(
        SettingsError, match=r"prompt: its token 'ZZZ' has the id 300, but the model knows 300 tokens\. Use"
    ):
        Run(on, request("the ZZZ"))
    assert Run(on, request("the cat")).wait(30).state == "finished"


def saying(ids: list[int], first: Callable[[], object] = lambda: None) -> InProcessEngine:
    """Make an engine whose model gives these tokens, whatever came before; ``first`` is called before each."""
    on, left = engine(), iter(ids)
    forward = on.model.forward

    def forced(*args: Any, **kwargs: Any) -> Any:
        first()
        outputs = forward(*args, **kwargs)
        outputs.logits[:, -1] = -9.0
        outputs.logits[:, -1, next(left)] = 9.0
        return outputs

    on.model.forward = forced
    return on


def test_a_stopped_run_cannot_be_resumed() -> None:
    begin, begun = threading.Event(), threading.Event()
    run = Run(saying([5] * 12, first=lambda: (begun.set(), begin.wait(30))), request())
    assert begun.wait(30)
    run.stop()
    for change in (run.pause, run.step, run.resume):
        change()
    begin.set()
    assert run.wait(30).state == "stopped"
    assert run.record.ids("generated") == [5]


def test_elapsed_stands_still_after_the_end() -> None:
    run = Run(engine(), request()).wait(30)
    elapsed = run.status().elapsed
    time.sleep(0.01)
    assert elapsed is not None
    assert run.status().elapsed == elapsed > 0


def test_text_leaves_special_tokens_out_and_has_the_unfinished_character_at_the_end() -> None:
    [h, i, *halves] = tiny_tokenizer()("hié")["input_ids"]
    run = Run(saying([h, EOS, i, halves[0]]), request(max_new_tokens=4)).wait(30)
    assert [token.special for token in run.record[-4:]] == [False, True, False, False]
    assert run.text == "hi\ufffd"
    assert (run.record[-1].text, run.record.tail) == ("", "\ufffd")


@pytest.mark.parametrize(
    ("string", "text"),
    [
        ("🙂", "x é🙂"),  # of several tokens
        ("é🙂", "x é🙂"),
        ("é", "x é"),
        ("t", "x é🙂 the"),  # inside a token
        (" the", "x é🙂 the"),  # a whole token
        ("🙂 the end", "x é🙂 the end"),  # with the last token there is
    ],
)
def test_stop_strings_end_the_run_with_the_token_that_completes_them(string: str, text: str) -> None:
    ids = tiny_tokenizer()("x é🙂 the end")["input_ids"]
    run = Run(saying(ids), request(stop_strings=["q", string], max_new_tokens=len(ids))).wait(30)
    assert (run.text, run.why) == (text, f"stop string {string!r}")


def test_half_a_character_is_no_stop_string() -> None:
    ids = tiny_tokenizer()("é🙂")["input_ids"]
    run = Run(saying(ids), request(stop_strings=["\ufffd"], max_new_tokens=len(ids))).wait(30)
    assert (run.text, run.why) == ("é🙂", "length")


def test_a_stop_string_in_a_paused_step_needs_no_further_step() -> None:
    run = Run(saying([5] * 12), request(stop_strings=[tiny_tokenizer().decode([5])]), paused=True)
    assert run.wait(30).state == "finished"
    assert len(run.record.ids("generated")) == 1


CELL: contextvars.ContextVar[str] = contextvars.ContextVar("cell", default="none")


def test_the_thread_has_the_context_of_whoever_started_the_run() -> None:
    on, seen = engine(), []
    run = contextvars.copy_context().run(lambda: (CELL.set("7"), Run(on, request(), paused=True))[1])
    run.add_done_callback(lambda _: seen.append(CELL.get()))
    run.resume()
    until(lambda: bool(seen))
    assert seen == ["7"]


def test_one_token_of_one() -> None:
    run = Run(engine(), request("a", max_new_tokens=1, prompt_probabilities=True, alternatives=0)).wait(30)
    first, last = run.record
    assert (first.raw_logprob, first.alternatives, last.alternatives, run.why) == (None, (), (), "length")
    assert last.raw_logprob is not None
    assert (run.status().generated, run.status().tokens_per_second) == (1, None)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("kind", ["llama", "gpt2", "gemma3"])
def test_small_number_formats_give_the_tokens_of_generate(kind: str, dtype: torch.dtype) -> None:
    on = engine(kind)
    on.model.to(dtype)
    run = Run(on, request(strategy="sample", top_p=0.9, seed=1, prompt_probabilities=True)).wait(60)
    ids = on.tokenizer("the cat and the hat", return_tensors="pt")
    torch.manual_seed(1)
    wanted = on.model.generate(**ids, max_new_tokens=12, do_sample=True, top_p=0.9, eos_token_id=None)
    assert run.record.ids() == wanted[0].tolist()
    assert all(token.raw_logprob is not None for token in run.record[1:])


def test_an_end_of_sequence_that_was_not_to_end_it_is_no_reason() -> None:
    run = Run(saying([5, EOS, 6, EOS]), request(max_new_tokens=4)).wait(30)
    assert (run.record.ids("generated"), run.why) == ([5, EOS, 6, EOS], "length")


def test_a_request_may_fill_the_context_to_the_last_token() -> None:
    job = engine().prepare(request("x" * 500, max_new_tokens=12))
    assert job.recording.lanes[0].prompt_tokens + job.request.settings.max_new_tokens == 512
