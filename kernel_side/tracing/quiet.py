"""Keeps what the libraries warn and log while a graph is made from the notebook, and what other threads say not.

Not here: errors, which are raised.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import warnings
from collections.abc import Iterator
from typing import Any

__all__ = ["quiet"]


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Keep what this thread warns and logs from being shown. What other threads warn is shown."""
    here, busy = threading.get_ident(), [True]
    handlers = {id(one): one for one in logging.root.handlers}
    for name, logger in list(logging.root.manager.loggerDict.items()):
        if name.startswith(("torch", "transformers")) and isinstance(logger, logging.Logger):
            handlers |= {id(one): one for one in logger.handlers}
    if logging.lastResort is not None:
        handlers[id(logging.lastResort)] = logging.lastResort

    def passes(record: logging.LogRecord) -> bool:
        return record.thread != here

    with warnings.catch_warnings():
        # Filters are the process's (until Python 3.14), so what is shown is decided where it is shown.
        warnings.simplefilter("default")
        show = warnings.showwarning

        def showwarning(*what: Any, **more: Any) -> None:
            if not busy or threading.get_ident() != here:
                show(*what, **more)

        warnings.showwarning = showwarning
        for handler in handlers.values():
            handler.addFilter(passes)
        try:
            yield
        finally:
            busy.clear()  # should another thread that saved it put it back
            for handler in handlers.values():
                handler.removeFilter(passes)
