"""The model behind a scope, and its draft model: there already, or loaded by a background thread. Shared by scopes.

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

from .costs import Costs
from .values import brief

if TYPE_CHECKING:
    from ..kernel_side.engines.base import Engine

__all__ = ["About", "LoadStatus", "ModelSource"]


class LoadStatus(TypedDict):
    """How loading stands: ``progress`` is a share, 0 to 1, or None where nobody knows."""

    phase: Literal["loading", "ready", "error"]
    text: str
    progress: float | None


class About(TypedDict):
    """What the front end knows of the model.

    Attributes
    ----------
    model : str
        Its name.
    chat : bool
        Whether it takes chat messages.
    context : int or None
        Tokens that fit into its context.
    unavailable : dict of str
        By strategy: why this model cannot do it. Strategies that are not in it can be used.
    costs : dict of str or None
        By setting: what observing costs, in words; None until it is measured, see :meth:`ModelSource.measure_costs`.
    prefix_cache : int or None
        Bytes that the prefix cache of its runs may hold; None where there is none.
    """

    model: str
    chat: bool
    context: int | None
    unavailable: dict[str, str]
    costs: dict[str, str] | None
    prefix_cache: int | None


class ModelSource:
    """Gives the engine of a model, as soon as there is one.

    Parameters
    ----------
    model : str, Path, PreTrainedModel or Engine
        A name or path is loaded once :meth:`start` is called.
    tokenizer : PreTrainedTokenizerBase, optional
        Belongs to a model object.
    assistant : str, Path, PreTrainedModel or (PreTrainedModel, PreTrainedTokenizerBase), optional
        A draft model; with a tokenizer where that is another one than the model's. A name or path is loaded, too.
    prefix_cache : PrefixCache, int, bool or None
        See :func:`~genscope.kernel_side.caching.shared.prefix_cache_of`.
    """

    def __init__(self, model: Any, tokenizer: Any = None, assistant: Any = None, prefix_cache: Any = None) -> None:
        self._lock = threading.Lock()
        self._done = threading.Event()
        self._listeners: list[Callable[[], None]] = []
        self._engine: Engine | None = None
        self._name = str(model) if isinstance(model, (str, Path)) else None
        self._given = (model, tokenizer, assistant)
        self._prefix_cache = prefix_cache
        self._costs = Costs(self.engine)
        self._started = False
        self.error: BaseException | None = None
        if isinstance(model, (str, Path)) and tokenizer is not None:
            raise TypeError(f"the tokenizer comes with {str(model)!r}; give a model object to choose another one")
        names = [str(part) for part in (model, assistant) if isinstance(part, (str, Path))]
        if not names:
            self._take(_engine_of(model, tokenizer, assistant, prefix_cache))
            self._done.set()
            return
        # What is wrong is told at once, not after the loading.
        if self._name is None:
            _check_model(model, tokenizer)
        if not isinstance(assistant, (str, Path)):
            _check_assistant(assistant)
        self._about = About(
            model=_name_of(model) if self._name is None else self._name,
            chat=False,
            context=None,
            unavailable={},
            costs=None,
            prefix_cache=None,
        )
        self.status = LoadStatus(phase="loading", text=f"Loading {' and '.join(names)}", progress=None)

    @property
    def about(self) -> About:
        """What is known of the model now."""
        about = self._about.copy()
        about["costs"] = self._costs.texts
        return about

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
        threading.Thread(target=work, args=(self._load,), name="genscope-load", daemon=True).start()

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

    def measure_costs(self, listener: Callable[[], None]) -> None:
        """Measure what observing costs, once, in the background; call back once ``about`` tells it."""
        self._costs.measure(listener)

    def _load(self) -> None:
        from ..kernel_side.models import load_model

        model, tokenizer, assistant = self._given
        try:
            if self._name is not None:
                model, tokenizer = load_model(self._name, progress=self._progress)
            if isinstance(assistant, (str, Path)):
                assistant = load_model(str(assistant), progress=self._progress)
                if _speak_alike((model, tokenizer), assistant):
                    assistant = assistant[0]  # drafts need no translation
            self._take(_engine_of(model, tokenizer, assistant, self._prefix_cache))
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
        unavailable = getattr(engine, "unavailable", None)
        self._about = About(
            model=name,
            chat=bool(getattr(engine, "chat", False)),
            context=getattr(engine, "context", None),
            unavailable={} if unavailable is None else dict(unavailable()),
            costs=None,
            prefix_cache=getattr(getattr(engine, "prefix_cache", None), "max_bytes", None),
        )
        self.status = LoadStatus(phase="ready", text=name, progress=None)


def _engine_of(model: Any, tokenizer: Any, assistant: Any, prefix_cache: Any) -> Engine:
    if _is_engine(model):
        if prefix_cache not in (None, True):
            raise TypeError("an engine has its prefix cache, or none; give prefix_cache to the engine")
        if assistant is not None:
            raise TypeError("an engine has its draft model already; give the assistant to the engine")
        engine: Engine = model
        return engine
    from ..kernel_side.caching.shared import prefix_cache_of
    from ..kernel_side.engines.in_process import InProcessEngine

    _check_model(model, tokenizer)
    _check_assistant(assistant)
    return InProcessEngine(model, tokenizer, assistant, prefix_cache_of(model, prefix_cache))


def _is_engine(model: Any) -> bool:
    return hasattr(model, "prepare") and hasattr(model, "turnstile")


def _check_model(model: Any, tokenizer: Any) -> None:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

    if not isinstance(model, PreTrainedModel):
        raise TypeError(
            f"a scope cannot look into a {type(model).__name__}; give a transformers model and its tokenizer, "
            "a hub id, a folder, a GGUF file, or 'demo'"
        )
    if not isinstance(tokenizer, PreTrainedTokenizerBase):
        given = "nothing" if tokenizer is None else f"a {type(tokenizer).__name__}"
        raise TypeError(f"give the model's tokenizer as the second argument (given {given}): Scope(model, tokenizer)")


def _check_assistant(assistant: Any) -> None:
    if assistant is None:
        return
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

    model, tokenizer = assistant if isinstance(assistant, tuple) and len(assistant) == 2 else (assistant, None)
    if not isinstance(model, PreTrainedModel) or not isinstance(tokenizer, (PreTrainedTokenizerBase, type(None))):
        raise TypeError(
            f"the assistant cannot be {brief(assistant)}; give a transformers model, or (model, tokenizer), or a hub "
            "id, a folder, a GGUF file, or 'demo'"
        )


def _speak_alike(one: tuple[Any, Any], other: tuple[Any, Any]) -> bool:
    """Return whether two models with their tokenizers have the same ids for the same tokens, and as many."""
    if one[1].get_vocab() != other[1].get_vocab():
        return False
    # Of one family the larger may have more rows, which stand for no token; the library goes by their number.
    own, theirs = (model.config.get_text_config().vocab_size for model, _ in (one, other))
    return bool(own == theirs)


def _name_of(engine: Any) -> str:
    """Return the name of an engine's model, or of a model."""
    model = getattr(engine, "model", engine) if _is_engine(engine) else engine
    name = str(getattr(getattr(model, "config", None), "name_or_path", "") or "")
    path = Path(name)
    return (path.name if path.is_absolute() else name) or type(model).__name__
