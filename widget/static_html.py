r"""A run as coloured text in self-contained, static HTML. No scripts, no style sheet, no theme.

Lanes stand one below the other, and what an encoder read apart, above the lanes of its prompt.

Hosts sanitise HTML: inline hex colours stay, ``<style>`` and ``hsl()`` go. So the text stands on its own white paper,
which reads the same on a light and a dark page. Text of the model is escaped; bytes that are no character are shown as
``\xE2``.
"""

from __future__ import annotations

import html
import itertools
import math
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from .captions import lane_labels, source_labels

if TYPE_CHECKING:
    from ..kernel_side.comparison.comparison import Comparison
    from ..kernel_side.record.record import Alternative, Token
    from ..kernel_side.run import Run

__all__ = ["static_html"]

PAPER, INK, FAINT, PROMPT, BORDER = "#ffffff", "#1d2026", "#5a6068", "#e9ecf1", "#d0d4da"
RAMP = ("#ffffff", "#fff1de", "#fee4bf", "#fdd49e", "#fdbb84", "#fc9c6a", "#f2785a")
"""From certain to improbable; the ink keeps a contrast of more than 4.5 on each."""
LIMITS = (0.9, 0.7, 0.5, 0.3, 0.1, 0.02)
"""Least probability of each colour but the last."""

MOST_TOKENS = 4000
"""Drawn with colours, of all lanes together; what follows is plain text, or the notebook would grow by megabytes."""
_TITLED_ALTERNATIVES = 3
_TEXT = "white-space:pre-wrap;overflow-wrap:anywhere;line-height:1.7"
_LABEL = f"color:{FAINT};font-size:12px;margin:6px 0 0"


def static_html(run: Run | Comparison, *, caption: str = "", css_class: str | None = None) -> str:
    """Draw a run, coloured by the model's own probability of each token.

    Parameters
    ----------
    run : Run or Comparison
    caption : str
        Plain text above it: the model, the settings, how the run ended.
    css_class : str, optional
        Class of the outermost element.

    Returns
    -------
    str
        One ``div``; titles tell probability, surprisal, rank and the best alternatives.
    """
    left = MOST_TOKENS
    blocks = []
    for source, label, lane in zip(source_labels(run.recording), lane_labels(run), run.recording.lanes, strict=True):
        if source and lane.source is not None:
            left, text = _text(lane.source[:], left)
            style = f"border-left:2px solid {BORDER};padding-left:10px"
            blocks.append(f'<div style="{_LABEL}">{_escape(source)}</div><div style="{_TEXT};{style}">{text}</div>')
        left, text = _text(lane.record[:], left)
        above = f'<div style="{_LABEL}">{_escape(label)}</div>' if label else ""
        blocks.append(f'{above}<div style="{_TEXT}">{text}</div>')
    attribute = f' class="{html.escape(css_class)}"' if css_class else ""
    return (
        f'<div{attribute} style="background:{PAPER};color:{INK};border:1px solid {BORDER};border-radius:4px;'
        f'padding:8px 12px;margin:4px 0"><div style="color:{FAINT};font-size:12px;margin-bottom:6px">'
        f"{_escape(caption)}{' · ' if caption else ''}{_legend()}</div>{''.join(blocks)}</div>"
    )


def _text(tokens: Sequence[Token], left: int) -> tuple[int, str]:
    """Draw a record, with colours while there are some left; return how many are left then, too."""
    groups = [list(members) for _, members in itertools.groupby(tokens, key=lambda token: token.group)]
    drawn = list(itertools.takewhile(lambda group: group[-1].position < left, groups))
    body = "".join(map(_group, drawn))
    rest = "".join(map(_shown, groups[len(drawn) :]))
    if rest:
        body += f'<span title="tokens after the first {MOST_TOKENS} are not coloured">{_escape(rest)}</span>'
        return 0, body
    return left - len(tokens), body


def _legend() -> str:
    labels = [f"{limit:.0%}" for limit in LIMITS]
    names = [f"≥ {labels[0]}", *(f"≥ {label}" for label in labels[1:]), f"< {labels[-1]}"]
    swatches = zip(RAMP, names, strict=True)
    return "probability " + " ".join(
        f'<span style="background:{colour};color:{INK};padding:0 4px">{_escape(name)}</span>'
        for colour, name in swatches
    )


def _group(group: Sequence[Token]) -> str:
    """Draw the tokens of one character, or one token: its text once."""
    shown = _shown(group)
    if not shown:
        return ""
    given = group[0].origin != "generated"
    logprobs = [token.raw_logprob for token in group if token.raw_logprob is not None]
    colour = _colour(sum(logprobs)) if logprobs else None
    style = [f"background:{colour};color:{INK}"] if colour not in (None, PAPER) else []
    if given:
        # Never by colour alone: prompt tokens may have probabilities, and then colours, of their own.
        style = style or [f"background:{PROMPT};color:{INK}"]
        style.append(f"border-bottom:1px dotted {FAINT}")
    attribute = f' style="{";".join(style)}"' if style else ""
    title = "\n".join(_title(token) for token in group)
    return f'<span{attribute} title="{_escape(title)}">{_escape(shown)}</span>'


def _colour(logprob: float) -> str:
    probability = math.exp(logprob)
    return RAMP[next((place for place, limit in enumerate(LIMITS) if probability >= limit), len(LIMITS))]


def _title(token: Token) -> str:
    facts: list[str] = [token.origin] if token.origin != "generated" else []
    if token.probability is not None and token.surprisal is not None:
        bits = f"{token.surprisal:.2f} bits" if math.isfinite(token.surprisal) else "impossible"
        facts += [_percent(token.probability), bits]
    if token.rank is not None:
        facts.append(f"rank {token.rank}")
    lines = [", ".join(facts)] if facts else []
    return "\n".join([*lines, *_best(token.alternatives[:_TITLED_ALTERNATIVES])])


def _best(alternatives: Iterable[Alternative]) -> list[str]:
    return [
        f"{_percent(math.exp(entry.raw_logprob))} {entry.text!r}{' (cut)' if entry.cut else ''}"
        for entry in alternatives
    ]


def _percent(probability: float) -> str:
    if probability >= 0.001:
        return f"{100 * probability:.1f}%"
    return f"{100 * probability:.2g}%"


def _shown(group: Sequence[Token]) -> str:
    """Return what a group shows; of bytes that never became a character, the bytes."""
    shown = "".join(token.shown for token in group)
    if shown:
        return shown
    data = b"".join(token.bytes or b"" for token in group)
    return "".join(f"\\x{byte:02X}" for byte in data)


_CONTROLS = {code: 0x2400 + code for code in range(32) if chr(code) not in "\t\n"}
"""HTML drops control characters; each has a picture in Unicode."""


def _escape(text: str) -> str:
    return html.escape(text.translate(_CONTROLS))
