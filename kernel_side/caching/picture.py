"""The trees of a prefix cache as text. Not here: the trees (``tree``)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from .tree import Node, Tree

__all__ = ["picture"]

_SHOWN = 40


def picture(trees: Iterable[tuple[str, Sequence[int] | None, Tree]], tokenizer: Any = None) -> str:
    """Return trees as text: a line a stretch of tokens, with its size and how it begins.

    Parameters
    ----------
    trees : iterable of tuple
        A title, what the encoder read (None without one), and the tree.
    tokenizer : PreTrainedTokenizerBase, optional
        Shows texts in place of ids.
    """
    lines: list[str] = []
    for title, source, tree in trees:
        read = "" if source is None else f", behind {_shown(source, tokenizer)}"
        lines.append(f"{title}{read}")
        _draw(list(tree.root.children.values()), "", tokenizer, lines)
    return "\n".join(lines) or "empty"


def _draw(nodes: list[Node], indent: str, tokenizer: Any, lines: list[str]) -> None:
    for index, node in enumerate(nodes):
        is_last = index == len(nodes) - 1
        size = f"{len(node.ids)} token{'s' * (len(node.ids) != 1)}, {node.nbytes:,} bytes"
        use = f", in use by {node.pins}" if node.pins else ""
        lines.append(f"{indent}{'└─' if is_last else '├─'} {_shown(node.ids, tokenizer)} ({size}{use})")
        _draw(list(node.children.values()), indent + ("   " if is_last else "│  "), tokenizer, lines)


def _shown(ids: Sequence[int], tokenizer: Any) -> str:
    if tokenizer is not None:
        text = repr(tokenizer.decode(list(ids)))
        return text if len(text) <= _SHOWN else f"{text[: _SHOWN - 2]}…{text[0]}"
    more = " …" if len(ids) > 8 else ""
    return " ".join(map(str, ids[:8])) + more
