"""The text streamers: what the library's own tests expect of its, and batches, errors, ends and live characters."""

from __future__ import annotations

import asyncio
import queue
import threading
import time

import pytest
import torch
import transformers
from hypothesis import given, settings
from hypothesis import strategies as st

from genscope.kernel_side.decoding.observe import observe
from genscope.kernel_side.record.token_bytes import token_bytes_of
from genscope.kernel_side.streaming import text_queue
from genscope.kernel_side.streaming.outputs import PromptOutput, StepOutput
from genscope.kernel_side.streaming.text import (
    AsyncTextIteratorStreamer,
    RowText,
    StreamTimeoutError,
    TextIteratorStreamer,
    TextStreamer,
)
from tiny import EOS, PAD, tiny_model, tiny_tokenizer
from tokenizers_for_tests import EXACT, tokenizer_named

TOKENIZER = tiny_tokenizer()
PROMPT = torch.tensor([[5, 77, 120, 31, 200]])
WAYS = ["plain", "observed"]


@pytest.fixture(scope="module")
def model():
    model = tiny_model("gpt2")
    model.generation_config.eos_token_id = None
    return model


@pytest.fixture(autouse=True)
def _short_grace(monkeypatch):
    monkeypatch.setattr(text_queue, "RESTART_GRACE", 0.2)


def arguments(way, streamer, input_ids=PROMPT, **kwargs):
    tap = {"streamer": streamer} if way == "plain" else observe(streamer)
    mask = (input_ids != PAD).long()
    return {"input_ids": input_ids, "attention_mask": mask, "max_new_tokens": 12, "do_sample": False, **tap, **kwargs}


def in_thread(model, way, streamer, *args, **kwargs):
    thread = threading.Thread(target=model.generate, kwargs=arguments(way, streamer, *args, **kwargs), daemon=True)
    thread.start()
    return thread


def byte_ids(text):
    """One token a byte."""
    known = token_bytes_of(TOKENIZER)
    single = {known.bytes_of(index): index for index in range(3, 259)}
    return [single[bytes([byte])] for byte in text.encode()]


def put_steps(streamer, prompt, rows, *, finished_at=None):
    """Hand over an observed generation's outputs; rows that are through give padding."""
    streamer.put(PromptOutput(torch.tensor(prompt)))
    finished_at = finished_at or [len(row) for row in rows]
    for step in range(max(map(len, rows))):
        streamer.put(
            StepOutput(
                step=step,
                length=len(prompt[0]) + step + 1,
                tokens=torch.tensor([row[step] if step < len(row) else PAD for row in rows]),
                active=torch.tensor([step < len(row) for row in rows]),
                finished=torch.tensor([step + 1 >= at for at in finished_at]),
                seconds=0.0,
            )
        )


# What the library's tests of its streamers expect (tests/generation/test_streamers.py), with models that need no hub.


@pytest.mark.parametrize("way", WAYS)
def test_printed_text_matches_the_decode(model, way, capsys):
    want = TOKENIZER.decode(model.generate(PROMPT, max_new_tokens=12, do_sample=False)[0])
    model.generate(**arguments(way, TextStreamer(TOKENIZER)))
    assert capsys.readouterr().out == want + "\n"
    assert len(want) > 10


@pytest.mark.parametrize("way", WAYS)
def test_iterated_text_matches_the_decode(model, way):
    want = TOKENIZER.decode(model.generate(PROMPT, max_new_tokens=12, do_sample=False)[0])
    streamer = TextIteratorStreamer(TOKENIZER)
    thread = in_thread(model, way, streamer)
    assert "".join(streamer) == want
    thread.join()


@pytest.mark.parametrize("way", WAYS)
def test_skip_prompt(model, way, capsys):
    new = model.generate(PROMPT, max_new_tokens=12, do_sample=False)[0, PROMPT.shape[1] :]
    model.generate(**arguments(way, TextStreamer(TOKENIZER, skip_prompt=True)))
    assert capsys.readouterr().out == TOKENIZER.decode(new) + "\n"


