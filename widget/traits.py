"""The traits of a scope: what both sides know of it, and what either side may set."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import traitlets

from ..kernel_side.request import SettingsError, make_settings, settings_schema
from . import static
from .locked import LockedWidget
from .source import ModelSource
from .values import CHECKS, MEASURES, Checked

__all__ = ["ScopeTraits"]

_log = logging.getLogger(__name__)
_STATIC = Path(static.__file__).parent


class ScopeTraits(LockedWidget):
    """A widget with the traits of a scope. Whoever inherits sets ``_source`` and ``_key`` before it is initialised."""

    _esm = _STATIC / "widget.js"
    _css = _STATIC / "widget.css"

    schema = traitlets.Dict(read_only=True).tag(sync=True)
    settings = Checked("settings").tag(sync=True)
    prompt = Checked("prompt", "").tag(sync=True)
    measure = traitlets.Enum(MEASURES, "probability").tag(sync=True)
    whitespace = traitlets.Bool(False).tag(sync=True)
    status = traitlets.Dict(read_only=True).tag(sync=True)
    about = traitlets.Dict(read_only=True).tag(sync=True)
    state = traitlets.Unicode("idle", read_only=True).tag(sync=True)
    tree = traitlets.List(traitlets.Dict(), read_only=True).tag(sync=True)
    twin_state = traitlets.Dict(allow_none=True, default_value=None, read_only=True).tag(sync=True)
    static_class = traitlets.Unicode(read_only=True).tag(sync=True)
    widget_id = traitlets.Unicode(read_only=True).tag(sync=True)

    _source: ModelSource
    _key: str

    def set_state(self, sync_data: dict[str, Any]) -> None:
        """Take trait values from the front end: those it may set, and only valid ones; it is told the others again."""
        taken, refused = {}, []
        for name, value in sync_data.items():
            if self.has_trait(name) and self.traits()[name].read_only:
                refused.append(name)
                continue
            try:
                taken[name] = CHECKS[name](value) if name in CHECKS else value
            except SettingsError:
                refused.append(name)
        super().set_state(taken)
        if refused:
            _log.warning("genscope: ignored values from the front end for %s", ", ".join(refused))
            self.send_state(refused)

    @traitlets.default("settings")
    def _default_settings(self) -> dict[str, Any]:
        return make_settings().model_dump(mode="json")

    @traitlets.default("schema")
    def _default_schema(self) -> dict[str, Any]:
        return settings_schema()

    @traitlets.default("status")
    def _default_status(self) -> Any:
        return self._source.status

    @traitlets.default("about")
    def _default_about(self) -> Any:
        return self._source.about

    @traitlets.default("static_class")
    def _default_static_class(self) -> str:
        return f"genscope-static-{self._key}"

    @traitlets.default("widget_id")
    def _default_widget_id(self) -> str:
        return self._key
