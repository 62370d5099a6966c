"""A radix tree over token ids with the keys and values of each stretch, under the account of one budget.

A node is a run of ids with, for each layer, its own keys and values of that stretch, so what nodes count is what they
hold. Those that begin a sequence have room behind them, in which one run at a time goes on. A node may hold a
checkpoint instead: the state of a recurrent model after its last id. Ids are compared, never hashes. Not here: threads
(the ``prefix_cache`` has one lock around all of its trees), models, and caches of ``transformers`` (``layers``).
"""

from __future__ import annotations

import heapq
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from .growing import room_behind, with_room

__all__ = ["Borrowed", "Found", "Layers", "Node", "Tree", "bytes_a_token", "held_bytes", "make_room", "room_of"]

Layers = tuple[tuple[torch.Tensor, torch.Tensor] | None, ...]
"""Keys and values by layer, each ``(1, heads, tokens, dimension)``; None of a layer that holds none of its own."""


class Borrowed:
    """Whoever keeps this may write into the room behind a node."""


@dataclass(eq=False, slots=True)
class Node:
    """A run of token ids.

    Attributes
    ----------
    ids : tuple of int
        Of this stretch only; those before it are its parents'.
    layers : tuple
        See :data:`Layers`; empty in the tree of a recurrent model, and in the root.
    checkpoint : object or None
        What else is known behind the last id: a recurrent state, or, in a root, what an encoder gave.
    nbytes : int
        Of ``layers`` and ``checkpoint``.
    pins : int
        Leases that use this node or a part of it. Parents of a pinned node have a child, so they stay too.
    used : int
        When it was last used, by the cache's clock.
    lent : weakref.ref or None
        To whatever writes into the room behind ``layers``.
    """

    ids: tuple[int, ...]
    layers: Layers = ()
    parent: Node | None = None
    children: dict[int, Node] = field(default_factory=dict)
    checkpoint: Any = None
    nbytes: int = 0
    pins: int = 0
    used: int = 0
    lent: weakref.ref[Borrowed] | None = None

    def lend(self) -> Borrowed | None:
        """Let somebody write behind ``layers`` while it keeps what it is given; None where somebody does already."""
        if self.lent is not None and self.lent() is not None:
            return None
        borrowed = Borrowed()
        self.lent = weakref.ref(borrowed)
        return borrowed

    def path(self) -> list[Node]:
        """Return the nodes from the root to this one."""
        nodes: list[Node] = []
        node: Node | None = self
        while node is not None:
            nodes.append(node)
            node = node.parent
        return nodes[::-1]

    def below(self) -> Iterator[Node]:
        """Give this node and all below it, parents first."""
        waiting = [self]
        while waiting:
            node = waiting.pop()
            yield node
            waiting.extend(node.children.values())


@dataclass(frozen=True, slots=True)
class Found:
    """Where the longest known prefix of some ids ends.

    Attributes
    ----------
    length : int
        How many ids are known.
    node : Node
        The node in which it ends, maybe in its middle.
    next : tuple of int
        The ids that are known to follow there; empty at the end of all that is known.
    """

    length: int
    node: Node
    next: tuple[int, ...]


class Tree:
    """The known sequences of one model in one setting, see the module."""

    def __init__(self) -> None:
        self.root = Node(())

    @property
    def nodes(self) -> Iterator[Node]:
        """All nodes, parents first."""
        return self.root.below()

    def find(self, ids: Sequence[int]) -> Found:
        """Return the longest known prefix of ids."""
        node, length = self.root, 0
        while length < len(ids):
            child = node.children.get(ids[length])
            if child is None:
                return Found(length, node, tuple(sorted(node.children)))
            same = _common(child.ids, ids, length)
            length += same
            if same < len(child.ids):
                return Found(length, child, (child.ids[same],))
            node = child
        return Found(length, node, tuple(sorted(node.children)))

    def checkpoint_at(self, ids: Sequence[int], length: int) -> Node | None:
        """Return the node with a checkpoint exactly behind the first ``length`` ids, None where there is none."""
        if length <= 0:
            return None
        found = self.find(ids[:length])
        at_end = found.length == length == sum(len(node.ids) for node in found.node.path())
        return found.node if at_end and found.node.checkpoint is not None else None

    def add(self, ids: Sequence[int], take: Callable[[int, int, int], Layers]) -> Node:
        """Make ids known, with what is held of those that were not.

        Parameters
        ----------
        ids : sequence of int
        take : callable
            Gives tensors that belong to nobody else, for the positions from its first to before its second argument,
            with as many positions of room behind them as its third says.

        Returns
        -------
        Node
            The one that ends with the last id.
        """
        found = self.find(ids)
        node = self._split_at(found)
        if found.length == len(ids):
            return node
        rest = tuple(ids[found.length :])
        made = Node(rest, take(found.length, len(ids), room_of(found, len(rest))), node)
        made.nbytes = held_bytes(made.layers)
        node.children[rest[0]] = made
        return made

    def remove(self, node: Node) -> int:
        """Remove a leaf, and parents that then lead nowhere and hold nothing; return the bytes that they held."""
        freed = 0
        while node.parent is not None and not node.children and not node.pins:
            parent = node.parent
            del parent.children[node.ids[0]]
            freed += node.nbytes
            node.parent = None
            node = parent
            if node.layers or node.checkpoint is not None:
                break
        return freed

    def _split_at(self, found: Found) -> Node:
        """Return the node that ends where something was found, splitting the one in which it ends."""
        node = found.node
        before = sum(len(one.ids) for one in node.path()[:-1])
        at = found.length - before
        if at == len(node.ids):
            return node
        # The lower part stays the same object: leases that pin it need all of it and what is above.
        parent = node.parent
        assert parent is not None  # the root has no ids
        upper = Node(node.ids[:at], _part(node.layers, 0, at, 0 if before else room_behind(at)), parent, used=node.used)
        node.layers = _part(node.layers, at, len(node.ids), 0)
        node.ids = node.ids[at:]
        # Together they take no more than before: the room behind the shorter upper part is less.
        upper.nbytes, node.nbytes = held_bytes(upper.layers), held_bytes(node.layers)
        upper.children[node.ids[0]] = node
        parent.children[upper.ids[0]] = upper
        node.parent = upper
        return upper