@pytest.mark.parametrize("way", WAYS)
def test_decode_kwargs(model, way, capsys):
    prompt = torch.tensor([[TOKENIZER.bos_token_id] * 5])
    out = model.generate(prompt, max_new_tokens=1, do_sample=False)
    model.generate(**arguments(way, TextStreamer(TOKENIZER, skip_special_tokens=True), prompt, max_new_tokens=1))
    printed = capsys.readouterr().out
    assert printed == TOKENIZER.decode(out[0, -1:]) + "\n"
    assert "<bos>" not in printed


@pytest.mark.parametrize("way", WAYS)
def test_timeout_raises_what_the_library_raises(model, way):
    streamer = TextIteratorStreamer(TOKENIZER, timeout=0.001)
    gate = threading.Event()
    model_is_slow = transformers.StoppingCriteriaList(
        [lambda *_args, **_kwargs: gate.wait(10) and torch.tensor([False])]
    )
    thread = in_thread(model, way, streamer, max_new_tokens=2, stopping_criteria=model_is_slow)
    with pytest.raises(queue.Empty, match=r"no text came within 0.001 s") as caught:
        list(streamer)
    assert isinstance(caught.value, TimeoutError)
    gate.set()
    thread.join()
    assert list(streamer)  # it goes on


@pytest.mark.parametrize("way", WAYS)
async def test_async_iterated_text_matches_the_decode(model, way):
    want = TOKENIZER.decode(model.generate(PROMPT, max_new_tokens=12, do_sample=False)[0])
    streamer = AsyncTextIteratorStreamer(TOKENIZER)
    thread = in_thread(model, way, streamer)
    assert "".join([text async for text in streamer]) == want
    thread.join()


async def test_async_timeout():
    streamer = AsyncTextIteratorStreamer(TOKENIZER, timeout=0.001)
    with pytest.raises(TimeoutError, match="no text came"):
        await anext(streamer)
    streamer.put(torch.tensor([byte_ids("late")]))
    assert await anext(streamer) == "late"


def test_async_needs_a_loop():
    with pytest.raises(RuntimeError, match="no running event loop"):
        AsyncTextIteratorStreamer(TOKENIZER)


@pytest.mark.parametrize("skip_prompt", [False, True])
@pytest.mark.parametrize("name", ["byte_level", "gemma", "unigram", "no_decoder"])
@pytest.mark.parametrize("skip_special", [False, True])
def test_same_text_as_the_library_for_text_of_its_own(name, skip_prompt, skip_special):
    tokenizer = tokenizer_named(name)
    ids = tokenizer.encode("The quick brown fox jumps. It's not what they do, is it?")
    assert len(ids) > 8
    texts = []
    for cls in (TextIteratorStreamer, transformers.TextIteratorStreamer):
        streamer = cls(tokenizer, skip_prompt, skip_special_tokens=skip_special)
        streamer.put(torch.tensor([ids[:4]]))
        for token in ids[4:]:
            streamer.put(torch.tensor([token]))
        streamer.end()
        texts.append("".join(streamer))
    assert texts[0] == texts[1] != ""


@settings(deadline=None, max_examples=60)
@given(data=st.data(), name=st.sampled_from(list(EXACT)), skip_prompt=st.booleans())
def test_text_equals_decode_with_the_same_arguments(data, name, skip_prompt):
    tokenizer = tokenizer_named(name)
    ids = data.draw(st.lists(st.integers(0, len(tokenizer) - 1), min_size=1, max_size=30))
    options = st.sampled_from([{}, {"skip_special_tokens": True}, {"clean_up_tokenization_spaces": True}])
    kwargs = data.draw(options)
    if name == "word_piece":
        kwargs.pop("clean_up_tokenization_spaces", None)
    streamer = TextIteratorStreamer(tokenizer, skip_prompt, **kwargs)
    streamer.put(torch.tensor([ids[:3]]))
    for token in ids[3:]:
        streamer.put(torch.tensor([token]))
    streamer.end()
    assert "".join(streamer) == tokenizer.decode(ids[3:] if skip_prompt else ids, **kwargs)


