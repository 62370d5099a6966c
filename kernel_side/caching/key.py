"""What of a model decides its keys and values: two runs may share them only where all of it is the same.

A key is taken anew for each run, since everything in it can be changed in place at any time: weights (torch counts each
change of a tensor), attributes of modules (an adapter's scale, what is switched on), the configuration (RoPE, windows),
dtype and device, how attention is computed. It holds no weights, only weak references to their storages, so that an
address that is used again is never taken for the weights that were there before. Views of a model
(``decoding.model_view``) have the same key as the model, unless something that matters is set on them.

Torch does not count a change through ``tensor.data``. For these, contents are compared too: whole tensors up to
:data:`LOOKED_AT` elements, and of larger ones about :data:`_SAMPLED`, whole rows at equal distances (a twentieth of a
decode step for the 135 million weights of the demo model); ``thorough=True`` compares all contents (several steps).

Not here: what a cache's class allows (``layers``).
"""

from __future__ import annotations

import functools
import inspect
import types
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.multiprocessing.reductions import StorageWeakRef
from transformers import PreTrainedConfig
from transformers.utils import output_capturing

__all__ = ["LOOKED_AT", "UNSHARED", "Key", "Seen", "follows_padding", "key_of", "longest_exact", "why_not"]

LOOKED_AT = 4096
"""Elements of the largest tensors whose contents are compared whole."""

_SAMPLED = 1024
"""Elements of a larger tensor that are compared unless all are."""

_ALONE = 32768
"""Elements that torch works on in the calling thread: to gather a new thread's helpers takes longer than small sums."""
_PLAIN = (int, float, bool, str, bytes, type(None), torch.dtype, torch.device)
_AS_THEY_ARE = frozenset(_PLAIN) - {bool}
_ADAPTER = ("active_adapter", "_active_adapter")
_LENGTH_DEPENDENT = ("dynamic", "longrope")
UNSHARED = frozenset(
    {
        "_is_hf_initialized",
        "_output_capturing_hooks_installed",
        "name_or_path",
        "_name_or_path",
        # What `generate` leaves on a model: its last static cache's length, and compiled calls.
        "_previous_max_cache_length",
        "_compiled_call",
        "_last_compile_config",
    }
)
"""Attributes that decide nothing."""
_OF_EVERY_MODULE = frozenset(vars(nn.Module()))
"""Torch's own tables: tensors, children and hooks, which are looked at by themselves."""
_LEFT_OUT = _OF_EVERY_MODULE | UNSHARED


@dataclass(frozen=True, eq=False, slots=True)
class Key:
    """What must be the same, part by part; each part's name is what a person is told when it differs."""

    parts: dict[str, Any]

    def differences(self, other: Key) -> tuple[str, ...]:
        """Name the parts that differ, those that bring others about in place of these."""
        found = [name for name, part in self.parts.items() if part != other.parts[name]]
        # A model that was cast or moved has new weights for this reason, and adapters bring modules and weights.
        for cause, effects in _CAUSES.items():
            if cause in found:
                found = [name for name in found if name not in effects]
        return tuple(found)


_CAUSES = {
    "dtype": {"weights"},
    "device": {"weights"},
    "adapters": {"weights", "modules"},
    "attention implementation": {"settings"},
}


class Seen:
    """A model's modules and tensors as they are now: gathered once for :func:`why_not` and :func:`key_of`."""

    def __init__(self, model: Any) -> None:
        self.model = model
        self.modules = list(model.named_modules())
        self.tensors = list(_tensors(self.modules))


