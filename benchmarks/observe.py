"""What observing costs: tokens a second with it, over tokens a second without.

The demo model, greedy, 32 prompt and 128 new tokens; the ways are interleaved, so that a busy minute of the machine
hits all alike, and each figure is a ratio of medians. The last line is one JSON object:

``text_streamer_over_bare``
    plain ``generate`` with the library's ``TextIteratorStreamer``, read in this thread
``record_over_bare``
    a run with the full record: measures, top-10 alternatives, texts
``widget_over_bare``
    the same, and a widget that sends it to a front end in a real kernel's place (messages are serialised, then dropped)

1 is free; 0.95 means that it costs 5% of the tokens a second.

Every way generates in a thread of its own, the bare one too, and the main thread computes nothing. OpenMP keeps a team
of workers for each thread that ever computed; with more of them than cores they sleep between steps instead of
spinning, which on two cores cost 3.6% and has nothing to do with observing.
"""

from __future__ import annotations

import argparse
import json
import statistics
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import torch
from transformers import PreTrainedTokenizerBase, TextIteratorStreamer

from genscope.kernel_side.engines.in_process import InProcessEngine
from genscope.kernel_side.models import load_model
from genscope.kernel_side.request import Request
from genscope.kernel_side.run import Run

TEXT = "The history of measuring is long. The first microscope, the first telescope, the first oscilloscope and so on. "
PROMPT, NEW = 32, 128


def main() -> None:
    """Measure, print each round, and the figures last."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--rounds", type=int, default=7)
    rounds = parser.parse_args().rounds

    model: Any
    with ThreadPoolExecutor(1) as loader:
        model, tokenizer = loader.submit(load_model, "demo").result()
    ids = tokenizer(TEXT * 3)["input_ids"][:PROMPT]
    prompt = str(tokenizer.decode(ids))
    assert tokenizer(prompt)["input_ids"] == ids
    ways: dict[str, Callable[[], object]] = {
        "bare": lambda: bare(model, ids),
        "text_streamer": lambda: text_streamer(model, tokenizer, ids),
        "record": lambda: record(model, tokenizer, prompt),
        "widget": Widget(model, tokenizer, prompt),
    }
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    for way in ways.values():
        way()  # warm
    for number in range(rounds):
        # Each round in another order: what runs after what must not matter.
        names = list(ways)[number % len(ways) :] + list(ways)[: number % len(ways)]
        for name in names:
            seconds[name].append(timed(ways[name]))
        print({name: round(times[-1] / seconds["bare"][-1], 3) for name, times in seconds.items()}, flush=True)
    median = {name: statistics.median(times) for name, times in seconds.items()}
    figures = {f"{name}_over_bare": round(median["bare"] / median[name], 4) for name in ways if name != "bare"}
    print(json.dumps(figures))


def timed(way: Callable[[], object]) -> float:
    """Return the seconds that one generation takes."""
    began = time.perf_counter()
    way()
    return time.perf_counter() - began


def arguments(ids: list[int]) -> dict[str, Any]:
    """Return the arguments of ``generate`` for exactly :data:`NEW` greedy tokens."""
    tensor = torch.tensor([ids])
    return {
        "input_ids": tensor,
        "attention_mask": torch.ones_like(tensor),
        "max_new_tokens": NEW,
        "do_sample": False,
        "eos_token_id": None,
    }


def bare(model: Any, ids: list[int]) -> None:
    """Generate, observed by nobody."""
    thread = threading.Thread(target=model.generate, kwargs=arguments(ids))
    thread.start()
    thread.join()


def text_streamer(model: Any, tokenizer: PreTrainedTokenizerBase, ids: list[int]) -> None:
    """Generate with the library's own streamer."""
    streamer = TextIteratorStreamer(tokenizer)
    thread = threading.Thread(target=model.generate, kwargs=arguments(ids) | {"streamer": streamer})
    thread.start()
    for _ in streamer:
        pass
    thread.join()


def request(prompt: str) -> Request:
    """Ask for the same generation as :func:`arguments`."""
    return Request.make(prompt, max_new_tokens=NEW, stop_at_eos=False)


def record(model: Any, tokenizer: PreTrainedTokenizerBase, prompt: str) -> None:
    """Generate with the full record."""
    run = Run(InProcessEngine(model, tokenizer), request(prompt)).wait()
    assert len(run.record) == PROMPT + NEW


class Widget:
    """Generate with the full record and a widget."""

    def __init__(self, model: Any, tokenizer: PreTrainedTokenizerBase, prompt: str) -> None:
        from genscope.widget import Scope

        self.scope = Scope(model, tokenizer, prompt=prompt, max_new_tokens=NEW, stop_at_eos=False)

    def __call__(self) -> None:
        """Generate once."""
        run = self.scope.generate().wait()
        assert len(run.record) == PROMPT + NEW


if __name__ == "__main__":
    main()
