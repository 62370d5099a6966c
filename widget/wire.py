"""The wire schema: every message between the kernel and the front end, for both sides.

The JavaScript types are generated from this file (``make generate``); a test fails when they differ. This module only
describes messages: :mod:`genscope.widget.frames` makes them, :mod:`genscope.widget.scope` handles them.

How a run travels
-----------------
Kernel to front end: one ``begin``, then ``data`` and ``rows`` frames, ``beat`` (once a second while the run lives, so
that a lost tail shows as a gap), and one ``end``. A run has one record a *track*: first one for each lane (a
sequence), then one for each source that an encoder reads. ``data`` carries tokens of one track, and its ``seq`` is the
index of the first; ``rows`` carries rows of a table beside the records (rounds of assisted decoding, steps and choices
of a beam search, segments of an environment), and its ``seq`` is the index of the first. The front end ignores another
run's frames, skips an overlap, and answers a gap with ``pull``; the kernel answers a pull of everything with ``begin``
again, and any pull with slices and, if the run is over, ``end``. Tracks and tables take turns, so nothing is to be read
from the order of their frames.

Texts of tokens are sent once: each track has an append-only table of strings, columns hold indices into it, and a frame
carries the strings that its tokens are the first to need. A front end that holds the tokens before ``seq`` therefore
holds exactly ``strings_from`` strings of the track.

The runs of a scope form a tree, which is the trait ``tree``; one of them is shown, the last that was started or asked
for with ``show``. A twin is two of them, one after the other, and the first gives way to the second when it ends; how
the two compare is the trait ``twin_state``, null before the first twin.

What a model looked at and thought is large and stays in the kernel: the front end asks with ``look`` for what it shows,
and gets ``attention``, ``matrix`` or ``lens``, or ``unseen`` with the reason.

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
    "WireTwin",
]

RunState = Literal["queued", "preparing", "prefilling", "decoding", "paused", "finished", "stopped", "failed"]


class Status(TypedDict):
    """Where a run stands. All numbers are measured; ``null`` is unknown."""

    state: RunState
    #: ``eos``, ``stop string '...'`` or ``length`` once finished, else null.
    why: str | None
    #: Message of the exception that ended the run, else null.
    error: str | None
    #: Generated tokens so far, of the longest sequence; of a beam search that goes on its steps.
    generated: int
    #: Seconds since the run left the queue, its pauses left out; null before it did.
    elapsed: float | None
    #: Seconds from leaving the queue to the first generated token.
    first_token: float | None
    #: Tokens of a sequence a second after the first, pauses left out; null before the second token.
    tokens_per_second: float | None
    #: Share of ``elapsed`` that measuring and recording took, 0 to 1; null before the first token.
    observation_share: float | None
    #: Runs that go first on this model.
    queue_ahead: int
    #: What drafting was worth so far; null without drafting.
    drafts: "WireDraftSummary | None"
    #: What was taken from the prefix cache; null before it was asked, and in a run without one.
    reuse: "WireReuse | None"
    #: How forward passes run, and what was prepared for it; null where they run eagerly.
    execution: "WireExecution | None"


class WireExecution(TypedDict):
    """A :class:`genscope.kernel_side.tracing.use.ExecutionStatus`."""

    name: str
    #: Passes that ran in it, and those that ran eagerly beside a new graph, to compare the two.
    passes: int
    compared: int
    #: Passes that ran eagerly because nothing else could serve them, the most frequent reason first.
    fallbacks: list["WireFallback"]
    #: Seconds that this run spent preparing: in none of its other times.
    prepared: float
    #: Graphs made meanwhile, and times that a compiler made one anew.
    graphs: int
    recompilations: int
    #: Largest difference of a logit from the eager one, where passes were compared; null where they were not.
    largest_difference: float | None
    #: What is being prepared now, else null.
    preparing: "WirePreparing | None"


class WireFallback(TypedDict):
    """Why passes ran eagerly."""

    reason: str
    passes: int


class WirePreparing(TypedDict):
    """A :class:`genscope.kernel_side.tracing.use.Preparing`."""

    what: str
    #: Such as ``tracing``; empty at the very beginning.
    stage: str
    #: Seconds since it began.
    seconds: float


class WireTwin(TypedDict):
    """A :class:`genscope.kernel_side.twin.Twin` and its report: the trait ``twin_state``. Null is unknown.

    ``id`` and ``text`` of both sides hold generated tokens of ``lane`` from ``start`` on, not more than some hundred.
    """

    #: Of the run beside the eager one.
    execution: str
    eager: "WireTwinSide"
    other: "WireTwinSide"
    #: The sequence whose tokens are listed: that of the first difference, else the first; and how many there are.
    lane: int
    lanes: int
    #: Generated tokens of it before the first that is listed.
    start: int
    #: Positions of generated tokens that both have got to, of all sequences, and those before a difference.
    compared: int
    agreeing: int
    difference: "WireTwinDifference | None"
    #: Largest difference of a logit; null before both are over, and where that cannot be told.
    largest_gap: float | None
    #: What it was looked for in, or why it is unknown, for a person; null before both are over.
    gap_over: str | None
    #: Tokens after which preparing has paid off; null where it never does, or nothing was prepared.
    pays_off_after: int | None
    #: Whether both runs are over.
    over: bool


class WireTwinSide(TypedDict):
    """One of the two runs of a twin."""

    run: str
    status: "Status"
    #: Tokens of the sequence that is listed.
    generated: int
    id: list[int]
    #: What to draw for each ("" inside a character).
    text: list[str]
    #: Seconds for each token after the first.
    per_token: float | None


class WireTwinDifference(TypedDict):
    """A :class:`genscope.kernel_side.twin.Difference`."""

    lane: int
    #: In the lane, and among its generated tokens.
    position: int
    generated: int
    #: Null where that run had ended.
    eager: "WireTwinChoice | None"
    other: "WireTwinChoice | None"


class WireTwinChoice(TypedDict):
    """What one of the two chose, and what it knew of what either chose between. The lists are most probable first."""

    id: int
    text: str
    #: A candidate that is not listed was not recorded on this side.
    alt_id: list[int]
    alt_text: list[str]
    #: Natural-log probability in the model's own distribution; null is a probability of exactly zero.
    alt_logprob: list[float | None]


class WireReuse(TypedDict):
    """A :class:`genscope.kernel_side.caching.reuse.PromptReuse`."""

    #: Tokens of all prompts (of an encoder-decoder model: the decoder's), and how many of them were not computed.
    tokens: int
    reused: int
    #: Bytes of keys and values that were handed over.
    nbytes: int
    #: Texts that the encoder need not read, and all of them; null without an encoder.
    sources_reused: int | None
    sources: int | None
    #: Why no more of a prompt was reused, of the one with the most left to compute.
    end: "WireReuseEnd"
    #: Seconds saved, its price taken off; null where nobody knows.
    saved: float | None
    #: Whether ``saved`` was measured (by a cold run of the same prompt); else it is estimated.
    saved_measured: bool
    #: The comparison with the same prompt without the cache; null where none was asked for, or is there yet.
    verified: "WireVerified | None"


class WireReuseEnd(TypedDict):
    """A :class:`genscope.kernel_side.caching.hits.End`, with the texts of tokens."""

    prompt: int
    kind: Literal["whole", "differs", "ends", "empty", "changed", "source", "batch", "padding", "recurrent", "refused"]
    #: Of the first token that was computed.
    position: int
    #: Its text, and the texts that are known there instead.
    asked: str
    cached: list[str]
    #: All of it for a person.
    message: str


class WireVerified(TypedDict):
    """A :class:`genscope.kernel_side.caching.reuse.Verified`."""

    #: Largest difference of a logit of the first step, and the largest logit, which is its scale.
    difference: float
    largest: float
    #: Whether both find the same token the most probable, for each prompt.
    agrees: bool


class WireDraftSummary(TypedDict):
    """A :class:`genscope.kernel_side.record.rounds.DraftSummary`."""

    #: Rounds, which are forward passes of the model.
    rounds: int
    drafted: int
    accepted: int
    #: Tokens that the rounds added: accepted and bonus.
    generated: int


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
    #: Of a token that was given: 1 where its keys and values came from the prefix cache, 0 where they were computed.
    #: Null of a generated token, and without a cache.
    cached: list[int | None]


class WireLane(TypedDict):
    """One sequence of a run."""

    #: Which prompt of the batch it continues.
    prompt: int
    #: Which of the prompt's sequences it is; of a beam search 0 is the best.
    sequence: int
    #: Tokens of the prompt: the first rows of the track.
    prompt_tokens: int
    #: The track of what the encoder read; null without an encoder.
    source: int | None
    #: Of a comparison: what tells it from the others; else empty.
    label: str


class WireCompared(TypedDict):
    """One lane of a :class:`genscope.kernel_side.comparison.comparison.Comparison`."""

    #: Which of the given settings it has.
    group: int
    #: Which of the comparison's runs it is part of. Lanes of one run share their forward passes.
    batch: int
    #: With the seed that is used.
    settings: dict[str, Any]


class Begin(TypedDict):
    """A run exists; what came before belongs to another run."""

    kind: Literal["begin"]
    run: str
    #: Lane ``i`` is track ``i``.
    lanes: list[WireLane]
    #: Records of the run: its lanes and, behind them, its sources.
    tracks: int
    #: Beams a prompt and groups of beams, of a beam search; else null.
    beams: "BeamShape | None"
    #: Where it branches off; null of a run of its own.
    branch: "WireBranch | None"
    #: Of a comparison: what its lanes are; else null.
    compared: list[WireCompared] | None
    #: Whether it is an environment's: the table of segments says what each stretch of a lane is.
    environment: bool
    #: What can be looked at, by a name for ``look.what`` (and for attention, ``look.of``).
    observed: list[Literal["attention", "cross", "encoder", "lens"]]
    #: The settings of this run, with the seed it really uses.
    settings: dict[str, Any]
    status: Status


class WireBranch(TypedDict):
    """A :class:`genscope.kernel_side.request.Branch`: a run that goes on from the tokens of another one."""

    run: str
    lane: int
    #: Tokens, from the first on, that it shares with that lane.
    position: int
    #: Tokens behind them that it was given.
    added: int
    #: ``reply`` where the added tokens are the next turn of a conversation.
    kind: Literal["branch", "reply"]
    #: Of a reply: whether the chat template wrote earlier turns anew, from ``position`` on.
    rewritten: bool


class BeamShape(TypedDict):
    """How many hypotheses a beam search follows for each prompt. Beam ``b`` is in group ``b // (beams / groups)``."""

    beams: int
    groups: int


