"""Which tensors there are: what a view must not copy, and a long run not pile up."""

from __future__ import annotations

import gc

import torch


def live_tensors() -> list[torch.Tensor]:
    """Return all tensors that Python objects hold."""
    gc.collect()
    # The type is asked, not isinstance: lazy stand-ins among all objects answer that with warnings.
    return [value for value in gc.get_objects() if issubclass(type(value), torch.Tensor)]
