"""A second, static output beside the live widget, for when no kernel is there: reopened notebooks, GitHub, nbviewer.

A saved notebook without saved widget state shows nothing of a widget. So displaying a scope also publishes an empty
HTML output, which is replaced by the coloured text when a run ends. The live view hides it by its class.
"""

from __future__ import annotations

import contextvars
import uuid
from typing import Any

__all__ = ["StaticCopy", "publish"]


def publish(data: dict[str, Any], metadata: dict[str, Any] | None = None, **options: Any) -> None:
    """Publish a display, to wherever IPython displays; see IPython's ``publish_display_data``."""
    from IPython.display import publish_display_data

    publish_display_data(data, metadata, **options)  # type: ignore[no-untyped-call]


class StaticCopy:
    """One static output, in as many places as it is shown."""

    def __init__(self) -> None:
        self._display_id = uuid.uuid4().hex
        self._shown = False

    def show(self, html: str, text: str) -> None:
        """Publish it beside what is displayed now. Does nothing outside of a notebook."""
        from IPython import get_ipython

        if getattr(get_ipython(), "kernel", None) is None:
            return
        self._publish(html, text, update=False)
        self._shown = True

    def update(self, html: str, text: str) -> None:
        """Replace it where it is shown, from any thread."""
        if self._shown:
            # In an empty context ipykernel files the update under the cell that runs now, whichever it is. Jupyter
            # finds the output by its id all the same, and nbclient listens to the running cell only.
            contextvars.Context().run(self._publish, html, text, update=True)

    def _publish(self, html: str, text: str, *, update: bool) -> None:
        data = {"text/html": html, "text/plain": text}
        publish(data, transient={"display_id": self._display_id}, update=update)
