"""The scope: a widget on a model's ``generate()``. Traits, the Python API and how it displays.

It holds no generation logic (``kernel_side``). What the front end asks for is in ``front_end``, what is sent to it in
``sender``.
"""

from __future__ import annotations

import logging
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import traitlets

from ..kernel_side.request import Request, SettingsError, make_settings, settings_schema
from . import cells, control, static
from .front_end import FrontEnd
from .locked import LockedWidget
from .runs import Runs
from .sender import Sender
from .source import ModelSource
from .static_html import caption, static_html
from .twin import Twin, publish
from .values import CHECKS, MEASURES, Checked, check_prompt, flat, plain_prompt

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

    from ..kernel_side.run import Run

__all__ = ["Scope"]

_log = logging.getLogger(__name__)
_STATIC = Path(static.__file__).parent
_FLUSH_SECONDS = 5.0


class Scope(LockedWidget):
    """A widget that shows each token of a model as it is generated.

    Parameters
    ----------
    model : PreTrainedModel, str, Path, Scope or Engine
        A model object; or ``"demo"``, a hub id, a folder or a GGUF file, which is loaded in the background; or another
        scope, whose model is shared. Runs on one model go one after the other.
    tokenizer : PreTrainedTokenizerBase, optional
        Of a model object.
    prompt : str or list of dict
        Text, or chat messages ``{"role": ..., "content": ...}``.
    settings : mapping, optional
        Settings to start from.
    **options
        Single settings, by name (``strategy="sample"``, ``temperature=0.7``, ...; see ``%%generate --help``), and
        traits (``measure="rank"``, ``layout=...``).

    Attributes
    ----------
    prompt : str or list of dict
    settings : dict
        Complete and flat; an assignment that is not valid raises and leaves the old value.
    measure : str
        ``"probability"``, ``"surprisal"``, ``"entropy"``, ``"rank"`` or ``"latency"``: what colours the tokens.
    whitespace : bool
        Whether white space is marked.
    state : str
        Of the current run, see :data:`~genscope.kernel_side.run.RunState`; ``"idle"`` before the first. Read-only.
    status, about, schema : dict
        How loading stands, facts of the model, and the JSON Schema of the settings. Read-only.

    Raises
    ------
    SettingsError
        Naming each wrong setting, its value and the way out.

    Examples
    --------
    >>> scope = Scope("demo", prompt="Once upon a time", strategy="sample", temperature=0.7)  # doctest: +SKIP
    >>> run = scope.generate(max_new_tokens=50)  # doctest: +SKIP
    """

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
    static_class = traitlets.Unicode(read_only=True).tag(sync=True)
    widget_id = traitlets.Unicode(read_only=True).tag(sync=True)

    _open = False

    def __init__(
        self, model: Any, tokenizer: Any = None, *, prompt: Any = "", settings: Any = None, **options: Any
    ) -> None:
        of_widget = {name: options.pop(name) for name in list(options) if self.has_trait(name)}
        values = {
            "prompt": check_prompt(prompt),
            "settings": make_settings(settings, **options).model_dump(mode="json"),
        }
        own = isinstance(model, Scope)
        self._source: ModelSource = model._source if own else ModelSource(model, tokenizer)  # noqa: SLF001 - its own class
        self._key = uuid.uuid4().hex
        self._twin = Twin()
        self._sender = Sender(self.send, self.try_write, self._ended)
        self._runs = Runs(self._source, self._sender, self._started)
        self._front_end = FrontEnd(self._runs, self._sender, self._set_settings, self._own_request)
        self._open = True
        super().__init__(model_id=self._key, **values, **of_widget)
        self.on_msg(self._front_end.handle)
        control.register(self._key, self._front_end)
        cells.claim_cell(self)
        self._source.listen(self._model_changed)
        self._source.start()

    # The model

    @property
    def model(self) -> PreTrainedModel:
        """The model; waits until it is loaded."""
        engine: Any = self._source.engine()
        return cast("PreTrainedModel", engine.model)

    @property
    def tokenizer(self) -> PreTrainedTokenizerBase:
        """The model's tokenizer; waits until it is loaded."""
        engine: Any = self._source.engine()
        return cast("PreTrainedTokenizerBase", engine.tokenizer)

    # Runs

    @property
    def run(self) -> Run | None:
        """The last run, None before the first."""
        return self._runs.current

    @property
    def runs(self) -> list[Run]:
        """All runs, oldest first."""
        return self._runs.all

    def generate(self, prompt: Any = None, **changes: Any) -> Run:
        """Start a run and return at once; a run of this scope that is still going is stopped.

        Waits for the model where it is still being loaded.

        Parameters
        ----------
        prompt : str or list of dict, optional
            By default the scope's own; what is given becomes its own.
        **changes
            Settings that differ from the scope's own; they become its own.

        Returns
        -------
        Run
            In the background: ``run.wait()`` or ``await run``.

        Raises
        ------
        SettingsError
            Naming each wrong field, its value and the way out; no run is stopped then.
        """
        return self._runs.start(Request.make(self.prompt if prompt is None else prompt, self.settings, **changes))

    def wait(self, timeout: float | None = None) -> Run:
        """Wait until the current run is over *and shown*, in a saved notebook too. Raises as ``run.wait``."""
        run = self.run
        if run is None:
            raise RuntimeError("there is no run to wait for; call generate() first")
        try:
            return run.wait(timeout)
        finally:
            if run.over:
                self._sender.flush(_FLUSH_SECONDS)

    def stop(self) -> None:
        """End the current run after its step; what came is kept."""
        self._runs.act("stop")

    def pause(self) -> None:
        """Pause the current run after its step."""
        self._runs.act("pause")

    def resume(self) -> None:
        """Let the paused run go on."""
        self._runs.act("resume")

    def step(self) -> Run:
        """Let the current run take one step and pause; where none is going, start one that pauses."""
        run = self.run
        if run is None or run.over:
            return self._runs.start(self._own_request(), paused=True)
        run.step()
        return run

    def _own_request(self) -> Request:
        return Request.make(self.prompt, self.settings)

    def _set_settings(self, settings: dict[str, Any]) -> None:
        self.settings = settings

    def _started(self, request: Request) -> None:
        self.prompt, self.settings = plain_prompt(request), flat(request)

    def _model_changed(self) -> None:
        self._sender.set_traits(status=self._source.status, about=self._source.about)
        if self._source.done:
            self._front_end.model_loaded()

    # Display

    def to_html(self) -> str:
        """Return the current run as coloured text in static HTML; ``""`` before the first."""
        return self._static_html(None)

    def _static_html(self, css_class: str | None) -> str:
        run = self.run
        if run is None:
            return ""
        return static_html(run.record, caption=caption(run, self.about["model"]), css_class=css_class)

    def __repr__(self) -> str:
        run, model = self.run, self.about["model"]
        return f"<Scope {model}: {self.state}>" if run is None else f"<Scope {caption(run, model)}: {run.text[:60]!r}>"

    def _repr_mimebundle_(self, **kwargs: Any) -> tuple[dict[str, Any], dict[str, Any]]:
        data, metadata = super()._repr_mimebundle_(**kwargs) or ({}, {})
        html = self.to_html()
        return (data | {"text/html": html} if html else data), metadata

    def _ipython_display_(self) -> None:
        run = self.run
        text = "" if run is None else run.text
        if not self._open:  # nothing is live any more
            publish({"text/plain": repr(self), "text/html": self.to_html()})
            return
        publish(*(super()._repr_mimebundle_() or ({}, {})))
        over = run is not None and run.over
        self._twin.show(self._static_html(self.static_class) if over else "", text if over else "")

    def _ended(self, run: Run) -> None:
        if run is self.run:
            self._twin.update(self._static_html(self.static_class), run.text)

    def close(self) -> None:
        """Stop the run, send nothing any more, and remove the widget from the page."""
        if self._open:  # ipywidgets closes what failed to be made, too
            self._open = False
            self._runs.close()
            self._sender.close()
        super().close()

    # Traits

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
