"""Exported execution against eager generation, and the life of a package: made, kept, loaded elsewhere, let go.

Compiling takes minutes in all, so packages are kept in ``build/cache`` for later sessions, until a file that decides
what is in them changes.
"""

from __future__ import annotations

import gc
import hashlib
import inspect
import json
import os
import shutil
import subprocess
import sys
import threading
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from transformers import DynamicCache

from cached_runs import model_of
from execution_checks import CASES, check, check_streamed, generate, prompt
from genscope.kernel_side.tracing import exported, packages
from genscope.kernel_side.tracing.compiler import require_compiler
from genscope.kernel_side.tracing.trace import trace
from genscope.kernel_side.tracing.use import Use

ROOT = Path(__file__).resolve().parents[3]
KINDS = ("llama", "gpt2", "gemma3", "qwen3", "t5")


@pytest.fixture(scope="module", autouse=True)
def quick() -> Iterator[None]:
    """Compile what calls the kernels without optimising it: half the time."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(exported._OPTIONS, "aot_inductor.compile_wrapper_opt_level", "O0")
        yield


@pytest.fixture(scope="module")
def shared_cache() -> Iterator[Path]:
    names = ("exported", "exporting", "fingerprint", "packages", "situation", "step")
    sources = [ROOT / "kernel_side" / "tracing" / f"{name}.py" for name in names]
    said = hashlib.sha256(b"".join(source.read_bytes() for source in sources)).hexdigest()[:16]
    cache = ROOT / "build" / "cache" / "exported-tests" / said
    for other in cache.parent.glob("*"):
        if other != cache:
            shutil.rmtree(other, ignore_errors=True)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GENSCOPE_CACHE", str(cache))
        yield cache


@pytest.fixture
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("GENSCOPE_CACHE", str(tmp_path))
    return tmp_path / "exported"


@pytest.fixture(scope="module", params=KINDS)
def pair(request: pytest.FixtureRequest, shared_cache: Path) -> tuple[Any, Any]:
    model = model_of(request.param)
    return model, trace(model, "exported")


def one_pass(view: Any, *, rows: int = 1, fed: int = 1) -> torch.Tensor:
    """Run a pass from the start: the smallest thing that needs a graph."""
    with torch.no_grad():
        output = view(input_ids=torch.full((rows, fed), 5), cache=DynamicCache(config=view.config))
    logits: torch.Tensor = output.logits
    return logits


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("case", CASES)
def test_a_package_gives_the_same_tokens(pair: tuple[Any, Any], case: str) -> None:
    model, view = pair
    check(case, model, view, exact=False)
    assert not view.execution.fallbacks


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_streamed_steps_are_what_generate_returns(pair: tuple[Any, Any]) -> None:
    check_streamed(pair[1])


@pytest.mark.slow
def test_one_graph_serves_all_lengths_down_to_one_and_any_rows(shared_cache: Path) -> None:
    model = model_of("llama")
    view = trace(model, "exported")
    for rows, length in ((1, 11), (2, 9), (1, 2), (6, 5), (1, 40)):
        inputs = {"input_ids": prompt(rows, length)["input_ids"].clamp(min=3)}
        for _ in range(2):
            plain, ours = generate(model, inputs), generate(view, inputs)
            assert torch.equal(ours.sequences, plain.sequences)
            assert float((torch.stack(ours.logits) - torch.stack(plain.logits)).abs().max()) < 2e-4
    # One row and more share the first; few rows have a graph of their own behind it, and more share one.
    assert view.execution.cost.graphs == (
        "several tokens from the start",
        "one token on a cache",
        "one token on a cache, 2 rows",
        "one token on a cache, several rows",
    )
    # From a prompt of one token, the cache holds one.
    padded = {"input_ids": torch.tensor([[7], [9]]), "attention_mask": torch.tensor([[1], [1]])}
    for _ in range(3):
        plain, ours = generate(model, padded), generate(view, padded)
        assert torch.equal(ours.sequences, plain.sequences)
        assert float((torch.stack(ours.logits) - torch.stack(plain.logits)).abs().max()) < 2e-4
    assert not view.execution.fallbacks


LOADS = """
import json, sys, time
sys.path.insert(0, {tests!r})
import torch
torch.set_num_threads(1)
import torch._inductor
from cached_runs import model_of
from execution_checks import CASES
from genscope.kernel_side.tracing import exported
from genscope.kernel_side.tracing.trace import trace

