"""The prefix cache: what runs of models computed, kept for runs that begin with the same tokens.

    prefixes = PrefixCache(max_bytes=2**30)
    with prefixes.lease(model, [ids]) as lease:
        output = model.generate(torch.tensor([ids]), cache=lease.fork(), **observe(streamer, held=lease.columns))
        lease.store(output.tolist())

A wrong reuse is ruled out, not unlikely: ids are compared one by one, a tree is used only while everything that decides
keys and values is what it was (``key``), only caches that were made here are stored from, and what is not understood is
refused, with the reason (``layers``). Not here: when runs use it, and what a person is shown.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Sequence
from typing import Any

import torch

from .explain import hit, refused, state_hit, unknown
from .hits import RowHit, Stats
from .key import Seen, follows_padding, key_of, longest_exact, why_not
from .layers import UncacheableError, fresh_cache, is_recurrent_cache
from .lease import Lease
from .picture import picture
from .shelf import Entry, Shelf
from .storing import store
from .tree import Found, Tree

__all__ = ["PrefixCache"]

Ids = tuple[int, ...]


class PrefixCache:
    """Keys and values by token ids, for any number of models, under one budget. Safe to use from several threads.

    Parameters
    ----------
    max_bytes : int
        What is held never exceeds this. What is least recently used makes room; what a run uses stays.
    thorough : bool
        Compare the contents of all weights before each run, so that no change through ``tensor.data`` can pass, which
        torch does not count; see ``key``.

    Attributes
    ----------
    lock : threading.RLock
        Around the trees.

    Raises
    ------
    ValueError
        For a budget that is not positive.
    """

    def __init__(self, max_bytes: int, *, thorough: bool = False) -> None:
        if max_bytes <= 0:
            raise ValueError(f"max_bytes is {max_bytes}; give a positive number of bytes, or use no cache (None)")
        self.max_bytes = max_bytes
        self.thorough = thorough
        self.lock = threading.RLock()
        self._shelf = Shelf(max_bytes)
        self._misses: Counter[str] = Counter()
        self._hits = self._reused = self._asked = 0

    def lease(
        self,
        model: Any,
        prompts: Sequence[Sequence[int]],
        *,
        copies: int = 1,
        kind: str = "dynamic",
        length: int | None = None,
        sources: Sequence[Sequence[int]] | None = None,
        execution: str = "eager",
        only_store: str | None = None,
    ) -> Lease:
        """Look up what is known of a batch of prompts, and pin it for one run.

        Parameters
        ----------
        model : PreTrainedModel
            Or a view of it.
        prompts : sequence of sequence of int
            Token ids without padding; of an encoder-decoder model what its decoder begins with.
        copies : int
            Rows a prompt: beams, or several sequences.
        kind : str
            The kind of cache, as ``cache_implementation``.
        length : int, optional
            The most positions that the run can get to. A static cache needs it, and models whose RoPE depends on it.
        sources : sequence of sequence of int, optional
            What the encoder reads, by prompt, without padding.
        execution : str
            How forward passes run, where not eagerly: runs share only with their like.
        only_store : str, optional
            Why this run cannot begin with a prefix, for a person; what it computes is stored all the same.

        Returns
        -------
        Lease

        Raises
        ------
        ValueError
            For no prompts, an empty one, or an encoder-decoder model without sources.
        """
        rows = [tuple(int(one) for one in prompt) for prompt in prompts]
        read = None if sources is None else [tuple(int(one) for one in source) for source in sources]
        if not rows or not all(rows):
            raise ValueError("there is a prompt without tokens; a run begins with at least one")
        if bool(model.config.is_encoder_decoder) != (read is not None) or (read is not None and len(read) != len(rows)):
            raise ValueError("give what the encoder reads in sources, one a prompt, and only where there is an encoder")
        seen = Seen(model)
        try:
            empty = self._empty(seen, kind, length)
        except UncacheableError as error:
            lease = Lease(self, model, None, rows, read, copies, None)
            self._count(lease, [refused(row, str(error)) for row in rows])
            return lease
        key = key_of(seen, kind, execution, thorough=self.thorough)
        lease = Lease(self, model, key, rows, read, copies, empty)
        with self.lock:
            self._shelf.forget_old(model, key)
            if only_store is None:
                self._count(lease, self._look_up(lease))
            else:
                self._count(lease, [refused(row, only_store) for row in rows])
        return lease

    def clear(self) -> None:
        """Forget everything. What runs use is no longer found, and given up when they end."""
        with self.lock:
            self._shelf.forget()

    def stats(self) -> Stats:
        """Return the state and the counts since the beginning."""
        with self.lock:
            nodes = self._shelf.nodes
            pinned = {id(one): one.nbytes for node in nodes if node.pins for one in node.path()}
            return Stats(
                entries=sum(not node.children and bool(node.ids) for node in nodes),
                tokens=sum(len(node.ids) for node in nodes),
                nbytes=sum(node.nbytes for node in nodes),
                max_bytes=self.max_bytes,
                pinned=sum(pinned.values()),
                hits=self._hits,
                misses=dict(self._misses),
                tokens_reused=self._reused,
                tokens_asked=self._asked,
                evictions=self._shelf.evictions,
                not_stored=dict(self._shelf.refusals),
            )

    def picture(self, tokenizer: Any = None) -> str:
        """Return the trees as text, with the texts of tokens where a tokenizer is given."""
        with self.lock:
            titles = (
                (f"{entry.name}, {entry.key.parts['cache class']}", source, tree)
                for entry in self._shelf.entries
                for source, tree in entry.trees.items()
            )
            return picture(titles, tokenizer)

    def release(self, lease: Lease) -> None:
        """Unpin what a lease uses; called by :meth:`.Lease.close`."""
        with self.lock:
            for node in lease.release():
                node.pins -= 1
            self._shelf.doom()

    def store(self, lease: Lease, rows: Sequence[Ids | None], hidden: torch.Tensor | None, *, failed: bool) -> int:
        """Make known what a run computed; called by :meth:`.Lease.store`, which says how."""
        if lease.cache is None or lease.key is None:
            return 0  # the lease says why
        try:
            parts = lease.key.parts
            now = key_of(Seen(lease.model), parts["cache class"], parts["execution"], thorough=self.thorough)
            changed = lease.key.differences(now)
            with self.lock:
                if changed:
                    return self._shelf.refuse(f"the model was changed during the run: {', '.join(changed)}")
                return store(self._shelf, lease, rows, hidden, failed=failed)
        except Exception as error:  # noqa: BLE001 - whatever it is (no memory, say): the run has what it generated
            with self.lock:
                return self._shelf.refuse(f"storing failed: {type(error).__name__}: {error}")

    @staticmethod
    def _empty(seen: Seen, kind: str, length: int | None) -> Any:
        if reason := why_not(seen):
            raise UncacheableError(reason)
        limit = longest_exact(seen.model)
        if limit is not None and (length is None or length > limit):
            raise UncacheableError(
                f"its RoPE changes the positions of earlier tokens once there are more than {limit}, and the run may "
                f"get to {'any length' if length is None else length}"
            )
        return fresh_cache(seen.model, kind, length)

    # -- looking up

    def _look_up(self, lease: Lease) -> list[RowHit]:
        assert lease.key is not None
        entry = self._shelf.entry(lease.key)
        if entry is None:
            changed = self._shelf.changed(lease.model, lease.key)
            return [unknown(lease, row, changed) for row in range(len(lease.prompts))]
        if is_recurrent_cache(lease.cache):
            return self._look_up_states(lease, entry)
        found: list[tuple[Tree, Found] | None] = []
        for index, prompt in enumerate(lease.prompts):
            tree = entry.trees.get(None if lease.sources is None else lease.sources[index])
            found.append(None if tree is None else (tree, tree.find(prompt)))
        usable = [
            0 if one is None else min(one[1].length, len(row) - 1)
            for one, row in zip(found, lease.prompts, strict=True)
        ]
        all_known = all(one is not None for one in found)
        columns = self._columns(lease, usable) if all_known else 0
        padded = any(lease.pad(row) for row in range(len(usable))) and not follows_padding(lease.model)
        if padded:
            columns = 0
        lease.columns = columns
        hits = []
        for index, one in enumerate(found):
            if one is None:
                hits.append(unknown(lease, index, ()))
                continue
            tree, where = one
            if columns or (lease.sources is not None and all_known):
                lease.hold(index, tree, where.node)
                self._shelf.use(where.node)
            reused = max(0, columns - lease.pad(index))
            hits.append(hit(lease.prompts[index], where, reused, padded=padded, source=lease.sources is not None))
        return hits

    @staticmethod
    def _columns(lease: Lease, usable: Sequence[int]) -> int:
        """Return the columns that all rows have; none where they would be padding only."""
        columns = min(lease.pad(row) + here for row, here in enumerate(usable))
        return columns if any(columns > lease.pad(row) for row in range(len(usable))) else 0

    def _look_up_states(self, lease: Lease, entry: Entry) -> list[RowHit]:
        tree = entry.trees.get(None)
        if tree is None:
            return [unknown(lease, row, ()) for row in range(len(lease.prompts))]
        nodes = [tree.checkpoint_at(prompt, len(prompt) - 1) for prompt in lease.prompts]
        exact = all(node is not None for node in nodes) and not any(map(lease.pad, range(len(nodes))))
        hits = []
        for index, (prompt, node) in enumerate(zip(lease.prompts, nodes, strict=True)):
            where = tree.find(prompt)
            if exact and node is not None:
                lease.columns = len(prompt) - 1
                lease.hold(index, tree, node)
                self._shelf.use(node)
            hits.append(state_hit(prompt, where, node, exact=exact, tree=tree))
        return hits

    def _count(self, lease: Lease, rows: list[RowHit]) -> None:
        with self.lock:
            lease.rows = tuple(rows)
            self._reused += lease.reused
            self._asked += lease.tokens
            if lease.reused or lease.knows_sources:
                self._hits += 1
            else:
                self._misses[rows[0].end.kind] += 1
