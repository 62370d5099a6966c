"""Text streamers: drop-in replacements for the library's, live, for batches, and ended by errors.

They take the library's constructor arguments and hooks and work in both places: ``model.generate(streamer=...)``, which
hands them ids, and ``model.generate(**observe(streamer))``. All text in order equals
``tokenizer.decode(ids, **decode_kwargs)``; with ``skip_prompt`` the ids are the generated ones alone.

Different from the library's on purpose:

- Text comes as soon as its characters are complete; the library holds symbols back until the next space. Half a
  character never comes; an emoji of several code points may come in parts.
- Batches work, one text a row: printed one after another, iterated with ``rows()``.
- Iterators give no empty texts.
- ``stop_strings=`` keeps stop strings out of the text, live.
- The error of an *observed* generation is raised at the reader, after the text that came. Under a plain
  ``generate(streamer=...)`` the library tells no one when it raises: use ``timeout`` there.
- A timeout says what it waited for; it is a ``queue.Empty`` and a ``TimeoutError``.

A streamer can be used for one generation after another. A loop over a streamer that was read to its end waits two
seconds (``text_queue.RESTART_GRACE``) for the next generation to begin, then stops; where it may begin later, use a new
streamer.

Here are the iterators; what they share is in ``text_queue`` and ``text_printer``.
"""

from __future__ import annotations

import asyncio
import queue
from collections.abc import AsyncIterator, Iterator, Sequence
from types import TracebackType
from typing import Any, Self

from transformers import PreTrainedTokenizerBase

from .text_printer import TextStreamer
from .text_queue import Item, QueueStreamer, RowText, StreamTimeoutError, only_text, with_text

__all__ = ["AsyncTextIteratorStreamer", "RowText", "StreamTimeoutError", "TextIteratorStreamer", "TextStreamer"]


class TextIteratorStreamer(QueueStreamer):
    """A blocking iterator over text as it is generated; the generation runs in another thread.

    Parameters
    ----------
    tokenizer : PreTrainedTokenizerBase
        Or a processor that has one.
    skip_prompt : bool
        Whether the prompt is left out.
    timeout : float, optional
        Seconds to wait for the next text before :class:`StreamTimeoutError`; None waits without limit. The iterator
        can be used again after it.
    stop_strings : sequence of str
        Generated text is given up to the first of them, and nothing of it: what may yet become one waits. Ends no
        generation.
    **decode_kwargs
        As for ``tokenizer.decode``.

    Examples
    --------
    >>> streamer = TextIteratorStreamer(tokenizer, skip_prompt=True, timeout=60)  # doctest: +SKIP
    >>> Thread(target=model.generate, kwargs={**inputs, **observe(streamer)}).start()  # doctest: +SKIP
    >>> for text in streamer:  # doctest: +SKIP
    ...     print(text, end="")
    """

    def __init__(
        self,
        tokenizer: PreTrainedTokenizerBase,
        skip_prompt: bool = False,
        timeout: float | None = None,
        *,
        stop_strings: Sequence[str] = (),
        **decode_kwargs: Any,
    ) -> None:
        super().__init__(tokenizer, skip_prompt, timeout, stop_strings=stop_strings, **decode_kwargs)
        self.text_queue: queue.Queue[Item] = queue.Queue()

    def __iter__(self) -> Iterator[str]:
        self._begin_reading()
        return self

    def __next__(self) -> str:
        """Return the next text.

        Raises
        ------
        BaseException
            What the generation raised, after all text that came; once, then ``StopIteration``.
        StreamTimeoutError
            When no text came in time.
        ValueError
            For a batch, whose rows would be mixed up.
        """
        item = self._next()
        if item is None:
            raise StopIteration
        return only_text(item)

    def rows(self) -> Iterator[RowText]:
        """Iterate over the text of a batch as ``(row, text)``, in the order in which it comes. Raises as above."""
        self._begin_reading()
        while (item := self._next()) is not None:
            yield item if isinstance(item, RowText) else RowText(0, item)

    def close(self) -> None:
        """Hang up: an observed generation stops after the current step. Leaving a ``with`` block does this too."""
        super().close()
        self.text_queue.put("")  # wakes a reader

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _send(self, item: Item) -> None:
        self.text_queue.put(item)

    def _next(self) -> str | RowText | None:
        while not self._read_to_end:
            try:
                item = self.text_queue.get(timeout=self._patience())
            except queue.Empty:
                self._no_item()
                continue
            if not self._closed and not self._is_end(item) and (text := with_text(item)) is not None:
                return text
        return None


class AsyncTextIteratorStreamer(QueueStreamer):
    """An asynchronous iterator over text as it is generated; the generation runs in a thread.

    Create it in the coroutine that reads it.

    Parameters
    ----------
    tokenizer, skip_prompt, timeout, stop_strings, **decode_kwargs
        As for :class:`TextIteratorStreamer`.

    Raises
    ------
    RuntimeError
        When no event loop is running.

    Examples
    --------
    >>> streamer = AsyncTextIteratorStreamer(tokenizer, skip_prompt=True)  # doctest: +SKIP
    >>> task = asyncio.create_task(asyncio.to_thread(model.generate, **inputs, **observe(streamer)))  # doctest: +SKIP
    >>> async for text in streamer:  # doctest: +SKIP
    ...     print(text, end="")
    """

    def __init__(
        self,
        tokenizer: PreTrainedTokenizerBase,
        skip_prompt: bool = False,
        timeout: float | None = None,
        *,
        stop_strings: Sequence[str] = (),
        **decode_kwargs: Any,
    ) -> None:
        super().__init__(tokenizer, skip_prompt, timeout, stop_strings=stop_strings, **decode_kwargs)
        self.text_queue: asyncio.Queue[Item] = asyncio.Queue()
        self.loop = asyncio.get_running_loop()

    def __aiter__(self) -> AsyncIterator[str]:
        self._begin_reading()
        return self

    async def __anext__(self) -> str:
        """Return the next text; raises as :meth:`TextIteratorStreamer.__next__` does."""
        item = await self._next()
        if item is None:
            raise StopAsyncIteration
        return only_text(item)

    async def rows(self) -> AsyncIterator[RowText]:
        """Iterate over the text of a batch as ``(row, text)``, in the order in which it comes."""
        self._begin_reading()
        while (item := await self._next()) is not None:
            yield item if isinstance(item, RowText) else RowText(0, item)

    def close(self) -> None:
        """Hang up: an observed generation stops after the current step. Leaving an ``async with`` does this too."""
        super().close()
        self._send("")  # wakes a reader

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _send(self, item: Item) -> None:
        try:
            self.loop.call_soon_threadsafe(self.text_queue.put_nowait, item)
        except RuntimeError:  # the loop is closed: the reader is gone, which is no error of the generation
            self._closed = self._read_to_end = True

    async def _next(self) -> str | RowText | None:
        while not self._read_to_end:
            try:
                async with asyncio.timeout(self._patience()):
                    item = await self.text_queue.get()
            except TimeoutError:
                self._no_item()
                continue
            if not self._closed and not self._is_end(item) and (text := with_text(item)) is not None:
                return text
        return None
