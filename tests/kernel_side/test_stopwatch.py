"""The stopwatch: pauses do not count, and a reader in another thread never sees half a change."""

from __future__ import annotations

import sys
import threading
import time

import pytest

from genscope.kernel_side.stopwatch import Stopwatch


@pytest.fixture
def now(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    moment = [100.0]
    monkeypatch.setattr(time, "perf_counter", lambda: moment[0])
    return moment


def test_pauses_do_not_count(now: list[float]) -> None:
    watch = Stopwatch()
    assert watch.elapsed() is None
    assert watch.since_start(105.0) == 0.0
    now[0] = 110.0
    watch.start()
    now[0] = 112.0
    assert watch.elapsed() == 2.0
    watch.stop()
    now[0] = 120.0
    watch.stop()  # the first stop counts
    assert watch.elapsed() == 2.0
    watch.go()
    now[0] = 121.0
    assert watch.elapsed() == 3.0
    watch.go()  # it runs already
    assert watch.elapsed() == watch.since_start(121.0) == 3.0


def test_one_that_never_started_shows_nothing(now: list[float]) -> None:
    watch = Stopwatch()
    watch.stop()
    now[0] = 130.0
    watch.go()
    assert watch.elapsed() is None


def test_it_never_goes_back_for_a_reader_in_another_thread() -> None:
    watch = Stopwatch()
    watch.start()
    shown: list[float | None] = []
    done = threading.Event()

    def read() -> None:
        while not done.is_set():
            shown.append(watch.elapsed())

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    reader = threading.Thread(target=read)
    reader.start()
    try:
        for _ in range(300):
            watch.stop()
            time.sleep(0.0005)
            watch.go()
    finally:
        done.set()
        reader.join(30)
        sys.setswitchinterval(interval)
    assert shown == sorted(shown)