def never(*_, **__):
    raise AssertionError("made again")

torch.export.export = torch._inductor.aoti_compile_and_package = exported.export = never
exported._OPTIONS["aot_inductor.compile_wrapper_opt_level"] = "O0"
model = model_of("llama")
view = trace(model, "exported")
for _ in range(2):
    tokens, _ = CASES["beam"](model, view, "exported")
execution = view.execution
print(json.dumps([tokens.tolist(), dict(execution.fallbacks), execution.cost.graphs, execution.cost.seconds]))
"""


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_another_process_loads_in_a_tenth_of_the_time_that_making_took(shared_cache: Path) -> None:
    model = model_of("llama")
    CASES["beam"](model, trace(model, "exported"), "exported")
    made = {one.name: one.seconds for one in packages.kept()}
    code = LOADS.format(tests=str(ROOT / "tests"))
    environment = {**os.environ, "PYTHONHASHSEED": "12345"}
    ran = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    tokens, fallbacks, graphs, seconds = json.loads(ran.stdout.splitlines()[-1])
    assert tokens == CASES["beam"](model, model, "eager")[0].tolist()
    assert fallbacks == {}
    assert len(graphs) == 2
    # The cheapest two that are kept for any model.
    assert seconds < sum(sorted(made.values())[:2]) / 10
    assert ran.stderr == ""


@pytest.mark.slow
def test_a_package_is_made_once_and_made_again_only_where_it_is_damaged(
    own_cache: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    model = model_of("llama")
    made: list[str] = []
    make = exported._make

    def counting(name: str, *others: Any) -> None:
        made.append(name)
        make(name, *others)

    monkeypatch.setattr(exported, "_make", counting)
    use = Use("exported")
    stages: list[str] = []
    monkeypatch.setattr(use, "stage", stages.append)
    first = trace(model, "exported")
    with first.execution.used(use):
        one_pass(first)
    assert not first.execution.fallbacks
    assert stages == ["loading", "exporting", "compiling", "loading", "comparing with eager"]
    assert capfd.readouterr() == ("", "")
    [kept] = packages.kept()
    assert kept.what == "LlamaForCausalLM: one token from the start"
    # The weights are not in it: these are hundreds of kilobytes of library.
    assert kept.bytes < 4_000_000
    assert {path.suffix for path in own_cache.iterdir()} == {".pt2", ".json", ".lock"}

    # What it held while it was made is let go, and the weights with it.
    weight = weakref.ref(model.model.layers[0].self_attn.q_proj.weight)
    [graph] = [weakref.ref(one) for one in first.execution._graphs.values()]
    first.execution.close()
    gc.collect()
    assert graph() is None
    del model, first
    gc.collect()
    assert weight() is None
    if sys.platform == "linux":
        assert kept.name not in Path("/proc/self/maps").read_text()

    again = trace(model_of("llama"), "exported")
    one_pass(again)
    assert again.execution.cost.graphs
    assert made == [kept.name]

    package = own_cache / f"{kept.name}.pt2"
    content = bytearray(package.read_bytes())
    content[len(content) // 2] ^= 1
    package.write_bytes(content)
    monkeypatch.setattr(exported, "_make", lambda name, *_: made.append(name))
    damaged = trace(model_of("llama"), "exported")
    one_pass(damaged)
    assert made == [kept.name, kept.name]
    assert damaged.execution.fallbacks == {"its package was made, and cannot be loaded": 1}


class Adding(nn.Module):
    """Adds tensors that are neither parameters nor buffers."""

    def __init__(self) -> None:
        super().__init__()
        self.table = torch.linspace(-1, 1, 32)

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        return hidden + self.table + torch.tensor([0.25 * at for at in range(32)])


@pytest.mark.slow
def test_constants_that_are_none_of_the_models_weights_come_along(own_cache: Path) -> None:
    def changed() -> Any:
        model = model_of("gpt2")
        model.transformer.ln_f = nn.Sequential(model.transformer.ln_f, Adding()).eval()
        return model

    for make_again in (True, False):
        model = changed()
        view = trace(model, "exported")
        for size in (3, 4, 5, 5):
            assert torch.allclose(one_pass(view, fed=size), one_pass(model, fed=size), atol=2e-4)
        assert not view.execution.fallbacks
        assert view.execution.passes == 2
        assert len(packages.kept()) == 1, make_again


def test_without_a_compiler_eager_runs_on_and_says_what_to_install(
    own_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "")
    model = model_of("llama")
    view = trace(model, "exported")
    plain = generate(model, prompt(), max_new_tokens=3)
    assert torch.equal(generate(view, prompt(), max_new_tokens=3).sequences, plain.sequences)
    with pytest.raises(Exception, match="compiler") as said:
        require_compiler(headers=False)
    assert view.execution.fallbacks == {str(said.value): 3}
    assert "install" in str(said.value)
    assert packages.kept() == []


def test_what_a_compiler_says_is_the_reason(own_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: Any, **__: Any) -> None:
        raise RuntimeError("C++ compile error\nand pages of it")

    monkeypatch.setattr("torch._inductor.aoti_compile_and_package", fails)
    view = trace(model_of("llama"), "exported")
    one_pass(view)
    assert view.execution.fallbacks == {"exported failed: RuntimeError: C++ compile error": 1}
    assert {path.suffix for path in own_cache.iterdir()} == {".lock"}


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("GENSCOPE_CACHE", str(tmp_path / "file"))
    view = trace(model_of("llama"), "exported")
    one_pass(view)
    [reason] = view.execution.fallbacks
    assert reason.startswith(f"exported graphs could not be kept in {str(tmp_path / 'file' / 'exported')!r}: ")
    assert reason.endswith("GENSCOPE_CACHE can name another folder")


@pytest.mark.parametrize("asked", [1, 2, 3])
def test_it_can_be_cancelled_before_each_stage_and_while_it_exports(asked: int, own_cache: Path) -> None:
    """1: before anything; 2: before exporting; 3: in a layer."""
    times = 0

    def cancelled() -> bool:
        nonlocal times
        times += 1
        return times >= asked

    view = trace(model_of("llama"), "exported")
    with view.execution.used(Use("exported", cancelled=cancelled)):
        one_pass(view)
    assert view.execution.fallbacks == {"preparing was cancelled": 1}
    assert times == asked
    assert packages.kept() == []
    assert not exported._ONE_AT_A_TIME.locked()


def test_one_is_made_at_a_time_and_who_waits_can_be_cancelled(own_cache: Path) -> None:
    view = trace(model_of("llama"), "exported")
    cancelled = threading.Event()
    use = Use("exported", cancelled=cancelled.is_set)
    said: list[str] = []
    stage = use.stage

    def hear(what: str) -> None:
        said.append(what)
        stage(what)
        if what.startswith("waiting"):
            cancelled.set()

    use.stage = hear  # type: ignore[method-assign]
    with exported._ONE_AT_A_TIME, view.execution.used(use):
        one_pass(view)
    assert said == ["loading", "waiting for another graph, which is being made"]
    assert view.execution.fallbacks == {"preparing was cancelled": 1}


def test_what_is_used_of_the_library_is_where_it_was() -> None:
    """torch 2.13. Where this fails, look at what took its place before the numbers above are trusted."""
    from torch._C._aoti import AOTIModelPackageLoader
    from torch._inductor import aoti_compile_and_package, config
    from torch.fx.experimental import proxy_tensor

    assert {"package_path", "inductor_configs"} <= set(inspect.signature(aoti_compile_and_package).parameters)
    assert isinstance(proxy_tensor._FAKE_TENSOR_ID_TO_PROXY_MAP_FOR_EXPORT, dict)
    assert config.aot_inductor.package_constants_in_so is True
    said = str(AOTIModelPackageLoader.load_constants.__doc__)
    assert said.count("bool") == 4, said
    for name in ("boxed_run", "get_constant_fqns"):
        assert hasattr(AOTIModelPackageLoader, name)
