"""Whether a model can leave out its last layers, as drafting by early exit has it do (transformers 5.24).

The library lowers ``config.num_hidden_layers`` and trusts the model to heed it; some (gpt2) run all layers all the
same, on a cache that has no room for them. So it is tried.
"""

from __future__ import annotations

import threading
import weakref
from typing import Any

import torch
from transformers import PreTrainedModel

from .model_view import view_of

__all__ = ["can_exit_early"]

_known: weakref.WeakKeyDictionary[PreTrainedModel, bool] = weakref.WeakKeyDictionary()
_lock = threading.Lock()


def can_exit_early(model: PreTrainedModel) -> bool:
    """Return whether a decoder-only model of at least two layers heeds a lower number of layers.

    The first answer for a model takes one layer's pass over one token; the model is not changed.
    """
    with _lock:
        if model not in _known:
            _known[model] = _try(model)
        return _known[model]


def _try(model: PreTrainedModel) -> bool:
    view: Any = view_of(model)
    config = view.config.get_text_config()
    if getattr(config, "num_hidden_layers", 0) < 2:
        return False
    config.num_hidden_layers = 1
    token = torch.zeros(1, 1, dtype=torch.int64, device=model.device)
    try:
        with torch.inference_mode():
            outputs = view(input_ids=token, use_cache=True, output_hidden_states=True, return_dict=True)
    except Exception:  # noqa: BLE001 - of a model, of any kind: it did not work
        return False
    return len(outputs.hidden_states) == 2  # the embeddings and one layer
