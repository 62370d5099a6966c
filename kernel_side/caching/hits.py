"""What a look into the prefix cache found, row by row, and why it ended where it did: what a person is shown.

Not here: looking (``prefix_cache``), and how much time it saved.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

__all__ = ["End", "EndKind", "RowHit", "Stats"]

EndKind = Literal["whole", "differs", "ends", "empty", "changed", "source", "batch", "padding", "recurrent", "refused"]
"""Why no more was reused.

``whole``: all of it is known, and the last token is computed anew, since its outputs are needed. ``differs``: another
token is known there. ``ends``: what is known ends there. ``empty``: nothing is known. ``changed``: something is known,
of the model as it no longer is. ``source``: the encoder has not read this. ``batch``: another row of the batch is known
less far. ``padding``: the model counts padding. ``recurrent``: the state is not known at the one place where it could
be taken up. ``refused``: nothing of this model or kind of cache can be reused.
"""


@dataclass(frozen=True, slots=True)
class End:
    """Why no more of a row was reused.

    Attributes
    ----------
    kind : str
        See :data:`EndKind`.
    position : int
        The first token that is computed anew.
    asked : int or None
        Its id.
    cached : tuple of int
        Ids that are known there, where they are others.
    message : str
        The same for a person, without the texts of tokens.
    """

    kind: EndKind
    position: int
    asked: int | None
    cached: tuple[int, ...]
    message: str


@dataclass(frozen=True, slots=True)
class RowHit:
    """What of a row is reused.

    Attributes
    ----------
    tokens : int
        Of its prompt (of an encoder-decoder model: the decoder's).
    known : int
        How far it is known; more than ``reused`` where the rest of the batch, or the last token, does not allow for it.
    reused : int
        Tokens from the first on that are not computed.
    source : bool or None
        Whether what the encoder reads is known; None without an encoder.
    nbytes : int
        Bytes of keys and values that are handed over.
    end : End
    """

    tokens: int
    known: int
    reused: int
    source: bool | None
    nbytes: int
    end: End


@dataclass(frozen=True, slots=True)
class Stats:
    """The state of a prefix cache.

    Attributes
    ----------
    entries : int
        Sequences that are known to their end, and are no beginning of another.
    tokens, nbytes, max_bytes : int
    pinned : int
        Bytes in use, which cannot be evicted now.
    hits : int
        Looks that found something to reuse, and tokens reused and asked for, of all looks.
    misses : dict of str to int
        Looks that did not, by :data:`EndKind`.
    tokens_reused, tokens_asked : int
    evictions : int
        Stretches that were removed for others.
    not_stored : dict of str to int
        Why something was not stored, and how often.
    """

    entries: int
    tokens: int
    nbytes: int
    max_bytes: int
    pinned: int
    hits: int
    misses: dict[str, int]
    tokens_reused: int
    tokens_asked: int
    evictions: int
    not_stored: dict[str, int]
