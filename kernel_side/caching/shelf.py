"""All trees of a prefix cache, by what decides their keys and values, under one budget of bytes.

Not here: a lock (the cache has one around all of it), looking up, and what is stored (``storing``).
"""

from __future__ import annotations

import weakref
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from .key import Key
from .tree import Node, Tree, make_room

__all__ = ["Entry", "Shelf"]

Ids = tuple[int, ...]


class Entry:
    """The trees of one model in one setting: one, or one a text that its encoder read."""

    def __init__(self, key: Key, model: Any) -> None:
        self.key = key
        # Views of a model have its parameters; casting and moving leaves their objects as they are.
        self.anchor: Callable[[], Any] = weakref.ref(next(model.parameters()))
        self.name = type(model).__name__
        self.trees: dict[Ids | None, Tree] = {}


class Shelf:
    """The trees and their budget.

    Attributes
    ----------
    max_bytes : int
    entries : list of Entry
    evictions : int
        Stretches that were removed for others.
    refusals : collections.Counter
        Why something was not stored.
    """

    def __init__(self, max_bytes: int) -> None:
        self.max_bytes = max_bytes
        self.entries: list[Entry] = []
        self.evictions = 0
        self.refusals: Counter[str] = Counter()
        self._doomed: list[Tree] = []  # no longer known, but in use
        self._clock = 0

    @property
    def trees(self) -> Iterator[Tree]:
        """All trees that hold anything."""
        for entry in self.entries:
            yield from entry.trees.values()
        yield from self._doomed

    @property
    def nodes(self) -> list[Node]:
        """All nodes."""
        return [node for tree in self.trees for node in tree.nodes]

    def entry(self, key: Key) -> Entry | None:
        """Return the trees that share a key."""
        return next((one for one in self.entries if not one.key.differences(key)), None)

    def add_tree(self, key: Key, model: Any, source: Ids | None, tree: Tree) -> None:
        """Put a tree on the shelf."""
        entry = self.entry(key)
        if entry is None:
            entry = Entry(key, model)
            # Those without trees were kept to say why nothing was found.
            old = [one for one in self.entries if one.trees or one.anchor() is not entry.anchor()]
            self.entries = [*old, entry]
        entry.trees[source] = tree
        self.use(tree.root)

    def changed(self, model: Any, key: Key) -> tuple[str, ...]:
        """Return what of a model differs from what is known of it; nothing where nothing is known of it."""
        anchor = next(model.parameters())
        others = [key.differences(one.key) for one in self.entries if one.anchor() is anchor]
        return min(others, key=len, default=())

    def use(self, node: Node) -> None:
        """Note that a node, and what is above it, was used last."""
        self._clock += 1
        for one in node.path():
            one.used = self._clock

    def refuse(self, reason: str) -> int:
        """Count why something was not stored; return how much was."""
        self.refusals[reason] += 1
        return 0

    def make_room(self, size: int, kept: Node | None) -> bool:
        """Evict until there is room for so many bytes, never ``kept``; return whether there is, and say why not."""
        if size > self.max_bytes:
            self.refuse("it is larger than the whole cache")
            return False
        nodes = self.nodes
        excess = sum(node.nbytes for node in nodes) + size - self.max_bytes
        if make_room(self.trees, excess, [] if kept is None else [kept]) is None:
            self.refuse("what could make room is in use, or is what it goes on from")
            return False
        self.evictions += len(nodes) - len(self.nodes)
        for entry in self.entries:  # without what their encoder gave trees are of no use
            empty = [source for source, tree in entry.trees.items() if source and tree.root.checkpoint is None]
            for source in empty:
                del entry.trees[source]
        return True

    def forget(self) -> None:
        """Forget everything that is not in use, and let nothing be found."""
        for entry in self.entries:
            self.doom(entry.trees.values())
        self.entries = []

    def forget_old(self, model: Any, key: Key) -> None:
        """Give up trees of models that are gone, and of weights that were changed: torch counts upwards only."""
        anchor = next(model.parameters())
        for entry in list(self.entries):
            gone = entry.anchor() is None
            changed = entry.anchor() is anchor and key.differences(entry.key) == ("weights",)
            if gone or changed:
                self.doom(entry.trees.values())
                entry.trees = {}
            if gone:
                self.entries.remove(entry)

    def doom(self, trees: Iterable[Tree] = ()) -> None:
        """Remove what is not pinned of trees that are no longer known, now and whenever something is unpinned."""
        self._doomed.extend(trees)
        for tree in self._doomed:
            staying = {id(one) for node in tree.nodes if node.pins for one in node.path()}
            make_room([tree], sum(node.nbytes for node in tree.nodes if id(node) not in staying))
        self._doomed = [tree for tree in self._doomed if any(node.pins for node in tree.nodes)]
