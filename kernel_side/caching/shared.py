"""The prefix cache that all who do not bring their own share, one a model; and what may be given for one.

Not here: the cache itself (``prefix_cache``).
"""

from __future__ import annotations

import threading
import weakref
from typing import Any

from .prefix_cache import PrefixCache

__all__ = ["DEFAULT_BYTES", "prefix_cache_of"]

DEFAULT_BYTES = 2**30
"""What a shared cache may hold."""

_shared: weakref.WeakKeyDictionary[Any, PrefixCache] = weakref.WeakKeyDictionary()
_lock = threading.Lock()


def prefix_cache_of(model: Any, given: PrefixCache | int | bool | None) -> PrefixCache | None:
    """Return the prefix cache that is meant.

    Parameters
    ----------
    model : PreTrainedModel
    given : PrefixCache, int, bool or None
        A cache; or how many bytes one of its own may hold; or True for the model's shared one, which may hold
        :data:`DEFAULT_BYTES`. False and None are no cache.

    Raises
    ------
    TypeError
        For anything else.
    ValueError
        For a number that is not positive.
    """
    if given is None or given is False:
        return None
    if given is True:
        with _lock:
            return _shared.setdefault(model, PrefixCache(DEFAULT_BYTES))
    if isinstance(given, PrefixCache):
        return given
    if isinstance(given, int):
        return PrefixCache(given)
    raise TypeError(
        f"prefix_cache cannot be a {type(given).__name__}; give a PrefixCache, the bytes that one may hold, True for "
        "the model's shared one, or None"
    )
