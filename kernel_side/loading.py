"""How loading shows itself and fails, and the two ways in which weights are read: safetensors and GGUF.

Part of :mod:`genscope.kernel_side.models`, which is the one to use. Not done here: deciding which way is meant.
"""

from __future__ import annotations

import contextlib
import functools
import importlib.util
import logging
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Sized
from pathlib import Path
from typing import Any, NamedTuple, Self

import torch
from huggingface_hub.utils.tqdm import are_progress_bars_disabled, disable_progress_bars, enable_progress_bars
from transformers import (
    MODEL_FOR_CAUSAL_LM_MAPPING,
    AutoConfig,
    AutoModelForCausalLM,
    AutoTokenizer,
    GgufConfig,
    PreTrainedModel,
    PreTrainedTokenizerBase,
    modeling_gguf_pytorch_utils,
)
from transformers.utils.logging import set_tqdm_hook

Progress = Callable[[float | None, str], None]
"""Told how far loading is: a fraction from 0 to 1 (``None`` where nobody knows) and what is being done."""


class LoadedModel(NamedTuple):
    """A model and its tokenizer; unpacks into the two."""

    model: PreTrainedModel
    tokenizer: PreTrainedTokenizerBase


class ModelLoadError(RuntimeError):
    """A model could not be loaded; the message says what was tried and what to do."""


def print_progress(fraction: float | None, text: str) -> None:
    """Show progress as one line on standard error, rewritten in place where that is possible."""
    done = fraction == 1.0
    if sys.stderr.isatty() or "ipykernel" in sys.modules:
        percent = "" if fraction is None or done else f" ({fraction:.0%})"
        sys.stderr.write(f"\r{text + percent:<100}" + ("\n" if done else ""))
    elif done:
        sys.stderr.write(text + "\n")
    sys.stderr.flush()


def from_pretrained(source: str, name: str, report: Report, dtype: torch.dtype | str, **options: Any) -> LoadedModel:
    """Load with transformers, and put its errors into words that say what to do."""
    what = "config"
    try:
        config = AutoConfig.from_pretrained(source, **options)
        _check_causal(name, config)
        what = "tokenizer"
        tokenizer = AutoTokenizer.from_pretrained(source, **options)
        what = "model"
        report(0.8, f"{name}: loading the weights")
        report.span = (0.8, 0.98)
        loaded: Any = AutoModelForCausalLM.from_pretrained(
            source, dtype=dtype, use_safetensors=True, output_loading_info=True, **options
        )
        model, info = loaded
    except ModelLoadError:
        raise
    except Exception as error:  # the libraries raise OSError, ValueError, ImportError, RuntimeError and more
        reason = str(error).strip()
        way_out = _way_out(source, what, error)
        raise ModelLoadError(f"The {what} of {name!r} could not be loaded: {reason}\n{way_out}") from error
    if missing := sorted(info["missing_keys"]):
        raise ModelLoadError(
            f"{name!r} lacks weights that {type(model).__name__} needs ({', '.join(missing[:3])}): they would be "
            "random. It was not saved as a causal language model; choose one that was."
        )
    return LoadedModel(model, tokenizer)


def _check_causal(name: str, config: Any) -> None:
    """Refuse what transformers would load as a causal model with a warning, or refuse at great length."""
    kinds = getattr(config, "architectures", None) or [type(config).__name__]
    masked = any(kind.endswith("ForMaskedLM") for kind in kinds)
    remote = "AutoModelForCausalLM" in (getattr(config, "auto_map", None) or {})
    if masked or not (remote or type(config) in MODEL_FOR_CAUSAL_LM_MAPPING):
        raise ModelLoadError(
            f"{name!r} is no causal language model but {', '.join(kinds)}; it cannot continue a text token by token. "
            "Choose a model that AutoModelForCausalLM of transformers can load."
        )


def _way_out(source: str, what: str, error: Exception) -> str:
    text = str(error)
    if "trust_remote_code" in text:
        return "If you trust its authors, pass trust_remote_code=True: their code will then run on this machine."
    if isinstance(error, ImportError):
        return "Install what is missing and try again."
    if not Path(source).is_dir():
        return (
            "Tried: this machine's hub cache, then the hub. Ways out: check the spelling and the connection; log in "
            "with `hf auth login` if the model is gated or private; give a local folder or a .gguf file; or use "
            '"demo", which needs no network.'
        )
    if what == "tokenizer":
        return "A model's folder must hold its tokenizer too: `tokenizer.save_pretrained(folder)` puts it there."
    if "no file named model.safetensors" in text:
        return "Only safetensors are read, no pickles: save it again with `save_pretrained` of a current transformers."
    return "Check that the folder's files are complete."


