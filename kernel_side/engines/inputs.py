"""Turns prompts into the token ids that a model is given, one row a prompt, and refuses those that it cannot take."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from ..request import ChatMessage, Problem, Prompt, SettingsError

__all__ = ["check_ids", "context_of", "pad_together", "render", "tokenize"]


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
    check_ids(ids, tokenizer, model)
    return ids


def check_ids(ids: Sequence[int], tokenizer: PreTrainedTokenizerBase, model: Any) -> None:
    """Refuse ids that a model does not know.

    Raises
    ------
    SettingsError
        On a GPU, looking one up would break all later work too.
    """
    size = model.get_input_embeddings().weight.shape[0]
    if wrong := [one for one in ids if not 0 <= one < size]:
        token = tokenizer.decode(wrong[:1]) if wrong[0] >= 0 else wrong[0]
        message = f"its token {token!r} has the id {wrong[0]}, but the model knows {size} tokens"
        way_out = "Use the model's own tokenizer, or call model.resize_token_embeddings(len(tokenizer)) first."
        raise SettingsError([Problem("prompt", None, message, way_out)])


def _encode(prompt: Prompt, tokenizer: PreTrainedTokenizerBase) -> list[int]:
    if isinstance(prompt, str):
        return list(tokenizer(prompt)["input_ids"])
    # To ids at once: rendering to text and tokenizing that would give a second BOS.
    encoded = render(prompt, tokenizer, return_dict=True)
    return list(encoded["input_ids"])


def render(prompt: list[ChatMessage], tokenizer: PreTrainedTokenizerBase, **how: Any) -> Any:
    """Return what the chat template makes of a conversation, up to where the model is to write.

    Raises
    ------
    SettingsError
        When there is no template, or it refuses these messages.
    """
    if not tokenizer.chat_template:
        message = "the tokenizer has no chat template, so it cannot take chat messages"
        raise SettingsError([Problem("prompt", prompt, message, "Give the prompt as text.")])
    messages = [message.model_dump() for message in prompt]
    try:
        return tokenizer.apply_chat_template(messages, add_generation_prompt=True, **how)
    except Exception as error:  # a template is a program of the model's author and may raise anything
        message = f"the chat template refuses these messages: {error}"
        raise SettingsError([Problem("prompt", prompt, message, "Change the roles or their order.")]) from error


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
