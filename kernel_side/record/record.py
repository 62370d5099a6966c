"""The record: the append-only table of one run's tokens, the one source of truth for every view and export.

One thread appends, any thread reads: rows never change and never go away, so a reader needs no lock beyond the row
count. This module needs neither torch nor pandas; exports are in ``export``, measuring in ``recorder``.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, overload

__all__ = ["Alternative", "Origin", "Record", "Token"]

Origin = Literal["prompt", "generated", "tool"]
"""Whether a token was given, generated, or written by a tool between what was generated."""


@dataclass(frozen=True, slots=True)
class Alternative:
    r"""A token that could have stood at a position.

    Attributes
    ----------
    id : int
    text : str
        What it would have added to the text here; lone bytes as ``\xE2``.
    raw_logprob : float
        Natural-log probability in the model's own distribution.
    logprob : float or None
        The same after all processors: ``-inf`` when one of them cut it; None where it is unknown.
    """

    id: int
    text: str
    raw_logprob: float
    logprob: float | None

    @property
    def probability(self) -> float:
        """Probability in the model's own distribution, 0 to 1."""
        return math.exp(self.raw_logprob)

    @property
    def chosen_probability(self) -> float | None:
        """Probability after all processors, 0 to 1: what it was chosen with, had it been chosen."""
        return None if self.logprob is None else math.exp(self.logprob)

    @property
    def cut(self) -> bool:
        """Whether a processor made the token impossible."""
        return self.logprob == -math.inf


@dataclass(frozen=True, slots=True)
class Token:
    r"""One row of a record. A measure that is not known is None, never 0.

    Attributes
    ----------
    position : int
        Index in the sequence, the prompt counted in.
    id : int
    text : str
        The text that became complete with this token: ``""`` inside a character made of several tokens. All texts
        in order, and the record's tail, are the full decode.
    shown : str
        What to draw for this token: nearly always its text. Where a tokenizer makes characters of single bytes, a
        character shows with its last byte, while its text is final only after the run of bytes; bytes that are no
        character show as ``\xE2``, where the text has U+FFFD. ``""`` inside a character.
    bytes : bytes or None
        The exact bytes that the token stands for; None when the tokenizer does not say.
    group : int
        Position of the first token of the characters that this token shares with others; its own if it shares none.
    special : bool
        Whether it is one of the tokenizer's special tokens.
    origin : {"prompt", "generated", "tool"}
    raw_logprob : float or None
        Natural-log probability in the model's own distribution.
    logprob : float or None
        Natural-log probability in the distribution that it was chosen from, after all processors.
    entropy : float or None
        Entropy of the model's own distribution, in bits.
    rank : int or None
        1 when no token was more probable in the model's own distribution.
    seconds : float or None
        Time since the token before, of the first one since the run left the queue; pauses left out.
    alternatives : tuple of Alternative
        Most probable first; the token itself is among them when it is probable enough.
    cached : bool or None
        Of a token that was given: whether its keys and values came from the prefix cache (a hit) or were computed. None
        of a generated token, and in a run without a prefix cache.
    """

    position: int
    id: int
    text: str
    shown: str
    bytes: bytes | None
    group: int
    special: bool
    origin: Origin
    raw_logprob: float | None = None
    logprob: float | None = None
    entropy: float | None = None
    rank: int | None = None
    seconds: float | None = None
    alternatives: tuple[Alternative, ...] = ()
    cached: bool | None = None

    @property
    def probability(self) -> float | None:
        """Probability in the model's own distribution, 0 to 1."""
        return None if self.raw_logprob is None else math.exp(self.raw_logprob)

    @property
    def chosen_probability(self) -> float | None:
        """Probability in the distribution that it was chosen from, 0 to 1."""
        return None if self.logprob is None else math.exp(self.logprob)

    @property
    def surprisal(self) -> float | None:
        """Surprisal in the model's own distribution, in bits."""
        return None if self.raw_logprob is None else max(0.0, -self.raw_logprob / math.log(2))


class Record(Sequence[Token]):
    """The tokens of a run, prompt first.

    Attributes
    ----------
    tail : str
        What an unfinished character at the very end decodes to; ``""`` nearly always.
    """

    def __init__(self, tokens: Sequence[Token] = (), tail: str = "") -> None:
        self._tokens = list(tokens)
        self._grew = threading.Condition()
        self.tail = tail

    def append(self, token: Token) -> None:
        """Add the next row.

        Raises
        ------
        ValueError
            When ``token.position`` is not the next position.
        """
        self.extend((token,))

    def extend(self, tokens: Sequence[Token]) -> None:
        """Add the next rows, all or none. Raises as :meth:`append` does."""
        with self._grew:
            for position, token in enumerate(tokens, len(self._tokens)):
                if token.position != position:
                    msg = f"token of position {token.position} appended to a record of {position} rows"
                    raise ValueError(msg)
            self._tokens.extend(tokens)
            self._grew.notify_all()

    def wait_beyond(self, count: int, timeout: float | None = None) -> bool:
        """Wait until there are more than ``count`` rows; False when ``timeout`` seconds passed first."""
        with self._grew:
            return self._grew.wait_for(lambda: len(self._tokens) > count, timeout)

    def __len__(self) -> int:
        return len(self._tokens)

    @overload
    def __getitem__(self, index: int) -> Token: ...
    @overload
    def __getitem__(self, index: slice) -> list[Token]: ...
    def __getitem__(self, index: int | slice) -> Token | list[Token]:
        return self._tokens[index]

    def __iter__(self) -> Iterator[Token]:
        """Iterate over the rows there are, those appended meanwhile included."""
        return iter(self._tokens)

    def __repr__(self) -> str:
        prompt = sum(token.origin == "prompt" for token in self)
        return f"<Record: {prompt} prompt and {len(self) - prompt} generated tokens>"

    def ids(self, origin: Origin | None = None) -> list[int]:
        """Return the token ids, of one origin or of all."""
        return [token.id for token in self if origin in (None, token.origin)]
