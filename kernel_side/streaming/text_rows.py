"""The text of each row of a generation, from whatever a streamer is handed: step outputs, or bare ids.

Keeps one incremental detokenizer a row, leaves padding out, and holds stop strings back. Where the text goes is the
streamers' matter, see ``text``.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import cast

import torch

from ..record.detokenize import Detokenizer
from .assisted_outputs import AssistedStepOutput
from .beam_outputs import BeamResult
from .outputs import PromptOutput, StepOutput
from .text_before_stop import TextBeforeStop

__all__ = ["Rows"]


class Rows:
    """The rows of one generation, from its first output on.

    Parameters
    ----------
    detokenizers : sequence of Detokenizer
        One for each sequence of the batch.
    pad_id : int or None
        The tokenizer's padding.
    eos_id : int or None
        The tokenizer's end of sequence, with which ``generate`` pads when a model has no padding.
    stop_strings : sequence of str
        Generated text ends before the first of them, in each row. One that begins in the prompt is none.
    """

    def __init__(
        self,
        detokenizers: Sequence[Detokenizer],
        pad_id: int | None,
        eos_id: int | None,
        stop_strings: Sequence[str] = (),
    ) -> None:
        self.count = count = len(detokenizers)
        self._detokenizers = detokenizers
        self._pad_id = pad_id
        self._eos_id = eos_id
        self._held: list[list[int]] = [[] for _ in range(count)]  # may be padding of a finished row
        self._ended_by_special = [False] * count
        self._before_stop = [TextBeforeStop(stop_strings) for _ in range(count)]
        self._begun = [False] * count  # whether the prompt ends within a character

    def prompt(self, prompt: PromptOutput | list[list[int]]) -> list[str]:
        """Return the prompt's text of each row, without padding as far as that is known.

        Bare ids of a batch lose their leading padding; those of a single sequence are all kept, as the library does.
        """
        if isinstance(prompt, PromptOutput):
            rows = cast("list[list[int]]", prompt.tokens.tolist())
            if prompt.attention_mask is not None:
                masks = prompt.attention_mask.tolist()
                rows = [
                    [token for token, kept in zip(row, mask, strict=True) if kept]
                    for row, mask in zip(rows, masks, strict=True)
                ]
        else:
            rows = prompt if self.count == 1 else [self._without_left_padding(row) for row in prompt]
        texts = [self._push(row, tokens) for row, tokens in enumerate(rows)]
        self._begun = [bool(self._detokenizers[row].tail()) for row in range(self.count)]
        return texts

    def step(self, output: StepOutput | AssistedStepOutput) -> list[str]:
        """Return each row's text of a step; ``""`` for rows that had finished before."""
        if isinstance(output, AssistedStepOutput):
            return [self._generated(0, output.tokens[0].tolist())]
        active = output.active.tolist()
        tokens = _as_rows(output.tokens, self.count)
        return [self._generated(row, tokens[row]) if active[row] else "" for row in range(self.count)]

    def result(self, output: BeamResult) -> list[str]:
        """Return each row's text of what a beam search chose, without the prompt."""
        rows = output.sequences[:, output.prompt_length :].tolist()
        return [
            self._generated(row, tokens[:length])
            for row, (tokens, length) in enumerate(zip(rows, output.lengths.tolist(), strict=True))
        ]

    def ids(self, value: torch.Tensor) -> list[str]:
        """Return each row's text of bare ids, shape ``(batch,)`` or ``(batch, accepted)``.

        Which rows have finished is not said with them. So in a batch padding is held back, to be dropped if nothing
        else follows: the tokenizer's padding, and its end of sequence after a special token.
        """
        rows = _as_rows(value, self.count)
        if self.count > 1:
            rows = [self._hold_padding(row, tokens) for row, tokens in enumerate(rows)]
        return [self._generated(row, tokens) for row, tokens in enumerate(rows)]

    def tail(self, row: int) -> str:
        """Return the end of a row's text: what was held back, and what its unfinished character decodes to. Once."""
        before = self._before_stop[row]
        return self._let_through(row, self._detokenizers[row].tail()) + before.end()

    def _generated(self, row: int, tokens: Iterable[int]) -> str:
        return self._let_through(row, self._push(row, tokens))

    def _let_through(self, row: int, text: str) -> str:
        begun = ""
        if self._begun[row] and text:  # a character that the prompt began
            begun, text, self._begun[row] = text[0], text[1:], False
        return begun + self._before_stop[row].push(text)

    def _push(self, row: int, tokens: Iterable[int]) -> str:
        push = self._detokenizers[row].push
        return "".join([push(token).text for token in tokens])

    def _without_left_padding(self, tokens: list[int]) -> list[int]:
        start = 0
        while start < len(tokens) and tokens[start] == self._pad_id:
            start += 1
        return tokens[start:]

    def _hold_padding(self, row: int, tokens: Iterable[int]) -> list[int]:
        given: list[int] = []
        held = self._held[row]
        for token in tokens:
            is_pad = token == self._pad_id and self._pad_id != self._eos_id
            if is_pad or (token == self._eos_id and self._ended_by_special[row]):
                held.append(token)
                continue
            given += [*held, token]
            held.clear()
            self._ended_by_special[row] = self._detokenizers[row].is_special(token)
        return given


def _as_rows(value: torch.Tensor, count: int) -> list[Sequence[int]]:
    """Split ids among rows: one each, or several each, or all to the only one."""
    if value.dim() == 2:
        rows = value.tolist()
    elif count == 1:
        rows = [value.reshape(-1).tolist()]
    else:
        rows = [[token] for token in value.tolist()]
    if len(rows) != count:
        raise ValueError(f"ids of shape {tuple(value.shape)} do not fit the {count} rows that came first")
    return cast("list[Sequence[int]]", rows)
