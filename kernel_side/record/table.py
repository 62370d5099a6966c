"""An append-only table: one thread appends, any thread reads. Rows never change and never go away."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Generic, TypeVar, overload

__all__ = ["Table"]

Row = TypeVar("Row")


class Table(Sequence[Row], Generic[Row]):
    """Rows in the order they came. The tokens themselves are in a :class:`~.record.Record`, which readers wait on."""

    def __init__(self, rows: Sequence[Row] = ()) -> None:
        self._rows = list(rows)

    def append(self, row: Row) -> None:
        """Add a row."""
        self._rows.append(row)

    def __len__(self) -> int:
        return len(self._rows)

    @overload
    def __getitem__(self, index: int) -> Row: ...
    @overload
    def __getitem__(self, index: slice) -> list[Row]: ...
    def __getitem__(self, index: int | slice) -> Row | list[Row]:
        return self._rows[index]

    def __iter__(self) -> Iterator[Row]:
        """Iterate over the rows there are, those appended meanwhile included."""
        return iter(self._rows)

    def __repr__(self) -> str:
        return f"<Table of {len(self)} rows>"
