"""The model behind a scope: one that is there, or one that a background thread loads. Shared by scopes.

Loading itself is :func:`genscope.kernel_side.models.load_model`; imports of torch and transformers wait for it, so that
``Scope("demo")`` shows at once.
"""

from __future__ import annotations

import contextvars
import threading
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypedDict

if TYPE_CHECKING:
    from ..kernel_side.engines.base import Engine

__all__ = ["About", "LoadStatus", "ModelSource"]


class LoadStatus(TypedDict):
    """How loading stands: ``progress`` is a share, 0 to 1, or None where nobody knows."""

    phase: Literal["loading", "ready", "error"]
    text: str
    progress: float | None


class About(TypedDict):
    """What the front end knows of the model: its name, whether it takes chat messages, tokens of its context."""

    model: str
    chat: bool
    context: int | None


class ModelSource:
    """Gives the engine of a model, as soon as there is one.

    Parameters
    ----------
    model : str, Path, PreTrainedModel or Engine
        A name or path is loaded once :meth:`start` is called.
    tokenizer : PreTrainedTokenizerBase, optional
        Belongs to a model object.
    """

    def __init__(self, model: Any, tokenizer: Any = None) -> None:
        self._lock = threading.Lock()
        self._done = threading.Event()
        self._listeners: list[Callable[[], None]] = []
        self._engine: Engine | None = None
        self._name: str | None = None
        self._started = False
        self.error: BaseException | None = None
        if isinstance(model, (str, Path)):
            if tokenizer is not None:
                raise TypeError(f"the tokenizer comes with {str(model)!r}; give a model object to choose another one")
            self._name = str(model)
            self.about = About(model=self._name, chat=False, context=None)
            self.status = LoadStatus(phase="loading", text=f"Loading {self._name}", progress=None)
        else:
            self._take(_engine_of(model, tokenizer))

    @property
    def done(self) -> bool:
        """Whether the model is there, or could not be loaded."""
        return self._done.is_set()

    def start(self) -> None:
        """Load the model in the background, unless it is there or being loaded."""
        with self._lock:
            if self._started or self.done:
                return
            self._started = True
        # With the context copied, ipykernel files what loading prints under the cell that asked for it.
        work = contextvars.copy_context().run
        threading.Thread(target=work, args=(self._load,), name=f"genscope-load-{self._name}", daemon=True).start()

    def listen(self, listener: Callable[[], None]) -> None:
        """Call back, in whichever thread, at each change of ``status``; at once if loading is over."""
        with self._lock:
            if not self.done:
                self._listeners.append(listener)
                return
        listener()

    def engine(self) -> Engine:
        """Return the engine; waits for the loading.

        Raises
        ------
        ModelLoadError
            Or whatever else the loading failed with.
        """
        self.start()
        while not self._done.wait(0.1):  # short waits let KeyboardInterrupt through
            pass
        if self.error is not None:
            raise self.error
        assert self._engine is not None
        return self._engine

    def _load(self) -> None:
        from ..kernel_side.models import load_model

        assert self._name is not None
        try:
            model, tokenizer = load_model(self._name, progress=self._progress)
            self._take(_engine_of(model, tokenizer))
        except BaseException as error:  # noqa: BLE001 - whatever it is, engine() raises it for whoever asked
            traceback.clear_frames(error.__traceback__)
            self.error = error
            self.status = LoadStatus(phase="error", text=str(error) or type(error).__name__, progress=None)
        with self._lock:
            self._done.set()
            listeners, self._listeners = self._listeners, []
        for listener in listeners:
            listener()

    def _progress(self, fraction: float | None, text: str) -> None:
        self.status = LoadStatus(phase="loading", text=text, progress=fraction)
        with self._lock:
            listeners = list(self._listeners)
        for listener in listeners:
            listener()

    def _take(self, engine: Engine) -> None:
        self._engine = engine
        name = _name_of(engine) if self._name is None or self._name == "demo" else self._name
        self.about = About(
            model=name, chat=bool(getattr(engine, "chat", False)), context=getattr(engine, "context", None)
        )
        self.status = LoadStatus(phase="ready", text=name, progress=None)
        if self._name is None:
            self._done.set()


def _engine_of(model: Any, tokenizer: Any) -> Engine:
    if hasattr(model, "prepare") and hasattr(model, "turnstile"):  # an engine already
        engine: Engine = model
        return engine
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

    from ..kernel_side.engines.in_process import InProcessEngine

    if not isinstance(model, PreTrainedModel):
        raise TypeError(
            f"a scope cannot look into a {type(model).__name__}; give a transformers model and its tokenizer, "
            "a hub id, a folder, a GGUF file, or 'demo'"
        )
    if not isinstance(tokenizer, PreTrainedTokenizerBase):
        given = "nothing" if tokenizer is None else f"a {type(tokenizer).__name__}"
        raise TypeError(f"give the model's tokenizer as the second argument (given {given}): Scope(model, tokenizer)")
    return InProcessEngine(model, tokenizer)


def _name_of(engine: Engine) -> str:
    model = getattr(engine, "model", engine)
    name = str(getattr(getattr(model, "config", None), "name_or_path", "") or "")
    path = Path(name)
    return (path.name if path.is_absolute() else name) or type(model).__name__
