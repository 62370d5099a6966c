"""What the front end's messages do. They come on the main thread or on a subshell's, and nothing they do raises."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ..kernel_side.branching import branch_of, reply_to
from ..kernel_side.request import Problem, Request, SettingsError
from .commands import read
from .runs import Runs
from .seen import look
from .sender import Sender
from .values import wire_problems

if TYPE_CHECKING:
    from ..kernel_side.run import Run

__all__ = ["FrontEnd"]

_log = logging.getLogger(__name__)


class FrontEnd:
    """Handles messages for one scope.

    Parameters
    ----------
    runs : Runs
    sender : Sender
        Sends the answers.
    set_settings : callable
        Takes settings that were edited; raises SettingsError.
    request : callable
        Returns what would run now, without a prompt and settings in the message; raises SettingsError.
    measure_costs : callable
        Measures what observing costs, in the background.
    """

    def __init__(
        self,
        runs: Runs,
        sender: Sender,
        set_settings: Callable[[dict[str, Any]], None],
        request: Callable[[], Request],
        measure_costs: Callable[[], None],
    ) -> None:
        self._runs = runs
        self._sender = sender
        self._set_settings = set_settings
        self._request = request
        self._measure_costs = measure_costs

    def handle(self, _widget: Any, content: Any, _buffers: Any) -> None:
        """Handle a custom message."""
        message = read(content)
        if message is not None:
            self._answering(lambda: self._do(message))

    def stop(self, run: str | None) -> None:
        """Stop a run, by the control comm: on whatever thread, while anything else goes on."""
        self._runs.act("stop", run)

    def model_loaded(self) -> None:
        """Start what was asked for while the model was loading."""
        self._answering(self._runs.start_pending)

    def _do(self, message: Any) -> None:
        if isinstance(message, list):
            raise SettingsError(message)
        kind, run = message["kind"], message.get("run")
        if kind == "generate":
            self._runs.ask(Request.make(message["prompt"], message["settings"]))
        elif kind == "twin":
            self._runs.ask(Request.make(message["prompt"], message["settings"]), twin=True)
        elif kind == "compare":
            asked = {name: message[name] for name in ("prompt", "settings", "changes", "seeds")}
            self._runs.ask_to(lambda: self._runs.compare(**asked))
        elif kind == "stop_lane":
            self._runs.stop_lane(message["run"], message["lane"])
        elif kind == "branch":
            self._runs.ask(self._branch(message))
        elif kind == "reply":
            run_of, lane = self._lane(message)
            self._runs.ask(reply_to(run_of, message["text"], lane=lane, **message["settings"]))
        elif kind == "show":
            self._runs.show(message["run"])
        elif kind == "settings":
            self._set_settings(message["settings"])
            self._sender.problems([])
        elif kind == "pull":
            self._sender.pull(message["start"], run=run, track=message.get("track"), table=message.get("table"))
        elif kind == "look":
            # In the sender's thread: a look takes its time, and this one may be the kernel's.
            self._sender.answer(lambda: look(self._runs.named(run), message))
        elif kind == "costs":
            self._measure_costs()
        elif kind == "step" and run is None and not self._runs.going:
            self._runs.ask(self._request(), paused=True)
        else:
            self._runs.act(kind, run)

    def _branch(self, message: Any) -> Request:
        token, text = message.get("token"), message.get("text")
        if token is not None and text is not None:
            raise SettingsError(
                [Problem("token", token, "a token and a text cannot stand at one position", "Give one.")]
            )
        chosen = text if token is None else token
        run, lane = self._lane(message)
        return branch_of(run, message["position"], chosen, lane=lane, **message["settings"])

    def _lane(self, message: Any) -> tuple[Run, int]:
        name = message["run"]
        run, lane = self._runs.lane(name, message["lane"])
        if run is None:
            raise SettingsError([Problem("run", name, "this run is none of the scope's", "Generate again.")])
        return run, lane

    def _answering(self, work: Callable[[], None]) -> None:
        """Do it; whoever pressed the button learns what was wrong."""
        try:
            work()
        except SettingsError as error:
            self._sender.problems(wire_problems(error.problems))
        except Exception as error:  # noqa: BLE001 - a model's or a tokenizer's, of any kind
            _log.debug("genscope: a command of the front end failed", exc_info=True)
            self._sender.problems(wire_problems([Problem("prompt", None, f"{type(error).__name__}: {error}", "")]))
