"""Ids that go on from ids which stay: of a text behind them, and of the next turn of a conversation.

Nothing that is there is tokenized again, so a run that goes on shares every token, and its keys and values, with the
one before. Which run goes on from which is in ``branching``.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

from transformers import PreTrainedTokenizerBase

from ..record.detokenize import Detokenizer
from ..record.record import Token
from ..record.string_search import CONTEXT
from ..request import Problem, Prompt, SettingsError
from .inputs import render

__all__ = ["ids_behind", "next_turn"]

_ANCHORS = ("\n", ",", ".", "a")
"""What a text is put behind where its tokenizer would add a space to the beginning of every text."""


def ids_behind(tokenizer: PreTrainedTokenizerBase, before: Sequence[int], text: str) -> list[int]:
    """Return ids that add a text behind others.

    Parameters
    ----------
    tokenizer : PreTrainedTokenizerBase
    before : sequence of int
        What stays as it is.
    text : str
        Taken to the letter: a space at its beginning counts. Names of special tokens become these.

    Returns
    -------
    list of int
        Of the ways to write the text that the tokenizer offers the one that decodes to it here.
    """
    plain = _encode(tokenizer, text)
    ways = (plain, *(_behind_anchor(tokenizer, anchor, text) for anchor in _ANCHORS))
    # What is unfinished before it comes out with it, as U+FFFD.
    wanted = text.lstrip("\ufffd")
    right = (ids for ids in ways if ids and _added(tokenizer, before, ids).lstrip("\ufffd") == wanted)
    return next(right, plain)


def next_turn(tokenizer: PreTrainedTokenizerBase, tokens: Sequence[Token], messages: Prompt) -> tuple[int, list[int]]:
    """Return how many tokens of a conversation stay, and the ids behind them that make it ``messages``.

    All of them stay where the template writes the earlier turns as they were; where it does not (it strips what a model
    thought, say), those up to the first difference.

    Parameters
    ----------
    tokenizer : PreTrainedTokenizerBase
    tokens : sequence of Token
        All that was read and written so far.
    messages : list of ChatMessage
        The whole conversation, with its new turn.

    Raises
    ------
    SettingsError
        When the chat template refuses them.
    """
    assert not isinstance(messages, str)
    rendered: str = render(messages, tokenizer, tokenize=False)
    ends = list(itertools.accumulate(len(token.text) for token in tokens))
    written = "".join(token.text for token in tokens)
    common = next((at for at, (one, other) in enumerate(zip(written, rendered, strict=False)) if one != other), None)
    common = min(len(written), len(rendered)) if common is None else common
    kept = len(tokens)
    # Not within a character of several tokens: its text comes with the last of them.
    while kept and (ends[kept - 1] > common or (kept < len(tokens) and tokens[kept].group < kept)):
        kept -= 1
    added = rendered[ends[kept - 1] if kept else 0 :]
    if not added:
        message = "the chat template adds nothing for the new turn"
        raise SettingsError([Problem("prompt", messages, message, "Change the roles or their order.")])
    return kept, ids_behind(tokenizer, [token.id for token in tokens[:kept]], added)


def _encode(tokenizer: PreTrainedTokenizerBase, text: str) -> list[int]:
    encoded: Any = tokenizer(text, add_special_tokens=False)
    return list(encoded["input_ids"])


def _behind_anchor(tokenizer: PreTrainedTokenizerBase, anchor: str, text: str) -> list[int]:
    """Return the ids that a text has behind another one; none where the two share a token."""
    alone, together = _encode(tokenizer, anchor), _encode(tokenizer, anchor + text)
    return together[len(alone) :] if together[: len(alone)] == alone else []


def _added(tokenizer: PreTrainedTokenizerBase, before: Sequence[int], ids: Sequence[int]) -> str:
    detokenizer = Detokenizer(tokenizer)
    for token in before[-CONTEXT:]:
        detokenizer.push(token)
    return "".join([detokenizer.push(token).text for token in ids]) + detokenizer.tail()
