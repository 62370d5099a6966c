"""Looks at single tokens of a run: attention, as a row or a matrix, and the logit lens. Plain numbers and texts.

What is kept of the run is in ``states``, how hidden states become probabilities in ``lens``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from transformers import PreTrainedTokenizerBase

from ..record.detokenize import Detokenizer
from ..record.recording import Lane
from .lens import LogitLens
from .states import States, UnseenError

__all__ = ["AttentionLook", "Kind", "LensCandidate", "LensLook", "Looks", "MatrixLook", "Observed"]

Kind = Literal["self", "cross", "encoder"]
"""Attention of the decoder on its own tokens, of the decoder on the source, or of the source on itself."""

Observed = Literal["attention", "cross", "encoder", "lens"]
"""What can be looked at: ``"attention"`` is that on the own tokens."""

_CONTEXT = 8
"""Tokens before a candidate that its text is told from."""


@dataclass(frozen=True, slots=True)
class AttentionLook:
    """What the model looked at when it chose a token.

    Attributes
    ----------
    weights : list of float
        Share of the attention on each token, 0 to 1, from position 0 on; of the source for ``"cross"``.
    layers, heads : int
        How many there are.
    """

    weights: list[float]
    layers: int
    heads: int


@dataclass(frozen=True, slots=True)
class MatrixLook:
    """Attention of consecutive tokens: rows as :attr:`AttentionLook.weights`, the first for the token at `position`."""

    position: int
    rows: list[list[float]]
    layers: int
    heads: int


@dataclass(frozen=True, slots=True)
class LensCandidate:
    """A token that a layer would have said, with its natural-log probability."""

    id: int
    text: str
    logprob: float


@dataclass(frozen=True, slots=True)
class LensLook:
    """What one layer would have said.

    Attributes
    ----------
    layer : int
        0 is the embeddings; the last one is the model's own distribution.
    candidates : list of LensCandidate
        Most probable first.
    logprob : float
        Of the token that was chosen in the end.
    rank : int
        1 when no token was more probable.
    """

    layer: int
    candidates: list[LensCandidate]
    logprob: float
    rank: int


class Looks:
    """What can be looked at of one run.

    Parameters
    ----------
    states : States or None
        None where the run keeps nothing.
    lanes : sequence of Lane
    tokenizer : PreTrainedTokenizerBase
    lens : callable
        Returns the lens of the model, or raises ``UnseenError``; called at the first look.
    """

    def __init__(
        self,
        states: States | None,
        lanes: Sequence[Lane],
        tokenizer: PreTrainedTokenizerBase,
        lens: Callable[[], LogitLens],
    ) -> None:
        self._states = states
        self._lanes = lanes
        self._tokenizer = tokenizer
        self._lens = lens

    @property
    def observed(self) -> tuple[Observed, ...]:
        """What this run keeps."""
        fields = frozenset() if self._states is None else self._states.fields
        kinds: list[Observed] = []
        if "attentions" in fields:
            kinds += ["attention", "cross", "encoder"] if self._lanes[0].source is not None else ["attention"]
        return (*kinds, "lens") if "hidden_states" in fields else tuple(kinds)

    @property
    def nbytes(self) -> int:
        """Bytes of memory that is kept."""
        return 0 if self._states is None else self._states.nbytes

    def clear(self) -> None:
        """Drop all that is kept."""
        if self._states is not None:
            self._states.clear()

    def attention(
        self, position: int, lane: int = 0, *, of: Kind = "self", layer: int | None = None, head: int | None = None
    ) -> AttentionLook:
        """Return what the model looked at when it chose the token at a position.

        Parameters
        ----------
        position : int
            Of the token, in the lane's record; the first token was not chosen.
        lane : int
        of : {"self", "cross"}
        layer, head : int, optional
            The mean over all where not given.

        Raises
        ------
        UnseenError
            When this was not observed, or is not there.
        """
        states = self._kept("attentions", lane, position)
        weights = states.attention(lane, position, of, layer=layer, head=head)
        return AttentionLook(weights.tolist(), *states.shape(of))

    def matrix(
        self, position: int, lane: int = 0, *, of: Kind = "self", layer: int | None = None, head: int | None = None
    ) -> MatrixLook:
        """Return the attention of the tokens up to a position, of a few hundred at most; else as :meth:`attention`."""
        states = self._kept("attentions", lane, None if of == "encoder" else position)
        first, rows = states.matrix(lane, position, of, layer=layer, head=head)
        return MatrixLook(first, [row.tolist() for row in rows], *states.shape(of))

    def lens(self, position: int, lane: int = 0, top: int = 5) -> list[LensLook]:
        """Return what each layer would have said in place of the token at a position, the embeddings first.

        Parameters
        ----------
        position, lane : int
            As for :meth:`attention`.
        top : int
            Candidates a layer.

        Raises
        ------
        UnseenError
            When this was not observed, is not there, or the model's head is not understood.
        """
        hidden = self._kept("hidden_states", lane, position).hidden(lane, position)
        record = self._lanes[lane].record
        detokenizer = Detokenizer(self._tokenizer)
        for token in record[max(0, position - _CONTEXT) : position]:
            detokenizer.push(token.id)
        return [
            LensLook(
                layer=entry.layer,
                candidates=[
                    LensCandidate(token, detokenizer.peek(token), logprob) for token, logprob in entry.candidates
                ],
                logprob=entry.logprob,
                rank=entry.rank,
            )
            for entry in self._lens().look(hidden, record[position].id, top)
        ]

    def _kept(self, field: str, lane: int, position: int | None) -> States:
        """Return what is kept, once it is sure that it can hold the position."""
        if self._states is None or field not in self._states.fields:
            setting = {"attentions": "attention", "hidden_states": "logit_lens"}[field]
            raise UnseenError(f"This run did not keep it; set {setting}=True before the run.")
        if not 0 <= lane < len(self._lanes):
            raise UnseenError(f"There is no lane {lane}; the run has {len(self._lanes)}, from 0 on.")
        tokens = len(self._lanes[lane].record)
        if position is not None and not 0 <= position < tokens:
            raise UnseenError(f"There is no token at position {position}; the lane has {tokens}, from 0 on.")
        return self._states
