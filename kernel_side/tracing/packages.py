"""Compiled graphs on disk: how they are put there, how they are checked, and how they are seen and cleared.

Each graph is two or three files in ``<cache folder>/exported``, under one name: the package that AOTInductor wrote (an
archive with a shared library; no weights), constants that are none of the model's (where there are any), and a
manifest with the SHA-256 of both. The manifest is written last, and each file is moved to its place whole, so that a
reader sees all or nothing. A library runs as this user: what is damaged, or can have been written by another user, is
never loaded. Nothing is ever removed by itself: some megabytes a graph stay until :func:`clear`.

Not here: what the names are made of (``fingerprint``), and how a package is made and run (``exported``).
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import stat
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import filelock  # comes with huggingface_hub, as that comes with transformers
import safetensors.torch
import torch

from ..demo_model import cache_folder
from .execution import PreparationError

__all__ = ["Kept", "clear", "fetch", "folder", "kept", "locked", "put", "scratch"]

PACKAGE, CONSTANTS, MANIFEST, LOCK = ".pt2", ".safetensors", ".json", ".lock"
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
    seconds : float
        What making it took.
    """

    name: str
    what: str
    bytes: int
    when: datetime
    seconds: float


def folder() -> Path:
    """Return where graphs are kept for this user; it need not be there yet."""
    return cache_folder() / "exported"


def kept() -> list[Kept]:
    """Return what is kept, the newest last."""
    found = []
    for manifest in folder().glob(f"*{MANIFEST}"):
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError):  # cleared meanwhile, or damaged
            says = json.loads(manifest.read_text())
            files = [manifest, *(manifest.with_name(file) for file in says["files"])]
            when = datetime.fromtimestamp(manifest.stat().st_mtime, UTC)
            size = sum(file.stat().st_size for file in files)
            found.append(Kept(manifest.stem, str(says["what"]), size, when, float(says["seconds"])))
    return sorted(found, key=lambda one: one.when)


def clear() -> int:
    """Remove all that is kept, and what killed processes left behind; return how many bytes these were.

    Graphs that are loaded go on: they run from copies. What another process is making or loading is left.
    """
    freed = 0
    for name in {one.name.split(".", 1)[0] for one in folder().glob("*.*")}:
        with contextlib.suppress(filelock.Timeout, OSError), filelock.FileLock(folder() / f"{name}{LOCK}", timeout=0):
            for one in folder().glob(f"{name}.*"):
                if one.is_dir():
                    shutil.rmtree(one, ignore_errors=True)
                elif one.suffix != LOCK:
                    freed += one.stat().st_size
                    one.unlink()
    return freed


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
    PreparationError
        Where the folder cannot be written to.
    """
    lock = filelock.FileLock(folder() / f"{name}{LOCK}")
    try:
        folder().mkdir(parents=True, exist_ok=True)
        folder().chmod(0o700)
        while not lock.is_locked:
            try:
                lock.acquire(timeout=_WAIT)
            except filelock.Timeout:
                waiting()
    except OSError as error:
        raise PreparationError(
            f"exported graphs could not be kept in {str(folder())!r}: {error}; the environment variable GENSCOPE_CACHE "
            "can name another folder"
        ) from error
    try:
        yield
    finally:
        lock.release()


@contextlib.contextmanager
def scratch(name: str) -> Iterator[Path]:
    """Give a folder to make a graph in, on the file system where it will be kept. To be called under a lock."""
    for left_behind in folder().glob(f"{name}.*/"):  # by a process that was killed
        shutil.rmtree(left_behind, ignore_errors=True)
    with tempfile.TemporaryDirectory(dir=folder(), prefix=f"{name}.", ignore_cleanup_errors=True) as made:
        yield Path(made)


def put(name: str, what: str, seconds: float, package: Path, constants: dict[str, torch.Tensor]) -> None:
    """Keep a package. To be called under a lock.

    Parameters
    ----------
    name : str
    what : str
        For a person.
    seconds : float
        What making it took.
    package : Path
        In a folder of :func:`scratch`; is moved.
    constants : dict of torch.Tensor
        By name, those that the model does not have.
    """
    manifest = folder() / f"{name}{MANIFEST}"
    manifest.unlink(missing_ok=True)
    files = {f"{name}{PACKAGE}": package}
    if constants:
        plain = {key: value.detach().cpu().contiguous().clone() for key, value in constants.items()}
        files[f"{name}{CONSTANTS}"] = package.with_name("constants")
        safetensors.torch.save_file(plain, package.with_name("constants"))
    hashes = {}
    for file, made in files.items():
        hashes[file] = _sha256(made.read_bytes())
        _move(made, folder() / file)
    says = package.with_name("manifest")
    says.write_text(json.dumps({"what": what, "seconds": seconds, "files": hashes}, indent=2))
    _move(says, manifest)


def fetch(name: str, into: Path) -> tuple[Path, dict[str, torch.Tensor]] | None:
    """Return a copy of a package, and its constants, if they are there, whole and this user's. To be called locked.

    What was checked is what is given: the copy is made of the bytes whose hash was taken.

    Parameters
    ----------
    name : str
    into : Path
        A folder of the caller's own, for the copy.
    """
    try:
        manifest = folder() / f"{name}{MANIFEST}"
        known: dict[str, str] = json.loads(manifest.read_text())["files"]
        files = {file: folder() / file for file in (f"{name}{PACKAGE}", f"{name}{CONSTANTS}") if file in known}
        if not all(map(_is_ours, (folder(), manifest, *files.values()))):
            return None
        read = {file: place.read_bytes() for file, place in files.items()}
        if any(_sha256(content) != known[file] for file, content in read.items()):
            return None
        copy = into / f"{name}{PACKAGE}"
        copy.write_bytes(read[copy.name])
        constants = read.get(f"{name}{CONSTANTS}")
        return copy, {} if constants is None else safetensors.torch.load(constants)
    except (OSError, ValueError, KeyError, TypeError, AttributeError):  # absent, cut short, or something else
        return None


def _is_ours(path: Path) -> bool:
    """Return whether this user, and nobody else, can have written a file."""
    if sys.platform == "win32":  # where a user's folders are closed to others
        return True
    found = path.lstat()
    shared = stat.S_ISLNK(found.st_mode) or found.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
    return found.st_uid == os.getuid() and not shared


def _move(made: Path, to: Path) -> None:
    made.chmod(0o600)
    made.replace(to)


def _sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
