"""Streamers that are read from elsewhere: by a loop in another thread, or by a coroutine.

The generation runs in one thread, the reader in another; a bounded queue between them makes the generation wait for a
slow reader instead of piling tensors up. Not here: starting the thread (``run`` does, or the script).
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Iterator
from types import TracebackType
from typing import Self

from .base import StepStreamer, check_fields
from .channel import Channel, Ended, nothing_came
from .outputs import Field, Output

__all__ = ["AsyncOutputIteratorStreamer", "OutputIteratorStreamer"]


class _ChannelStreamer(StepStreamer):
    """A streamer whose outputs go into a channel."""

    def __init__(
        self,
        fields: Iterable[Field] = ("scores", "logits"),
        *,
        timeout: float | None = None,
        max_queue: int = 64,
    ) -> None:
        self.fields = check_fields(fields)
        self.timeout = timeout
        self._channel: Channel[Output] = Channel(max_queue, on_change=self._wake)

    def _wake(self) -> None:
        """Tell a reader that does not wait in the channel itself that something came."""

    @property
    def closed(self) -> bool:
        """Whether the reader hung up; an observed generation then stops."""
        return self._channel.closed

    def put(self, output: Output) -> None:
        """Queue an output; waits while the queue is full."""
        self._channel.put(output)

    def end(self, error: BaseException | None = None) -> None:
        """Let the reader finish what is queued, then stop, or raise ``error`` there."""
        self._channel.end(error)

    def close(self) -> None:
        """Hang up: the generation stops after the current step. Leaving the ``with`` block does this too."""
        self._channel.close()


class OutputIteratorStreamer(_ChannelStreamer):
    """A blocking iterator over the prompt, the steps and, of a beam search, the result of one generation.

    Parameters
    ----------
    fields : iterable of str
        As for :class:`~genscope.kernel_side.streaming.base.OutputStreamer`.
    timeout : float, optional
        Seconds to wait for the next output before ``TimeoutError``; None waits without limit. The iterator can be
        used again after a timeout.
    max_queue : int
        Outputs held before the generation waits for the reader; 0 for no bound.

    Raises
    ------
    ValueError
        For an unknown field or a negative ``max_queue``.

    Examples
    --------
    >>> with OutputIteratorStreamer(timeout=30) as streamer:  # doctest: +SKIP
    ...     Thread(target=model.generate, kwargs={**inputs, **observe(streamer)}).start()
    ...     for output in streamer:
    ...         print(output.tokens)
    """

    def __iter__(self) -> Iterator[Output]:
        return self

    def __next__(self) -> Output:
        """Return the next output; raises what the generation raised, after all that came before."""
        try:
            return self._channel.get(self.timeout)
        except Ended:
            raise StopIteration from None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class AsyncOutputIteratorStreamer(_ChannelStreamer):
    """An asynchronous iterator over the prompt, the steps and, of a beam search, the result of one generation.

    Create it in the coroutine that reads it; the generation runs in a thread (``asyncio.to_thread``).

    Parameters
    ----------
    fields, timeout, max_queue
        As for :class:`OutputIteratorStreamer`.

    Raises
    ------
    RuntimeError
        When no event loop is running.
    ValueError
        For an unknown field or a negative ``max_queue``.

    Examples
    --------
    >>> async with AsyncOutputIteratorStreamer() as streamer:  # doctest: +SKIP
    ...     task = asyncio.create_task(asyncio.to_thread(model.generate, **inputs, **observe(streamer)))
    ...     async for output in streamer:
    ...         print(output.tokens)
    """

    def __init__(
        self,
        fields: Iterable[Field] = ("scores", "logits"),
        *,
        timeout: float | None = None,
        max_queue: int = 64,
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._came = asyncio.Event()
        super().__init__(fields, timeout=timeout, max_queue=max_queue)

    def close(self) -> None:
        """Hang up, see :meth:`OutputIteratorStreamer.close`; from any thread."""
        super().close()
        self._wake()

    def _wake(self) -> None:
        """Wake the reader, from any thread; a reader whose loop is closed is gone."""
        try:
            self._loop.call_soon_threadsafe(self._came.set)
        except RuntimeError:
            self._channel.close()

    def __aiter__(self) -> AsyncIterator[Output]:
        return self

    async def __anext__(self) -> Output:
        """Return the next output; raises what the generation raised, after all that came before."""
        while True:
            self._came.clear()  # before looking, so that what comes after the look wakes us
            try:
                return self._channel.get(timeout=0)
            except Ended:
                raise StopAsyncIteration from None
            except TimeoutError:
                # Only our own "nothing there yet"; an error of the generation is raised by the channel's get too,
                # but then the channel has ended.
                if self._channel.ended:
                    raise
            try:
                await asyncio.wait_for(self._came.wait(), self.timeout)
            except TimeoutError:
                raise nothing_came(self.timeout) from None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