def test_the_tokenizers_own_default_cleans_up(monkeypatch):
    tokenizer = tokenizer_named("no_decoder")
    monkeypatch.setattr(tokenizer, "clean_up_tokenization_spaces", True)
    streamer = TextIteratorStreamer(tokenizer)
    streamer.put(torch.tensor([tokenizer.encode("is it ?")]))
    streamer.end()
    assert "".join(streamer) == "is it?"


def test_a_processor_is_as_good_as_its_tokenizer():
    class Processor:
        tokenizer = TOKENIZER

    streamer = TextIteratorStreamer(Processor())
    streamer.put(torch.tensor([byte_ids("ok")]))
    streamer.end()
    assert list(streamer) == ["ok"]


# Hooks


@pytest.mark.parametrize("way", WAYS)
def test_a_subclass_gets_every_step_and_the_end_as_from_the_library(model, way):
    class Collects(TextStreamer):
        def __init__(self, *args, **kwargs):
            super().__init__(*args, **kwargs)
            self.calls = []

        def on_finalized_text(self, text, stream_end=False):
            self.calls.append((text, stream_end))

    streamer = Collects(TOKENIZER, skip_prompt=True)
    model.generate(**arguments(way, streamer))
    assert len(streamer.calls) == 13  # one a step, and the end
    assert [end for _, end in streamer.calls] == [False] * 12 + [True]


# Live


def test_text_comes_with_the_token_that_completes_it_and_never_by_half_a_character():
    streamer = TextIteratorStreamer(TOKENIZER, skip_prompt=True, timeout=0)
    streamer.put(torch.tensor([[5]]))
    seen = []
    for token in byte_ids("<b>é😀"):
        streamer.put(torch.tensor([token]))
        try:
            seen.append(next(streamer))
        except queue.Empty:
            seen.append(None)
    assert seen == ["<", "b", ">", None, "é", None, None, None, "😀"]


def test_an_unfinished_character_comes_with_the_end():
    streamer = TextIteratorStreamer(TOKENIZER)
    streamer.put(torch.tensor([byte_ids("a😀")[:3]]))
    streamer.end()
    assert list(streamer) == ["a", "\ufffd"]


def test_assisted_rounds_put_several_tokens():
    streamer = TextIteratorStreamer(TOKENIZER)
    streamer.put(torch.tensor([byte_ids("ab")]))
    streamer.put(torch.tensor([byte_ids("cde")]))
    streamer.end()
    assert list(streamer) == ["ab", "cde"]


# Batches


@pytest.mark.parametrize("way", WAYS)
def test_rows_of_a_real_batch(way):
    model = tiny_model("llama")
    prompt = torch.tensor([[PAD, PAD, 5, 77], [9, 120, 31, 200], [40, 41, 42, 43]])
    kwargs = {"attention_mask": (prompt != PAD).long(), "max_new_tokens": 20, "do_sample": False}
    # Ends one row early, so that it is padded.
    bare = model.generate(prompt, **kwargs)
    model.generation_config.eos_token_id = eos = int(bare[1, 9])
    out = model.generate(prompt, **kwargs)
    ended = out[1].tolist().index(eos, 4) + 1
    assert out[1, ended:].tolist() == [PAD] * (24 - ended) != []
    want = [TOKENIZER.decode(row[row != PAD]) for row in out]

    streamer = TextIteratorStreamer(TOKENIZER)
    thread = in_thread(model, way, streamer, prompt, max_new_tokens=20)
    texts = ["", "", ""]
    for row, text in streamer.rows():
        assert text
        texts[row] += text
    thread.join()
    assert texts == want


def test_rows_come_as_they_are_generated():
    streamer = TextIteratorStreamer(TOKENIZER, skip_prompt=True)
    put_steps(streamer, [[5], [6]], [byte_ids("ab"), byte_ids("c")])
    streamer.end()
    assert list(streamer.rows()) == [RowText(0, "a"), RowText(1, "c"), RowText(0, "b")]


