"""What decides a graph on disk: each thing that changes what is computed, and none that does not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from cached_runs import model_of
from genscope.kernel_side.caching.key import Seen
from genscope.kernel_side.decoding.model_view import view_of
from genscope.kernel_side.tracing import fingerprint as module
from genscope.kernel_side.tracing.fingerprint import fingerprint, name_of


def said(model: Any) -> str:
    return fingerprint(Seen(model))


def test_the_same_model_is_the_same_and_so_is_a_view_and_one_that_ran() -> None:
    model = model_of("llama")
    known = said(model)
    assert said(model_of("llama")) == known
    assert said(view_of(model)) == known
    model.generate(torch.tensor([[5, 6]]), max_new_tokens=2, output_hidden_states=True, return_dict_in_generate=True)
    model.name_or_path = model.config._name_or_path = "elsewhere"
    assert said(model) == known


def _weight(model: Any) -> None:
    model.lm_head.weight.data[17, 3] += 1e-6


def _buffer(model: Any) -> None:
    model.model.rotary_emb.inv_freq[0] *= 2


def _config(model: Any) -> None:
    model.config.rms_norm_eps = 1e-4


def _attribute(model: Any) -> None:
    model.model.layers[1].self_attn.scaling *= 2


def _attention(model: Any) -> None:
    model.set_attn_implementation("eager")


def _dtype(model: Any) -> None:
    model.to(torch.bfloat16)


def _strides(model: Any) -> None:
    weight = model.lm_head.weight
    weight.data = weight.data.t().contiguous().t()


def _tensor(model: Any) -> None:
    model.model.layers[0].table = torch.ones(3)


@pytest.mark.parametrize("change", [_weight, _buffer, _config, _attribute, _attention, _dtype, _strides, _tensor])
def test_what_changes_a_graph_changes_it(change: Callable[[Any], None]) -> None:
    model = model_of("llama")
    known = said(model)
    change(model)
    assert said(model) != known
    changed = said(model)
    assert said(model) == changed


def test_tensors_that_are_no_buffers_are_read() -> None:
    model = model_of("llama")
    model.model.layers[0].table = torch.ones(3)
    known = said(model)
    model.model.layers[0].table = torch.tensor([1.0, 1.0, 2.0])
    assert said(model) != known


class Ours(nn.Identity):
    """A class whose code is in this file."""


def test_code_of_others_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    model = model_of("llama")
    model.model.norm = nn.Sequential(model.model.norm, Ours()).eval()
    known = said(model)
    assert said(model) == known
    monkeypatch.setattr("pathlib.Path.read_text", lambda *_, **__: "other code")
    assert said(model) != known


def test_code_that_cannot_be_read_is_never_the_same() -> None:
    made: dict[str, Any] = {"__name__": "nowhere"}
    exec("from torch import nn\nclass Hidden(nn.Identity):\n    pass", made)
    model = model_of("llama")
    model.model.norm = nn.Sequential(model.model.norm, made["Hidden"]()).eval()
    assert said(model) != said(model)


@pytest.mark.parametrize(
    "change",
    [
        lambda patch: patch.setattr(module, "FORMAT", 0),
        lambda patch: patch.setattr(torch, "__version__", "2.0"),
        lambda patch: patch.setattr("transformers.__version__", "5.0"),
        lambda patch: patch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: "DEFAULT"),
        lambda patch: patch.setattr(module, "_processor", lambda: "another"),
        lambda patch: patch.setattr(torch, "get_num_threads", lambda: 64),
        lambda patch: patch.setattr(torch, "get_float32_matmul_precision", lambda: "medium"),
    ],
)
def test_what_a_library_is_built_for_is_in_the_name(change: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    known = name_of("model", situation=1)
    assert name_of("model", situation=1) == known
    assert len({known, name_of("other", situation=1), name_of("model", situation=2)}) == 3
    change(monkeypatch)
    assert name_of("model", situation=1) != known


def test_the_processor_is_told_with_what_it_can_do() -> None:
    assert len(module._processor()) > 3
