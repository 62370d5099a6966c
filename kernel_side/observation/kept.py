"""The states that are kept of the lanes of one run, and what is said when some are not there.

One thread adds, any others take. Only grows, until it is cleared. What is added is cut by ``cut``; means over layers
and heads are taken in ``states``.
"""

from __future__ import annotations

import threading
from collections.abc import Collection, Mapping, Sequence
from typing import Literal

import torch

from .cut import Kind
from .unseen import UnseenError

__all__ = ["NAMES", "Kept"]

NAMES: dict[Kind | Literal["encoder"], str] = {
    "self": "attention",
    "cross": "cross attention",
    "encoder": "attention of the encoder",
    "hidden": "hidden states",
}


class Kept:
    """States by lane, kind and token.

    Those of a lane belong to consecutive tokens, up to the newest; at its front some may be missing.

    Parameters
    ----------
    lanes : int
    wanted : collection of str
        Kinds that the run was asked for.
    """

    def __init__(self, lanes: int, wanted: Collection[Kind]) -> None:
        self.lanes = lanes
        self._wanted = frozenset(wanted)
        self._lock = threading.Lock()  # for all below; tensors are never changed once they are here
        self._tokens = [0] * lanes  # of each lane's record
        self._rows: list[dict[Kind, list[torch.Tensor]]] = [{} for _ in range(lanes)]
        self._encoder: Sequence[torch.Tensor] = ()
        self._missing: dict[Kind, str] = {}
        self._open: Collection[torch.Tensor] = ()
        self.cleared = False

    def begin(self, tokens: Sequence[int], encoder: Sequence[torch.Tensor]) -> None:
        """Take how many tokens the prompt of each lane has, and each lane's attention of the encoder (or none)."""
        with self._lock:
            if not self.cleared:
                self._tokens, self._encoder = list(tokens), encoder

    def explain(self, missing: Mapping[Kind, str]) -> None:
        """Take why kinds never come: a sentence with the way out for each."""
        with self._lock:
            self._missing = dict(missing)

    def add(self, lane: int, tokens: int, rows: Mapping[Kind, Sequence[torch.Tensor]]) -> None:
        """Take states, the last of which belong to the newest of ``tokens`` new tokens of a lane."""
        with self._lock:
            if not self.cleared:
                self._tokens[lane] += tokens
                for kind, more in rows.items():
                    self._rows[lane].setdefault(kind, []).extend(more)

    def hold(self, states: Collection[torch.Tensor]) -> None:
        """Count these as kept too: of which token they are is not known yet."""
        with self._lock:
            self._open = states

    def clear(self) -> None:
        """Drop all."""
        with self._lock:
            self.cleared = True
            self._rows, self._encoder, self._open = [{} for _ in range(self.lanes)], (), ()

    @property
    def nbytes(self) -> int:
        """Bytes of memory that is held."""
        with self._lock:
            kept = [*self._encoder, *self._open]
            kept += [states for rows in self._rows for of_kind in rows.values() for states in of_kind]
        # Tokens of a prompt share their memory, as do lanes with the same prompt.
        storages = (states.untyped_storage() for states in kept)
        return sum({storage.data_ptr(): storage.nbytes() for storage in storages}.values())

    def take(self, kind: Kind, lane: int, position: int | None, count: int = 1) -> tuple[int, list[torch.Tensor]]:
        """Return the states of up to ``count`` tokens, the last at ``position`` (None: the newest).

        Returns
        -------
        first : int
            Position of the first of these.
        states : list of torch.Tensor
            At least one.

        Raises
        ------
        UnseenError
            When those at ``position`` are not there.
        """
        with self._lock:
            self._check(kind, lane)
            name, rows, newest = NAMES[kind], self._rows[lane].get(kind, []), self._tokens[lane] - 1
            first = newest + 1 - len(rows)
            position = newest if position is None else position
            if position == 0:
                raise UnseenError("The token at position 0 was not chosen by the model; choose a later one.")
            if position > newest or not rows:
                there = f"positions {first} to {newest} have {name}" if rows else f"no position has {name}"
                raise UnseenError(f"Lane {lane} has no token at position {position} yet: {there}. {self._way_out()}")
            if position < first:
                why = "and the forward passes of this run began behind it" if position > 0 else "nor can there be"
                message = f"There is no {name} at position {position} of lane {lane}, {why}."
                raise UnseenError(f"{message} Choose a position from {first} to {newest}.")
            begin = max(0, position - first + 1 - count)
            return first + begin, rows[begin : position - first + 1]

    def encoder(self, lane: int) -> torch.Tensor:
        """Return the encoder's attention on a lane's source, shape ``(layers, heads, source, source)``.

        Raises
        ------
        UnseenError
            When it is not there.
        """
        with self._lock:
            self._check("encoder", lane)
            if not self._encoder:
                raise UnseenError(f"There is no {NAMES['encoder']} yet. {self._way_out()}")
            return self._encoder[lane]

    def _check(self, kind: Kind | Literal["encoder"], lane: int) -> None:
        """Refuse what will never be there."""
        if not 0 <= lane < self.lanes:
            raise UnseenError(f"There is no lane {lane}; this run has {self.lanes}, counted from 0.")
        asked: Kind = "cross" if kind == "encoder" else kind
        if asked not in self._wanted:
            switch = "the logit lens" if kind == "hidden" else "attention"
            raise UnseenError(f"This run did not keep {NAMES[kind]}; switch {switch} on and run again.")
        if self.cleared:
            raise UnseenError(f"The {NAMES[kind]} of this run was dropped to free memory; run again to see it.")
        if why := self._missing.get(asked):
            raise UnseenError(f"There is no {NAMES[kind]}: {why}")

    def _way_out(self) -> str:
        if self._open:
            return "A beam search decides on its tokens at its end; wait for that."
        return "Wait for the next step."