def key_of(seen: Seen, kind: str, execution: str = "eager", *, thorough: bool = False) -> Key:
    """Return the key of a model as it is now.

    Parameters
    ----------
    seen : Seen
        The model, just looked at.
    kind : str
        The kind of cache.
    execution : str
        How forward passes run.
    thorough : bool
        Compare the contents of all weights, not only of a part of the large ones.
    """
    modules, tensors = seen.modules, seen.tensors
    kinds = {kind for kind in {type(one) for _, one in modules} if any(hasattr(kind, word) for word in _ADAPTER)}
    adapters = [(name, _plain(vars(one))) for name, one in modules if type(one) in kinds or _is_adapter(one)]
    configs = _configs(modules)
    attention = sorted({str(config._attn_implementation) for config in configs})
    device = next(iter(seen.model.parameters())).device.type
    return Key(
        {
            "cache class": kind,
            "execution": execution,
            "dtype": sorted(map(str, {one.dtype for _, one in tensors})),
            "device": sorted(map(str, {one.device for _, one in tensors})),
            "attention implementation": attention,
            "adapters": adapters,
            "settings": [_settings(one) for one in configs],
            "modules": [(name, type(one), _plain(vars(one))) for name, one in modules],
            "weights": (
                [(StorageWeakRef(one.untyped_storage()), *_place(one)) for _, one in tensors],
                _contents([one for _, one in tensors], thorough=thorough),
            ),
            "arithmetic": (
                torch.get_float32_matmul_precision(),
                torch.is_autocast_enabled(device) and str(torch.get_autocast_dtype(device)),
            ),
        }
    )


def why_not(seen: Seen) -> str | None:
    """Return why nothing can be known about a model's keys and values, None where it can."""
    if seen.model.training:
        return "the model is in training mode, in which its dropout is random; call model.eval()"
    everywhere = vars(nn.modules.module)
    if everywhere["_global_forward_hooks"] or everywhere["_global_forward_pre_hooks"]:
        return "a forward hook on all modules may change what they compute"
    for name, module in seen.modules:
        own = vars(module)
        if own["training"]:
            return f"{name} is in training mode, in which dropout is random; call model.eval()"
        if "forward" in own:
            return f"forward() of {name or 'the model'} was replaced on the object, so what it computes is not known"
        if own["_forward_hooks"] or own["_forward_pre_hooks"]:
            hooks = (*own["_forward_hooks"].values(), *own["_forward_pre_hooks"].values())
            # The library's own, which hand outputs out, change nothing.
            if any(getattr(hook, "__module__", None) != output_capturing.__name__ for hook in hooks):
                return f"a forward hook on {name or 'the model'} may change what it computes"
    for name, tensor in seen.tensors:
        if tensor.is_meta:
            return f"{name} is not in memory (offloaded), so that a change of it would not be seen"
        if tensor.is_inference():
            return f"{name} was made in inference mode, in which torch does not count changes"
    config = seen.model.config.get_text_config(decoder=True)
    if getattr(config, "use_bidirectional_attention", None) or getattr(config, "is_causal", True) is False:
        return "its tokens look at later ones, so that a prefix is not known before all of it is"
    return None


def longest_exact(model: Any) -> int | None:
    """Return how long a sequence may get before RoPE changes the positions behind it too; None where it never does."""
    config = model.config.get_text_config(decoder=True)
    rope = getattr(config, "rope_parameters", None) or {}
    kinds = [rope, *(value for value in rope.values() if isinstance(value, dict))]
    changing = [one for one in kinds if one.get("rope_type", one.get("type")) in _LENGTH_DEPENDENT]
    if not changing:
        return None
    limits = [one.get("original_max_position_embeddings") for one in changing]
    limits += [getattr(config, "original_max_position_embeddings", None), config.max_position_embeddings]
    return min(int(limit) for limit in limits if limit is not None) - 1


def follows_padding(model: Any) -> bool:
    """Return whether positions are told to the model, so that a token's are the same behind padding."""
    return not model.config.is_encoder_decoder and "position_ids" in inspect.signature(model.forward).parameters


def _tensors(modules: Iterable[tuple[str, Any]]) -> Iterator[tuple[str, torch.Tensor]]:
    """Yield all parameters and buffers, shared ones at each place (torch's own walks take several times as long)."""
    for name, module in modules:
        for table in ("_parameters", "_buffers"):
            for own, tensor in vars(module)[table].items():
                if tensor is not None:
                    full = f"{name}.{own}" if name else own
                    if type(tensor) is nn.Parameter or type(tensor) is torch.Tensor:
                        yield full, tensor
                    else:
                        yield from _inside(full, tensor)


def _inside(name: str, tensor: Any) -> Iterator[tuple[str, torch.Tensor]]:
    """Yield the tensors that a tensor of another class is made of (torchao's: numbers and their scales), or itself."""
    if not hasattr(tensor, "__tensor_flatten__"):
        yield name, tensor
        return
    for part in tensor.__tensor_flatten__()[0]:
        yield from _inside(f"{name}.{part}", getattr(tensor, part))


