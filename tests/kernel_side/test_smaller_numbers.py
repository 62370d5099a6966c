"""int8 weights, and what is said of smaller numbers. torchao is optional: a stand-in shows what does not need it."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from types import ModuleType

import pytest
import torch

import tiny
from genscope.kernel_side.caching.key import Seen, key_of
from genscope.kernel_side.models import ModelLoadError, load_model
from genscope.kernel_side.smaller_numbers import gains_from_bfloat16, in_int8, note

UNITS = "genscope.kernel_side.smaller_numbers.torch.cpu.get_capabilities"


@pytest.fixture
def folder(tmp_path):
    tiny.tiny_model("llama").save_pretrained(tmp_path)
    tiny.tiny_tokenizer().save_pretrained(tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    ("found", "gains"),
    [
        ({"avx512_bf16": True}, True),
        ({"amx_bf16": True, "avx512_bf16": False}, True),
        ({"bf16": True, "architecture": "arm64"}, True),
        ({"avx512_bf16": False, "avx512_f": True, "avx2": True}, False),
        ({"neon": True, "architecture": "arm64"}, False),
    ],
)
def test_processors_gain_from_bfloat16_that_have_units_for_it(monkeypatch, found, gains):
    monkeypatch.setattr(UNITS, lambda: found)
    assert gains_from_bfloat16() is gains


def test_what_is_not_known_is_not_said(monkeypatch):
    assert gains_from_bfloat16("mps") is None
    monkeypatch.delattr(UNITS)
    assert gains_from_bfloat16("cpu") is None
    assert note(tiny.tiny_model("llama").to(torch.bfloat16), None) == "bfloat16: results differ"


def test_the_progress_text_says_that_results_differ_and_where_it_is_slower(folder, monkeypatch):
    said = []
    monkeypatch.setattr(UNITS, lambda: {"avx2": True})
    load_model(folder, progress=lambda _, text: said.append(text), dtype=torch.bfloat16)
    assert said[-1].endswith(
        "bfloat16 on cpu (bfloat16: slower than float32 here, which has no units for it; results differ)"
    )
    monkeypatch.setattr(UNITS, lambda: {"avx512_bf16": True})
    load_model(folder, progress=lambda _, text: said.append(text), dtype=torch.bfloat16)
    assert said[-1].endswith("bfloat16 on cpu (bfloat16: results differ)")
    load_model(folder, progress=lambda _, text: said.append(text))
    assert said[-1].endswith("float32 on cpu")


def test_without_torchao_it_is_named_before_anything_is_read(tmp_path, monkeypatch):
    real = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "torchao" else real(name))
    with pytest.raises(ModelLoadError, match=r'needs the package torchao. Install: pip install "genscope\[torchao\]"'):
        load_model(tmp_path / "missing", progress=None, weights="int8")


def test_other_weights_are_refused():
    with pytest.raises(ModelLoadError, match=r"weights is 'int3'; it can be 'int8', or None"):
        load_model("demo", progress=None, weights="int3")


@pytest.fixture
def stand_in(monkeypatch):
    """A torchao whose ``quantize_`` is set by the test."""
    package, part = ModuleType("torchao"), ModuleType("torchao.quantization")
    part.Int8WeightOnlyConfig = lambda: "int8"
    package.quantization = part
    monkeypatch.setitem(sys.modules, "torchao", package)
    monkeypatch.setitem(sys.modules, "torchao.quantization", part)
    real = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: package if name == "torchao" else real(name))
    return part


def test_what_torchao_refuses_is_told_with_a_way_out(stand_in):
    def refuse(*_):
        raise NotImplementedError("no kernel for float64")

    stand_in.quantize_ = refuse
    with pytest.raises(ModelLoadError, match=r"'tiny' could not be made int8: no kernel for float64\nLoad it without"):
        in_int8(tiny.tiny_model("llama"), "tiny")


def test_a_model_without_linear_layers_is_refused(stand_in):
    stand_in.quantize_ = lambda *_: pytest.fail("called")
    with pytest.raises(ModelLoadError, match="'tiny' has no linear layers that can have int8 weights"):
        in_int8(tiny.tiny_model("gpt2"), "tiny")


def test_load_model_makes_them_at_the_end(folder, stand_in):
    seen, said = [], []
    stand_in.quantize_ = lambda model, config: seen.append((type(model).__name__, config, said[-1]))
    load_model(folder, progress=lambda _, text: said.append(text), weights="int8")
    assert seen == [("LlamaForCausalLM", "int8", f"{folder}: int8 weights")]
    assert said[-1].endswith("float32 on cpu (int8 weights: results differ)")


@pytest.mark.slow
def test_with_torchao(tmp_path):
    """In a process of its own that has it: the development environment has not, see tests/test_packaging.py."""
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "install", "--quiet", "--no-deps"]
    subprocess.run([*pip, "--target", str(tmp_path), "torchao==0.18.0"], check=True)
    paths = os.pathsep.join([str(tmp_path), *filter(None, [os.environ.get("PYTHONPATH")])])
    pytest_ = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", __file__, "-k", "int8_weights_generate"]
    done = subprocess.run(pytest_, check=False, env={**os.environ, "PYTHONPATH": paths}, capture_output=True, text=True)
    assert "1 passed" in done.stdout, done.stdout + done.stderr


def test_int8_weights_generate_and_can_be_told_apart(folder, capfd):
    pytest.importorskip("torchao")
    plain, _ = load_model(folder, progress=None)
    capfd.readouterr()
    model, _ = load_model(folder, progress=None, weights="int8")
    assert capfd.readouterr() == ("", "")
    weight = model.model.layers[0].self_attn.q_proj.weight
    assert weight.qdata.dtype == torch.int8
    ids = torch.tensor([[5, 6, 7, 8]])
    with torch.no_grad():
        ours, theirs = model(ids).logits, plain(ids).logits
    difference = (ours - theirs).abs().max() / theirs.abs().max()
    assert 0 < difference < 0.1
    kept = key_of(Seen(model), "dynamic")
    assert not kept.differences(key_of(Seen(model), "dynamic"))
    assert "dtype" in kept.differences(key_of(Seen(plain), "dynamic"))
    weight.qdata[0, 0] += 1
    assert kept.differences(key_of(Seen(model), "dynamic")) == ("weights",)
