"""The tag grammar: ``<request><Tool>query<call>answer<response>``, as often as needed, ended by ``<submit>``."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from transformers import PreTrainedTokenizerBase

from .history import TextHistory
from .new_tokens import ids_of_parts
from .tools import Call

__all__ = ["Tags"]


@dataclass(frozen=True, slots=True)
class Tags:
    """How a model calls tools and is answered.

    Parameters
    ----------
    tokenizer : PreTrainedTokenizerBase
    prompt : str
        Stands before each query.
    closing : sequence of int
        Ids behind a text that are no part of a history.
    request, call, response, submit : str
        The tags.
    """

    tokenizer: PreTrainedTokenizerBase
    prompt: str
    closing: Sequence[int] = ()
    request: str = "<request>"
    call: str = "<call>"
    response: str = "<response>"
    submit: str = "<submit>"

    @property
    def stop_strings(self) -> list[str]:
        """What ends a model's segment, beside EOS."""
        return [self.call, self.submit]

    def begin(self, query: str) -> TextHistory:
        """Return a history of the prompt and a query."""
        text = self.prompt + query
        ids: list[int] = self.tokenizer(text)["input_ids"]
        if self.closing and ids[-len(self.closing) :] == list(self.closing):
            ids = ids[: -len(self.closing)]
        return TextHistory(text, torch.tensor(ids, dtype=torch.int64))

    def end(self, text: str, *, eos: bool) -> str | None:
        """Return why the interaction ends with a model's segment; None where it goes on.

        Parameters
        ----------
        text : str
            Of the segment.
        eos : bool
            Whether the model ended it with an EOS token.
        """
        if eos:
            return "eos"
        if self.submit in text:
            return "submit"
        return None if self.request in text and self.call in text else "no call"

    def calls(self, text: str) -> list[Call]:
        """Return the call that a model's segment makes: one, also where it cannot be read."""
        tool, query = self.parse(text)
        return [Call(tool, () if query is None else (query,), {}, text)]

    def parse(self, text: str) -> tuple[str | None, str | None]:
        """Return the tool and the query of the first call; two None where there is none."""
        between = re.search(f"{re.escape(self.request)}(.*?){re.escape(self.call)}", text, re.DOTALL)
        named = None if between is None else re.search(r"<([^<>\n]+)>(.*)", between[1], re.DOTALL)
        return (None, None) if named is None else (named[1], named[2])

    def answer(self, last: int, calls: Sequence[Call], answers: Sequence[str]) -> tuple[str, list[int]]:  # noqa: ARG002 - of all formats
        """Return the segment that answers a call, as text and as ids; special tokens that it names are plain text."""
        parts = [(answers[0], True), (self.response, False)]
        return "".join(text for text, _ in parts), ids_of_parts(self.tokenizer, parts)
