"""The iterators: order, bounds, timeouts, errors, hanging up, in threads and coroutines."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable
from typing import Any

import pytest
import torch

from genscope.kernel_side.decoding.observe import observe
from genscope.kernel_side.streaming.base import OutputStreamer
from genscope.kernel_side.streaming.channel import Channel, Ended
from genscope.kernel_side.streaming.iterate import AsyncOutputIteratorStreamer, OutputIteratorStreamer
from genscope.kernel_side.streaming.outputs import PromptOutput, StepOutput
from tiny import tiny_model

PLAIN: dict[str, Any] = {"max_new_tokens": 6, "eos_token_id": None, "pad_token_id": 0, "do_sample": False}


def inputs() -> dict[str, torch.Tensor]:
    ids = torch.randint(3, 300, (2, 9), generator=torch.Generator().manual_seed(0))
    return {"input_ids": ids, "attention_mask": torch.ones_like(ids)}


def fail_at(length: int) -> Callable[[torch.Tensor, torch.Tensor], torch.Tensor]:
    def processor(input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        if input_ids.shape[1] == length:
            raise LookupError("on purpose")
        return scores

    return processor


def in_thread(work: Callable[..., object], /, **kwargs: Any) -> threading.Thread:
    def quiet() -> None:
        with contextlib.suppress(LookupError):  # the reader gets it: that is what is tested
            work(**kwargs)

    thread = threading.Thread(target=quiet, daemon=True)
    thread.start()
    return thread


def test_iterator_gives_prompt_then_steps() -> None:
    model, streamer = tiny_model("llama"), OutputIteratorStreamer(timeout=30)
    wanted = model.generate(**inputs(), **PLAIN)
    in_thread(model.generate, **inputs(), **PLAIN, **observe(streamer))
    prompt, *steps = list(streamer)
    assert isinstance(prompt, PromptOutput)
    assert prompt.logits is None
    assert all(isinstance(step, StepOutput) and step.scores is not None for step in steps)
    assert torch.equal(torch.cat([prompt.tokens, *(step.tokens[:, None] for step in steps)], dim=1), wanted)
    assert list(streamer) == []


@pytest.mark.parametrize("max_queue", [1, 2])
def test_a_full_queue_holds_the_generation_back(max_queue: int) -> None:
    model, streamer = tiny_model("llama"), OutputIteratorStreamer(max_queue=max_queue, timeout=30)
    made: list[int] = []
    in_step = threading.Semaphore(0)

    def count(step: StepOutput) -> None:
        made.append(step.step)
        in_step.release()

    # The counter comes first, so it sees one step more than fits before the generation waits.
    thread = in_thread(model.generate, **inputs(), **PLAIN, **observe(OutputStreamer(count), streamer))
    for _ in range(max_queue):
        assert in_step.acquire(timeout=30)
    assert not in_step.acquire(timeout=0.3)
    assert made == list(range(max_queue))
    assert len(list(streamer)) == 7
    thread.join(30)
    assert made == list(range(6))


def test_timeout_names_itself_and_the_iterator_goes_on() -> None:
    streamer = OutputIteratorStreamer(timeout=0.05)
    with pytest.raises(TimeoutError, match=r"nothing came within 0\.05 s"):
        next(streamer)
    tiny_model("llama").generate(**inputs(), **PLAIN, **observe(streamer))
    assert len(list(streamer)) == 7


def test_an_error_comes_after_what_came_before_it() -> None:
    model, streamer = tiny_model("llama"), OutputIteratorStreamer(timeout=30)
    in_thread(model.generate, **inputs(), **PLAIN, logits_processor=[fail_at(11)], **observe(streamer))
    got = []
    with pytest.raises(LookupError, match="on purpose"):
        got.extend(streamer)
    assert [type(output) for output in got] == [PromptOutput, StepOutput, StepOutput]
    assert list(streamer) == []


def test_leaving_the_block_releases_a_waiting_generation() -> None:
    model = tiny_model("llama")
    with OutputIteratorStreamer(max_queue=1, timeout=30) as streamer:
        thread = in_thread(model.generate, **inputs(), **PLAIN, **observe(streamer))
        next(streamer)
    thread.join(30)
    assert not thread.is_alive()


def test_unknown_fields_and_bounds_are_named() -> None:
    with pytest.raises(ValueError, match=r"unknown fields \['logit'\]; choose from \['attentions'"):
        OutputIteratorStreamer(["logit"])  # type: ignore[list-item]
    with pytest.raises(ValueError, match="capacity is -1"):
        OutputIteratorStreamer(max_queue=-1)


async def test_async_iterator_gives_prompt_then_steps() -> None:
    model = tiny_model("llama")
    wanted = model.generate(**inputs(), **PLAIN)
    async with AsyncOutputIteratorStreamer(timeout=30, max_queue=1) as streamer:
        task = asyncio.create_task(asyncio.to_thread(model.generate, **inputs(), **PLAIN, **observe(streamer)))
        prompt, *steps = [output async for output in streamer]
        await task
    assert torch.equal(torch.cat([prompt.tokens, *(step.tokens[:, None] for step in steps)], dim=1), wanted)


async def test_async_iterator_raises_the_error() -> None:
    model, streamer = tiny_model("llama"), AsyncOutputIteratorStreamer(timeout=30)
    in_thread(model.generate, **inputs(), **PLAIN, logits_processor=[fail_at(11)], **observe(streamer))
    got = []
    with pytest.raises(LookupError):
        async for output in streamer:
            got.append(output)  # noqa: PERF401 - what came before the error is what is tested
    assert [type(output) for output in got] == [PromptOutput, StepOutput, StepOutput]


async def test_async_timeout_and_an_error_of_that_type_differ() -> None:
    streamer = AsyncOutputIteratorStreamer(timeout=0.05)
    with pytest.raises(TimeoutError, match=r"nothing came within 0\.05 s"):
        await anext(streamer)
    streamer.end(TimeoutError("from the generation"))
    with pytest.raises(TimeoutError, match="from the generation"):
        await anext(streamer)


def test_a_loop_that_is_gone_stops_the_generation() -> None:
    async def make() -> AsyncOutputIteratorStreamer:
        return AsyncOutputIteratorStreamer()

    streamer = asyncio.run(make())
    output = tiny_model("llama").generate(**inputs(), **PLAIN, **observe(streamer))
    assert output.shape[1] == 9 + 1


def test_channel_keeps_order_between_threads() -> None:
    channel: Channel[int] = Channel(3)
    in_thread(lambda: ([channel.put(number) for number in range(1000)], channel.end()))
    got = []
    with pytest.raises(Ended):
        while True:
            got.append(channel.get(30))
    assert got == list(range(1000))


def test_channel_counts_the_first_end() -> None:
    channel: Channel[int] = Channel()
    channel.end(LookupError("first"))
    channel.end(None)
    with pytest.raises(LookupError, match="first"):
        channel.get()
    with pytest.raises(Ended):
        channel.get()


async def test_hanging_up_wakes_a_reader_that_waits() -> None:
    streamer = AsyncOutputIteratorStreamer()

    async def read() -> list[PromptOutput | StepOutput]:
        return [output async for output in streamer]

    reading = asyncio.create_task(read())
    await asyncio.sleep(0.05)
    streamer.close()
    async with asyncio.timeout(30):
        assert await reading == []


def test_several_readers_share_the_outputs() -> None:
    streamer = OutputIteratorStreamer(timeout=30, max_queue=1)
    got: list[list[PromptOutput | StepOutput]] = []
    readers = [in_thread(lambda: got.append(list(streamer))) for _ in range(3)]
    tiny_model("llama").generate(**inputs(), **PLAIN, **observe(streamer))
    for reader in readers:
        reader.join(30)
    assert sorted(output.step for part in got for output in part if isinstance(output, StepOutput)) == list(range(6))
    assert len(got) == 3


def test_channel_drops_what_is_held_and_what_still_comes_once_the_reader_hung_up() -> None:
    channel: Channel[int] = Channel()
    channel.put(1)
    channel.close()
    channel.put(2)
    with pytest.raises(Ended):
        channel.get(0)


async def test_async_reader_waits_anew_after_each_output() -> None:
    streamer = AsyncOutputIteratorStreamer(timeout=0.05)
    prompt = PromptOutput(torch.zeros(1, 1))
    streamer.put(prompt)
    assert await anext(streamer) is prompt
    async with asyncio.timeout(30):
        with pytest.raises(TimeoutError, match="nothing came"):
            await anext(streamer)


def test_one_field_may_be_given_as_its_name() -> None:
    assert OutputStreamer(print, fields="logits").fields == {"logits"}  # type: ignore[arg-type]
