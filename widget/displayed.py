"""How a scope displays: the live widget, beside it a static copy for pages without a kernel, and as text.

Not here: what the static copy looks like (``static_html``) and where it stands (``static_copy``).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .captions import caption, plain_text
from .static_copy import StaticCopy, publish
from .static_html import static_html
from .traits import ScopeTraits

if TYPE_CHECKING:
    from ..kernel_side.comparison.comparison import Comparison
    from ..kernel_side.run import Run
    from .runs import Runs

__all__ = ["DisplayedScope"]


class DisplayedScope(ScopeTraits):
    """A widget that shows runs. Whoever inherits sets ``_runs``, ``_static_copy``, and ``_open`` while it is live."""

    _open = False
    _runs: Runs
    _static_copy: StaticCopy

    def to_html(self) -> str:
        """Return the run that is shown as coloured text in static HTML; ``""`` before the first."""
        return self._static_html(None)

    def _static_html(self, css_class: str | None) -> str:
        run = self._runs.shown
        if run is None:
            return ""
        return static_html(run, caption=caption(run, self.about["model"]), css_class=css_class)

    def __repr__(self) -> str:
        run, model = self._runs.current, self.about["model"]
        if run is None:
            return f"<Scope {model}: {self.state}>"
        texts = [repr(text[:60]) for text in run.texts]
        more = [f"and {len(texts) - 3} more"] if len(texts) > 3 else []
        return f"<Scope {caption(run, model)}: {', '.join([*texts[:3], *more])}>"

    def _repr_mimebundle_(self, **kwargs: Any) -> tuple[dict[str, Any], dict[str, Any]]:
        data, metadata = super()._repr_mimebundle_(**kwargs) or ({}, {})
        html = self.to_html()
        return (data | {"text/html": html} if html else data), metadata

    def _ipython_display_(self) -> None:
        run = self._runs.shown
        text = "" if run is None else plain_text(run)
        if not self._open:  # nothing is live any more
            publish({"text/plain": repr(self), "text/html": self.to_html()})
            return
        publish(*(super()._repr_mimebundle_() or ({}, {})))
        over = run is not None and run.over
        self._static_copy.show(self._static_html(self.static_class) if over else "", text if over else "")

    def _ended(self, run: Run | Comparison) -> None:
        if run is self._runs.shown:
            self._static_copy.update(self._static_html(self.static_class), plain_text(run))
