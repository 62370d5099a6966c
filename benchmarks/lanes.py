"""What lanes of a comparison cost as rows of one batch, on the demo model.

Ways are interleaved, and each figure is a ratio of medians. The last line is one JSON object:

``lanes8_over_lane1``
    time of a comparison of eight lanes (four settings with two seeds each), over that of one lane; 128 prompt and 64
    new tokens, which all lanes share and generate
``lanes8_over_8_runs``
    the same over eight runs, one after the other
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from genscope.kernel_side.comparison.comparison import Comparison
from genscope.kernel_side.engines.in_process import InProcessEngine
from genscope.kernel_side.models import load_model

TEXT = "The history of measuring is long. The first microscope, the first telescope, the first oscilloscope and so on. "
PROMPT, NEW = 128, 64
SETTINGS: tuple[dict[str, Any], ...] = (
    {"temperature": 0.7},
    {"temperature": 1.0, "top_k": 0, "top_p": 0.9},
    {"temperature": 1.2, "top_k": 20},
    {"min_p": 0.05, "top_k": 0},
)
SEEDS = (1, 2)


def main() -> None:
    """Measure, print each round, and the figures last."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--rounds", type=int, default=5)
    rounds = parser.parse_args().rounds
    model: Any
    with ThreadPoolExecutor(1) as loader:  # so that the main thread computes nothing, see observe.py
        model, tokenizer = loader.submit(load_model, "demo").result()
    engine = InProcessEngine(model, tokenizer)
    prompt = str(tokenizer.decode(tokenizer(TEXT * 20)["input_ids"][:PROMPT]))
    seconds: dict[str, list[float]] = {"8 lanes": [], "1 lane": [], "8 runs": []}
    for number in range(rounds + 1):
        taken = {
            "8 lanes": timed(engine, prompt, SETTINGS, SEEDS),
            "1 lane": statistics.fmean(timed(engine, prompt, [one], SEEDS[:1]) for one in SETTINGS),
            "8 runs": sum(timed(engine, prompt, [one], [seed]) for one in SETTINGS for seed in SEEDS),
        }
        if number:  # the first one warms up
            for name, value in taken.items():
                seconds[name].append(value)
            print({name: round(value / taken["1 lane"], 3) for name, value in taken.items()}, flush=True)
    lanes, one, runs = (statistics.median(seconds[name]) for name in seconds)
    print(json.dumps({"lanes8_over_lane1": round(lanes / one, 3), "lanes8_over_8_runs": round(lanes / runs, 3)}))


def timed(engine: InProcessEngine, prompt: str, settings: Sequence[dict[str, Any]], seeds: Sequence[int]) -> float:
    """Run a comparison; return the seconds."""
    began = time.perf_counter()
    base = {"strategy": "sample", "max_new_tokens": NEW, "stop_at_eos": False}
    comparison = Comparison(engine, prompt, settings, seeds=seeds, base=base).wait()
    assert len(comparison.runs) == 1
    assert [one.lane.generated for one in comparison.lanes] == [NEW] * len(comparison.lanes)
    return time.perf_counter() - began


if __name__ == "__main__":
    main()
