"""Requests that go on from the tokens of a run: a branch from any position, and the next turn of a conversation.

Only ids are put together here, and what is kept of them is never tokenized again. Running is in ``run``; that a branch
starts from known keys and values is the prefix cache's.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .engines.base import Continuing, Engine
from .record.recording import Lane
from .request import Branch, ChatMessage, Problem, Request, Settings, SettingsError, make_settings

if TYPE_CHECKING:
    from .run import Run

__all__ = ["branch_of", "reply_to"]


def branch_of(run: Run, at: int, token: int | str | None = None, *, lane: int = 0, **changes: Any) -> Request:
    """Return the request of :meth:`.Run.branch`, which says how."""
    engine, place = _continuing(run.engine), _lane(run, lane)
    tokens = place.record[:]
    if type(at) is not int or not 0 <= at <= len(tokens):  # True is none
        raise _problem("at", at, f"{at!r} is no position of this lane", f"Use a whole number from 0 to {len(tokens)}.")
    kept = [one.id for one in tokens[:at]]
    if isinstance(token, str):
        if not token:
            raise _problem("token", token, "the text is empty", "Type some text, or leave it out.")
        _check_whole("token", token)
        added = engine.ids_behind(kept, token)
    elif token is None:
        added = []
    elif type(token) is not int:  # True and 1.5 would become the id 1
        raise _problem("token", token, f"{token!r} is no token id and no text", "Give a whole number or a text.")
    else:
        added = [token]
    if place.source is not None and at == 0:
        if added:
            message = "position 0 is what the decoder begins with, and must be that"
            raise _problem("at", at, message, "Branch at position 1.")
        # Of a run that was stopped before it began nothing is recorded.
        kept = [one.id for one in tokens[:1]] or list((run.request.ids or ())[:1])
    if not kept and not added and place.source is None:
        added = engine.beginning()
        if not added:
            message = "nothing stands before position 0, and the model has no token to begin with"
            raise _problem("at", at, message, "Give a token or a text to begin with.")
    # What tools wrote in between is no turn of a conversation.
    begins = None if run.recording.segmented else _answer(run, place)
    return Request(
        prompts=(run.request.prompts[place.prompt],),
        settings=make_settings(_settings(run, place), **changes),
        ids=(*kept, *added) or None,
        answer=begins if begins is not None and begins <= at else None,
        branch=Branch(run.id, lane, len(kept), len(added)),
    )


def reply_to(run: Run, text: str, *, lane: int = 0, **changes: Any) -> Request:
    """Return the request of :meth:`.Run.reply`, which says how."""
    engine, place = _continuing(run.engine), _lane(run, lane)
    messages = run.request.prompts[place.prompt]
    if isinstance(messages, str):
        message = "the run's prompt is a text and no conversation, so there is nothing to reply to"
        raise _problem("prompt", messages, message, "Give the prompt as chat messages, or branch at the run's end.")
    if place.source is not None:
        message = "the model's encoder reads each conversation as a whole, so there is nothing to go on from"
        raise _problem("prompt", None, message, "Generate with all messages as the prompt.")
    begins = _answer(run, place)
    if begins is None:
        message = "this run branched off within its conversation, so its messages are not those of the prompt"
        raise _problem("prompt", None, message, "Generate with the messages as you want them.")
    tokens, tail = place.record[:], place.record.tail
    answer = "".join(one.text for one in tokens[begins:] if not one.special) + tail
    if not text:
        raise _problem("text", text, "the reply is empty", "Type some text.")
    _check_whole("text", text)
    whole = [*messages, ChatMessage(role="assistant", content=answer), ChatMessage(role="user", content=text)]
    kept, added = engine.next_turn(tokens, whole)
    ids = [one.id for one in tokens[:kept]] + added
    return Request(
        prompts=(whole,),
        settings=make_settings(_settings(run, place), **changes),
        ids=tuple(ids),
        answer=len(ids),
        branch=Branch(run.id, lane, kept, len(added), kind="reply", rewritten=kept < len(tokens)),
    )


def _settings(run: Run, lane: Lane) -> Settings:
    """Return the settings of a lane, its own where they differ."""
    return run.request.variants[lane.sequence] if run.request.variants else run.settings


def _answer(run: Run, lane: Lane) -> int | None:
    """Return where the model's turn begins in a lane."""
    return lane.prompt_tokens if run.request.ids is None else run.request.answer


def _check_whole(field: str, text: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError:  # tokenizers refuse it
        raise _problem(field, text, "the text has half a character", "Delete it or type it anew.") from None


def _continuing(engine: Engine) -> Continuing:
    if not isinstance(engine, Continuing):
        message = "what executes this run cannot go on from tokens"
        raise _problem("run", None, message, "Generate with the whole text as the prompt.")
    return engine


def _lane(run: Run, lane: int) -> Lane:
    if type(lane) is not int or not 0 <= lane < len(run.lanes):  # True is none
        message, way_out = f"{lane!r} is no lane of this run", f"Use a whole number from 0 to {len(run.lanes) - 1}."
        raise _problem("lane", lane, message, way_out)
    return run.lanes[lane]


def _problem(field: str, value: object, message: str, way_out: str) -> SettingsError:
    return SettingsError([Problem(field, value, message, way_out)])