class Data(TypedDict):
    """Rows ``seq`` to ``seq + n`` of the record of a track."""

    kind: Literal["data"]
    run: str
    track: int
    seq: int
    n: int
    strings_from: int
    strings: list[str]
    columns: Columns
    status: Status


class WireRound(TypedDict):
    """A :class:`genscope.kernel_side.record.rounds.Round`. The lists have one entry a drafted token."""

    step: int
    #: Position in lane 0 of the round's first token.
    position: int
    id: list[int]
    text: list[str]
    #: Natural-log probability that each was drafted with; null where drafts have none.
    draft_logprob: list[float | None]
    #: Natural-log probability that the model gives each, after all processors; null is a probability of exactly zero.
    target_logprob: list[float | None]
    #: How many, from the first on, were kept.
    accepted: int
    #: Tokens of the model's own behind them: 1, or 0 where the sequence ended within the drafts.
    bonus: int
    seconds: float | None


class WireFinished(TypedDict):
    """A :class:`genscope.kernel_side.record.beams.FinishedBeam`."""

    step: int
    candidate: int
    #: Log-probability over ``length ** length_penalty``; null where its beam held nothing.
    score: float | None


class WireBeamStep(TypedDict):
    """A :class:`genscope.kernel_side.record.beams.BeamStep`. The first lists have one entry a candidate."""

    prompt: int
    step: int
    id: list[int]
    text: list[str]
    #: The beam, of this prompt, that each continues.
    beam: list[int]
    #: Log-probability of the whole candidate; null where its beam held nothing.
    score: list[float | None]
    #: 1 where it met a stopping criterion.
    stops: list[int]
    #: For each beam the candidate that it holds from here on.
    live: list[int]
    #: Null where the beam holds nothing.
    live_score: list[float | None]
    #: The pool of finished hypotheses after this step, best first.
    finished: list[WireFinished]


