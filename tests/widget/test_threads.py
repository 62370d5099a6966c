"""Many threads on one scope, and on linked ones."""

from __future__ import annotations

import threading
import time

import traitlets

from fake_engine import FakeEngine
from heard import Heard, until


def test_traits_may_be_set_from_many_threads_while_a_run_goes(made):
    """On plain ipywidgets this raises "Set changed size during iteration", or loses a change."""
    scope = made(FakeEngine(3000, gate=threading.Semaphore(0)), prompt="x")
    scope.generate()
    front, errors, stop = Heard(scope), [], threading.Event()

    def hammer(work):
        def loop():
            count = 0
            while not stop.is_set():
                count += 1
                try:
                    work(count)
                except Exception as error:
                    errors.append(error)
                    return

        return threading.Thread(target=loop)

    def hold(count):
        with scope.hold_sync():
            scope.prompt = f"held {count}"
            scope.whitespace = bool(count % 2)

    def notify(count):
        with scope.hold_trait_notifications():
            scope.measure = ("rank", "entropy")[count % 2]

    threads = [
        hammer(hold),
        hammer(notify),
        hammer(lambda count: front.set(prompt=f"front {count}", measure="latency")),
        hammer(lambda count: scope._sender.set_traits(about={"model": str(count)})),
        hammer(lambda count: setattr(scope, "settings", {"seed": count})),
        hammer(lambda count: scope.send_state() if count else None),
    ]
    for thread in threads:
        thread.start()
    time.sleep(2)
    stop.set()
    for thread in threads:
        thread.join(10)
    assert not any(thread.is_alive() for thread in threads)
    assert errors == []
    # The last word on each trait has reached the front end.
    scope._sender.flush(5)
    last = {}
    for update in front.updates:
        last |= update
    for name in ("whitespace", "settings", "about"):
        assert last[name] == getattr(scope, name)


def test_two_threads_that_hold_syncing_lose_no_change(made):
    scope = made()
    front = Heard(scope)

    def hold():
        with scope.hold_sync():
            scope.whitespace = True
            time.sleep(0.4)

    holder = threading.Thread(target=hold)

    class SlowSet(set):
        """What the first thread sent, and forgets while the second one is setting a trait."""

        def clear(self):
            if not holder.ident:
                holder.start()
                time.sleep(0.2)
            super().clear()

    scope._trait_values["_states_to_send"] = SlowSet()
    with scope.hold_sync():
        scope.prompt = "a"
    holder.join(5)
    assert {"prompt": "a"} in front.updates
    assert {"whitespace": True} in front.updates


def test_linked_scopes_set_from_two_threads_do_not_block_each_other(made):
    one, other = made(), made()
    traitlets.link((one, "prompt"), (other, "prompt"))
    threads = [
        threading.Thread(target=lambda scope=scope: [setattr(scope, "prompt", f"{id(scope)} {k}") for k in range(300)])
        for scope in (one, other)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert not any(thread.is_alive() for thread in threads)


def test_an_observer_that_blocks_holds_up_no_frames(made):
    gate = threading.Semaphore(0)
    scope = made(FakeEngine(50, gate=gate), prompt="x")
    front = Heard(scope)
    scope.generate()
    release = threading.Event()
    scope.observe(lambda change: release.wait(10), "whitespace")
    blocked = threading.Thread(target=setattr, args=(scope, "whitespace", True))
    blocked.start()
    gate.release(50)
    until(lambda: front.end is not None, 5)
    assert blocked.is_alive()
    release.set()
    blocked.join(5)
    until(lambda: scope.state == "finished")
