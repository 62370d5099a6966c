"""A real ipykernel and the messages that come from it: speaks its protocol as JupyterLab does, subshells included."""

from __future__ import annotations

import queue
import time
from collections.abc import Callable
from typing import Any

from jupyter_client.manager import KernelManager

from fake_front_end import FakeFrontEnd


class Kernel:
    """A kernel and the messages that came from it."""

    def __init__(self) -> None:
        self.manager = KernelManager(kernel_name="python3")
        self.manager.start_kernel()
        self.client = self.manager.client()
        self.client.start_channels()
        self.client.wait_for_ready(timeout=60)
        self.seen: list[dict[str, Any]] = []
        self.front_ends: dict[str, FakeFrontEnd] = {}
        self.traits: dict[str, dict[str, Any]] = {}

    def shut_down(self) -> None:
        self.client.stop_channels()
        self.manager.shutdown_kernel(now=True)
        self.manager.cleanup_resources()

    def start(self, code: str, cell: str = "cell") -> str:
        """Begin to run a cell; return the id of its message."""
        message = self.client.session.msg(
            "execute_request", {"code": code, "silent": False, "store_history": True, "user_expressions": {},
                                "allow_stdin": False, "stop_on_error": True}, metadata={"cellId": cell},
        )  # fmt: skip
        self.client.shell_channel.send(message)
        return str(message["header"]["msg_id"])

    def run(self, code: str, cell: str = "cell", timeout: float = 30) -> list[dict[str, Any]]:
        """Run a cell to its end; return its messages."""
        parent = self.start(code, cell)
        self.until(lambda: self.is_idle(parent), timeout)
        messages = self.of(parent)
        errors = ["\n".join(m["content"]["traceback"]) for m in messages if m["msg_type"] == "error"]
        assert not errors, errors[0]
        return messages

    def value(self, expression: str) -> str:
        """Return what an expression prints."""
        messages = self.run(f"print({expression})", cell="other")
        return "".join(m["content"]["text"] for m in messages if m["msg_type"] == "stream").strip()

    def is_idle(self, parent: str) -> bool:
        return any(m["msg_type"] == "status" and m["content"]["execution_state"] == "idle" for m in self.of(parent))

    def of(self, parent: str) -> list[dict[str, Any]]:
        return [m for m in self.seen if m["parent_header"].get("msg_id") == parent]

    def read(self, timeout: float) -> None:
        try:
            message = self.client.get_iopub_msg(timeout=timeout)
        except queue.Empty:
            return
        self.seen.append(message)
        content = message["content"]
        if message["msg_type"] == "comm_open" and content["target_name"] == "jupyter.widget":
            self.traits[content["comm_id"]] = content["data"]["state"]
        elif message["msg_type"] == "comm_msg" and content["comm_id"] in self.traits:
            data = content["data"]
            if data["method"] == "update":
                self.traits[content["comm_id"]] |= data["state"]
            elif data["method"] == "custom":
                self.front_end(content["comm_id"]).receive(data["content"])

    def until(self, condition: Callable[[], object], timeout: float = 10.0) -> None:
        deadline = time.monotonic() + timeout
        while not condition():
            assert time.monotonic() < deadline, "waited in vain"
            self.read(0.05)

    def front_end(self, comm: str) -> FakeFrontEnd:
        return self.front_ends.setdefault(comm, FakeFrontEnd())

    def comm(self, kind: str, content: dict[str, Any], subshell: str | None = None) -> str:
        message = self.client.session.msg(kind, content)
        message["header"]["subshell_id"] = subshell
        self.client.shell_channel.send(message)
        return str(message["header"]["msg_id"])

    def say(self, comm: str, content: object, subshell: str | None = None) -> str:
        """Send a custom message to a widget."""
        data = {"method": "custom", "content": content}
        return self.comm("comm_msg", {"comm_id": comm, "data": data}, subshell)

    def subshell(self) -> str:
        """Create a subshell, as JupyterLab does for each comm target."""
        message = self.client.session.msg("create_subshell_request")
        self.client.control_channel.send(message)
        reply = self.client.get_control_msg(timeout=10)
        assert reply["content"]["status"] == "ok", reply
        return str(reply["content"]["subshell_id"])

    def scope(self, code: str, cell: str = "cell") -> str:
        """Run a cell that makes one scope; return its comm's id."""
        before = set(self.traits)
        self.run(code, cell)
        [comm] = [c for c in set(self.traits) - before if "settings" in self.traits[c]]
        return comm
