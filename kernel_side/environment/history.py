"""The history of one interaction: its segments as text and as tokens, whose they are, and what came of them.

Token ids are the truth and are never made anew from the text. How a history is drawn is in ``display``; who writes it
is in ``environment``.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from transformers import PreTrainedTokenizerBase

from ..caching.hits import RowHit
from . import display

__all__ = ["Reuse", "TextHistory"]


@dataclass(frozen=True, slots=True)
class Reuse:
    """Whence the KV came that a model's segment was generated from.

    Attributes
    ----------
    reused, computed : int
        Tokens before the segment whose KV was there already, and whose KV was computed; of an encoder-decoder model
        tokens that the encoder need not read, and those that it did.
    why : str or None
        Why none was reused; None where some was.
    hit : RowHit or None
        All that the prefix cache says; None where none was asked.
    """

    reused: int
    computed: int
    why: str | None = None
    hit: RowHit | None = field(default=None, repr=False, compare=False)


class TextHistory:
    """A prompt, then segments by turns of the model and of the system (the environment and its tools).

    Parameters
    ----------
    text : str
        Of the first segment, the prompt. Not empty.
    tokens : torch.Tensor
        Its ids, shape ``(length,)``, int64. Not empty.
    system : bool
        Whether it is the system's, and not the model's.

    Attributes
    ----------
    text : str
    tokens : torch.Tensor
        Shape ``(length,)``, int64.
    text_spans, token_spans : list of (int, int)
        Begin and end of each segment in `text` and in `tokens`.
    system_spans : list of bool
        Whether each segment is the system's.
    token_masks : torch.Tensor
        Shape ``(length,)``, int64: 1 where a token is the model's, 0 where it is the system's.
    completed : bool
        Whether the interaction is over.
    truncated : bool
        Whether it was cut short: by its length, by the number of turns, or by whoever stopped it.
    why : str or None
        What ended it: ``"submit"``, ``"eos"``, ``"no call"`` (the model ended without calling a tool), ``"max_turns"``,
        ``"max_length"``, ``"context"`` (the model's holds no more) or ``"stopped"``. None before, and where whoever
        completed it did not say.
    reward : float or torch.Tensor
        0.0 before a reward function was asked, and where there is none.
    rewarded : bool
        Whether the run that made it is past its rewards.
    logits : torch.Tensor or None
        Shape ``(tokens of the model, vocabulary)``, float32, where they were asked for: what the model gave for each of
        its tokens, ``tokens[token_masks == 1]``, before any processor.
    reuses : list of Reuse
        One a turn of the model, from its beginning on.
    called : list of tuple of str
        By answer the names of the tools that were called; calls that cannot be read have none.

    Raises
    ------
    ValueError
        For an empty text or no tokens.

    Examples
    --------
    >>> history = TextHistory("2 + 2 =", torch.tensor([5, 6, 7]))
    >>> history.append_segment(" 4", torch.tensor([8]), system=False)
    >>> history.last_text_segment, history.token_masks.tolist()
    (' 4', [0, 0, 0, 1])
    """

    def __init__(self, text: str, tokens: torch.Tensor, system: bool = True) -> None:
        self.text = ""
        self.tokens = tokens.new_zeros(0)
        self.token_masks = self.tokens.clone()
        self.text_spans: list[tuple[int, int]] = []
        self.token_spans: list[tuple[int, int]] = []
        self.system_spans: list[bool] = []
        self.completed = False
        self.truncated = False
        self.why: str | None = None
        self.reward: float | torch.Tensor = 0.0
        self.rewarded = False
        self.logits: torch.Tensor | None = None
        self.reuses: list[Reuse] = []
        self.called: list[tuple[str, ...]] = []
        self.append_segment(text, tokens, system=system)

    def append_segment(self, text: str, tokens: torch.Tensor, system: bool = True) -> None:
        """Append a segment.

        Raises
        ------
        ValueError
            For an empty text or no tokens.
        """
        if not text or not len(tokens):
            msg = f"a segment needs text and tokens; given are {text!r} and {len(tokens)} tokens"
            raise ValueError(msg)
        begin, token_begin = len(self.text), len(self.tokens)
        tokens = tokens.to(self.tokens)
        self.text += text
        self.tokens = torch.cat((self.tokens, tokens))
        self.token_masks = torch.cat((self.token_masks, torch.full_like(tokens, 0 if system else 1)))
        self.text_spans.append((begin, len(self.text)))
        self.token_spans.append((token_begin, len(self.tokens)))
        self.system_spans.append(system)

    def complete(self, truncated: bool = False, why: str | None = None) -> None:
        """Mark the interaction as over; see the attributes."""
        self.completed = True
        self.truncated = truncated
        self.why = why

    @property
    def last_text_segment(self) -> str:
        """The text of the last segment."""
        begin, end = self.text_spans[-1]
        return self.text[begin:end]

    @property
    def turns(self) -> int:
        """Segments of the model so far."""
        return self.system_spans.count(False)

    def split_query_response_tokens(self) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Return the tokens of the first segment, those of all others, and the mask of the others."""
        end = self.token_spans[0][1]
        return self.tokens[:end], self.tokens[end:], self.token_masks[end:]

    def show_text(self, show_legend: bool = False) -> None:
        """Print the text, each segment on the colour of its kind, and the reward."""
        print(display.coloured(display.text_parts(self)))  # noqa: T201 - what it is for
        if show_legend:
            self.show_colour_legend()

    def show_tokens(self, tokenizer: PreTrainedTokenizerBase, show_legend: bool = False) -> None:
        """Print the tokens, as the tokenizer names them, and the reward."""
        print(display.coloured(display.token_parts(self, tokenizer)))  # noqa: T201 - what it is for
        if show_legend:
            self.show_colour_legend()

    def show_colour_legend(self) -> None:
        """Print which colour is what."""
        print(display.coloured(display.legend_parts()))  # noqa: T201 - what it is for

    def _repr_html_(self) -> str:
        """Draw the history in a notebook."""
        return display.html([*display.text_parts(self), display.Part("\n\n"), *display.legend_parts()])