def test_rows_of_a_single_sequence():
    streamer = TextIteratorStreamer(TOKENIZER)
    put_steps(streamer, [byte_ids("x")], [byte_ids("ab")])
    streamer.end()
    assert list(streamer.rows()) == [(0, "x"), (0, "a"), (0, "b")]


async def test_async_rows():
    streamer = AsyncTextIteratorStreamer(TOKENIZER, skip_prompt=True)
    put_steps(streamer, [[5], [6]], [byte_ids("ab"), byte_ids("c")])
    streamer.end()
    assert [item async for item in streamer.rows()] == [(0, "a"), (1, "c"), (0, "b")]


def test_plain_iteration_over_a_batch_says_what_to_do():
    streamer = TextIteratorStreamer(TOKENIZER)
    streamer.put(torch.tensor([byte_ids("a"), byte_ids("b")]))
    with pytest.raises(ValueError, match=r"several rows.*rows\(\)"):
        next(streamer)


def test_batches_print_row_after_row_and_live(capsys):
    streamer = TextStreamer(TOKENIZER, skip_prompt=True)
    printed = []
    real = streamer.put
    streamer.put = lambda value: (real(value), printed.append(capsys.readouterr().out))
    put_steps(streamer, [[5], [6], [7]], [byte_ids("abc"), byte_ids("xé")[:2], byte_ids("pqrs")])
    assert printed == ["", "[0] a", "b", "c\n[1] x\ufffd\n[2] pqr", "s\n"]
    streamer.end()
    assert capsys.readouterr().out == ""


def test_batches_of_plain_ids_print_without_padding(capsys):
    streamer = TextStreamer(TOKENIZER)
    a, b, c = byte_ids("abc")
    for ids in ([[PAD, a], [b, b]], [b, EOS], [c, PAD], [a, PAD]):
        streamer.put(torch.tensor(ids))
    streamer.end()
    assert capsys.readouterr().out == "[0] abca\n[1] bb<eos>\n"


def test_padding_that_was_none_comes_late():
    streamer = TextIteratorStreamer(TOKENIZER, skip_prompt=True)
    a, b = byte_ids("ab")
    for ids in ([[5], [5]], [a, a], [b, PAD], [b, b]):
        streamer.put(torch.tensor(ids))
    streamer.end()
    assert [text for row, text in streamer.rows() if row == 1] == ["a", "<pad>b"]


def test_end_of_sequence_used_as_padding_shows_once():
    tokenizer = tokenizer_named("byte_level")
    eos = tokenizer.eos_token_id
    a = tokenizer.convert_tokens_to_ids("a")
    streamer = TextIteratorStreamer(tokenizer, skip_prompt=True)
    for ids in ([[a], [a]], [a, a], [a, eos], [a, eos], [a, eos]):
        streamer.put(torch.tensor(ids))
    streamer.end()
    assert "".join(text for row, text in streamer.rows() if row == 1) == "a</s>"


def test_another_number_of_rows_is_an_error():
    streamer = TextIteratorStreamer(TOKENIZER)
    streamer.put(torch.tensor([[5, 6], [7, 8]]))
    with pytest.raises(ValueError, match=r"shape \(3,\) do not fit the 2 rows"):
        streamer.put(torch.tensor([1, 2, 3]))


# Ends and errors


class BrokenError(Exception):
    pass


def failing(after):
    calls = 0

    def processor(input_ids, scores):
        nonlocal calls
        calls += 1
        if calls > after:
            raise BrokenError("no more")
        return scores

    return transformers.LogitsProcessorList([processor])


def test_an_error_reaches_the_reader_after_the_text_that_came(model):
    streamer = TextIteratorStreamer(TOKENIZER, skip_prompt=True)
    raised = []

    def run():
        try:
            model.generate(**arguments("observed", streamer, logits_processor=failing(3)))
        except BrokenError as error:
            raised.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    texts = []
    with pytest.raises(BrokenError) as caught:
        texts.extend(streamer)
    thread.join()
    assert caught.value is raised[0]
    assert "".join(texts) == TOKENIZER.decode(model.generate(PROMPT, max_new_tokens=3, do_sample=False)[0, 5:])
    with pytest.raises(StopIteration):
        next(streamer)


