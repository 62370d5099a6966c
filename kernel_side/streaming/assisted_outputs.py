"""What assisted decoding hands to a streamer: one output a round of drafting and checking.

Assisted are: a draft model, prompt lookup (drafts copied from the text so far), and early exit (the model's own first
layers draft). Plain containers; ``decoding.tap_assisted`` makes them.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

__all__ = ["AssistedStepOutput"]


@dataclass(frozen=True, slots=True)
class AssistedStepOutput:
    """One round: some tokens were drafted, one forward pass checked them all. Fields not asked for are None.

    The drafted tokens are kept up to the first that the model disagrees with; then comes one token of the model's own,
    the bonus. The batch is always 1.

    Attributes
    ----------
    step : int
        0 for the first round.
    length : int
        Length of the sequence with this round's tokens.
    seconds : float
        ``time.perf_counter()`` at the commit.
    tokens : torch.Tensor
        Shape ``(1, new)``, int64, ``new >= 1``: the accepted tokens, then the bonus.
    drafted : torch.Tensor
        Shape ``(1, drafts)``, int64; ``drafts`` may be 0.
    accepted : int
        How many drafted tokens were kept.
    finished : torch.Tensor
        Shape ``(1,)``, bool: the sequence is finished now.
    draft_scores : torch.Tensor, optional
        Shape ``(1, drafts, vocabulary)``, float32: what the draft model chose from, after its processors. Asked for
        with ``"scores"``; None also where drafts have no probabilities (prompt lookup, a draft model with another
        tokenizer).
    check_scores : torch.Tensor, optional
        Shape ``(1, drafts + 1, vocabulary)``, float32: the model's own scores, after all processors, at each drafted
        token, kept or not, given the drafts before it; then at the place behind them. Asked for with ``"scores"``.
    scores, logits : tuple of torch.Tensor, optional
        One for each token, of shape ``(1, vocabulary)``, float32: after and before all processors. Concatenated over
        the rounds they equal ``GenerateDecoderOnlyOutput.scores`` and ``.logits`` bit for bit.
    attentions, cross_attentions, hidden_states : tuple of tuple of torch.Tensor, optional
        For each token, one tensor a layer; concatenated over the rounds they equal what ``generate`` returns. In the
        first round transformers 5.24 returns, for the tokens behind the first, those of the first prompt positions
        (``_split_model_outputs``); they are given as returned.
    own_attentions, own_cross_attentions, own_hidden_states : tuple of tuple of torch.Tensor, optional
        The same with each token's own rows: those of the position that it was chosen from, the one before it. As in
        greedy decoding the very first token has the rows of the whole prompt. Behind the first round they are the
        tensors above, but for attentions of layers with a sliding window: here the last column is always the row's own
        position. (Columns in front that the window leaves out may be there, as zeros, or not.)
    """

    step: int
    length: int
    seconds: float
    tokens: torch.Tensor
    drafted: torch.Tensor
    accepted: int
    finished: torch.Tensor
    draft_scores: torch.Tensor | None = None
    check_scores: torch.Tensor | None = None
    scores: tuple[torch.Tensor, ...] | None = None
    logits: tuple[torch.Tensor, ...] | None = None
    attentions: tuple[tuple[torch.Tensor, ...], ...] | None = None
    cross_attentions: tuple[tuple[torch.Tensor, ...], ...] | None = None
    hidden_states: tuple[tuple[torch.Tensor, ...], ...] | None = None
    own_attentions: tuple[tuple[torch.Tensor, ...], ...] | None = None
    own_cross_attentions: tuple[tuple[torch.Tensor, ...], ...] | None = None
    own_hidden_states: tuple[tuple[torch.Tensor, ...], ...] | None = None

    @property
    def bonus(self) -> int:
        """How many tokens are the model's own: 1, or 0 where the sequence ended within the draft."""
        return self.tokens.shape[1] - self.accepted

    @property
    def rejected(self) -> int:
        """How many drafted tokens were dropped: from the first disagreement on, or behind the sequence's end."""
        return self.drafted.shape[1] - self.accepted
