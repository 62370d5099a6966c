"""A sender with real runs and no kernel, for tests."""

from __future__ import annotations

import threading
import time
from typing import Any

from fake_engine import FakeEngine
from fake_front_end import FakeFrontEnd
from genscope.kernel_side.request import Request
from genscope.kernel_side.run import Run
from genscope.widget.sender import Sender


class Bench:
    """A sender, the front end that hears it, and what it wrote to traits."""

    def __init__(self) -> None:
        self.front = FakeFrontEnd()
        self.times: list[tuple[float, str]] = []
        self.threads: set[threading.Thread] = set()
        self.writes: list[dict[str, Any]] = []
        self.writable = True
        self.ended: list[Any] = []
        self.sender = Sender(self.hear, self.write, self.ended.append)

    def hear(self, message: Any) -> None:
        self.times.append((time.monotonic(), message["kind"]))
        self.threads.add(threading.current_thread())
        self.front.receive(message)

    def write(self, traits: dict[str, Any]) -> bool:
        self.threads.add(threading.current_thread())
        if self.writable:
            self.writes.append(dict(traits))
        return self.writable

    def run(self, engine: FakeEngine, prompt: Any = "prompt", **settings: Any) -> Run:
        run = Run(engine, Request.make(prompt, settings))
        self.sender.begin(run)
        return run