class WireBeamChoice(TypedDict):
    """A :class:`genscope.kernel_side.record.beams.BeamChoice`."""

    lane: int
    prompt: int
    #: -1 where the search had nothing for this lane.
    step: int
    candidate: int
    #: Null where the search had nothing, or only a copy that it fills up with, for this lane.
    score: float | None


class WireSegment(TypedDict):
    """A :class:`genscope.kernel_side.record.segments.Segment`: what a stretch of a lane is in an environment."""

    lane: int
    #: Of ``end`` and ``reward`` there are no tokens.
    kind: Literal["prompt", "model", "tool", "end", "reward"]
    #: 0 for the prompt, 1 for the model's first segment and the answer to it, and so on.
    turn: int
    #: Positions of its tokens in the lane: from ``start`` to before ``stop``.
    start: int
    stop: int
    #: Of a model's segment: tokens before it whose keys and values were reused, and those that were computed.
    reused: int | None
    computed: int | None
    #: Of a model's segment: why nothing was reused. Of ``tool``: the names of the tools. Of ``end``: why it ended.
    text: str | None
    #: Of ``reward``; null where there is none.
    reward: float | None


class RoundRows(TypedDict):
    """Rounds ``seq`` and following."""

    kind: Literal["rows"]
    run: str
    table: Literal["rounds"]
    seq: int
    rows: list[WireRound]
    status: Status


