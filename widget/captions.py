"""What runs and their lanes are, in words: for the static copy, and for the scope as plain text."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..kernel_side.request import settings_schema
from .values import brief

if TYPE_CHECKING:
    from ..kernel_side.comparison.comparison import Comparison
    from ..kernel_side.record.recording import Recording
    from ..kernel_side.run import Run
    from ..kernel_side.settings import Settings

__all__ = ["caption", "lane_labels", "plain_text", "source_labels"]


def caption(run: Run | Comparison, model: str) -> str:
    """Say in one line what a run is and where it stands."""
    status = run.status()
    end = status.error or status.why
    state = f"{status.state} ({end})" if end else status.state
    # Of a search that goes on no token is final yet; an environment has those of the turns before.
    unit = "steps" if run.settings.searches and not run.over and not run.recording.segmented else "tokens"
    count = f"{status.generated} {unit}"
    if any(lane.label for lane in run.recording.lanes):
        return f"{model}, {len(run.lanes)} lanes of up to {count}, {state}"
    if len(run.lanes) > 1:
        count = f"{len(run.lanes)} sequences of up to {count}"
    return f"{model}, {_settings(run.settings)}, {count}, {state}"


def lane_labels(run: Run | Comparison) -> list[str]:
    """Return a label for each lane: whose it is, why it ended, its score in a beam search; "" where that says nothing.

    Parameters
    ----------
    run : Run or Comparison
    """
    recording = run.recording
    scores = {choice.lane: choice.score for choice in recording.choices}
    prompts, sequences = _several_prompts(recording), any(lane.sequence for lane in recording.lanes)
    labelled = any(lane.label for lane in recording.lanes)
    labels = []
    for index, lane in enumerate(recording.lanes):
        names = [f"prompt {lane.prompt + 1}"] * prompts + [f"sequence {lane.sequence + 1}"] * sequences
        if labelled:
            names = [lane.label]
        # Why a single lane ended is why the run did, which the caption tells.
        why = run.whys[index] if names and run.whys else None
        facts = [] if why is None else [why]
        score = scores.get(index)
        if score is not None:
            # A steep length penalty makes small numbers.
            facts.append(f"score {score:.3f}" if abs(score) >= 0.001 else f"score {score:.3g}")
        name = ", ".join(names) or ("target" if lane.source is not None else "")
        labels.append(f"{name} ({', '.join(facts)})" if name and facts else name or ", ".join(facts))
    return labels


def source_labels(recording: Recording) -> list[str]:
    """Return a label for each lane that a source is to be shown above, the first of a prompt; "" for the others."""
    of_prompt = {lane.prompt: index for index, lane in reversed(list(enumerate(recording.lanes)))}
    name = "source of prompt {}" if _several_prompts(recording) else "source"
    return [
        name.format(lane.prompt + 1) if lane.source is not None and of_prompt[lane.prompt] == index else ""
        for index, lane in enumerate(recording.lanes)
    ]


def plain_text(run: Run | Comparison) -> str:
    """Return the generated texts of all lanes, one below the other where there are several, with their labels."""
    texts = run.texts
    if len(texts) == 1:
        return texts[0]
    return "\n\n".join(f"[{label}]\n{text}" for label, text in zip(lane_labels(run), texts, strict=True))


def _several_prompts(recording: Recording) -> bool:
    return any(lane.prompt for lane in recording.lanes)


def _settings(settings: Settings) -> str:
    """Name the strategy and what a reader needs to get these tokens again: what counts and is not as by default."""
    schema = settings_schema()["$defs"][type(settings).__name__]
    when = schema.get("when", {})
    told: dict[str, Any] = {}
    for name, field in schema["properties"].items():
        value = getattr(settings, name)
        counts = name not in when or getattr(settings, when[name])
        # Neither observing nor where keys and values come from changes a token.
        skipped = field.get("group") in ("observe", "cache") or name in ("strategy", "seed", "max_new_tokens")
        if counts and not skipped and value != type(settings).model_fields[name].default:
            told[name] = value
    if _draws(settings):
        told["seed"] = settings.seed
    details = ", ".join(f"{name.replace('_', ' ')} {_plain(value)}" for name, value in told.items())
    return f"{settings.strategy} ({details})" if details else settings.strategy


def _draws(settings: Settings) -> bool:
    return hasattr(settings, "temperature") and bool(getattr(settings, "do_sample", True))


def _plain(value: object) -> str:
    """Write a value: a name or a number as it is, what a person typed as Python does, shortened."""
    return str(value) if isinstance(value, (bool, int, float)) or str(value).isidentifier() else brief(value)
