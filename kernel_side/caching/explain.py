"""Says of each row of a look-up what is reused, and why no more.

Not here: looking (``prefix_cache``), and how a page shows it.
"""

from __future__ import annotations

from .hits import End, RowHit
from .lease import Lease
from .tree import Found, Node, Tree, bytes_a_token

__all__ = ["hit", "refused", "state_hit", "unknown"]

Ids = tuple[int, ...]


def refused(prompt: Ids, reason: str) -> RowHit:
    """Say that nothing could be reused whatever is known."""
    end = End("refused", 0, prompt[0], (), reason)
    return RowHit(len(prompt), 0, 0, None, 0, end)


def unknown(lease: Lease, row: int, changed: tuple[str, ...]) -> RowHit:
    """Say that nothing is known, or (``changed``) nothing of the model as it is now."""
    prompt = lease.prompts[row]
    source = None if lease.sources is None else False
    if changed:
        end = End("changed", 0, prompt[0], (), f"what is known is of the model with other {', other '.join(changed)}")
    elif source is False:
        end = End("source", 0, prompt[0], (), "the encoder has not read this before")
    else:
        end = End("empty", 0, prompt[0], (), "nothing is known of this model")
    return RowHit(len(prompt), 0, 0, source, 0, end)


def hit(prompt: Ids, found: Found, reused: int, *, padded: bool, source: bool) -> RowHit:
    """Say how far a row is known, and how much of that is reused."""
    at, known = found.length, found.length
    if padded:
        end = End(
            "padding", 0, prompt[0], (), "the model counts padding as positions, so no row of this batch can share"
        )
    elif reused < min(known, len(prompt) - 1):
        end = End(
            "batch", reused, prompt[reused], (), f"{known} tokens are known, but less of another row of the batch"
        )
    elif known == len(prompt):
        end = End("whole", reused, prompt[reused], (), "all of it is known; the last token is computed for its outputs")
    elif found.next:
        others = ", ".join(map(str, found.next))
        end = End(
            "differs", at, prompt[at], found.next, f"at position {at} it has the token {prompt[at]}, known is {others}"
        )
    else:
        end = End("ends", at, prompt[at], (), f"what is known ends after {at} tokens")
    size = reused * bytes_a_token(found.node.layers)
    return RowHit(len(prompt), known, reused, True if source else None, size, end)


def state_hit(prompt: Ids, found: Found, node: Node | None, *, exact: bool, tree: Tree) -> RowHit:
    """Say the same of a row of a recurrent model, whose state is known behind the ids of ``node``."""
    if exact and node is not None:
        reused = len(prompt) - 1
        end = End("whole", reused, prompt[reused], (), "the state before the last token is known")
        return RowHit(len(prompt), found.length, reused, None, node.nbytes, end)
    last = _last_state(tree, prompt)
    left = len(prompt) - last
    message = (
        f"a recurrent state goes on by one token at a time: it is known after {last} tokens, and {left} would be left"
    )
    if node is not None:
        message = "a batch of recurrent states needs rows of one length that are all known"
    return RowHit(len(prompt), found.length, 0, None, 0, End("recurrent", 0, prompt[0], found.next, message))


def _last_state(tree: Tree, ids: Ids) -> int:
    """Return after how many of these ids the furthest state before the last one is known."""
    return max((at for at in range(1, len(ids)) if tree.checkpoint_at(ids, at) is not None), default=0)
