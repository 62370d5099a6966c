"""Keeps what a model looked at and thought at each token of a run, for later looks at single tokens.

A streamer like any other: the generating thread writes, any thread looks. ``cut`` cuts what a forward pass gave into
tokens, ``prompts`` knows padding, ``kept`` holds all, ``lens`` reads hidden states. Not here: which runs keep states.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Literal

import torch

from ..streaming.assisted_outputs import AssistedStepOutput
from ..streaming.base import StepStreamer
from ..streaming.beam_outputs import BeamResult, BeamStepOutput
from ..streaming.outputs import Field, Output, PromptOutput
from .cut import Kind, Layers, Pass, uneven, whole_attention
from .kept import NAMES, Kept
from .prompts import Prompts
from .unseen import UnseenError

__all__ = ["AttentionOf", "States", "UnseenError"]

AttentionOf = Literal["self", "cross", "encoder"]
"""Of a lane's tokens on those before them, of these on the source's tokens, or of the source's tokens on each other."""

_FIELDS: dict[Kind, Field] = {"self": "attentions", "cross": "attentions", "hidden": "hidden_states"}


class States(StepStreamer):
    """Attention and hidden states of all tokens of one run, on the CPU.

    Attention is kept in float16: with a relative precision of 1e-3, weights below 6e-5 with an absolute one of 1e-7.
    Hidden states are kept in the model's own dtype. What belongs to the token at position ``p`` is of the forward pass
    that it was chosen from, that of position ``p - 1``; token 0 has none. Positions are the record's: padding has none.

    Sequences with the same prompt share the states of it. Of a beam search all hypotheses are kept until it has ended,
    then those that are returned.

    Parameters
    ----------
    lanes : int
        How many sequences the run has.
    attention, hidden : bool
        What to keep.

    Attributes
    ----------
    busy : float
        Seconds spent in here so far, by the generating thread.
    """

    def __init__(self, lanes: int, *, attention: bool, hidden: bool) -> None:
        wanted: dict[Field, bool] = {"attentions": attention, "hidden_states": hidden}
        self.fields = frozenset(name for name, want in wanted.items() if want)
        self.busy = 0.0
        self._kept = Kept(lanes, [kind for kind, name in _FIELDS.items() if name in self.fields])
        # Of the writing thread alone:
        self._begun = False
        self._prompts = Prompts(0, [], [], [], [])
        self._search: list[dict[Kind, torch.Tensor]] = []  # of each step of a beam search, all rows

    def put(self, output: Output) -> None:
        """Keep what this output brings, unless cleared.

        Raises
        ------
        ValueError
            When it has another number of sequences.
        """
        began = time.perf_counter()
        if self._kept.cleared:
            self._search = []
        elif isinstance(output, PromptOutput):
            self._put_prompt(output)
        elif isinstance(output, BeamResult):
            self._put_result(output)
        elif isinstance(output, AssistedStepOutput):
            self._put_round(output)
        else:
            found: dict[Kind, Layers | None] = {
                "self": output.attentions,
                "cross": output.cross_attentions,
                "hidden": output.hidden_states,
            }
            now = self._pass(found, output.length - 1)
            if isinstance(output, BeamStepOutput):
                copies = self._kept.lanes // len(output.candidate_tokens)
                beams = output.live.shape[1]
                self._put_rest_of_prompt(now, [lane // copies * beams for lane in range(self._kept.lanes)])
                self._search.append({kind: now.last(kind) for kind in now.layers})
                self._kept.hold([states for step in self._search for states in step.values()])
            else:
                self._put_rest_of_prompt(now, range(self._kept.lanes))
                self._put_tokens(now, output.active.nonzero()[:, 0].cpu())
        self.busy += time.perf_counter() - began

    def end(self, error: BaseException | None = None) -> None:  # noqa: ARG002 - what came is kept all the same
        """Drop the hypotheses of a beam search that came to no result."""
        self._search = []
        self._kept.hold(())

    def clear(self) -> None:
        """Free the memory; nothing can be looked at any more."""
        self._kept.clear()

    @property
    def nbytes(self) -> int:
        """Bytes of memory that the kept states take."""
        return self._kept.nbytes

    def shape(self, of: AttentionOf = "self") -> tuple[int, int]:
        """Return how many layers have attention of this kind, and how many heads each.

        Raises
        ------
        UnseenError
            When there is none (yet).
        """
        states = self._kept.encoder(0) if of == "encoder" else self._kept.take(_kind(of), 0, None)[1][0]
        return states.shape[0], states.shape[1]

    def attention(
        self, lane: int, position: int, of: AttentionOf = "self", layer: int | None = None, head: int | None = None
    ) -> torch.Tensor:
        """Return what the model looked at when it chose the token at a position.

        Parameters
        ----------
        lane, position : int
            Of ``"encoder"`` the position of a token of the lane's source, for what that looked at.
        of : {"self", "cross", "encoder"}
        layer, head : int, optional
            From 0 on; by default the mean over all.

        Returns
        -------
        torch.Tensor
            A weight for each token, float32, 0 to 1: of ``"self"`` shape ``(position,)``, else ``(source tokens,)``.

        Raises
        ------
        UnseenError
            When it is not there (yet), was not kept, is out of range, or was cleared.
        """
        return self.matrix(lane, position, of, layer, head, rows=1)[1][0]

    def matrix(
        self,
        lane: int,
        position: int,
        of: AttentionOf = "self",
        layer: int | None = None,
        head: int | None = None,
        rows: int = 256,
    ) -> tuple[int, list[torch.Tensor]]:
        """Return the :meth:`attention` of the last tokens up to a position.

        Parameters
        ----------
        lane, position, of, layer, head
            See :meth:`attention`.
        rows : int
            How many tokens, at most.

        Returns
        -------
        first : int
            Position of the first of these tokens.
        weights : list of torch.Tensor
            Of each token in turn.

        Raises
        ------
        UnseenError
            See :meth:`attention`.
        """
        if of == "encoder":
            whole = self._kept.encoder(lane)
            if not 0 <= position < whole.shape[2]:
                raise UnseenError(f"The source has no position {position}; choose from 0 to {whole.shape[2] - 1}.")
            first = max(0, position + 1 - rows)
            states = list(whole[:, :, first : position + 1].unbind(2))
        else:
            first, states = self._kept.take(_kind(of), lane, position, rows)
        picked = [slice(None), slice(None)]
        for axis, (name, index) in enumerate((("layer", layer), ("head", head))):
            count = states[0].shape[axis]
            if index is not None:
                if not 0 <= index < count:
                    raise UnseenError(f"{NAMES[of].capitalize()} has no {name} {index}; choose from 0 to {count - 1}.")
                picked[axis] = slice(index, index + 1)
        return first, [row[tuple(picked)].float().mean(dim=(0, 1)) for row in states]

    def hidden(self, lane: int, position: int) -> torch.Tensor:
        """Return the hidden states that the token at a position was chosen from.

        Returns
        -------
        torch.Tensor
            Shape ``(layers + 1, size)``, in the model's dtype: the embeddings first, what the output head got last.

        Raises
        ------
        UnseenError
            See :meth:`attention`.
        """
        return self._kept.take("hidden", lane, position)[1][0]

    def _put_prompt(self, output: PromptOutput) -> None:
        if len(output.tokens) != self._kept.lanes:
            found = f"{len(output.tokens)} sequences came for the states of {self._kept.lanes}"
            raise ValueError(f"{found}; make States with lanes={len(output.tokens)}")
        self._prompts = prompts = Prompts.of(output)
        encoder: list[torch.Tensor] = []
        if output.source is not None and output.source.attentions and "attentions" in self.fields:
            lane_of = {row: lane for lane, row in enumerate(prompts.sources)}
            layers, kept = output.source.attentions, prompts.source_positions
            of_source = {row: whole_attention(layers, row, kept[lane]) for row, lane in lane_of.items()}
            encoder = [of_source[row] for row in prompts.sources]
        self._kept.begin([len(positions) for positions in prompts.positions], encoder)

    def _put_rest_of_prompt(self, now: Pass, rows: Sequence[int]) -> None:
        """Take the tokens of the prompts behind the first from the first pass, of each lane in its row."""
        if self._begun:
            return
        self._begun = True
        shared: dict[int, dict[Kind, list[torch.Tensor]]] = {}
        for lane, same in enumerate(self._prompts.same):
            if same == lane:
                kept, source = self._prompts.positions[lane], self._prompts.source_positions[lane]
                shared[lane] = {kind: now.before(kind, rows[lane], kept, source) for kind in now.layers}
            self._kept.add(lane, 0, shared[same])

    def _put_tokens(self, now: Pass, lanes: torch.Tensor) -> None:
        """Take the token that each of these lanes, being its own row, chose from a pass."""
        states = {kind: now.last(kind, lanes) for kind in now.layers}
        for index, lane in enumerate(lanes.tolist()):
            self._kept.add(lane, 1, {kind: [self._prompts.trim(kind, lane, of[index])] for kind, of in states.items()})

    def _put_round(self, output: AssistedStepOutput) -> None:
        found: dict[Kind, Sequence[Layers] | None] = {
            "self": output.own_attentions,
            "cross": output.own_cross_attentions,
            "hidden": output.own_hidden_states,
        }
        new = output.tokens.shape[1]
        for index in range(new):
            of_token = {kind: per_token[index] if per_token else None for kind, per_token in found.items()}
            now = self._pass(of_token, output.length - new + index)
            self._put_rest_of_prompt(now, [0])
            self._put_tokens(now, torch.zeros(1, dtype=torch.long))

    def _put_result(self, output: BeamResult) -> None:
        for lane, (length, rows) in enumerate(zip(output.lengths.tolist(), output.beam_indices.tolist(), strict=True)):
            steps = list(zip(self._search, rows[:length], strict=False))
            kinds = self._search[0] if self._search else ()
            # Copies, so that the other hypotheses can go.
            chosen = {
                kind: [self._prompts.trim(kind, lane, step[kind][row]).clone() for step, row in steps] for kind in kinds
            }
            self._kept.add(lane, len(steps), chosen)
        self._search = []
        self._kept.hold(())

    def _pass(self, found: dict[Kind, Layers | None], seen: int) -> Pass:
        """Put together what a pass gave of the wanted kinds, and note at the first one what the model never gives."""
        wanted = {kind: layers for kind, layers in found.items() if _FIELDS[kind] in self.fields}
        given: dict[Kind, Layers] = {kind: layers for kind, layers in wanted.items() if layers and not uneven(layers)}
        if not self._begun:
            none: dict[Kind, str] = {
                "self": "this model gives none. Choose another model to see it.",
                "cross": "this model has no encoder. Look at its own attention.",
                "hidden": "this model gives none. Choose another model to see them.",
            }
            several = "the layers of this model give it in different shapes. Read it from run.output."
            self._kept.explain({kind: several if wanted[kind] else none[kind] for kind in wanted.keys() - given.keys()})
        return Pass(given, seen)


def _kind(of: AttentionOf) -> Kind:
    if of not in ("self", "cross"):
        raise UnseenError(f"{of!r} is no attention; choose 'self', 'cross' or 'encoder'.")
    return of
