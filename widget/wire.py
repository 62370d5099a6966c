"""The wire schema: every message between the kernel and the front end, for both sides.

The JavaScript types are generated from this file (``make generate``); a test fails when they differ. This module only
describes messages: :mod:`genscope.widget.frames` makes them, :mod:`genscope.widget.scope` handles them.

How a run travels
-----------------
Kernel to front end: one ``begin``, then ``data`` frames whose ``seq`` is the index of their first token, ``beat``
(once a second while the run lives, so that a lost tail shows as a gap), and one ``end``. The front end ignores
another run's frames, skips an overlap, and answers a gap with ``pull``; the kernel answers a pull from 0 with
``begin`` again, then slices, then ``end`` if the run is over.

Texts are sent once: the run has an append-only table of strings, columns hold indices into it, and a frame carries
the strings that its tokens are the first to need. A front end that holds the tokens before ``seq`` therefore holds
exactly ``strings_from`` strings.

Numbers are finite: ``null`` in a row's own columns means *unknown*, never zero. Inside alternatives ``null`` means a
probability of exactly zero (in ``alt_logprob``: the candidate was cut by a processor), but where the row's own
``logprob`` is unknown (the prompt) so is ``alt_logprob``.
"""

# pydantic reads these annotations at run time, so they are not postponed.
from typing import Any, Literal, NotRequired

# pydantic takes no typing.TypedDict before Python 3.12.
from typing_extensions import TypedDict

__all__ = [
    "BackMessage",
    "Beat",
    "Begin",
    "Columns",
    "Data",
    "End",
    "FrontMessage",
    "Generate",
    "Problems",
    "Pull",
    "RunCommand",
    "RunState",
    "SetSettings",
    "Status",
    "WireProblem",
]

RunState = Literal["queued", "prefilling", "decoding", "paused", "finished", "stopped", "failed"]


class Status(TypedDict):
    """Where a run stands. All numbers are measured; ``null`` is unknown."""

    state: RunState
    #: ``eos``, ``stop string '...'`` or ``length`` once finished, else null.
    why: str | None
    #: Message of the exception that ended the run, else null.
    error: str | None
    #: Generated tokens so far.
    generated: int
    #: Seconds since the run left the queue, its pauses left out; null before it did.
    elapsed: float | None
    #: Seconds from leaving the queue to the first generated token.
    first_token: float | None
    #: Generated tokens a second after the first, pauses left out; null before the second token.
    tokens_per_second: float | None
    #: Share of ``elapsed`` that measuring and recording took, 0 to 1; null before the first token.
    observation_share: float | None
    #: Runs that go first on this model.
    queue_ahead: int


class Columns(TypedDict):
    """A slice of the record, one entry a token in each list (alternatives: see ``alt_n``)."""

    id: list[int]
    #: Index into the strings: what to draw for this token ("" inside a character).
    text: list[int]
    #: Exact bytes in hex, null when the tokenizer does not say.
    bytes: list[str | None]
    #: Position of the first token of the character group that this token belongs to (its own position if alone).
    group: list[int]
    #: 1 for the tokenizer's special tokens.
    special: list[int]
    #: 0 for the prompt, 1 for generated.
    generated: list[int]
    #: Natural-log probability of the token in the model's own distribution.
    raw_logprob: list[float | None]
    #: Natural-log probability in the distribution that it was chosen from, after all processors.
    logprob: list[float | None]
    #: Entropy of the model's own distribution, in bits.
    entropy: list[float | None]
    #: 1 when the token was the most probable in the model's own distribution.
    rank: list[int | None]
    #: Seconds since the token before (of the first: since the run left the queue), pauses left out.
    seconds: list[float | None]
    #: How many alternatives each token has; the lists below are flat, most probable first.
    alt_n: list[int]
    alt_id: list[int]
    #: Index into the strings: what the candidate would have added to the text here.
    alt_text: list[int]
    alt_raw_logprob: list[float | None]
    alt_logprob: list[float | None]


class Begin(TypedDict):
    """A run exists; what came before belongs to another run."""

    kind: Literal["begin"]
    run: str
    #: Tokens of the prompt: the first rows of the record.
    prompt_tokens: int
    #: The settings of this run, with the seed it really uses.
    settings: dict[str, Any]
    status: Status


class Data(TypedDict):
    """Rows ``seq`` to ``seq + n`` of the record."""

    kind: Literal["data"]
    run: str
    seq: int
    n: int
    strings_from: int
    strings: list[str]
    columns: Columns
    status: Status


class Beat(TypedDict):
    """A sign of life: the record has ``n`` rows."""

    kind: Literal["beat"]
    run: str
    n: int
    status: Status


class End(TypedDict):
    """The run is over with ``n`` rows; no data of it follows unless pulled."""

    kind: Literal["end"]
    run: str
    n: int
    #: What an unfinished character at the very end decodes to ("" nearly always).
    tail: str
    status: Status


class WireProblem(TypedDict):
    """A :class:`genscope.kernel_side.request.Problem`."""

    field: str
    #: ``repr`` of the value.
    value: str
    message: str
    way_out: str


class Problems(TypedDict):
    """The answer to ``generate`` and ``settings``: what is wrong, or an empty list."""

    kind: Literal["problems"]
    problems: list[WireProblem]


BackMessage = Begin | Data | Beat | End | Problems
"""Kernel to front end."""


class WireChatMessage(TypedDict):
    role: str
    content: str


class Generate(TypedDict):
    """Start a run. Answered by ``problems`` and, if there are none, ``begin``."""

    kind: Literal["generate"]
    prompt: str | list[WireChatMessage]
    settings: dict[str, Any]


class SetSettings(TypedDict):
    """Settings were edited in the form. Answered by ``problems``; valid ones become the trait."""

    kind: Literal["settings"]
    settings: dict[str, Any]


class RunCommand(TypedDict):
    """Act on a run; without ``run`` on the current one. ``step`` on a new run starts it paused."""

    kind: Literal["stop", "pause", "resume", "step"]
    run: NotRequired[str]


# "from" is no Python name.
Pull = TypedDict("Pull", {"kind": Literal["pull"], "run": NotRequired[str], "from": int})
"""Send the record again, from this row on; without ``run`` the current one from 0."""

FrontMessage = Generate | SetSettings | RunCommand | Pull
"""Front end to kernel."""
