"""The scope: a widget on a model's ``generate()``. The Python API.

It holds no generation logic (``kernel_side``). Traits are in ``traits``, how it displays is in ``displayed``, what the
front end asks for is in ``front_end``, what is sent to it in ``sender``.
"""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, Any, cast

from ..kernel_side.branching import branch_of, reply_to
from ..kernel_side.request import Request, make_settings
from . import cells, control
from .displayed import DisplayedScope
from .front_end import FrontEnd
from .playing import environment_of
from .runs import Runs
from .sender import Sender
from .source import ModelSource
from .static_copy import StaticCopy
from .values import check_prompt, flat

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

    from ..kernel_side.comparison.comparison import Comparison
    from ..kernel_side.run import Run
    from ..kernel_side.twin import Twin

__all__ = ["Scope"]

_FLUSH_SECONDS = 5.0


class Scope(DisplayedScope):
    """A widget that shows each token of a model as it is generated.

    Parameters
    ----------
    model : PreTrainedModel, str, Path, Scope or Engine
        A model object; or ``"demo"``, a hub id, a folder or a GGUF file, which is loaded in the background; or another
        scope, whose model is shared. Runs on one model go one after the other.
    tokenizer : PreTrainedTokenizerBase, optional
        Of a model object.
    prompt : str or list of dict, or list of such prompts
        Text, or chat messages ``{"role": ..., "content": ...}``, or a batch of them.
    settings : mapping, optional
        Settings to start from.
    assistant : PreTrainedModel, (PreTrainedModel, PreTrainedTokenizerBase), str or Path, optional
        A smaller model that drafts for the strategy ``"assisted"``: an object (with its tokenizer where that is another
        one), or a name, which is loaded in the background with the model.
    prefix_cache : PrefixCache, int, bool or None
        What runs reuse of each other: a cache; or the bytes that one may hold; by default one that all scopes of the
        model share, of up to 1 GiB. False or None: each run computes its whole prompt.
    **options
        Single settings, by name (``strategy="sample"``, ``temperature=0.7``, ...; see ``%%generate --help``), and
        traits (``measure="rank"``, ``layout=...``).

    Attributes
    ----------
    prompt : str or list of dict, or list of such prompts
    settings : dict
        Complete and flat; an assignment that is not valid raises and leaves the old value.
    measure : str
        ``"probability"``, ``"surprisal"``, ``"entropy"``, ``"rank"`` or ``"latency"``: what colours the tokens.
    whitespace : bool
        Whether white space is marked.
    state : str
        Of the run that is shown, see :data:`~genscope.kernel_side.run.RunState`; ``"idle"`` before the first.
        Read-only.
    status, about, schema : dict
        How loading stands, facts of the model (see :class:`~genscope.widget.source.About`), and the JSON Schema of the
        settings. Read-only.
    twin_state : dict or None
        How the last twin stands, see :class:`~genscope.widget.wire.WireTwin`; None before the first. Read-only.

    Raises
    ------
    SettingsError
        Naming each wrong setting, its value and the way out.

    Notes
    -----
    All runs are kept in :attr:`runs`. What the settings ``attention`` and ``logit_lens`` observe takes megabytes, so it
    is kept of one run: the next one that observes drops it.

    Examples
    --------
    >>> scope = Scope("demo", prompt="Once upon a time", strategy="sample", temperature=0.7)  # doctest: +SKIP
    >>> run = scope.generate(max_new_tokens=50)  # doctest: +SKIP
    """

    def __init__(
        self,
        model: Any,
        tokenizer: Any = None,
        *,
        prompt: Any = "",
        settings: Any = None,
        assistant: Any = None,
        prefix_cache: Any = True,
        **options: Any,
    ) -> None:
        of_widget = {name: options.pop(name) for name in list(options) if self.has_trait(name)}
        values = {
            "prompt": check_prompt(prompt),
            "settings": make_settings(settings, **options).model_dump(mode="json"),
        }
        if isinstance(model, Scope):
            if assistant is not None:
                raise TypeError("another scope's model comes with that scope's assistant; give the model itself")
            if prefix_cache is not True:
                raise TypeError("another scope's model comes with that scope's prefix cache; give the model itself")
            self._source: ModelSource = model._source  # noqa: SLF001 - its own class
        else:
            self._source = ModelSource(model, tokenizer, assistant, prefix_cache)
        self._key = uuid.uuid4().hex
        self._static_copy = StaticCopy()
        self._sender = Sender(self.send, self.try_write, self._ended)
        self._runs = Runs(self._source, self._sender, self._started)
        self._front_end = FrontEnd(self._runs, self._sender, self._set_settings, self._own_request, self._measure_costs)
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
        prompt : str or list of dict, or list of such prompts, optional
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

    def twin(self, prompt: Any = None, settings: Any = None, **changes: Any) -> Twin:
        """Start the same request eagerly and, behind that, in the execution of its settings; return at once.

        Parameters
        ----------
        prompt, settings, **changes
            As of :meth:`generate`; raises as that, and where the execution is ``"eager"``.

        Returns
        -------
        Twin
            ``twin.wait()`` gives the report. :meth:`stop` stops both, and :meth:`wait` waits for the second one.
        """
        prompt = self.prompt if prompt is None else prompt
        return self._runs.twin(Request.make(prompt, self.settings if settings is None else settings, **changes))

    def compare(self, settings: Any, *, prompt: Any = None, seeds: Any = None, **changes: Any) -> Comparison:
        """Compare settings and seeds on one prompt, in lanes side by side; return at once.

        Parameters
        ----------
        settings : sequence of mapping
            What differs between the lanes, such as ``[{"temperature": 0.5}, {"temperature": 1.0}]``.
        prompt : str or list of dict, optional
            By default the scope's own; what is given becomes its own.
        seeds : int or sequence of int, optional
            How many seeds, or which: each is used with all settings.
        **changes
            Settings of all lanes that differ from the scope's own; they become its own.

        Returns
        -------
        Comparison
            In the background; :meth:`stop` stops all of it, and :meth:`wait` waits for all.

        Raises
        ------
        SettingsError
            Naming each wrong field, its value and the way out; no run is stopped then.
        """
        base = make_settings(self.settings, **changes).model_dump(mode="json")
        return self._runs.compare(self.prompt if prompt is None else prompt, base, settings, seeds)

    def play(self, queries: Any, *, tools: Any = None, reward_fn: Any = None, prompt: str = "", **options: Any) -> Run:
        """Start a run in an environment: the model calls tools, reads their answers and goes on. A lane a query.

        Parameters
        ----------
        queries : str or list of str
        tools, reward_fn, prompt, **options
            As of :class:`~genscope.kernel_side.engines.environment_engine.EnvironmentEngine`; and settings, as for
            :meth:`generate`.
        """
        given = {"tools": tools, "reward_fn": reward_fn, "prompt": prompt, **options}
        engine, changes = environment_of(self._source.engine(), given)
        return self._runs.start(Request.make(queries, self.settings, **changes), engine=engine)

    def branch(
        self, at: int, token: int | str | None = None, *, run: Run | None = None, lane: int = 0, **changes: Any
    ) -> Run:
        """Start a run that goes on from tokens of another one, see :meth:`.Run.branch`.

        Parameters
        ----------
        at, token, lane
            See there.
        run : Run, optional
            By default the one that is shown.
        **changes
            Settings that differ from the scope's own; they become its own.
        """
        settings = make_settings(self.settings, **changes).model_dump(mode="json")
        return self._runs.start(branch_of(self._from(run), at, token, lane=lane, **settings))

    def reply(self, text: str, *, run: Run | None = None, lane: int = 0, **changes: Any) -> Run:
        """Start a run with the next turn of a conversation, see :meth:`.Run.reply`; parameters as of :meth:`branch`."""
        settings = make_settings(self.settings, **changes).model_dump(mode="json")
        return self._runs.start(reply_to(self._from(run), text, lane=lane, **settings))

    def show(self, run: Run | Comparison) -> None:
        """Show one of this scope's runs or comparisons again."""
        if run not in (*self.runs, *self._runs.comparisons):
            raise ValueError(f"run {run.id} is none of this scope's")
        self._runs.show(run.id)

    def _from(self, run: Run | None) -> Run:
        shown = self._runs.shown
        if run is None and shown is None:
            raise RuntimeError("there is no run to go on from; call generate() first")
        if run is None and hasattr(shown, "compared"):
            raise ValueError("a comparison has several runs; name one: run=comparison.lanes[0].run, lane=...")
        found = run or cast("Run", shown)
        if found.engine.turnstile is not self._source.engine().turnstile:
            raise ValueError(f"run {found.id} is of another model, whose ids mean something else here")
        return found

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
        self.prompt, self.settings = request.plain_prompt(), flat(request)

    def _model_changed(self) -> None:
        self._sender.set_traits(status=self._source.status, about=self._source.about)
        if self._source.done:
            self._front_end.model_loaded()

    def _measure_costs(self) -> None:
        self._source.measure_costs(lambda: self._sender.set_traits(about=self._source.about))

    def close(self) -> None:
        """Stop the run, send nothing any more, and remove the widget from the page."""
        if self._open:  # ipywidgets closes what failed to be made, too
            self._open = False
            self._runs.close()
            self._sender.close()
        super().close()