async def collect(streamer, texts):
    async for text in streamer:
        texts.append(text)


async def test_an_error_reaches_the_coroutine(model):
    streamer = AsyncTextIteratorStreamer(TOKENIZER, skip_prompt=True)
    kwargs = arguments("observed", streamer, logits_processor=failing(2))
    task = asyncio.create_task(asyncio.to_thread(model.generate, **kwargs))
    texts = []
    with pytest.raises(BrokenError):
        await collect(streamer, texts)
    assert "".join(texts) == TOKENIZER.decode(model.generate(PROMPT, max_new_tokens=2, do_sample=False)[0, 5:])
    with pytest.raises(BrokenError):
        await task
    with pytest.raises(StopAsyncIteration):
        await anext(streamer)


def test_an_error_before_the_first_output_reaches_the_reader():
    streamer = TextIteratorStreamer(TOKENIZER)
    streamer.end(BrokenError("early"))
    with pytest.raises(BrokenError, match="early"):
        list(streamer)


def test_an_error_before_the_first_output_of_a_second_generation_reaches_the_reader():
    streamer = TextIteratorStreamer(TOKENIZER)
    streamer.put(torch.tensor([byte_ids("a")]))
    streamer.end()
    assert list(streamer) == ["a"]
    streamer.end(BrokenError("second"))
    with pytest.raises(BrokenError, match="second"):
        list(streamer)


def test_an_error_of_a_batch_reaches_the_reader_of_its_rows():
    streamer = TextIteratorStreamer(TOKENIZER)
    streamer.put(torch.tensor([byte_ids("a"), byte_ids("b")]))
    streamer.end(BrokenError("batch"))
    seen = []
    with pytest.raises(BrokenError, match="batch"):
        seen.extend(streamer.rows())
    assert seen == [(0, "a"), (1, "b")]


def test_printing_gives_what_came_and_a_line_end_after_an_error(capsys):
    streamer = TextStreamer(TOKENIZER)
    streamer.put(torch.tensor([byte_ids("abc")]))
    streamer.end(BrokenError())
    assert capsys.readouterr().out == "abc\n"


def test_a_second_end_does_nothing(capsys):
    error = BrokenError()
    streamer = TextStreamer(TOKENIZER)
    streamer.put(torch.tensor([byte_ids("abc")]))
    for argument in (None, None, error, error):
        streamer.end(argument)
    # The error is news, and its stream is empty.
    assert capsys.readouterr().out == "abc\n\n"
    iterator = TextIteratorStreamer(TOKENIZER)
    iterator.put(torch.tensor([byte_ids("abc")]))
    iterator.end()
    iterator.end()
    assert iterator.text_queue.qsize() == 3  # text, empty rest, end


def test_after_the_end_everything_stops():
    streamer = TextIteratorStreamer(TOKENIZER)
    streamer.put(torch.tensor([byte_ids("a")]))
    streamer.end()
    assert list(streamer) == ["a"]
    began = time.perf_counter()
    for _ in range(3):
        with pytest.raises(StopIteration):
            next(streamer)
    assert time.perf_counter() - began < 0.1
    assert list(streamer) == []  # waits for another generation, but not for ever
    assert list(streamer.rows()) == []


async def test_after_the_end_everything_stops_async():
    streamer = AsyncTextIteratorStreamer(TOKENIZER)
    streamer.put(torch.tensor([byte_ids("a")]))
    streamer.end()
    assert [text async for text in streamer] == ["a"]
    with pytest.raises(StopAsyncIteration):
        await anext(streamer)
    assert [text async for text in streamer] == []