class BeamRows(TypedDict):
    """Steps of a beam search from row ``seq`` on: step after step and in each step prompt after prompt."""

    kind: Literal["rows"]
    run: str
    table: Literal["beams"]
    seq: int
    rows: list[WireBeamStep]
    status: Status


class ChoiceRows(TypedDict):
    """What a beam search chose, one row a lane, from row ``seq`` on."""

    kind: Literal["rows"]
    run: str
    table: Literal["choices"]
    seq: int
    rows: list[WireBeamChoice]
    status: Status


class SegmentRows(TypedDict):
    """Segments of an environment from row ``seq`` on, in the order in which they came."""

    kind: Literal["rows"]
    run: str
    table: Literal["segments"]
    seq: int
    rows: list[WireSegment]
    status: Status


class Counts(TypedDict):
    """How many rows the kernel has."""

    #: By track.
    tracks: list[int]
    rounds: int
    beams: int
    choices: int
    segments: int


class Beat(TypedDict):
    """A sign of life."""

    kind: Literal["beat"]
    run: str
    counts: Counts
    status: Status


class End(TypedDict):
    """The run is over; no data of it follows unless pulled."""

    kind: Literal["end"]
    run: str
    counts: Counts
    #: By track: what an unfinished character at the very end decodes to ("" nearly always).
    tails: list[str]
    #: By lane: ``eos``, ``stop string '...'``, ``length``, or null where it was stopped.
    whys: list[str | None]
    status: Status


class SeenAttention(TypedDict):
    """What the model looked at when it chose the token at ``position``."""

    kind: Literal["attention"]
    run: str
    lane: int
    position: int
    #: ``self``: over the lane's own tokens before it; ``cross``: over the source's tokens.
    of: Literal["self", "cross"]
    #: Null is the mean over all.
    layer: int | None
    head: int | None
    layers: int
    heads: int
    #: Share of the attention on each token, 0 to 1, from position 0 on.
    weights: list[float]


class SeenMatrix(TypedDict):
    """Attention of a stretch of tokens: the rows of :class:`SeenAttention`, one below the other."""

    kind: Literal["matrix"]
    run: str
    lane: int
    #: ``encoder``: of the source's tokens on each other; then positions are the source's.
    of: Literal["self", "cross", "encoder"]
    layer: int | None
    head: int | None
    layers: int
    heads: int
    #: Position of the token that the first row belongs to.
    position: int
    #: Shares 0 to 1. Rows of ``self`` grow by one entry each.
    rows: list[list[float]]


class LensLayer(TypedDict):
    """What one layer would have said. The lists have one entry a candidate, most probable first."""

    #: 0 is the embeddings, the last one the model's own distribution.
    layer: int
    id: list[int]
    text: list[str]
    logprob: list[float | None]
    #: Of the token that was chosen in the end.
    chosen_logprob: float | None
    chosen_rank: int


class SeenLens(TypedDict):
    """The logit lens on the choice of the token at ``position``."""

    kind: Literal["lens"]
    run: str
    lane: int
    position: int
    layers: list[LensLayer]


class Unseen(TypedDict):
    """What was to be looked at cannot be."""

    kind: Literal["unseen"]
    run: str
    lane: int
    position: int
    what: Literal["attention", "matrix", "lens"]
    #: Why, and what to do, for a person.
    message: str


class WireProblem(TypedDict):
    """A :class:`genscope.kernel_side.request.Problem`."""

    field: str
    #: ``repr`` of the value.
    value: str
    message: str
    way_out: str