def from_gguf(path: Path, report: Report, dtype: torch.dtype | str) -> LoadedModel:
    """Load a GGUF file as a plain model: no quantised layers, and one that can be saved."""
    if path.suffix.lower() != ".gguf":
        raise ModelLoadError(f"{str(path)!r} is a file, but no .gguf file. Give a GGUF file or a model's folder.")
    if absent := [name for name in ("gguf", "accelerate") if importlib.util.find_spec(name) is None]:
        raise ModelLoadError(
            f'Reading a GGUF file needs the package {" and ".join(absent)}. Install: pip install "genscope[gguf]"'
        )
    report(0.02, f"{path.name}: unpacking")
    report.span = (0.1, 0.7)
    try:
        model = AutoModelForCausalLM.from_pretrained(
            path.parent, gguf_file=path.name, dtype=dtype, quantization_config=GgufConfig(dequantize=True)
        )
        report(0.7, f"{path.name}: reading the tokenizer")
        tokenizer = AutoTokenizer.from_pretrained(path.parent, gguf_file=path.name)
    except Exception as error:  # a damaged file can raise anything
        raise ModelLoadError(
            f"{str(path)!r} could not be read: {error}\nCheck that the file is complete, and that transformers can "
            "read GGUF files of its architecture."
        ) from error
    # The file says how long a context can be, but the library does not hand it on to the tokenizer.
    tokenizer.model_max_length = getattr(model.config, "max_position_embeddings", tokenizer.model_max_length)
    model.config.name_or_path = model.name_or_path = path.stem
    return LoadedModel(model, tokenizer)


class Report:
    """Hands progress on, so that fractions never fall; the libraries' own bars fill the present span."""

    def __init__(self, progress: Progress | None) -> None:
        self._progress = progress
        self._fraction = 0.0
        self._text = ""
        self.span = (0.0, 0.0)

    def __call__(self, fraction: float | None, text: str) -> None:
        if fraction is not None:
            fraction = self._fraction = max(self._fraction, fraction)
        self._text = text
        if self._progress is not None:
            self._progress(fraction, text)

    def within_span(self, done: float) -> None:
        low, high = self.span
        if (fraction := low + (high - low) * done) >= self._fraction + 0.01:  # a hundred calls are enough
            self(fraction, self._text)


class _Bar:
    """Stands in for a tqdm bar: counts, and reports instead of drawing."""

    def __init__(self, report: Report, iterable: Iterable[Any] = (), *_: Any, **options: Any) -> None:
        self._report = report
        self._iterable = iterable
        self._total = options.get("total", len(iterable) if isinstance(iterable, Sized) else None)
        self._count = 0.0

    def __iter__(self) -> Iterator[Any]:
        for item in self._iterable:
            yield item
            self.update()

    def update(self, n: float = 1) -> None:
        self._count += n
        if self._total:
            self._report.within_span(min(self._count / self._total, 1.0))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def __getattr__(self, _name: str) -> Callable[..., None]:  # close, set_description and the rest
        return lambda *_args, **_kwargs: None


_one_at_a_time = threading.RLock()


@contextlib.contextmanager
def quiet(report: Report, *, hide_downloads: bool) -> Iterator[None]:
    """Keep the libraries' bars and warnings off the screen; their bars move our own progress instead.

    The switches are global to the process, so loading happens one at a time. The hub's own download bars stay, unless
    silence was asked for: nothing else knows how many bytes have come.
    """
    with _one_at_a_time, contextlib.ExitStack() as undo:
        previous = set_tqdm_hook(lambda _factory, args, kwargs: _Bar(report, *args, **kwargs))
        undo.callback(set_tqdm_hook, previous)
        # The one bar that the hook does not reach; a missing name only means that there is none to hide.
        if original := getattr(modeling_gguf_pytorch_utils, "tqdm", None):
            modeling_gguf_pytorch_utils.tqdm = functools.partial(_Bar, report)  # type: ignore[attr-defined]
            undo.callback(setattr, modeling_gguf_pytorch_utils, "tqdm", original)
        for logger in map(logging.getLogger, ("transformers", "huggingface_hub")):
            undo.callback(logger.setLevel, logger.level)
            logger.setLevel(logging.ERROR)
        if hide_downloads and not are_progress_bars_disabled():
            disable_progress_bars()
            undo.callback(enable_progress_bars)
        yield
