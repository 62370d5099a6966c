"""What the iterators over text share: what is queued, when the queue ends, how long a reader waits.

Waiting itself, in a thread or in a coroutine, is in ``text``.
"""

from __future__ import annotations

import queue
from collections.abc import Sequence
from typing import Any, NamedTuple

from transformers import PreTrainedTokenizerBase

from .text_printer import TextStreamer

__all__ = ["RESTART_GRACE", "Item", "QueueStreamer", "RowText", "StreamTimeoutError", "only_text", "with_text"]

RESTART_GRACE = 2.0
"""Seconds. From the start of a thread to the first output of ``generate`` it is some milliseconds."""


class StreamTimeoutError(queue.Empty, TimeoutError):
    """No text came in time. Caught by ``except queue.Empty`` and by ``except TimeoutError``."""


class RowText(NamedTuple):
    """Some text of one row of a batch."""

    row: int
    text: str


class _Failure(NamedTuple):
    """Ends a queue with what the generation raised."""

    error: BaseException


Item = str | RowText | _Failure | None


class QueueStreamer(TextStreamer):
    """What both iterators share: a queue that is ended by `stop_signal` or a failure, and read once."""

    def __init__(
        self,
        tokenizer: PreTrainedTokenizerBase,
        skip_prompt: bool,
        timeout: float | None,
        *,
        stop_strings: Sequence[str] = (),
        **decode_kwargs: Any,
    ) -> None:
        super().__init__(tokenizer, skip_prompt, stop_strings=stop_strings, **decode_kwargs)
        self.timeout = timeout
        self.stop_signal: str | None = None
        self._closed = False
        self._read_to_end = False
        self._restarting = False

    @property
    def closed(self) -> bool:
        """Whether the reader hung up; an observed generation then stops."""
        return self._closed

    def close(self) -> None:
        """Hang up: an observed generation stops after the current step, other text is dropped."""
        self._closed = self._read_to_end = True

    def on_row_text(self, row: int, text: str, stream_end: bool = False) -> None:
        """Queue text of a row; see :meth:`TextStreamer.on_row_text`."""
        if len(self._waiting) == 1:
            self.on_finalized_text(text, stream_end=stream_end)
        else:
            self._send(RowText(row, text))

    def on_finalized_text(self, text: str, stream_end: bool = False) -> None:
        """Queue text, and the end when the stream ends."""
        self._send(text)
        if stream_end:
            self._on_rows_end()

    def _on_rows_end(self) -> None:
        self._send(self.stop_signal if self._error is None else _Failure(self._error))

    def _send(self, item: Item) -> None:
        """Queue an item, from the generating thread."""
        raise NotImplementedError  # abstract

    def _begin_reading(self) -> None:
        self._restarting = self._read_to_end and not self._closed
        self._read_to_end = self._closed

    def _patience(self) -> float | None:
        """Return how long to wait for the next item, in seconds."""
        if not self._restarting:
            return self.timeout
        return RESTART_GRACE if self.timeout is None else min(self.timeout, RESTART_GRACE)

    def _is_end(self, item: Item) -> bool:
        """Return whether an item that was taken from the queue is the end; raises if that is a failure."""
        self._restarting = False
        if isinstance(item, _Failure):
            self._read_to_end = True
            raise item.error
        self._read_to_end = item == self.stop_signal
        return self._read_to_end

    def _no_item(self) -> None:
        """Handle that nothing came in time: the end, if another generation was waited for, else an error."""
        if self._restarting or self._closed:
            self._read_to_end = True
            return
        raise StreamTimeoutError(
            f"no text came within {self.timeout} s; generate() may have failed, be slow to begin, or still run. "
            "Iterate on to wait again, or make the streamer with a longer timeout."
        )


def with_text(item: Item) -> str | RowText | None:
    """Return the item unless it is an empty text, which only shows that the generation goes on."""
    if isinstance(item, RowText):
        return item if item.text else None
    return item if isinstance(item, str) and item else None


def only_text(item: str | RowText) -> str:
    """Return the text of a single sequence."""
    if isinstance(item, RowText):
        raise ValueError(  # noqa: TRY004 - the batch is wrong, as with the library, not a type
            "the generation has several rows, whose texts would be mixed up; iterate over `rows()` instead"
        )
    return item
