"""The part of a prefix cache that one run uses, from the look-up to the storing of what the run added.

A lease pins what it found, hands out the cache that the run goes on from, and stores from that very cache, so that ids
and what is stored with them come from one run. Not here: the trees (``prefix_cache``, ``tree``).

How a strategy of ``transformers`` 5.24 takes up a fork (all of it with the *whole* ids, so that processors see the
prefix):

- greedy, sampling, beams, our own loops: ``generate`` slices the ids itself, except where all layers are recurrent, and
  for a decoder behind an encoder, where it needs ``decoder_attention_mask``;
- assisted, prompt lookup, early exit: their loop feeds the whole ids, onto the cached ones. Its first call of
  ``model.prepare_inputs_for_generation`` is the only place that decides what is fed, and the loop's model is the tap's
  stand-in: ``observe(..., held=lease.columns)`` has the stand-in feed only what the cache does not hold. This also
  settles the exceptions above.

Contrastive search compares hidden states of all tokens, which no cache holds; it gets a fork only to fill it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Self

import torch
from transformers.modeling_outputs import BaseModelOutput

from . import forks
from .hits import RowHit
from .key import Key
from .layers import Checkpoint, is_recurrent_cache, known_length, refill, refill_cross
from .tree import Layers, Node, Tree

if TYPE_CHECKING:
    from .prefix_cache import PrefixCache

__all__ = ["Lease", "Source"]


class Source:
    """What an encoder gave for one text, and the decoder's cross attention to it.

    Attributes
    ----------
    hidden : torch.Tensor
        Shape ``(1, tokens, size)``.
    cross : Layers
    """

    def __init__(self, hidden: torch.Tensor, cross: Layers) -> None:
        self.hidden = hidden
        self.cross = cross


class Lease:
    """What one run may reuse; a context manager, after which nothing is pinned. Made by :meth:`.PrefixCache.lease`.

    Attributes
    ----------
    rows : tuple of RowHit
        What was found, by prompt.
    columns : int
        Columns that :meth:`fork` holds, padding included: ``held`` of ``observe``.
    reused, tokens : int
        Prompt tokens that are reused, and all of them.
    """

    def __init__(
        self,
        owner: PrefixCache,
        model: Any,
        key: Key | None,
        prompts: Sequence[tuple[int, ...]],
        sources: Sequence[tuple[int, ...]] | None,
        copies: int,
        empty: Any,
    ) -> None:
        self.prompts = tuple(prompts)
        self.sources = None if sources is None else tuple(sources)
        self.copies = copies
        self.model = model
        self.key = key
        self.rows: tuple[RowHit, ...] = ()
        self.columns = 0
        self.cache = empty
        """The cache of the run, None where nothing can be reused or stored."""
        self.width = max(map(len, prompts))
        self._owner = owner
        self._forked = False
        self._hidden: torch.Tensor | None = None
        self._pinned: list[Node] = []
        self._trees: list[Tree | None] = [None] * len(prompts)
        self._nodes: list[Node | None] = [None] * len(prompts)

    @property
    def reused(self) -> int:
        """Prompt tokens that are reused, of all rows."""
        return sum(row.reused for row in self.rows)

    @property
    def tokens(self) -> int:
        """Prompt tokens of all rows."""
        return sum(row.tokens for row in self.rows)

    @property
    def nbytes(self) -> int:
        """Bytes of keys and values that are reused, of all rows."""
        return sum(row.nbytes for row in self.rows)

    @property
    def knows_sources(self) -> bool:
        """Whether all that the encoder would read is known, so that it need not read."""
        return bool(self.rows) and all(row.source for row in self.rows)

    def pad(self, row: int) -> int:
        """Return how many columns of padding a prompt has."""
        return self.width - len(self.prompts[row])

    def hold(self, row: int, tree: Tree, node: Node) -> None:
        """Pin what was found for a row (called under the owner's lock)."""
        node.pins += 1
        self._pinned.append(node)
        self._trees[row], self._nodes[row] = tree, node

    def release(self) -> list[Node]:
        """Hand back what is pinned, once."""
        pinned, self._pinned = self._pinned, []
        return pinned

    def fork(self) -> Any:
        """Return the cache for ``generate(cache=...)``, once.

        Returns
        -------
        transformers.Cache or None
            Holds :attr:`columns` columns. None where nothing of this model can be reused: ``generate`` makes its own.
        """
        if self._forked:
            raise RuntimeError("the cache of this lease is in use already: a lease is for one run")
        self._forked = True
        if self.cache is None:
            return None
        rows = range(len(self.prompts))
        if self.columns and is_recurrent_cache(self.cache):
            states = [self._node(row).checkpoint for row in rows]
            Checkpoint.restore(self.cache, [state for state in states for _ in range(self.copies)])
        elif self.columns:
            lengths = [max(0, self.columns - self.pad(row)) for row in rows]
            with self._owner.lock:  # a node may be split meanwhile
                known = [
                    forks.beginning(self._node(row), length) if length else () for row, length in enumerate(lengths)
                ]
                alone = len(known) * self.copies == 1 and known[0] is self._node(0).layers
                borrowed = self._node(0).lend() if alone else None
            whole = forks.stack(known, lengths, self.columns, left=True)
            refill(self.cache, forks.repeat(whole, self.copies), borrowed)
        if self.knows_sources:
            given = self._sources()
            lengths = [one.hidden.shape[1] for one in given]
            cross = forks.stack([one.cross for one in given], lengths, max(lengths), left=False)
            refill_cross(self.cache, forks.repeat(cross, self.copies))
        if not is_recurrent_cache(self.cache) and self.held != self.columns:
            # What is told of hits is what the cache holds.
            raise RuntimeError(f"the cache holds {self.held} columns, and {self.columns} were to be put into it")
        return self.cache

    def arguments(self, inputs: Mapping[str, Any] | None) -> dict[str, Any]:
        """Return what ``generate`` is given beside the whole ids, once; nothing where nothing can be reused or stored.

        Parameters
        ----------
        inputs : mapping, optional
            ``input_ids`` and ``attention_mask`` for the encoder, where there is one: what it gives is reused, or
            computed here, and stored with the rest. Without, it reads in ``generate`` itself.
        """
        fork = self.fork()
        if fork is None:
            return {}
        # Beside a cache, `generate` takes no kind of one; and what is compiled would not see our layers.
        arguments: dict[str, Any] = {"cache": fork, "cache_implementation": None, "disable_compile": True}
        if self.sources is not None and inputs is not None:
            given = self.encoder_outputs()
            if given is None:
                read = {name: inputs[name] for name in ("input_ids", "attention_mask")}
                with torch.no_grad():
                    given = self.model.get_encoder()(**read, return_dict=True)
            self._hidden = given.last_hidden_state
            arguments["encoder_outputs"] = given
        return arguments

    def encoder_outputs(self) -> Any:
        """Return what the encoder gave, for ``generate(encoder_outputs=...)``, None where it must read.

        One row a prompt (``generate`` repeats them itself), padded on the right with zeros.
        """
        if not self.knows_sources:
            return None
        hidden = [one.hidden[0] for one in self._sources()]
        return BaseModelOutput(last_hidden_state=torch.nn.utils.rnn.pad_sequence(hidden, batch_first=True))

    def store(
        self,
        ids: Sequence[Sequence[int] | None] | None = None,
        *,
        encoder_hidden: torch.Tensor | None = None,
        failed: bool = False,
    ) -> int:
        """Make known what the run computed; also of a run that was stopped, or has failed.

        Parameters
        ----------
        ids : sequence of (sequence of int or None), optional
            For each row of the run's cache its tokens so far, prompt included, padding and what fills a row behind its
            end left out; None leaves a row out. Without, prompts only, which of beams is all that can be told: their
            rows are the live hypotheses' in the end.
        encoder_hidden : torch.Tensor, optional
            What the encoder gave, one row a prompt or one a row of the cache; known where :meth:`arguments` made it.
        failed : bool
            Whether ``generate`` was left by an exception. Keys and values are those of their tokens all the same; of a
            recurrent state it is not known then which tokens are in it, so it is not stored.

        Returns
        -------
        int
            Tokens that were not known before. Why a row was not stored is in the cache's ``stats().not_stored``.

        Raises
        ------
        ValueError
            For rows that are not those of the run.
        """
        nothing: list[Sequence[int] | None] = [None] * (len(self.prompts) * self.copies)
        rows = nothing if ids is None else list(ids)
        if len(rows) != len(self.prompts) * self.copies:
            raise ValueError(f"{len(rows)} rows of ids were given, but the run has {len(self.prompts) * self.copies}")
        if ids is None:
            rows[:: self.copies] = list(self.prompts)
        whole = [None if row is None else tuple(row) for row in rows]
        for index, row in enumerate(whole):
            prompt = self.prompts[index // self.copies]
            if row is not None and row[: len(prompt)] != prompt:
                raise ValueError(f"row {index} does not begin with its prompt: it is of another run, or has padding")
        if not self._forked:
            return 0
        hidden = self._hidden if encoder_hidden is None else encoder_hidden
        return self._owner.store(self, whole, hidden, failed=failed)

    def close(self) -> None:
        """Give back what is pinned, and let go of the run's cache."""
        self._owner.release(self)
        self.cache = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def held(self) -> int:
        """How many columns the run's cache holds now."""
        return 0 if self.cache is None else known_length(self.cache)

    def _node(self, row: int) -> Node:
        node = self._nodes[row]
        assert node is not None
        return node

    def _sources(self) -> list[Source]:
        return [tree.root.checkpoint for tree in self._trees if tree is not None]
