"""What is kept from the notebook while a graph is made, and what is not."""

from __future__ import annotations

import logging
import threading
import warnings
from typing import Any

import pytest

from genscope.kernel_side.tracing.quiet import quiet


@pytest.fixture
def shown(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    heard: list[str] = []
    monkeypatch.setattr(warnings, "showwarning", lambda message, *_, **__: heard.append(str(message)))
    return heard


class Hearing(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self.heard: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.heard.append(record.getMessage())


def elsewhere(call: Any) -> None:
    thread = threading.Thread(target=call)
    thread.start()
    thread.join()


def test_warnings_of_this_thread_are_kept_back_and_those_of_others_shown(shown: list[str]) -> None:
    with quiet():
        warnings.warn("mine", stacklevel=1)
        elsewhere(lambda: warnings.warn("theirs", stacklevel=1))
    assert shown == ["theirs"]


def test_afterwards_all_is_as_it_was(shown: list[str]) -> None:
    before, filters = warnings.showwarning, list(warnings.filters)
    with pytest.raises(KeyError), quiet():
        raise KeyError
    assert warnings.showwarning is before
    assert warnings.filters == filters
    with pytest.raises(UserWarning):
        warnings.warn("an error in tests", stacklevel=1)


def test_who_keeps_it_too_long_shows_warnings_again(shown: list[str]) -> None:
    with quiet():
        kept = warnings.showwarning
    kept("later", UserWarning, "file", 1)
    assert shown == ["later"]


def test_logs_of_this_thread_are_kept_back_and_those_of_others_shown() -> None:
    logger, handler = logging.getLogger("torch.something"), Hearing()
    logger.addHandler(handler)
    try:
        with quiet():
            logger.error("mine")
            elsewhere(lambda: logger.error("theirs"))
        logger.error("later")
    finally:
        logger.removeHandler(handler)
    assert handler.heard == ["theirs", "later"]
    assert handler.filters == []
