"""What is wrong with what a person asked for: field, value, and the way out. Who finds it out is elsewhere."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

__all__ = ["Problem", "SettingsError"]


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that is wrong with what was asked for.

    Attributes
    ----------
    field : str
        Name of the setting, ``"prompt"``, or ``"strategy"``.
    value : object
        The value as it was given.
    message : str
        What is wrong with it, with the value in it.
    way_out : str
        What to do instead.
    """

    field: str
    value: object
    message: str
    way_out: str

    def __str__(self) -> str:
        return f"{self.field}: {self.message}. {self.way_out}".rstrip()


class SettingsError(ValueError):
    """What was asked for cannot run; names each field, its value and the way out.

    Attributes
    ----------
    problems : tuple of Problem
        At least one.
    """

    def __init__(self, problems: Sequence[Problem]) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join(str(problem) for problem in self.problems))
