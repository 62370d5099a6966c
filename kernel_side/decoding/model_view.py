"""A view of a model for one run: the same weights under settings of its own.

Some of what a run needs is set on the model object, not handed to ``generate``: how attention is computed, the layer
count that early exit lowers while it drafts, how many tokens a draft model drafts. On the user's model such a change
would be seen by every other thread and would outlast a failure. A view has copies of what is set (configurations,
module objects) and shares what is large (parameters and buffers). Not here: copies of weights, and models that were
compiled or offloaded by hooks, whose calls lead back to the original.
"""

from __future__ import annotations

import copy
import types
from typing import Any, TypeVar

from torch import nn
from transformers import GenerationConfig, PreTrainedConfig, PreTrainedModel
from transformers.utils import output_capturing

from .tap import UnobservableError

__all__ = ["view_of"]

AnyModel = TypeVar("AnyModel", bound=PreTrainedModel)

_OF_EVERY_MODULE = frozenset(vars(nn.Module()))
_COMPILED = ("_compiled_call", "_last_compile_config")
"""What ``get_compiled_call`` of transformers 5.24 leaves on a model."""


def view_of(model: AnyModel, *, attention: str | None = None, **generation: Any) -> AnyModel:
    """Return a view of a model, for one run.

    The view is a model of the same class: every module object is a shallow copy, configurations are copies (each once,
    so that modules that share one still do), parameters and buffers are the same tensors. A weight edited in place
    shows in both; what is set or registered on one does not show in the other.

    Parameters
    ----------
    model : PreTrainedModel
        Is left as it is. Other threads may run it meanwhile.
    attention : str, optional
        How the view computes attention. ``"eager"`` returns attentions. None leaves it as the model has it.
    **generation
        Set in the view's generation config, such as ``num_assistant_tokens`` of a draft model.

    Returns
    -------
    PreTrainedModel
        Costs a few Python objects a module and no copy of a tensor.

    Raises
    ------
    UnobservableError
        When attention is to be computed otherwise and the view could not do so: the model's ``forward`` was replaced on
        an object (as accelerate's hooks do) or compiled, so that calls would run the original; or its code has
        attention written in.
    TypeError
        For a setting that generation configs do not have, or a model without a generation config.

    Notes
    -----
    Where ``forward`` was replaced and ``attention`` is not asked for, calls of the view run the original's replacement,
    under the original's configuration.

    Examples
    --------
    >>> eager = view_of(model, attention="eager")  # doctest: +SKIP
    >>> eager.generate(**inputs, **observe(OutputStreamer(look, fields=["attentions"])))  # doctest: +SKIP
    """
    changes_attention = attention is not None and attention != model.config._attn_implementation
    if changes_attention:
        _check_follows(model, str(attention))
    # The library hangs hooks on all modules when outputs are first asked for; half of them would be copied else.
    with output_capturing._hook_installation_lock:  # noqa: SLF001 - transformers 5.24
        view: AnyModel = _Copies().of(model)
    if changes_attention:
        for name in _COMPILED:
            vars(view).pop(name, None)
        view.set_attn_implementation(str(attention))
    if generation:
        _set_generation(view, generation)
    return view


class _Copies:
    """The copies of one view by their originals: what was shared stays shared."""

    def __init__(self) -> None:
        self._modules: dict[int, nn.Module] = {}
        self._configs: dict[int, Any] = {}  # the memo of deepcopy

    def of(self, value: Any) -> Any:
        """Return what stands in the view for a value found in the model: itself, if it leads to no module or config."""
        if isinstance(value, nn.Module):
            return self._module(value)
        if isinstance(value, PreTrainedConfig | GenerationConfig):
            return copy.deepcopy(value, self._configs)
        if isinstance(value, types.MethodType) and isinstance(value.__self__, nn.Module):
            return types.MethodType(value.__func__, self._module(value.__self__))
        if type(value) in (list, tuple):
            items = [self.of(item) for item in value]
            return value if all(map(_same, items, value)) else type(value)(items)
        if type(value) is dict:
            entries = {key: self.of(item) for key, item in value.items()}
            return value if all(map(_same, entries.values(), value.values())) else entries
        return value

    def _module(self, module: nn.Module) -> nn.Module:
        known = self._modules.get(id(module))
        if known is not None:
            return known
        made = object.__new__(type(module))
        self._modules[id(module)] = made  # first: a child may refer to its parent
        for name, value in list(vars(module).items()):
            # Torch's own tables (parameters, buffers, hooks) are copied, so that neither model registers in the other.
            own = copy.copy(value) if name in _OF_EVERY_MODULE and isinstance(value, dict | set) else self.of(value)
            vars(made)[name] = own
        children = vars(made)["_modules"]
        for name, child in children.items():
            children[name] = None if child is None else self._module(child)
        return made


def _same(one: object, other: object) -> bool:
    return one is other


def _check_follows(model: PreTrainedModel, attention: str) -> None:
    """Refuse models whose view would not compute attention as it says."""
    way_out = f"call model.set_attn_implementation({attention!r}) yourself, which changes the model for all its users"
    for name, module in model.named_modules():
        where = f"of {name or 'the model'}"
        if "forward" in vars(module):
            msg = f"forward() {where} was replaced on the object, so that a view would run the original; {way_out}"
            raise UnobservableError(msg)
        if vars(module).get("_compiled_call_impl") is not None:
            msg = f"the call {where} is compiled, so that a view would run the original; {way_out}"
            raise UnobservableError(msg)
        if isinstance(module, PreTrainedModel) and not module._can_set_attn_implementation():  # noqa: SLF001 - 5.24
            msg = (
                f"the code of {type(module).__name__} does not let its attention implementation be changed; load the "
                f"model with attn_implementation={attention!r}"
            )
            raise UnobservableError(msg)


def _set_generation(view: PreTrainedModel, settings: dict[str, Any]) -> None:
    config = getattr(view, "generation_config", None)
    if config is None:
        msg = f"{type(view).__name__} has no generation config to set {sorted(settings)} in"
        raise TypeError(msg)
    if unknown := config.update(**settings):
        msg = f"generation configs have no settings {sorted(unknown)}"
        raise TypeError(msg)
