"""The steps of a beam search: what it considered, kept and finished, and what it chose in the end.

Plain rows beside the records, by reference: a candidate names the beam that it continues, a beam the candidate that it
holds. Needs neither torch nor a model. ``recorder`` makes them from ``streaming.beam_outputs``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

__all__ = ["BeamCandidate", "BeamChoice", "BeamStep", "FinishedBeam", "trace_candidate"]


@dataclass(frozen=True, slots=True)
class BeamCandidate:
    r"""A hypothesis with one more token.

    Attributes
    ----------
    id : int
    text : str
        What the token adds to a text; lone bytes as ``\xE2``.
    beam : int
        The beam, of this prompt, that it continues.
    score : float or None
        Natural-log probability of the whole candidate by the processed scores; None where the beam held nothing.
    stops : bool
        It met a stopping criterion.
    """

    id: int
    text: str
    beam: int
    score: float | None
    stops: bool


@dataclass(frozen=True, slots=True)
class FinishedBeam:
    """A place in the pool of finished hypotheses.

    Attributes
    ----------
    step, candidate : int
        Which candidate of which step ended there.
    score : float or None
        Log-probability over ``length ** length_penalty``; None where the candidate's beam held nothing.
    """

    step: int
    candidate: int
    score: float | None


@dataclass(frozen=True, slots=True)
class BeamStep:
    """One step of the search for one prompt.

    Attributes
    ----------
    prompt : int
        Which prompt of the batch.
    step : int
        0 for the first generated token.
    candidates : tuple of BeamCandidate
        Best first; of a diverse search group after group.
    live : tuple of int
        For each beam the candidate that it holds from here on.
    live_scores : tuple of (float or None)
        Log-probability of each live hypothesis; None where the beam holds nothing.
    finished : tuple of FinishedBeam
        The pool after this step, best first; of a diverse search group after group.
    """

    prompt: int
    step: int
    candidates: tuple[BeamCandidate, ...]
    live: tuple[int, ...]
    live_scores: tuple[float | None, ...]
    finished: tuple[FinishedBeam, ...]


@dataclass(frozen=True, slots=True)
class BeamChoice:
    """A returned sequence.

    Attributes
    ----------
    lane : int
        Which lane of the run holds it.
    prompt : int
    step, candidate : int
        Where it ended; -1 where the search had nothing for this lane.
    score : float or None
        Log-probability over ``length ** length_penalty``; None where the search had nothing, or only a copy that it
        fills up with.
    """

    lane: int
    prompt: int
    step: int
    candidate: int
    score: float | None


def trace_candidate(steps: Sequence[BeamStep], step: int, candidate: int) -> list[BeamCandidate]:
    """Follow a candidate back to the prompt.

    Parameters
    ----------
    steps : sequence of BeamStep
        All steps of one prompt, in order.
    step, candidate : int

    Returns
    -------
    list of BeamCandidate
        ``step + 1`` of them, the first token first.
    """
    path = []
    for at in range(step, -1, -1):
        one = steps[at].candidates[candidate]
        path.append(one)
        if at:
            candidate = steps[at - 1].live[one.beam]
    return path[::-1]