def make_room(trees: Iterable[Tree], bytes_wanted: int, kept: Iterable[Node] = ()) -> int | None:
    """Remove least recently used leaves until enough is free.

    Parameters
    ----------
    trees : iterable of Tree
    bytes_wanted : int
        How many bytes to free at least; 0 or less frees none.
    kept : iterable of Node
        Nodes that must stay, with their parents.

    Returns
    -------
    int or None
        How many bytes were freed; None where pins leave too little to free, in which case nothing was removed.
    """
    if bytes_wanted <= 0:
        return 0
    pinned = list(kept)
    for node in pinned:
        node.pins += 1
    try:
        return _remove_oldest(trees, bytes_wanted)
    finally:
        for node in pinned:
            node.pins -= 1


def _remove_oldest(trees: Iterable[Tree], bytes_wanted: int) -> int | None:
    staying: set[int] = set()
    owners = {id(node): (tree, node) for tree in trees for node in tree.nodes}
    for _, node in owners.values():
        if node.pins:
            staying.update(id(one) for one in node.path())
    if sum(node.nbytes for key, (_, node) in owners.items() if key not in staying) < bytes_wanted:
        return None
    freed, count = 0, 0
    leaves: list[tuple[int, int, Tree, Node]] = []

    def offer(tree: Tree, node: Node) -> None:
        nonlocal count
        if not node.children and id(node) not in staying:
            count += 1  # so that nodes themselves are never compared
            heapq.heappush(leaves, (node.used, count, tree, node))

    for tree, node in owners.values():
        offer(tree, node)
    while freed < bytes_wanted and leaves:
        _, _, tree, node = heapq.heappop(leaves)
        if node is tree.root:
            freed += node.nbytes
            node.checkpoint, node.nbytes = None, 0
            continue
        above = node.path()[:-1]
        freed += tree.remove(node)
        survivor = next(one for one in reversed(above) if one.parent is not None or one is tree.root)
        offer(tree, survivor)
    return freed


def bytes_a_token(layers: Layers) -> int:
    """Return the bytes of the keys and values of one position."""
    return sum(one.shape[1] * one.shape[3] * one.element_size() for pair in layers if pair is not None for one in pair)


def held_bytes(layers: Layers) -> int:
    """Return the bytes of the storages behind keys and values."""
    return sum(one.untyped_storage().nbytes() for pair in layers if pair is not None for one in pair)


def room_of(found: Found, new: int) -> int:
    """Return how many positions of room so many ids that are new behind what was found are stored with.

    Room is for who goes on from a whole sequence in one piece: one in several is copied to be joined anyway.
    """
    return 0 if found.length else room_behind(new)


def _common(run: Sequence[int], ids: Sequence[int], start: int) -> int:
    """Return how many ids of a run agree with ``ids`` from a position on."""
    most = min(len(run), len(ids) - start)
    return next((index for index in range(most) if run[index] != ids[start + index]), most)


def _part(layers: Layers, start: int, stop: int, room: int) -> Layers:
    """Return copies of a stretch, which keep no other part alive, with room behind them."""

    def own(tensor: torch.Tensor) -> torch.Tensor:
        return with_room(tensor[:, :, start:stop], room)

    return tuple(None if pair is None else (own(pair[0]), own(pair[1])) for pair in layers)