@pytest.mark.parametrize("way", WAYS)
def test_a_streamer_serves_one_generation_after_another(model, way, monkeypatch):
    monkeypatch.setattr(text_queue, "RESTART_GRACE", 30)
    streamer = TextIteratorStreamer(TOKENIZER, skip_prompt=True)
    for prompt in (PROMPT, PROMPT.flip(1), PROMPT[:, :2]):
        want = TOKENIZER.decode(model.generate(prompt, max_new_tokens=12, do_sample=False)[0, prompt.shape[1] :])
        thread = in_thread(model, way, streamer, prompt)
        assert "".join(streamer) == want  # most often begins to read before the generation begins
        thread.join()


def test_a_second_generation_may_be_slow_once_it_has_begun(monkeypatch):
    monkeypatch.setattr(text_queue, "RESTART_GRACE", 0.05)
    streamer = TextIteratorStreamer(TOKENIZER)
    streamer.put(torch.tensor([byte_ids("a")]))
    streamer.end()
    assert list(streamer) == ["a"]
    streamer.put(torch.tensor([byte_ids("b")]))
    late = threading.Timer(0.3, lambda: (streamer.put(torch.tensor(byte_ids("c"))), streamer.end()))
    late.start()
    assert list(streamer) == ["b", "c"]
    late.join()


def test_a_second_generation_may_have_another_batch_size(capsys):
    streamer = TextStreamer(TOKENIZER, skip_prompt=True)
    for prompt, rows in (([[5], [6]], ["ab", "c"]), ([[5]], ["d"]), ([[5], [6], [7]], ["e", "f", "g"])):
        put_steps(streamer, prompt, [byte_ids(row) for row in rows])
        streamer.end()
    assert capsys.readouterr().out == "[0] ab\n[1] c\nd\n[0] e\n[1] f\n[2] g\n"


def test_closing_stops_an_observed_generation(model):
    streamer = TextIteratorStreamer(TOKENIZER, skip_prompt=True)
    kwargs = arguments("observed", streamer, max_new_tokens=400)
    lengths = []
    thread = threading.Thread(target=lambda: lengths.append(model.generate(**kwargs).shape[1]), daemon=True)
    thread.start()
    with streamer:
        next(streamer)
    thread.join()
    assert 5 < lengths[0] < 405
    assert list(streamer) == []


def test_closing_wakes_a_reader():
    streamer = TextIteratorStreamer(TOKENIZER)
    read = []
    reader = threading.Thread(target=lambda: read.append(list(streamer)), daemon=True)
    reader.start()
    time.sleep(0.05)
    streamer.close()
    reader.join(5)
    assert read == [[]]


@pytest.mark.parametrize("way", WAYS)
def test_a_reader_whose_loop_is_gone_does_not_break_the_generation(model, way):
    async def leave_early():
        streamer = AsyncTextIteratorStreamer(TOKENIZER)
        streamer.put(torch.tensor([byte_ids("a")]))
        assert await anext(streamer) == "a"
        streamer.end()
        return streamer

    streamer = asyncio.run(leave_early())
    out = model.generate(**arguments(way, streamer))
    assert out.shape[1] == (17 if way == "plain" else 6)  # an observed one stops, as nobody listens
    assert streamer.closed


async def test_cancelling_the_reader_leaves_the_generation_alone(model):
    streamer = AsyncTextIteratorStreamer(TOKENIZER)
    reader = asyncio.create_task(anext(streamer))
    await asyncio.sleep(0)
    reader.cancel()
    with pytest.raises(asyncio.CancelledError):
        await reader
    await asyncio.to_thread(model.generate, **arguments("plain", streamer))
    assert "".join([text async for text in streamer]) == TOKENIZER.decode(
        model.generate(PROMPT, max_new_tokens=12, do_sample=False)[0]
    )


def test_our_timeout_is_both_kinds():
    assert issubclass(StreamTimeoutError, queue.Empty)
    assert issubclass(StreamTimeoutError, TimeoutError)


def test_left_padding_is_left_out_of_an_observed_prompt():
    streamer = TextIteratorStreamer(TOKENIZER)
    ids = byte_ids("ab")
    streamer.put(PromptOutput(torch.tensor([[PAD, *ids]]), torch.tensor([[0, 1, 1]])))
    streamer.end()
    assert list(streamer) == ["ab"]
