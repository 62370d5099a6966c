"""Puts what a run computed on the shelf: keys and values by token, or a recurrent state as a whole.

Only what is certain is stored: of caches that were made here, as many positions as all layers hold, with the ids that
the run was given and chose. Not here: the room for it (``shelf``).
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from .key import follows_padding
from .layers import Checkpoint, is_recurrent_cache, is_static_cache, known_length, rows_of, take, take_cross
from .lease import Lease, Source
from .shelf import Shelf
from .tree import Layers, Tree, bytes_a_token, held_bytes, room_of

__all__ = ["store"]

Ids = tuple[int, ...]


def store(shelf: Shelf, lease: Lease, rows: Sequence[Ids | None], hidden: torch.Tensor | None, *, failed: bool) -> int:
    """Store rows of a run's cache; return how many tokens were not known before.

    Parameters
    ----------
    shelf : Shelf
    lease : Lease
        With the run's cache.
    rows, hidden, failed
        See :meth:`.Lease.store`.
    """
    recurrent = is_recurrent_cache(lease.cache)
    if failed and (recurrent or is_static_cache(lease.cache)):
        return shelf.refuse("the run failed, and its kind of cache is changed in place: what it holds is not known")
    if rows_of(lease.cache) - {len(rows)}:
        return shelf.refuse("the run failed while its cache had other rows")
    new = 0
    for index, row in enumerate(rows):
        if row is not None:
            new += _state(shelf, lease, index, row) if recurrent else _stretch(shelf, lease, index, row, hidden)
    return new


def _stretch(shelf: Shelf, lease: Lease, index: int, ids: Ids, hidden: torch.Tensor | None) -> int:
    pad = lease.pad(index // lease.copies)
    if pad and not follows_padding(lease.model):
        return shelf.refuse("the model counts padding as positions")
    ids = ids[: max(0, known_length(lease.cache) - pad)]
    tree = _tree(shelf, lease, index, hidden) if ids else None
    if tree is None:
        return 0

    def held(start: int, stop: int, room: int) -> Layers:
        return take(lease.cache, index, pad + start, pad + stop, room)

    found = tree.find(ids)
    new = len(ids) - found.length
    size = bytes_a_token(held(0, 0, 0)) * (new + room_of(found, new))
    if new and not shelf.make_room(size, found.node):
        return 0
    shelf.use(tree.add(ids, held))
    return new


def _state(shelf: Shelf, lease: Lease, index: int, ids: Ids) -> int:
    prompt = index // lease.copies
    if lease.pad(prompt):
        return shelf.refuse("a recurrent state behind padding may not be that of its tokens")
    passes = lease.cache.passes
    if passes == 0:
        return 0
    fed = len(lease.prompts[prompt]) + (passes or 0) - 1
    attended = known_length(lease.cache)
    if passes is None or (attended and attended != fed) or len(ids) not in (fed, fed + 1):
        return shelf.refuse("a recurrent state has seen other tokens: its row was over before others, or is a beam's")
    tree = _tree(shelf, lease, index, None)
    assert tree is not None  # there is no encoder
    if tree.checkpoint_at(ids, fed) is not None:
        return 0
    state = Checkpoint(lease.cache, index)
    found = tree.find(ids[:fed])
    if not shelf.make_room(state.nbytes, found.node):
        return 0
    node = tree.add(ids[:fed], lambda *_: ())
    node.checkpoint, node.nbytes = state, state.nbytes
    shelf.use(node)
    return fed - found.length


def _tree(shelf: Shelf, lease: Lease, index: int, hidden: torch.Tensor | None) -> Tree | None:
    """Return the tree that a row belongs to; it is made, with what the encoder gave, where there is none."""
    assert lease.key is not None
    prompt = index // lease.copies
    source = None if lease.sources is None else lease.sources[prompt]
    entry = shelf.entry(lease.key)
    if entry is not None and source in entry.trees:
        return entry.trees[source]
    tree = Tree()
    if source is not None:
        if hidden is None or not all(lease.cache.is_updated.values()):
            shelf.refuse("what the encoder gave was not handed over, or the decoder had not read it")
            return None
        row = index if len(hidden) == len(lease.prompts) * lease.copies else prompt
        given = Source(hidden[row : row + 1, : len(source)].clone(), take_cross(lease.cache, index, len(source)))
        size = held_bytes(given.cross) + given.hidden.nbytes
        if not shelf.make_room(size, None):
            return None
        tree.root.checkpoint, tree.root.nbytes = given, size
    shelf.add_tree(lease.key, lease.model, source, tree)
    return tree
