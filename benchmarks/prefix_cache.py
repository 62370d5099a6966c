"""What the prefix cache is worth: with it over without it, on the demo model.

Runs are as a person's: queued, recorded, in a thread. Ways are interleaved, and each figure is a ratio of
medians. The last line is one JSON object:

``ttft_warm_over_cold``
    time to first token of a prompt whose first 1,000 tokens are known, over that of one of which nothing is; 16 new
    tokens are generated behind each. The prompts have one token more, which is another one each time.
``ttft_warm_over_cold_16_more``
    the same of prompts with 16 tokens behind the 1,000: a pass over several tokens is dearer than a decode step
``branch_ttft_over_decode_step``
    time to first token of a branch at the middle of a 256-token run, over the time of a token in that run
``branch_over_starting_over``
    time to first token of that branch, over that of the same ids without a cache
``environment_cached_over_uncached``
    an environment of five tool turns with the cache, over without; the model is made to write a call each turn
``bytes_held``
    by the cache, at the end of the runs
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, cast

import torch
from transformers import LogitsProcessor, LogitsProcessorList

from genscope.kernel_side.caching.prefix_cache import PrefixCache
from genscope.kernel_side.engines.in_process import InProcessEngine
from genscope.kernel_side.environment.environment import TextEnvironment
from genscope.kernel_side.models import load_model
from genscope.kernel_side.request import Request
from genscope.kernel_side.run import Run

SHARED, NEW, LONG = 1000, 16, 256
TURNS = 5
STORY = (
    "The history of measuring is long. The first microscope, the first telescope, the first oscilloscope and so on. "
)
CALL = "<request><log>that day<call>"
ANSWER = (
    "On that day the harbour was closed, the wind came from the north and the ferry did not leave before noon. " * 4
)


def main() -> None:
    """Measure, print each round, and the figures last."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--rounds", type=int, default=5)
    rounds = parser.parse_args().rounds

    model: Any
    with ThreadPoolExecutor(1) as loader:  # so that the main thread computes nothing, see observe.py
        model, tokenizer = loader.submit(load_model, "demo").result()
        prefixes = PrefixCache(2**31)
        cached, plain = InProcessEngine(model, tokenizer, prefix_cache=prefixes), InProcessEngine(model, tokenizer)
        figures = prompts(cached, plain, rounds) | branches(cached, plain, rounds)
        figures["environment_cached_over_uncached"] = loader.submit(environments, model, tokenizer, rounds).result()
    figures["bytes_held"] = prefixes.stats().nbytes
    print(json.dumps({name: round(value, 4) for name, value in figures.items()}))


def first_token(run: Run, reused: int | None = None) -> float:
    """Return a run's time to its first token; it must have reused so many."""
    status = run.wait().status()
    assert status.first_token is not None
    assert (status.reuse and status.reuse.reused) == reused, status.reuse
    return status.first_token


def behind(engine: InProcessEngine, ids: Sequence[int], **settings: Any) -> Run:
    """Generate behind ids."""
    request = Request(("-",), Request.make("-", stop_at_eos=False, **settings).settings, ids=tuple(ids))
    return Run(engine, request)


def prompts(cached: InProcessEngine, plain: InProcessEngine, rounds: int) -> dict[str, float]:
    """Compare prompts that begin alike with prompts of which nothing is known."""
    ids = cached.tokenizer(STORY * 80)["input_ids"]
    shared, others = ids[:SHARED], iter(range(1000, 1000 + 10 * rounds))
    behind(cached, [*shared, 999], max_new_tokens=NEW).wait()
    seconds: dict[str, list[float]] = {"warm": [], "cold": [], "warm 16": [], "cold 16": []}
    for _ in range(rounds):
        for name, more in (("", 1), (" 16", 16)):
            asked = [*shared, next(others), *ids[: more - 1]]
            seconds["cold" + name].append(first_token(behind(plain, asked, max_new_tokens=NEW)))
            seconds["warm" + name].append(first_token(behind(cached, asked, max_new_tokens=NEW), SHARED))
        show(seconds)
    return {
        "ttft_warm_over_cold": ratio(seconds, "warm", "cold"),
        "ttft_warm_over_cold_16_more": ratio(seconds, "warm 16", "cold 16"),
    }


def branches(cached: InProcessEngine, plain: InProcessEngine, rounds: int) -> dict[str, float]:
    """Compare a branch in the middle of a run with a decode step of the run, and with starting over."""
    seconds: dict[str, list[float]] = {"branch": [], "step": [], "over": []}
    for number in range(rounds):
        run = Run(cached, Request.make(STORY, max_new_tokens=LONG, stop_at_eos=False)).wait()
        speed = run.status().tokens_per_second
        assert speed is not None
        at = run.prompt_tokens + LONG // 2
        seconds["step"].append(1 / speed)
        seconds["branch"].append(first_token(run.branch(at, 2000 + number, max_new_tokens=NEW), at))
        seconds["over"].append(first_token(behind(plain, [*run.record.ids()[:at], 2000 + number], max_new_tokens=NEW)))
        show(seconds)
    return {
        "branch_ttft_over_decode_step": ratio(seconds, "branch", "step"),
        "branch_over_starting_over": ratio(seconds, "branch", "over"),
    }


def environments(model: Any, tokenizer: Any, rounds: int) -> float:
    """Compare an environment that keeps what it computed with one that does not."""
    seconds: dict[str, list[float]] = {"cached": [], "uncached": []}
    written = tokenizer(CALL, add_special_tokens=False)["input_ids"]
    for _ in range(rounds):
        texts = []
        for name, times in seconds.items():
            environment = TextEnvironment(
                model,
                tokenizer,
                {"log": lambda _: ANSWER},
                prompt=STORY * 40,  # some 1,000 tokens, as a prompt with instructions and examples has
                max_turns=TURNS,
                max_tool_reponse=len(ANSWER),
                generation_kwargs={
                    "max_new_tokens": len(written),
                    "do_sample": False,
                    "logits_processor": LogitsProcessorList([Writes(written)]),
                },
                use_cache=name == "cached",
            )
            began = time.perf_counter()
            [history] = environment.run(["What was it like?"])[4]
            times.append(time.perf_counter() - began)
            texts.append(history.text)
        assert texts[0] == texts[1]
        assert texts[0].count(ANSWER) == TURNS
        show(seconds)
    return ratio(seconds, "cached", "uncached")


class Writes(LogitsProcessor):
    """Makes a model write these tokens, again and again."""

    def __init__(self, ids: list[int]) -> None:
        self._ids = ids

    def __call__(self, input_ids: torch.LongTensor, scores: torch.FloatTensor) -> torch.FloatTensor:
        """Leave the next of the tokens as the only candidate."""
        row, ids = input_ids[0].tolist(), self._ids
        written = next(count for count in range(len(ids) - 1, -1, -1) if row[len(row) - count :] == ids[:count])
        allowed = torch.full_like(scores, -torch.inf)
        allowed[:, ids[written]] = 0.0
        return cast("torch.FloatTensor", allowed)


def ratio(seconds: dict[str, list[float]], one: str, other: str) -> float:
    """Return a median over another."""
    return statistics.median(seconds[one]) / statistics.median(seconds[other])


def show(seconds: dict[str, list[float]]) -> None:
    """Print the last round, as shares of its longest."""
    longest = max(times[-1] for times in seconds.values())
    print({name: round(times[-1] / longest, 3) for name, times in seconds.items()}, flush=True)


if __name__ == "__main__":
    main()
