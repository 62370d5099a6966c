"""Compiled graphs on disk: what they are kept under, how they are checked, and how they are seen and cleared.

Each graph is three files in ``<cache folder>/exported``, named by a hash of all that decides it: the package that
AOTInductor wrote (an archive with a shared library; no weights), constants that are none of the model's (where there
are any), and a manifest with the SHA-256 of both. The manifest is written last and each file is moved to its place
whole, so that a reader sees all or nothing; what is damaged, or was put there by another user, is never loaded.

Not here: how a package is made and run (``exported``).
"""

from __future__ import annotations

import contextlib
import hashlib
import inspect
import json
import os
import platform
import stat
import sys
import tempfile
import types
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import filelock  # comes with huggingface_hub, as that comes with transformers
import safetensors.torch
import torch
import transformers
from torch import nn

from ..caching.key import Seen
from ..demo_model import cache_folder

__all__ = ["FORMAT", "Kept", "clear", "fetch", "fingerprint", "folder", "kept", "locked", "name_of", "put"]

FORMAT = 1
"""Rises when what is kept, or what a step computes, changes."""

PACKAGE, CONSTANTS, MANIFEST = ".pt2", ".safetensors", ".json"
_WAIT = 0.2
"""Seconds between two looks whether another process is ready."""


@dataclass(frozen=True, slots=True)
class Kept:
    """A graph that is kept.

    Attributes
    ----------
    name : str
        Of its files.
    what : str
        For a person: the model's class, and what passes it is for.
    bytes : int
        On disk.
    when : datetime
        When it was made.
    """

    name: str
    what: str
    bytes: int
    when: datetime


def folder() -> Path:
    """Return where graphs are kept for this user; it need not be there yet."""
    return cache_folder() / "exported"


def kept() -> list[Kept]:
    """Return what is kept, the newest last. Nothing is ever removed by itself; :func:`clear` removes it."""
    found = []
    for manifest in folder().glob(f"*{MANIFEST}"):
        try:
            says = json.loads(manifest.read_text())
            size = sum(manifest.with_name(file).stat().st_size for file in says["files"])
            when = datetime.fromtimestamp(manifest.stat().st_mtime, UTC)
            found.append(Kept(manifest.stem, str(says["what"]), size + manifest.stat().st_size, when))
        except (OSError, ValueError, KeyError, TypeError):  # cleared meanwhile, or damaged
            continue
    return sorted(found, key=lambda one: one.when)


def clear() -> int:
    """Remove all that is kept, and what processes that were killed left behind; return how many bytes these were.

    Graphs that are loaded go on: they run from copies.
    """
    freed = 0
    for file in folder().glob("*"):
        with contextlib.suppress(OSError):
            if file.is_file() and file.suffix != ".lock":
                size = file.stat().st_size
                file.unlink()
                freed += size
    return freed


def fingerprint(seen: Seen) -> str:
    """Return a hash of all of a model that decides its graphs: contents of all weights, settings, classes, code.

    Reads all weights once. Where code cannot be read, the hash is one that never comes again.
    """
    model = seen.model
    said = hashlib.sha256(repr(sorted(model.config.to_dict().items(), key=str)).encode())
    for name, module in seen.modules:
        own = {key: _said(value) for key, value in vars(module).items() if key not in _OF_EVERY_MODULE}
        said.update(repr((name, type(module).__module__, type(module).__qualname__, own)).encode())
    for source in sorted({_source(type(module)) for _, module in seen.modules}):
        said.update(source.encode())
    for name, tensor in seen.tensors:
        said.update(repr((name, tensor.dtype, tensor.device, tuple(tensor.shape), tensor.stride())).encode())
        plain = tensor.detach().cpu().contiguous().reshape(-1)
        said.update(plain.view(torch.uint8).numpy() if plain.numel() else b"")
    return said.hexdigest()


def name_of(model: str, **decides: Any) -> str:
    """Return the name that a graph is kept under.

    Parameters
    ----------
    model : str
        Of :func:`fingerprint`.
    **decides
        What else decides it; each is taken as its ``repr``.
    """
    machine = {
        "format": FORMAT,
        "torch": torch.__version__,
        "transformers": transformers.__version__,
        "python": sys.version_info[:2],
        # A library is built for the very processor, and its loops for so many threads.
        "machine": (platform.system(), platform.machine(), _processor(), torch.backends.cpu.get_cpu_capability()),
        "threads": torch.get_num_threads(),
        "devices": [torch.cuda.get_device_name(at) for at in range(torch.cuda.device_count())],
        "arithmetic": torch.get_float32_matmul_precision(),
    }
    said = repr((model, sorted(machine.items()), sorted(decides.items())))
    return hashlib.sha256(said.encode()).hexdigest()[:32]


