import { beforeEach, describe, expect, test, vi } from "vitest";
import { FakeRun } from "../dev/fake_kernel.js";
import { fakeModel, generated, open, paint, play, press, type } from "./helpers.js";

// The end of a kernel, or of this page's line to it: a shutdown, a closed notebook.

beforeEach(() => {
  vi.useFakeTimers({ toFake: ["setTimeout", "clearTimeout", "setInterval", "clearInterval", "Date"] });
});

/** As Lumino's signals. */
class Signal {
  /** @type {Set<Function>} */
  slots = new Set();
  connect = (/** @type {Function} */ slot) => this.slots.add(slot);
  disconnect = (/** @type {Function} */ slot) => this.slots.delete(slot);
  emit = (/** @type {unknown} */ value) => {
    for (const slot of [...this.slots]) {
      slot(this, value);
    }
  };
}

function withKernel() {
  const kernel = { statusChanged: new Signal(), disposed: new Signal(), isDisposed: false };
  const model = fakeModel();
  model.widget_manager = { kernel };
  return { kernel, model };
}

/** @param {import("./helpers.js").Opened} opened */
function expectGone({ find, all, model }) {
  paint();
  expect(find(".gs-state").textContent?.trim()).toBe("kernel gone");
  const buttons = /** @type {HTMLButtonElement[]} */ (all(".gs-commands [data-command]"));
  expect(buttons.every((button) => button.disabled)).toBe(true);
  const sent = model.sent.length;
  vi.advanceTimersByTime(120_000);
  expect(model.sent).toHaveLength(sent);
  expect(vi.getTimerCount()).toBe(0);
}

/** Every send throws from now on, as it does with a disposed comm. @param {import("../dev/fake_model.js").FakeModel} model */
function breakSends(model) {
  const failing = vi.fn(() => {
    throw new Error("Cannot send");
  });
  model.send = failing;
  return failing;
}

describe("the host's kernel connection", () => {
  test.each(["dead", "terminating"])("that says %s is the end", async (status) => {
    const { kernel, model } = withKernel();
    const opened = await open({}, model);
    play(opened, generated(["kept"]));
    kernel.statusChanged.emit("busy");
    paint();
    expect(opened.find(".gs-state").textContent?.trim()).toBe("decoding");
    kernel.statusChanged.emit(status);
    expectGone(opened);
    expect(opened.find(".gs-text").textContent).toBe("kept");
  });

  test("that is disposed is the end: a notebook was closed while its run goes on", async () => {
    const { kernel, model } = withKernel();
    const opened = await open({}, model);
    play(opened, generated(["a"]));
    kernel.disposed.emit(undefined);
    expectGone(opened);
  });

  test("is let go with the model", async () => {
    const { kernel, model } = withKernel();
    const opened = await open({}, model);
    opened.life.abort();
    expect(kernel.statusChanged.slots.size + kernel.disposed.slots.size).toBe(0);
  });
});

describe("a message that cannot be sent", () => {
  test("is no error of the page but the end, whichever command it was", async () => {
    const opened = await open();
    breakSends(opened.model);
    opened.find("[data-command=generate]").click();
    expectGone(opened);
  });

  test("ends the asking of a silent run", async () => {
    const opened = await open();
    play(opened, generated(["a"]));
    const failing = breakSends(opened.model);
    vi.advanceTimersByTime(60_000);
    expect(failing).toHaveBeenCalledTimes(1);
    expectGone(opened);
  });

  test("ends it for a trait that cannot be saved, too", async () => {
    const opened = await open();
    opened.model.save_changes = () => {
      throw new Error("Syncing error: no comm channel defined");
    };
    type(opened.find(".gs-prompt textarea"), "Hi");
    vi.advanceTimersByTime(400);
    expectGone(opened);
  });

  test("is sent again when the host has a new line", async () => {
    const opened = await open();
    const host = { model_id: "m1", comm_live: true };
    opened.model.emit("change", host);
    const { send } = Object.getPrototypeOf(opened.model);
    breakSends(opened.model);
    opened.find("[data-command=generate]").click();
    expectGone(opened);
    opened.model.send = send;
    opened.model.emit("comm_live_update");
    paint();
    expect(opened.model.sent.at(-1)).toEqual({ kind: "pull", start: 0 });
    expect(/** @type {HTMLButtonElement} */ (opened.find("[data-command=generate]")).disabled).toBe(false);
  });
});

describe("Stop", () => {
  test("says that it was heard until the run is over; the next run knows nothing of it", async () => {
    const opened = await open();
    const fake = new FakeRun("r1", generated(["a"]));
    opened.model.receive(fake.begin(0));
    paint();
    const words = () =>
      [opened.find(".gs-state"), opened.find("[data-command=stop]")].map((e) => e.textContent?.trim());
    press(opened.find(".gs-text"), "Escape");
    expect(words()).toEqual(["stopping…", "Stopping…"]);
    opened.model.receive(fake.data(0, 1));
    paint();
    expect(words()).toEqual(["stopping…", "Stopping…"]);
    opened.model.receive(fake.end({ state: "stopped" }));
    paint();
    expect(words()).toEqual(["stopped", "Stop Esc"]);
    opened.model.receive(new FakeRun("r2", []).begin(0));
    paint();
    expect(words()[1]).toBe("Stop Esc");
  });
});

describe("ids", () => {
  test("are unique on a page, whichever copy of the module drew them, and labels find their own control", async () => {
    vi.resetModules();
    const one = await open();
    const helpers = await import("./helpers.js");
    const other = await helpers.open();
    const same = document.createElement("div");
    document.body.append(same);
    await one.show(same, new AbortController().signal);
    const problems = [{ field: "prompt", value: "", message: "the prompt is empty", way_out: "Type." }];
    for (const { model } of [one, other]) {
      model.receive({ kind: "problems", problems });
    }
    paint();
    helpers.paint();
    const ids = [...document.querySelectorAll(".genscope [id]")].map(({ id }) => id);
    expect(ids.length).toBeGreaterThan(40);
    expect(new Set(ids).size).toBe(ids.length);
    for (const { host } of [one, other, { host: same }]) {
      const label = /** @type {HTMLLabelElement} */ (host.querySelector("[data-field=stop_at_eos] label"));
      expect(host.contains(document.getElementById(label.htmlFor))).toBe(true);
      const described = host.querySelector(".gs-prompt textarea")?.getAttribute("aria-describedby") ?? "";
      expect(host.contains(document.getElementById(described))).toBe(true);
    }
  });
});
