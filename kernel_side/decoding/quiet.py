"""Keeps to itself one warning that transformers 5.24 gives about its own code: how its drafters call ``generate``.

Nobody who drafts can do anything about it. Other messages, and the same one from a caller's own ``generate``, pass.
"""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Iterator

__all__ = ["drafting_quietly"]

_ABOUT = "Passing `generation_config` together with generation-related arguments"
_here = threading.local()


class _Filter(logging.Filter):
    def filter(self, record: logging.LogRecord) -> bool:
        return not (getattr(_here, "drafting", False) and record.getMessage().startswith(_ABOUT))


logging.getLogger("transformers.generation.utils").addFilter(_Filter())


@contextlib.contextmanager
def drafting_quietly() -> Iterator[None]:
    """Draft in this thread without that warning."""
    _here.drafting = True
    try:
        yield
    finally:
        _here.drafting = False