def _is_adapter(module: nn.Module) -> bool:
    # Not by asking it: a module looks for what it has not in all its tables, and raises.
    own = vars(module)
    return any(word in own for word in _ADAPTER)


def _has_config(module: nn.Module) -> bool:
    return isinstance(vars(module).get("config"), PreTrainedConfig)


def _configs(modules: Iterable[tuple[str, Any]]) -> list[Any]:
    """Return the configurations of all modules, each once."""
    return list({id(one.config): one.config for _, one in modules if _has_config(one)}.values())


def _settings(config: Any) -> str:
    settings = config.to_dict()
    return repr(sorted((name, value) for name, value in settings.items() if name not in UNSHARED))


def _place(tensor: torch.Tensor) -> tuple[Any, ...]:
    version = tensor._version  # noqa: SLF001 - torch documents it, under this name
    return version, tensor.storage_offset(), tuple(tensor.shape), tensor.stride()


def _plain(values: dict[str, Any]) -> dict[str, Any]:
    """Return what can be compared of a module's own attributes: numbers, texts, functions, and containers of these."""
    found = {}
    for name in _compared(tuple(values)):
        value = values[name]
        # Nearly all are numbers and texts, and there are thousands of them: these need no closer look.
        if type(value) in _AS_THEY_ARE:
            found[name] = value
        elif (compared := _value(value)) is not _NOTHING:
            found[name] = compared
    return found


@functools.lru_cache(maxsize=1024)
def _compared(names: tuple[str, ...]) -> tuple[str, ...]:
    # Modules of one class nearly all have the same attributes.
    return tuple(name for name in names if name not in _LEFT_OUT)


_NOTHING = object()


def _value(value: Any) -> Any:
    if isinstance(value, _PLAIN):
        return value if type(value) is not bool else str(value)  # True is no 1
    if isinstance(value, types.MethodType):
        return value.__func__  # a view's are bound to its own modules
    if isinstance(value, types.FunctionType):
        return value
    if isinstance(value, list | tuple | set):
        return type(value), [_value(one) for one in value]
    if isinstance(value, dict):
        return [(name, _value(one)) for name, one in value.items()]
    return _NOTHING


def _contents(tensors: list[torch.Tensor], *, thorough: bool) -> list[int]:
    """Return hashes of the tensors' bits: of samples, or of sums by row and by column (whole numbers, in any order)."""
    # Samples of one shape go together: hundreds of small operations cost more than what they read.
    alike: dict[Any, list[torch.Tensor]] = {}
    for place, tensor in enumerate(tensors):
        plain = tensor.detach()
        if type(plain) is nn.Parameter or not plain.numel() or not plain.is_contiguous():
            plain = plain.contiguous()
        rows = plain.reshape(-1, plain.shape[-1] if plain.dim() > 1 else plain.numel())
        if not thorough:
            rows = rows[:: -(-rows.numel() // _SAMPLED) if rows.numel() > LOOKED_AT else 1]
        alike.setdefault((rows.device, rows.dtype, rows.shape, place if thorough else None), []).append(rows)
    hashes = []
    for parts in alike.values():
        if thorough:
            bits = parts[0].view(_words(parts[0]))
            read = [bits.sum(dim=1), bits.sum(dim=0)]
        else:
            together = max(1, _ALONE // max(1, parts[0].numel()))
            read = [torch.stack(parts[begin : begin + together]) for begin in range(0, len(parts), together)]
        hashes += [hash(one.cpu().view(torch.uint8).numpy().tobytes()) for one in read]
    return hashes


def _words(rows: torch.Tensor) -> torch.dtype:
    """Return the widest integer in which rows can be seen."""
    size = rows.element_size()
    places = [rows.shape[-1] * size, rows.storage_offset() * size]
    places += [rows.stride(0) * size] if rows.shape[0] > 1 else []
    for dtype in (torch.int64, torch.int32, torch.int16):
        if dtype.itemsize >= size and not any(place % dtype.itemsize for place in places):
            return dtype
    return torch.uint8