class Problems(TypedDict):
    """The answer to ``generate``, ``twin``, ``branch``, ``reply`` and ``settings``: what is wrong, or an empty list."""

    kind: Literal["problems"]
    problems: list[WireProblem]


Seen = SeenAttention | SeenMatrix | SeenLens | Unseen
"""Answers to ``look``."""

BackMessage = Begin | Data | RoundRows | BeamRows | ChoiceRows | SegmentRows | Beat | End | Problems | Seen
"""Kernel to front end."""


class WireChatMessage(TypedDict):
    role: str
    content: str


class Generate(TypedDict):
    """Start a run. Answered by ``problems`` and, if there are none, ``begin``."""

    kind: Literal["generate"]
    #: A text, a conversation, or a batch of them.
    prompt: str | list[WireChatMessage | str | list[WireChatMessage]]
    settings: dict[str, Any]


class MakeTwin(TypedDict):
    """Run the same request eagerly and in the execution of its settings. Answered as ``generate``.

    What comes of the two is the trait ``twin_state``, a :class:`WireTwin`.
    """

    kind: Literal["twin"]
    #: As of ``generate``.
    prompt: str | list[WireChatMessage | str | list[WireChatMessage]]
    settings: dict[str, Any]


class MakeComparison(TypedDict):
    """Compare settings and seeds on one prompt. Answered as ``generate``."""

    kind: Literal["compare"]
    #: As of ``generate``.
    prompt: str | list[WireChatMessage | str | list[WireChatMessage]]
    #: What all lanes have in common.
    settings: dict[str, Any]
    #: What differs, by lane; with several seeds each is a group of lanes.
    changes: list[dict[str, Any]]
    #: How many seeds; null leaves it to the settings.
    seeds: int | None


class StopLane(TypedDict):
    """End one lane of a comparison after its step."""

    kind: Literal["stop_lane"]
    run: str
    lane: int


class MakeBranch(TypedDict):
    """Start a run that goes on from the tokens of another one. Answered as ``generate``.

    With ``token`` or ``text``, and not both, that stands at ``position``; else the model chooses what does. At the end
    of a lane the run goes on behind it.
    """

    kind: Literal["branch"]
    run: str
    lane: int
    #: How many tokens of the lane, from the first on, stay.
    position: int
    token: NotRequired[int]
    text: NotRequired[str]
    settings: dict[str, Any]


class Reply(TypedDict):
    """Start a run that goes on with the conversation of another one, whose text is its last turn.

    Answered as ``generate``.
    """

    kind: Literal["reply"]
    run: str
    lane: int
    text: str
    settings: dict[str, Any]


class Show(TypedDict):
    """Show this run. Answered by its ``begin`` and everything behind it."""

    kind: Literal["show"]
    run: str


class SetSettings(TypedDict):
    """Settings were edited in the form. Answered by ``problems``; valid ones become the trait."""

    kind: Literal["settings"]
    settings: dict[str, Any]


class RunCommand(TypedDict):
    """Act on a run; without ``run`` on the current one. ``step`` on a new run starts it paused."""

    kind: Literal["stop", "pause", "resume", "step"]
    run: NotRequired[str]


class Pull(TypedDict):
    """Send rows again.

    With ``track`` or ``table`` those of that one from ``start`` on; else everything. Without ``run`` of the current
    run; of another run than that, everything of the current one.
    """

    kind: Literal["pull"]
    run: NotRequired[str]
    track: NotRequired[int]
    table: NotRequired[Literal["rounds", "beams", "choices", "segments"]]
    start: int


class Look(TypedDict):
    """Show what the model looked at or thought when it chose a token. Answered by one of :data:`Seen`.

    For a matrix ``position`` says which token it should end with.
    """

    kind: Literal["look"]
    run: str
    lane: int
    position: int
    what: Literal["attention", "matrix", "lens"]
    #: Of attention; ``encoder`` only as a matrix.
    of: NotRequired[Literal["self", "cross", "encoder"]]
    #: Null or absent is the mean over all.
    layer: NotRequired[int | None]
    head: NotRequired[int | None]


class MeasureCosts(TypedDict):
    """Measure what observing costs, once; the answer is in the trait ``about``."""

    kind: Literal["costs"]


FrontMessage = (
    Generate
    | MakeTwin
    | MakeComparison
    | StopLane
    | MakeBranch
    | Reply
    | Show
    | SetSettings
    | RunCommand
    | Pull
    | Look
    | MeasureCosts
)
"""Front end to kernel."""
