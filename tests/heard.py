"""A front end on a scope's dummy comm, for tests without a kernel."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from fake_front_end import FakeFrontEnd


def until(condition: Callable[[], object], seconds: float = 10.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.005)


class Heard(FakeFrontEnd):
    """A front end on a scope's (dummy) comm; also keeps the trait updates."""

    def __init__(self, scope: Any) -> None:
        super().__init__()
        self.scope = scope
        self.updates: list[dict[str, Any]] = []
        scope.comm.send = self.hear

    def hear(self, data: Any = None, metadata: Any = None, buffers: Any = None) -> None:
        if data["method"] == "custom":
            self.receive(data["content"])
        else:
            self.updates.append(data["state"])

    def say(self, content: object) -> None:
        self.scope._handle_msg({"content": {"data": {"method": "custom", "content": content}}, "buffers": []})

    def set(self, **state: object) -> None:
        self.scope._handle_msg({"content": {"data": {"method": "update", "state": state}}, "buffers": []})

    def problems(self) -> Any:
        until(lambda: self.of_kind("problems"))
        return self.of_kind("problems")[-1]["problems"]
