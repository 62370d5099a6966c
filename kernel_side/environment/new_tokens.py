"""Ids of text that is new in a history, and text of ids that are: never of what is there already."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from transformers import PreTrainedTokenizerBase

from ..record.detokenize import Detokenizer
from ..record.string_search import CONTEXT

__all__ = ["closing_of", "ids_of_data", "ids_of_parts", "text_after"]


def text_after(tokenizer: PreTrainedTokenizerBase, before: Sequence[int], ids: Sequence[int]) -> str:
    """Return the text that tokens add behind others, special tokens included.

    Ids that the tokenizer does not have add U+FFFD if there is nothing else, so that the text is not empty.
    """
    detokenizer = Detokenizer(tokenizer)
    for token in before[-CONTEXT:]:
        detokenizer.push(token)
    text = "".join([detokenizer.push(token).text for token in ids]) + detokenizer.tail()
    return text or "\ufffd"


def ids_of_parts(tokenizer: PreTrainedTokenizerBase, parts: Sequence[tuple[str, bool]]) -> list[int]:
    """Return the ids of a text that is made of markup and of data, without what begins or ends a text.

    Parameters
    ----------
    tokenizer : PreTrainedTokenizerBase
    parts : sequence of (str, bool)
        Texts, and whether each is data. The name of a special token in data is plain text.
    """
    data = "".join(text for text, is_data in parts if is_data)
    if not any(token in data for token in _special_texts(tokenizer)):
        # As one text: this is how a model saw it in training.
        return _encode(tokenizer, "".join(text for text, _ in parts))
    ids: list[int] = []
    for text, is_data in parts:
        ids += ids_of_data(tokenizer, text) if is_data else _encode(tokenizer, text)
    return ids


def ids_of_data(tokenizer: PreTrainedTokenizerBase, text: str) -> list[int]:
    """Return the ids of a text none of which is a special token, whatever the text says."""
    special = _special_texts(tokenizer)
    if not any(token in text for token in special):
        return _encode(tokenizer, text)
    ids: list[int] = tokenizer(text, add_special_tokens=False, split_special_tokens=True)["input_ids"]
    if not _ids(tokenizer, special).intersection(ids):
        return ids
    # Tokenizers written in Python, and those whose vocabulary has the special tokens as words too: broken after the
    # first character, the name is none.
    pattern = "|".join(re.escape(token) for token in sorted(special, key=len, reverse=True))
    broken = re.sub(pattern, lambda match: f"{match[0][0]}\0{match[0][1:]}", text).split("\0")
    ids = [token for part in broken if part for token in _encode(tokenizer, part)]
    unknown = tokenizer.unk_token_id
    return [token for token in ids if token == unknown or token not in _ids(tokenizer, special)]


def closing_of(tokenizer: PreTrainedTokenizerBase) -> list[int]:
    """Return the ids that a tokenizer puts behind a text, such as the EOS of T5."""
    whole: list[int] = tokenizer("a")["input_ids"]
    alone = _encode(tokenizer, "a")
    begins = [at for at in range(len(whole) - len(alone) + 1) if whole[at : at + len(alone)] == alone]
    return whole[begins[0] + len(alone) :] if begins else []


def _encode(tokenizer: PreTrainedTokenizerBase, text: str) -> list[int]:
    return list(tokenizer(text, add_special_tokens=False)["input_ids"]) if text else []


def _special_texts(tokenizer: PreTrainedTokenizerBase) -> list[str]:
    added = getattr(tokenizer, "added_tokens_decoder", {}).values()
    named = {str(token) for token in tokenizer.all_special_tokens}
    return [token for token in named | {token.content for token in added if token.special} if token]


def _ids(tokenizer: PreTrainedTokenizerBase, special: Sequence[str]) -> set[int]:
    ids: Any = tokenizer.convert_tokens_to_ids(list(special))
    return set(ids) - {tokenizer.unk_token_id}
