"""Draws a history: which parts it has, as ANSI colours for a terminal, and as HTML for a notebook.

Text of a model is data: control characters are shown as pictures, so that they cannot command a terminal, and markup is
escaped.
"""

from __future__ import annotations

import html as html_escapes
import os
import unicodedata
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from transformers import PreTrainedTokenizerBase

if TYPE_CHECKING:
    from .history import TextHistory

__all__ = ["Part", "coloured", "html", "legend_parts", "text_parts", "token_parts"]

Kind = Literal["prompt", "system", "model", "reward"]

# The 256 colours of terminals and the same for HTML: light enough for black text, and told apart by brightness too.
_ANSI: dict[Kind, int] = {"prompt": 253, "system": 43, "model": 39, "reward": 219}
_CSS: dict[Kind, str] = {"prompt": "#dadada", "system": "#00d7af", "model": "#00afff", "reward": "#ffafff"}


class Part(NamedTuple):
    """Text on the colour of its kind; of no kind between the others."""

    text: str
    kind: Kind | None = None


def text_parts(history: TextHistory) -> list[Part]:
    """Return the segments of a history, and its reward."""
    parts = [Part(history.text[slice(*span)], _kind(history, index)) for index, span in enumerate(history.text_spans)]
    return [*parts, *_reward(history)]


def token_parts(history: TextHistory, tokenizer: PreTrainedTokenizerBase) -> list[Part]:
    """Return the tokens of a history, as the tokenizer names them, and its reward. An unknown id is shown as number."""
    parts: list[Part] = []
    for index, span in enumerate(history.token_spans):
        for token in history.tokens[slice(*span)].tolist():
            name: Any = tokenizer.convert_ids_to_tokens(token)
            parts += [Part(str(token) if name is None else str(name), _kind(history, index)), Part(" ")]
    return [*parts[:-1], *_reward(history)]


def legend_parts() -> list[Part]:
    """Return what each colour stands for."""
    kinds: list[Kind] = ["prompt", "system", "model", "reward"]
    named = [[Part(kind.capitalize(), kind), Part(" | ")] for kind in kinds]
    return [part for parts in named for part in parts][:-1]


def coloured(parts: Sequence[Part]) -> str:
    """Return the parts with ANSI colours; without where the environment variable ``NO_COLOR`` is set (no-color.org)."""
    plain = bool(os.environ.get("NO_COLOR"))
    return "".join(
        _harmless(text) if kind is None or plain else f"\x1b[30;48;5;{_ANSI[kind]}m{_harmless(text)}\x1b[0m"
        for text, kind in parts
    )


def html(parts: Sequence[Part]) -> str:
    """Return the parts as an element of HTML."""
    spans = []
    for text, kind in parts:
        shown = html_escapes.escape(_harmless(text))
        style = f' style="color: #000; background: {_CSS[kind]}"' if kind is not None else ""
        spans.append(f"<span{style}>{shown}</span>")
    return f'<pre style="white-space: pre-wrap">{"".join(spans)}</pre>'


def _kind(history: TextHistory, index: int) -> Kind:
    if index == 0 and history.system_spans[0]:
        return "prompt"
    return "system" if history.system_spans[index] else "model"


def _reward(history: TextHistory) -> Iterator[Part]:
    reward = history.reward
    yield Part("\n\n")
    yield Part(f"Reward: {float(reward) if hasattr(reward, 'item') else reward}", "reward")


def _harmless(text: str) -> str:
    return "".join(map(_picture, text)) if not text.isprintable() else text


def _picture(character: str) -> str:
    code = ord(character)
    if character in "\n\t" or unicodedata.category(character) not in ("Cc", "Cf", "Cs"):
        return character
    if character in "\u200c\u200d":  # joiners: emoji and many scripts need them
        return character
    if code < 0x20:
        return chr(0x2400 + code)
    return "\u2421" if code == 0x7F else f"\\u{code:04x}"
