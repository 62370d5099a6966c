"""What executions are worth on this machine: each over eager, on the demo model.

Plain ``generate``, no observing; the ways are interleaved, and each figure is a ratio of medians. Every way generates
in one thread of its own (see ``observe.py``). The last line is one JSON object, with for each execution:

``<execution>_prepare_seconds``
    spent making graphs and comparing them, for all of the workloads below; of ``exported`` with nothing kept on disk
``<execution>_speedup_decode``
    eager time a token over its time: greedy, 32 prompt and 128 new tokens, after the first
``<execution>_speedup_beam4``
    eager time over its time: 4 beams, 32 prompt and 32 new tokens
``<execution>_speedup_prefill512``
    eager time over its time to the first token of 512
``<execution>_peak_memory``
    most bytes that a process of its own took to load, prepare and decode, over those of one that decodes eagerly

and

``bandwidth_limit_share``
    time that reading all weights once takes at the bandwidth measured here, over the best time a token: 1 is the limit
``best_over_llamacpp_f32``
    the best time a token over llama.cpp's with the same weights in float32; null where xllamacpp is not installed
    (``pip install xllamacpp``)
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import torch
from yardsticks.llamacpp import LlamaCpp, available, in_float32

from genscope.kernel_side.idle_threads import release_threads
from genscope.kernel_side.models import load_model
from genscope.kernel_side.tracing.trace import EXECUTIONS, trace

TEXT = "The history of measuring is long. The first microscope, the first telescope, the first oscilloscope and so on. "
SHORT, LONG, NEW, BEAM_NEW, BEAMS = 32, 512, 128, 32, 4


def main() -> None:
    """Measure, print each round, and the figures last."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", nargs="+", choices=[*EXECUTIONS], help="these executions, beside eager")
    parser.add_argument("--peak", choices=[*EXECUTIONS], help=argparse.SUPPRESS)
    parser.add_argument("--kept", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.peak:
        print(peak(given.peak, given.kept))
        return
    names = [name for name in (given.only or EXECUTIONS) if name != "eager"]
    with tempfile.TemporaryDirectory() as kept, ExitStack() as stack:
        figures = measure(names, given.rounds, stack, kept)
        figures |= memory(names, kept)
    print(json.dumps({name: value if value is None else round(value, 3) for name, value in figures.items()}))


def measure(names: list[str], rounds: int, stack: ExitStack, kept: str) -> dict[str, float | None]:
    """Compare executions in time."""
    model: Any
    with ThreadPoolExecutor(1) as thread:
        model, tokenizer = thread.submit(load_model, "demo").result()
        os.environ["GENSCOPE_CACHE"] = kept  # of exported graphs, from here on: nothing is there yet
        ids = tokenizer(TEXT * 60)["input_ids"]
        views = {"eager": model} | {name: trace(model, name) for name in names}
        figures: dict[str, float | None] = {}
        for name in names:
            thread.submit(prepare, views[name], ids).result()
            cost = views[name].execution.cost
            figures[f"{name}_prepare_seconds"] = cost.seconds
            print(f"{name}: {len(cost.graphs)} graphs, fallbacks {dict(views[name].execution.fallbacks)}")
        llama = LlamaCpp(stack.enter_context(in_float32()), torch.get_num_threads()) if available() else None
        times: dict[tuple[str, str], list[float]] = {}
        release_threads()  # as a run does: the main thread has looked at the model
        for _ in range(rounds):
            for name, view in views.items():
                for work, seconds in thread.submit(workloads, view, ids).result().items():
                    times.setdefault((name, work), []).append(seconds)
            if llama is not None:
                times.setdefault(("llama.cpp", "decode"), []).append(llama.per_token(ids[:SHORT], NEW))
            show(times)
        reading = thread.submit(bandwidth).result()
    medians = {key: statistics.median(values) for key, values in times.items()}
    for name in names:
        for work in ("decode", "beam4", "prefill512"):
            figures[f"{name}_speedup_{work}"] = medians["eager", work] / medians[name, work]
    best = min(medians[name, "decode"] for name in views)
    weights = sum({id(one): one.nbytes for one in model.parameters()}.values())
    figures["bandwidth_limit_share"] = weights / reading / best
    figures["best_over_llamacpp_f32"] = None if llama is None else best / medians["llama.cpp", "decode"]
    return figures


def prepare(view: Any, ids: list[int]) -> None:
    """Have all graphs made and compared that the workloads need."""
    for length in (SHORT, LONG, SHORT + 1):
        generate(view, ids[:length], 4)
        generate(view, ids[:length], 4, num_beams=BEAMS)


def workloads(view: Any, ids: list[int]) -> dict[str, float]:
    """Return seconds: a decoded token, a beam search, a prefill."""
    first = generate(view, ids[:SHORT], 1)
    return {
        "decode": (generate(view, ids[:SHORT], NEW + 1) - first) / NEW,
        "beam4": generate(view, ids[:SHORT], BEAM_NEW, num_beams=BEAMS),
        "prefill512": generate(view, ids[:LONG], 1),
    }


def generate(view: Any, ids: list[int], new: int, **arguments: Any) -> float:
    """Generate greedily; return the seconds."""
    asked = torch.tensor([ids])
    plain = {"max_new_tokens": new, "do_sample": False, "eos_token_id": None}
    began = time.perf_counter()
    view.generate(asked, attention_mask=torch.ones_like(asked), **plain | arguments)
    return time.perf_counter() - began


def bandwidth() -> float:
    """Return the bytes that this machine reads a second, the best of several passes over much more than its caches."""
    much = torch.ones(2**27)  # 512 MiB
    seconds = []
    for _ in range(7):
        began = time.perf_counter()
        much.sum()
        seconds.append(time.perf_counter() - began)
    return much.nbytes / min(seconds)


def peak(name: str, kept: str) -> int:
    """Prepare and decode in this process; return the most bytes that it took. Exported graphs are those made before."""
    model: Any
    model, tokenizer = load_model("demo", progress=None)
    os.environ["GENSCOPE_CACHE"] = kept
    generate(trace(model, name), tokenizer(TEXT * 3)["input_ids"][:SHORT], 8)
    status = Path("/proc/self/status")
    if status.exists():  # what getrusage says begins with the parent's
        [line] = [line for line in status.read_text().splitlines() if line.startswith("VmHWM:")]
        return int(line.split()[1]) * 1024
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def memory(names: list[str], kept: str) -> dict[str, float | None]:
    """Compare the memory that processes take."""
    peaks = {}
    for name in ("eager", *names):
        command = [sys.executable, __file__, "--peak", name, "--kept", kept]
        peaks[name] = int(subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()[-1])
    return {f"{name}_peak_memory": peaks[name] / peaks["eager"] for name in names}


def show(times: dict[tuple[str, str], list[float]]) -> None:
    """Print a round, over eager, never in seconds: machines differ, and are busy."""
    eager = {work: values[-1] for (name, work), values in times.items() if name == "eager"}
    print({f"{name} {work}": round(values[-1] / eager[work], 3) for (name, work), values in times.items()})


if __name__ == "__main__":
    main()
