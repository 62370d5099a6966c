"""What a run needs of whatever executes it.

An engine checks a request against its model, then generates, recording as it goes. It knows nothing of threads and
states; :mod:`genscope.kernel_side.run` knows nothing of models.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from ..record.record import Token
from ..record.recording import Recording
from ..request import Prompt, Request
from .turnstile import Turnstile

if TYPE_CHECKING:
    from ..caching.reuse import PromptReuse
    from ..observation.looks import Looks
    from ..tracing.use import Use

__all__ = ["Checkpoint", "Continuing", "Engine", "Job", "Outcome", "PausableClock", "Progress"]


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a generation ended.

    Attributes
    ----------
    whys : tuple of (str or None)
        For each lane ``"eos"``, ``"stop string '...'"``, ``"length"``, or ``"no hypothesis"`` where a beam search had
        none for it; of an environment what ended its history. None where it was told to stop first.
    output : object
        What the engine returns in full; of the in-process engine the library's ``GenerateDecoderOnlyOutput``.
    """

    whys: tuple[str | None, ...]
    output: Any


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a generation is.

    Attributes
    ----------
    generated : int
        Tokens of the longest sequence so far; of a beam search that goes on its steps.
    first, last : float or None
        Seconds, pauses left out, from the start to the first token and to the last one.
    """

    generated: int = 0
    first: float | None = None
    last: float | None = None


class PausableClock(Protocol):
    """A clock that can stand still."""

    def since_start(self, moment: float) -> float:
        """Return seconds from the start to a ``perf_counter`` moment, pauses left out."""

    def stop(self) -> None:
        """Stand still, until :meth:`go`."""

    def go(self) -> None:
        """Run on; the time since :meth:`stop` does not count."""


class Checkpoint(Protocol):
    """What a job calls after each step."""

    def __call__(self, *, step: bool = True) -> bool:
        """Return whether the generation is to end.

        Parameters
        ----------
        step : bool
            Whether a step was taken: then this may block (a pause). False only asks.
        """


class Job(Protocol):
    """A request that an engine has accepted.

    Attributes
    ----------
    request : Request
        With the seed that is used.
    recording : Recording
        Its tables grow while the job executes.
    reuse : PromptReuse or None
        What was taken from the prefix cache; None before it was asked, and where there is none.
    execution : Use or None
        How forward passes run; None where they run as the engine runs them.
    """

    request: Request
    recording: Recording
    reuse: PromptReuse | None
    execution: Use | None

    @property
    def progress(self) -> Progress: ...

    @property
    def looks(self) -> Looks | None:
        """What can be looked at; None where the engine never keeps any such thing."""

    @property
    def busy(self) -> float:
        """Seconds that measuring and recording took so far."""

    def execute(self, clock: PausableClock, checkpoint: Checkpoint) -> Outcome:
        """Generate, in this thread, once.

        Parameters
        ----------
        clock : PausableClock
            For the times of tokens. Is stopped around what is none of the generation's: preparing an execution.
        checkpoint : Checkpoint
            Called after each step; True ends the generation.
        """


class Engine(Protocol):
    """Executes requests.

    An engine may also have ``context`` (tokens), ``chat`` (whether it takes conversations), ``unavailable()``
    (strategies that it cannot run, and why), ``costs()`` (what observing costs), ``prefix_cache`` and, for runs that
    branch off, what :class:`Continuing` has.

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


@runtime_checkable
class Continuing(Protocol):
    """What an engine has whose runs can go on from the tokens of others."""

    def beginning(self) -> list[int]:
        """Return the ids that a text begins with where nothing else does; empty where there are none."""

    def ids_behind(self, before: Sequence[int], text: str) -> list[int]:
        """Return ids that add a text behind others, which stay as they are."""

    def next_turn(self, tokens: Sequence[Token], messages: Prompt) -> tuple[int, list[int]]:
        """Return how many of the tokens of a conversation stay, and the ids behind them that make it ``messages``.

        Raises
        ------
        SettingsError
            When the chat template refuses them.
        """
