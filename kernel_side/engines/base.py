"""What a run needs of whatever executes it.

An engine checks a request against its model, then generates, recording as it goes. It knows nothing of threads and
states; :mod:`genscope.kernel_side.run` knows nothing of models.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from ..record.record import Record
from ..record.recorder import Clock
from ..request import Request
from .turnstile import Turnstile

__all__ = ["Engine", "Job", "Outcome"]


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a generation ended.

    Attributes
    ----------
    why : str or None
        ``"eos"``, ``"stop string '...'"`` or ``"length"``; None when it was told to stop.
    output : object
        What the engine returns in full; of the in-process engine the library's ``GenerateDecoderOnlyOutput``.
    """

    why: str | None
    output: Any


class Job(Protocol):
    """A request that an engine has accepted.

    Attributes
    ----------
    request : Request
        With the seed that is used.
    prompt_ids : list of int
    record : Record
        Grows while the job executes.
    """

    request: Request
    prompt_ids: list[int]

    @property
    def record(self) -> Record: ...

    @property
    def busy(self) -> float:
        """Seconds that measuring and recording took so far."""

    def execute(self, clock: Clock, checkpoint: Callable[[], bool]) -> Outcome:
        """Generate, in this thread, once.

        Parameters
        ----------
        clock : Clock
            For the times of tokens.
        checkpoint : callable
            Called after each step; may block (a pause); True ends the generation.
        """


class Engine(Protocol):
    """Executes requests.

    Attributes
    ----------
    turnstile : Turnstile
        Lets the runs of one model go in order.
    """

    turnstile: Turnstile

    def prepare(self, request: Request) -> Job:
        """Check a request against the model.

        Raises
        ------
        SettingsError
            Naming field, value and way out.
        """
