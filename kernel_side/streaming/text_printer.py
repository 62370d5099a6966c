"""The text streamer that prints, and what all text streamers share. Use it from ``text``, where the iterators are.

It decides what text goes where and when; how ids become text is in ``text_rows``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from transformers import PreTrainedTokenizerBase
from transformers.generation.streamers import BaseStreamer

from ..record.detokenize import Detokenizer
from .assisted_outputs import AssistedStepOutput
from .base import StepStreamer
from .beam_outputs import BeamResult, BeamStepOutput
from .outputs import Output, PromptOutput, StepOutput
from .text_rows import Rows

__all__ = ["TextStreamer"]


class TextStreamer(StepStreamer, BaseStreamer):
    """Prints text as it is generated.

    A batch is printed one row after another: the first live, each next one as soon as the one before has ended.

    Under ``observe`` it also takes beam search and assisted decoding. Of a beam search nothing is final before its end:
    the text of all returned sequences comes then. Assisted decoding gives some tokens at once.

    Parameters
    ----------
    tokenizer : PreTrainedTokenizerBase
        Or a processor that has one.
    skip_prompt : bool
        Whether the prompt is left out.
    stop_strings : sequence of str
        Generated text is given up to the first of them, and nothing of it: what may yet become one waits. Ends no
        generation.
    **decode_kwargs
        As for ``tokenizer.decode``: ``skip_special_tokens``, ``clean_up_tokenization_spaces``, ...

    Raises
    ------
    ValueError
        For an empty stop string.

    Notes
    -----
    To do something else with the text, override :meth:`on_finalized_text` as with the library's class, or
    :meth:`on_row_text` to have a batch's rows apart.

    Examples
    --------
    >>> model.generate(**inputs, streamer=TextStreamer(tokenizer, skip_prompt=True))  # doctest: +SKIP
    """

    def __init__(
        self,
        tokenizer: PreTrainedTokenizerBase,
        skip_prompt: bool = False,
        *,
        stop_strings: Sequence[str] = (),
        **decode_kwargs: Any,
    ) -> None:
        self.stop_strings = (stop_strings,) if isinstance(stop_strings, str) else tuple(stop_strings)
        if not all(self.stop_strings):
            msg = f"stop_strings is {stop_strings!r}; give texts that are not empty"
            raise ValueError(msg)
        self.tokenizer = tokenizer
        self.skip_prompt = skip_prompt
        self.decode_kwargs = decode_kwargs
        self.next_tokens_are_prompt = True
        self._rows: Rows | None = None
        self._row_ended: list[bool] = []
        self._waiting: list[str] = []  # printed text that waits for the rows before it
        self._printing = 0
        self._ended = False
        self._error: BaseException | None = None

    def put(self, value: Output | torch.Tensor) -> None:
        """Take the prompt, a step or the result of a beam search.

        Parameters
        ----------
        value : PromptOutput, a step, BeamResult or torch.Tensor
            As ids: first the prompt ``(batch, length)``, then ``(batch,)`` or ``(batch, accepted)`` a step.

        Raises
        ------
        ValueError
            When a step has another number of rows than the prompt.
        """
        if self.closed or isinstance(value, BeamStepOutput):  # no token of a beam step is final
            return
        if self._ended:  # another generation begins
            self._ended, self._error, self._rows = False, None, None
        ids = value if isinstance(value, torch.Tensor) else _ids_of(value)
        if self._rows is None:
            self._rows = self._make_rows(1 if isinstance(value, torch.Tensor) and ids.dim() < 2 else len(ids))
        rows = self._rows
        is_prompt = self.next_tokens_are_prompt if isinstance(value, torch.Tensor) else isinstance(value, PromptOutput)
        self.next_tokens_are_prompt = False
        if is_prompt and self.skip_prompt:
            return
        finished = [False] * rows.count
        if isinstance(value, torch.Tensor):
            texts = rows.prompt(ids.reshape(rows.count, -1).tolist()) if is_prompt else rows.ids(ids)
        elif isinstance(value, PromptOutput):
            texts = rows.prompt(value)
        elif isinstance(value, BeamResult):
            texts = rows.result(value)
        else:
            texts = rows.step(value)
            # The row of a single sequence ends with the stream: only then is it known whether all went well.
            finished = value.finished.tolist() if rows.count > 1 else finished
        for row, text in enumerate(texts):
            if not self._row_ended[row]:
                self._row_ended[row] = finished[row]
                self.on_row_text(row, text + rows.tail(row) if finished[row] else text, stream_end=finished[row])

    def end(self, error: BaseException | None = None) -> None:
        """Take the end: give out what is held back. More calls do nothing.

        Parameters
        ----------
        error : BaseException, optional
            What the generation raised. Iterators raise it at their reader.
        """
        if self._ended and (error is None or error is self._error):
            return
        if self._ended or self._rows is None:  # it failed before anything came: an empty stream ends
            self._rows = self._make_rows(1)
        self._ended, self._error = True, error
        self.next_tokens_are_prompt = True
        if self.closed:
            return
        rows = self._rows
        for row in range(rows.count):
            if not self._row_ended[row]:
                self._row_ended[row] = True
                self.on_row_text(row, rows.tail(row), stream_end=True)
        if rows.count > 1:
            self._on_rows_end()

    def on_row_text(self, row: int, text: str, stream_end: bool = False) -> None:
        """Do something with text of a row; called once a step and row, also when the text is empty.

        Here: hand it to :meth:`on_finalized_text`, of a batch one row after another.

        Parameters
        ----------
        row : int
        text : str
        stream_end : bool
            Whether this ends the row.
        """
        if len(self._waiting) == 1:
            self.on_finalized_text(text, stream_end=stream_end)
            return
        self._waiting[row] += text
        while row == self._printing:
            text, self._waiting[row] = self._waiting[row], ""
            is_last = row == len(self._waiting) - 1
            self.on_finalized_text(text, stream_end=is_last and self._row_ended[row])
            if is_last or not self._row_ended[row]:
                return
            row = self._printing = row + 1

    def on_finalized_text(self, text: str, stream_end: bool = False) -> None:
        """Print text, and a line end when the stream ends."""
        print(text, flush=True, end=None if stream_end else "")  # noqa: T201 - that is what it is for

    def _on_rows_end(self) -> None:
        """Do something when all rows of a batch have ended."""

    def _make_rows(self, count: int) -> Rows:
        self._row_ended = [False] * count
        self._waiting = ["[0] ", *(f"\n[{row}] " for row in range(1, count))]
        self._printing = 0
        inner = getattr(self.tokenizer, "tokenizer", None)  # of a processor
        tokenizer = inner if isinstance(inner, PreTrainedTokenizerBase) else self.tokenizer
        kwargs = {"clean_up_tokenization_spaces": None, **self.decode_kwargs}
        return Rows(
            [Detokenizer(tokenizer, **kwargs) for _ in range(count)],
            tokenizer.pad_token_id,
            tokenizer.eos_token_id,
            self.stop_strings,
        )


def _ids_of(value: PromptOutput | StepOutput | AssistedStepOutput | BeamResult) -> torch.Tensor:
    return value.sequences if isinstance(value, BeamResult) else value.tokens
