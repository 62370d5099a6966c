"""With a real ipykernel: whose messages go where, Stop in each situation, reload, floods, and what a cell shows.

This file is the front end: it speaks the kernel's protocol as JupyterLab does, subshells included.
"""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from fake_front_end import FakeFrontEnd
from real_kernel import Kernel

pytestmark = pytest.mark.kernel

SETUP = f"""
import sys, threading, time
sys.path.insert(0, {str(Path(__file__).parent.parent)!r})
from fake_engine import FakeEngine
from genscope.widget import Scope
def endless(**options):
    gate = threading.Semaphore(0)
    def feed():
        while True:
            gate.release(); time.sleep(0.01)
    threading.Thread(target=feed, daemon=True).start()
    return Scope(FakeEngine(100_000, gate=gate), prompt="x", **options)
"""


@pytest.fixture(scope="module")
def shared():
    kernel = Kernel()
    kernel.run(SETUP, timeout=120)
    yield kernel
    kernel.shut_down()


@pytest.fixture
def kernel(shared):
    yield shared
    shared.run("import ipywidgets; ipywidgets.Widget.close_all()", cell="end")
    shared.front_ends.clear()


def started(kernel, comm, rows=5):
    kernel.until(lambda: kernel.front_end(comm).n >= rows)
    return kernel.front_end(comm)


def test_messages_of_a_run_stay_with_the_cell_that_started_it(kernel):
    comm = kernel.scope("scope = endless()", "first")
    parent = kernel.start("run = scope.generate()", "second")
    front = started(kernel, comm)
    # Other cells run meanwhile.
    for _ in range(5):
        kernel.run("1 + 1", "third")
        time.sleep(0.1)
    kernel.run("scope.stop()", "fourth")
    kernel.until(lambda: front.end is not None)
    custom = [m for m in kernel.seen if m["msg_type"] == "comm_msg" and m["content"]["data"]["method"] == "custom"]
    of_run = [
        m for m in custom if m["content"]["comm_id"] == comm and m["content"]["data"]["content"]["kind"] != "problems"
    ]
    assert {m["parent_header"]["msg_id"] for m in of_run} == {parent}
    assert front.gaps == []


def test_5000_tokens_at_once_arrive_while_nobody_reads(kernel):
    before = set(kernel.traits)
    parent = kernel.start("scope = Scope(FakeEngine(5000), prompt='x'); run = scope.generate(); scope.wait()")
    time.sleep(4)
    kernel.until(lambda: kernel.is_idle(parent))
    [comm] = [c for c in set(kernel.traits) - before if "settings" in kernel.traits[c]]
    front = kernel.front_end(comm)
    assert front.end["counts"]["tracks"] == [front.n] == [5003]
    assert front.gaps == []
    assert "".join(row["text"] for row in front.rows()) == eval(
        kernel.value("repr(''.join(t.text for t in run.record))")
    )
    assert kernel.traits[comm]["state"] == "finished"


def test_generate_and_stop_by_the_front_end_while_a_cell_awaits(kernel):
    comm = kernel.scope("scope = endless()")
    kernel.say(comm, {"kind": "generate", "prompt": "from there", "settings": {}})
    front = started(kernel, comm)
    parent = kernel.start("await scope.run", "waiting")
    kernel.until(lambda: kernel.of(parent))
    began = time.monotonic()
    kernel.say(comm, {"kind": "stop", "run": front.begin["run"]})
    kernel.until(lambda: front.end is not None, 5)
    assert time.monotonic() - began < 1
    kernel.until(lambda: kernel.is_idle(parent))
    assert front.end["status"]["state"] == "stopped"
    assert kernel.value("scope.run.request.prompt") == "from there"


def test_stop_by_the_control_comm_while_a_synchronous_cell_is_busy(kernel):
    comm = kernel.scope("scope = endless()")
    control = "control-comm"
    subshell = kernel.subshell()
    kernel.comm(
        "comm_open", {"comm_id": control, "target_name": "genscope.control", "data": {"model_id": comm}}, subshell
    )
    # Started by a cell: the widget's own comm now leads to the main shell, which is busy.
    kernel.run("run = scope.generate()")
    front = started(kernel, comm)
    busy = kernel.start("time.sleep(4)", "busy")
    kernel.until(lambda: kernel.of(busy))
    began = time.monotonic()
    kernel.comm("comm_msg", {"comm_id": control, "data": {"kind": "stop", "run": front.begin["run"]}}, subshell)
    kernel.until(lambda: front.end is not None, 3)
    assert time.monotonic() - began < 1
    assert not kernel.is_idle(busy)
    assert front.end["status"]["state"] == "stopped"
    kernel.until(lambda: kernel.is_idle(busy))
    # Nothing was ever published on that comm, or its messages would be led elsewhere.
    assert not [m for m in kernel.seen if m["content"].get("comm_id") == control]
    # A wrong message does no harm there.
    kernel.comm("comm_msg", {"comm_id": control, "data": {"kind": 5}}, subshell)
    kernel.comm("comm_msg", {"comm_id": control, "data": "stop"}, subshell)
    assert kernel.value("run.state") == "stopped"


def test_stop_on_the_widgets_own_comm_is_heard_during_a_busy_cell_if_the_front_end_spoke_last(kernel):
    comm = kernel.scope("scope = endless()")
    subshell = kernel.subshell()
    kernel.say(comm, {"kind": "generate", "prompt": "x", "settings": {}}, subshell)
    front = started(kernel, comm)
    busy = kernel.start("time.sleep(4)", "busy")
    kernel.until(lambda: kernel.of(busy))
    kernel.say(comm, {"kind": "stop"}, subshell)
    kernel.until(lambda: front.end is not None, 2)
    assert not kernel.is_idle(busy)
    kernel.until(lambda: kernel.is_idle(busy))


