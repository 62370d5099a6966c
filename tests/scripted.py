"""Small models that say what a test wants, by a logits processor: their own tokens where it does not care."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from transformers import LogitsProcessor, LogitsProcessorList

from tiny import EOS, PAD, tiny_tokenizer

TOKENIZER = tiny_tokenizer()
FREE = None
"""In a script: the model's own choice."""
Script = list[list[int | None]]
"""Of one prompt the tokens of each turn."""


def ids_of(text: str) -> list[int]:
    return list(TOKENIZER(text, add_special_tokens=False)["input_ids"])


def turn(text: str, *, free: int = 0, eos: bool = False) -> list[int | None]:
    """Return the script of a turn: some tokens of the model's own, then a text."""
    return [FREE] * free + ids_of(text) + [EOS] * eos


class Says(LogitsProcessor):
    """Makes each row follow the script of the prompt that it begins with; EOS and PAD never come by themselves.

    Works on the ids of each row alone, whatever its padding and its place in the batch.
    """

    def __init__(self, scripts: dict[str, Script], answer_end: str = "<response>") -> None:
        self._scripts = {tuple(ids_of(prompt)): script for prompt, script in scripts.items()}
        self._mark = ids_of(answer_end)

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        scores = scores.clone()
        scores[:, [EOS, PAD]] = -torch.inf
        for row, ids in enumerate(input_ids.tolist()):
            wanted = self._wanted(ids)
            if wanted is not None:
                scores[row] = -torch.inf
                scores[row, wanted] = 0.0
        return scores

    def _wanted(self, ids: list[int]) -> int | None:
        while ids and ids[0] == PAD:
            ids = ids[1:]
        prompt = max((one for one in self._scripts if tuple(ids[: len(one)]) == one), key=len)
        rest, turns, mark = ids[len(prompt) :], 0, self._mark
        at = 0
        for place in range(len(rest) - len(mark) + 1):
            if rest[place : place + len(mark)] == mark:
                turns, at = turns + 1, place + len(mark)
        script, place = self._scripts[prompt], len(rest) - at
        # Finished rows are asked, too.
        return script[turns][place] if turns < len(script) and place < len(script[turns]) else EOS


def says(scripts: dict[str, Script], answer_end: str = "<response>", **kwargs: Any) -> dict[str, Any]:
    """Return generation arguments with which a model follows scripts."""
    return {"logits_processor": LogitsProcessorList([Says(scripts, answer_end)]), "max_new_tokens": 80, **kwargs}


def kinds_of(history: Any) -> list[str]:
    return ["system" if system else "model" for system in history.system_spans]


def texts_of(history: Any) -> list[str]:
    return [history.text[slice(*span)] for span in history.text_spans]


def generated_of(history: Any) -> list[list[int]]:
    spans = zip(history.token_spans, history.system_spans, strict=True)
    return [history.tokens[slice(*span)].tolist() for span, system in spans if not system]


def rows_of(texts: Sequence[str]) -> list[torch.Tensor]:
    return [torch.tensor(ids_of(text)) for text in texts]