@contextlib.contextmanager
def locked(name: str, waiting: Callable[[], None]) -> Iterator[None]:
    """Let one at a time, in all processes, make or load a graph.

    Parameters
    ----------
    name : str
    waiting : callable
        Called again and again while another one has it; may raise.

    Raises
    ------
    OSError
        Where the folder cannot be written to.
    """
    folder().mkdir(parents=True, exist_ok=True, mode=0o700)
    lock = filelock.FileLock(folder() / f"{name}.lock")
    while True:
        try:
            lock.acquire(timeout=_WAIT)
            break
        except filelock.Timeout:
            waiting()
    try:
        yield
    finally:
        lock.release()


def put(name: str, what: str, package: Path, constants: dict[str, torch.Tensor]) -> None:
    """Keep a package, which is moved away from where it is. To be called under :func:`locked`.

    Parameters
    ----------
    name : str
    what : str
        For a person.
    package : Path
        On the same file system: made in a folder of :func:`scratch`.
    constants : dict of torch.Tensor
        By name, those that no model has.
    """
    manifest = folder() / f"{name}{MANIFEST}"
    manifest.unlink(missing_ok=True)
    with scratch() as here:
        files = {f"{name}{PACKAGE}": package}
        if constants:
            files[f"{name}{CONSTANTS}"] = here / "constants"
            plain = {key: value.detach().cpu().contiguous().clone() for key, value in constants.items()}
            safetensors.torch.save_file(plain, here / "constants")
        hashes = {}
        for file, made in files.items():
            hashes[file] = _sha256(made.read_bytes())
            os.replace(made, folder() / file)
        (here / "manifest").write_text(json.dumps({"format": FORMAT, "what": what, "files": hashes}, indent=2))
        os.replace(here / "manifest", manifest)


@contextlib.contextmanager
def scratch() -> Iterator[Path]:
    """Give a folder for files that are to be kept once they are whole."""
    with tempfile.TemporaryDirectory(dir=folder(), prefix="making.", ignore_cleanup_errors=True) as made:
        yield Path(made)


def fetch(name: str, into: Path) -> tuple[Path, dict[str, torch.Tensor]] | None:
    """Return a copy of a package, and its constants, if they are there and whole and this user's.

    What is checked is what is returned: the copy is made of the bytes whose hash was taken.

    Parameters
    ----------
    name : str
    into : Path
        A folder of the caller's own, for the copy.
    """
    try:
        if not _is_ours(folder()):
            return None
        says = json.loads((folder() / f"{name}{MANIFEST}").read_text())
        hashes: dict[str, str] = says["files"]
        read = {}
        for file, known in hashes.items():
            place = folder() / file
            if place.name != file or not file.startswith(name) or not _is_ours(place):
                return None
            read[file] = place.read_bytes()
            if _sha256(read[file]) != known:
                return None
        copy = into / f"{name}{PACKAGE}"
        copy.write_bytes(read[f"{name}{PACKAGE}"])
        constants = read.get(f"{name}{CONSTANTS}")
        return copy, {} if constants is None else safetensors.torch.load(constants)
    except (OSError, ValueError, KeyError, TypeError, AttributeError, safetensors.SafetensorError):
        return None  # absent, cut short, or something else


def _is_ours(path: Path) -> bool:
    """Return whether this user, and nobody else, can have written a file."""
    if sys.platform == "win32":  # where a user's folder is closed to others
        return True
    found = path.lstat()
    alone = not found.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
    return found.st_uid == os.getuid() and alone and not stat.S_ISLNK(found.st_mode)


def _sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


_OF_EVERY_MODULE = frozenset(vars(nn.Module())) - {"training"}
_PLAIN = (int, float, bool, str, bytes, type(None), torch.dtype, torch.device)


def _said(value: Any) -> Any:
    """Return what is the same in every process of what an attribute holds."""
    if isinstance(value, _PLAIN):
        return value
    if isinstance(value, list | tuple | set | frozenset):
        return type(value).__name__, [
            _said(one) for one in (value if isinstance(value, list | tuple) else sorted(value))
        ]
    if isinstance(value, dict):
        return [(str(key), _said(one)) for key, one in value.items()]
    if isinstance(value, types.FunctionType | types.MethodType | types.BuiltinFunctionType):
        return value.__qualname__
    return type(value).__qualname__


def _source(kind: type) -> str:
    """Return the code that a class stands in; that of torch and transformers is told by their versions."""
    if kind.__module__.split(".")[0] in ("torch", "transformers"):
        return ""
    file = getattr(sys.modules.get(kind.__module__), "__file__", None)
    try:
        return Path(file).read_text() if file is not None else inspect.getsource(kind)
    except (OSError, TypeError):
        return uuid.uuid4().hex


def _processor() -> str:
    """Return the processor's name, as the system says it."""
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith(("model name", "flags", "Features")):
                yielded = line.split(":", 1)[1].strip()
                return yielded
    return platform.processor()