def test_a_reload_in_the_middle_of_a_run_gets_all_of_it(kernel):
    comm = kernel.scope("scope = endless()")
    kernel.run("run = scope.generate()")
    started(kernel, comm, 50)
    fresh = kernel.front_ends[comm] = FakeFrontEnd()  # nothing is left in the page
    kernel.say(comm, {"kind": "pull", "start": 0})
    kernel.until(lambda: fresh.n >= 100)
    kernel.run("scope.stop(); scope.wait()")
    kernel.until(lambda: fresh.end is not None)
    assert [fresh.n] == fresh.end["counts"]["tracks"]
    assert [gap for gap in fresh.gaps if gap != {"start": 0}] == []
    assert "".join(row["text"] for row in fresh.rows()) == eval(
        kernel.value("repr(''.join(t.text for t in run.record))")
    )


def test_running_the_cell_again_stops_its_run_and_no_other(kernel):
    code = "scope = endless(); runs = [*globals().get('runs', []), scope.generate()]"
    first = kernel.scope(code, "again")
    elsewhere = kernel.scope("other = endless(); run = other.generate()", "elsewhere")
    second = kernel.scope(code, "again")
    kernel.until(lambda: kernel.traits[first]["state"] == "stopped")
    started(kernel, second)
    started(kernel, elsewhere)
    assert kernel.value("[run.state for run in runs], run.state") == "['stopped', 'decoding'] decoding"


def test_displaying_publishes_the_widget_and_a_static_copy_that_the_end_fills(kernel):
    parent = kernel.start(
        "gate = threading.Semaphore(0)\nscope = Scope(FakeEngine(4, gate=gate), prompt='x')\nscope", "shown"
    )
    kernel.until(lambda: kernel.is_idle(parent))
    live, copy = [m["content"] for m in kernel.of(parent) if m["msg_type"] in ("display_data", "execute_result")]
    assert "application/vnd.jupyter.widget-view+json" in live["data"]
    assert live["data"]["text/plain"] == "<Scope FakeEngine: idle>"
    assert copy["data"] == {"text/html": "", "text/plain": ""}
    kernel.run("run = scope.generate()", "running")
    messages = kernel.run("gate.release(4); run.wait(); time.sleep(0.5)", "waiting")
    # Under the cell that runs at the end: nbclient, which saves notebooks, listens to no other.
    [update] = [m["content"] for m in messages if m["msg_type"] == "update_display_data"]
    assert update["transient"] == copy["transient"]
    assert f'class="{kernel.value("scope.static_class")}"' in update["data"]["text/html"]
    assert "&lt;script&gt;" in update["data"]["text/html"]
    # Displayed again, it is there at once.
    messages = kernel.run("display(scope)", "again")
    html = [m["content"]["data"].get("text/html") for m in messages if m["msg_type"] == "display_data"]
    assert html == [None, update["data"]["text/html"]]


def test_in_a_layout_no_static_copy_is_published(kernel):
    messages = kernel.run("import ipywidgets\nipywidgets.VBox([Scope(FakeEngine(4), prompt='x')])")
    assert [m["msg_type"] for m in messages if "data" in m["content"] and m["msg_type"] != "comm_open"] == [
        "execute_result"
    ]


def test_a_closed_scope_still_displays_its_text(kernel):
    messages = kernel.run("scope = Scope(FakeEngine(4), prompt='x'); scope.generate().wait(); scope.close(); scope")
    [shown] = [m["content"]["data"] for m in messages if m["msg_type"] == "display_data"]
    assert set(shown) == {"text/plain", "text/html"}


def test_wrong_messages_leave_no_error_in_the_kernel(kernel):
    comm = kernel.scope("scope = Scope(FakeEngine(4))")
    parents = [kernel.say(comm, content) for content in (None, 5, {"kind": "x"}, {"kind": "pull", "start": None})]
    kernel.until(lambda: kernel.is_idle(parents[-1]))
    shown = [m for parent in parents for m in kernel.of(parent) if m["msg_type"] in ("error", "stream")]
    assert all("ignored a message" in m["content"].get("text", "") for m in shown)


def test_the_magic_shows_a_scope_and_gives_the_run(kernel):
    kernel.run("%load_ext genscope.widget\nengine = FakeEngine(6)")
    messages = kernel.run("%%generate --model engine --wait --into done\nonce upon", "magic")
    assert [m["msg_type"] for m in messages if "display" in m["msg_type"]] == [
        "display_data",
        "display_data",
        "update_display_data",
    ]
    assert kernel.value("done.state, done.request.prompt") == "finished once upon"
    parent = kernel.start("%%generate --nope\nx", "magic")
    kernel.until(lambda: kernel.is_idle(parent))
    text = "".join(m["content"].get("text", "") for m in kernel.of(parent))
    assert "UsageError: There is no option --nope." in text
    assert "Traceback" not in text


def test_a_kernel_ends_at_once_while_a_run_goes_on():
    kernel = Kernel()
    try:
        kernel.run(SETUP, timeout=120)
        comm = kernel.scope("scope = endless()")
        kernel.run("run = scope.generate()")
        started(kernel, comm)
        began = time.monotonic()
        kernel.client.shutdown()
        while kernel.manager.is_alive():
            assert time.monotonic() - began < 5
            time.sleep(0.05)
    finally:
        kernel.shut_down()
