"""Which models can leave out their last layers."""

from __future__ import annotations

import pytest

from genscope.kernel_side.decoding.early_exit import can_exit_early
from tiny import tiny_model


@pytest.mark.parametrize(("kind", "wanted"), [("llama", True), ("gemma3", True), ("qwen3", True), ("gpt2", False)])
def test_models_are_tried_and_left_as_they_are(kind: str, wanted: bool) -> None:
    model = tiny_model(kind)  # type: ignore[arg-type]
    before = model.config.to_dict()
    assert can_exit_early(model) is wanted
    assert can_exit_early(model) is wanted
    assert model.config.to_dict() == before


def test_a_model_of_one_layer_cannot() -> None:
    model = tiny_model("llama")
    del model.model.layers[1]
    model.config.num_hidden_layers = 1
    assert not can_exit_early(model)
