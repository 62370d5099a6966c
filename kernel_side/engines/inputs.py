"""Turns prompts into the token ids that a model is given, one row a prompt, and refuses those that it cannot take."""

from __future__ import annotations

from typing import Any

import torch
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from ..request import Problem, Prompt, SettingsError

__all__ = ["context_of", "pad_together", "tokenize"]


def context_of(model: PreTrainedModel) -> int | None:
    """Return how many tokens fit into a model's context, None when its config does not say."""
    return getattr(model.config.get_text_config(), "max_position_embeddings", None)


def tokenize(prompt: Prompt, tokenizer: PreTrainedTokenizerBase, model: Any) -> list[int]:
    """Return the ids of a prompt.

    Raises
    ------
    SettingsError
        When it gives no tokens, has one that the model does not know, or needs a chat template that is not there or
        refuses it.
    """
    ids = _encode(prompt, tokenizer)
    if not ids:
        raise SettingsError([Problem("prompt", prompt, "the prompt gives no tokens", "Type some text.")])
    # On a GPU, looking up an id that is not there breaks all later work too.
    size, largest = model.get_input_embeddings().weight.shape[0], max(ids)
    if largest >= size:
        token = tokenizer.decode([largest])
        message = f"its token {token!r} has the id {largest}, but the model knows {size} tokens"
        way_out = "Use the model's own tokenizer, or call model.resize_token_embeddings(len(tokenizer)) first."
        raise SettingsError([Problem("prompt", prompt, message, way_out)])
    return ids


def _encode(prompt: Prompt, tokenizer: PreTrainedTokenizerBase) -> list[int]:
    if isinstance(prompt, str):
        return list(tokenizer(prompt)["input_ids"])
    if not tokenizer.chat_template:
        message = "the tokenizer has no chat template, so it cannot take chat messages"
        raise SettingsError([Problem("prompt", prompt, message, "Give the prompt as text.")])
    messages = [message.model_dump() for message in prompt]
    try:
        # To ids at once: rendering to text and tokenizing that would give a second BOS.
        encoded: Any = tokenizer.apply_chat_template(messages, add_generation_prompt=True, return_dict=True)
    except Exception as error:  # a template is a program of the model's author and may raise anything
        message = f"the chat template refuses these messages: {error}"
        raise SettingsError([Problem("prompt", prompt, message, "Change the roles or their order.")]) from error
    return list(encoded["input_ids"])


def pad_together(rows: list[list[int]], pad: int, *, left: bool) -> tuple[torch.Tensor, torch.Tensor]:
    """Make one batch of prompts.

    Parameters
    ----------
    rows : list of list of int
    pad : int
        Fills what is shorter than the longest.
    left : bool
        On which side: left before what a decoder continues, right of what an encoder reads.

    Returns
    -------
    ids, mask : torch.Tensor
        Shape ``(prompts, longest)``, int64; the mask is 0 on padding.
    """
    longest = max(map(len, rows))
    ids = torch.full((len(rows), longest), pad, dtype=torch.int64)
    mask = torch.zeros_like(ids)
    for index, row in enumerate(rows):
        place = slice(longest - len(row), longest) if left else slice(0, len(row))
        ids[index, place] = torch.tensor(row)
        mask[index, place] = 1
    return ids, mask
