"""A thread's OpenMP helpers end when they are given back, and are there again when it computes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from genscope.kernel_side import idle_threads

SCRIPT = """
import os, torch
from genscope.kernel_side.idle_threads import release_threads
torch.set_num_threads(3)
count = lambda: len(os.listdir("/proc/self/task"))
work = lambda: torch.ones(400, 400) @ torch.ones(400, 400)
first = work().sum().item()
before = count()
assert release_threads()
after = count()
assert work().sum().item() == first
print(before - after, count() - after)
"""


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="counts threads as Linux lists them")
def test_helpers_end_and_come_back() -> None:
    given = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=True)
    assert given.stdout.split() == ["2", "2"]


@pytest.mark.parametrize(
    ("lines", "known"),
    [
        (["7f r /x/libm.so.6"], False),
        (["7f r /nowhere/libgomp.so.1"], False),
        (["7f r /nowhere/libgomp.so.1", "7f r /nowhere/libiomp5.so"], False),
    ],
)
def test_where_it_cannot_be_told_nothing_is_done(
    lines: list[str], known: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Path, "read_text", lambda _: "\n".join(lines))
    idle_threads._pause.cache_clear()
    try:
        assert idle_threads.release_threads() is known
    finally:
        idle_threads._pause.cache_clear()


@pytest.mark.parametrize(
    ("file", "known"),
    [
        ("/a/libgomp.so.1", True),
        ("/a/libgomp-24e2ab19.so.1.0.0", True),
        ("/a/libiomp5.so", True),
        ("/a/libcomp.so", False),
    ],
)
def test_libraries_are_known_by_their_names(file: str, known: bool) -> None:
    assert idle_threads._is_openmp(file) is known
