"""Gives back the OpenMP threads of a thread that computes nothing for now.

Each thread that ever computed with torch on a processor has helpers of its own, which stay. Where there are more of
them than cores, libgomp lets none wait actively any more: those of the thread that does compute fall asleep between any
two operations, and waking takes longer than many an operation. In a notebook the main thread has computed (it loaded
the model, say) and a run computes in another; with this, decoding eagerly was some 1.05 times as fast on two cores, and
an exported graph, whose operations are short, 1.4 to 1.9 times.

Not here: how many threads torch uses.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable
from pathlib import Path

__all__ = ["release_threads"]

_SOFT = 1
"""``omp_pause_soft`` of OpenMP 5.0: what was set stays, and the threads are there again when they are needed."""


def release_threads() -> bool:
    """End the OpenMP helpers of the calling thread; they are made anew when it computes again.

    Returns
    -------
    bool
        Whether that could be done: on Linux, with a library of OpenMP 5.0.
    """
    pause = _pause()
    return pause is not None and pause(_SOFT) == 0


@functools.cache
def _pause() -> Callable[[int], int] | None:
    """Return ``omp_pause_resource_all`` of this process; None where there are several OpenMP libraries, or none."""
    maps = Path("/proc/self/maps")
    if not maps.exists():
        return None
    files = {line.split()[-1] for line in maps.read_text().splitlines() if _is_openmp(line.split()[-1])}
    if len(files) != 1:
        return None
    try:
        found: Callable[[int], int] = ctypes.CDLL(files.pop()).omp_pause_resource_all
    except (OSError, AttributeError):  # of an older standard
        return None
    return found


def _is_openmp(file: str) -> bool:
    name = Path(file).name
    return ".so" in name and name.startswith(("libgomp", "libomp", "libiomp5"))
