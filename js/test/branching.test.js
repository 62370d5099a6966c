import { describe, expect, test, vi } from "vitest";
import { FakeRun } from "../dev/fake_kernel.js";
import { Session } from "../src/session.js";
import { generated, open, paint, play, press, type } from "./helpers.js";

/** @typedef {import("./helpers.js").Opened} Opened */

const ABOUT = { model: "m", chat: true, context: null };
const alternatives = [
  { text: " the", raw: 0.5, processed: 0.6, id: 11 },
  { text: "\\xE2", raw: 0.2, processed: null, id: 12 },
];
const rows = [
  { text: "p" },
  { text: "q" },
  ...generated(["a", "b", "c"]).map((row) => ({ ...row, id: 11, alternatives })),
];

/** @param {Opened} opened */
const sent = ({ model }) => model.sent.filter(({ kind }) => ["branch", "reply", "show", "generate"].includes(kind));

/**
 * A run that is over, with one of its tokens pinned.
 * @param {number} [at]
 * @param {Record<string, any>} [traits]
 */
async function pinned(at = 3, traits = {}) {
  const opened = await open({ about: ABOUT, ...traits });
  const fake = play(opened, rows, { promptTokens: 2 });
  opened.model.receive(fake.end({ state: "finished", why: "length", generated: 3 }));
  paint();
  opened.all(".gs-t")[at].click();
  paint();
  const disabled = () =>
    /** @type {HTMLButtonElement[]} */ (opened.all(".gs-candidate, .gs-branching :is(button, input)")).map(
      (control) => control.disabled,
    );
  return { ...opened, fake, disabled };
}

describe("from the inspected token", () => {
  test("a candidate goes on from there, with the settings as they stand in the form", async () => {
    const opened = await pinned();
    type(opened.find("[data-field=top_k] .gs-number"), "3");
    opened.all(".gs-candidate")[1].click();
    const [message, ...more] = sent(opened);
    expect(message).toEqual({
      kind: "branch",
      run: "r1",
      lane: 0,
      position: 3,
      token: 12,
      settings: expect.anything(),
    });
    expect(message.settings).toMatchObject({ strategy: "sample", temperature: 0.8, top_k: 3 });
    expect(more).toEqual([]);
  });

  test("the settings go out once: those of the form are not sent after them", async () => {
    vi.useFakeTimers({ toFake: ["setTimeout", "clearTimeout"] });
    const opened = await pinned();
    type(opened.find("[data-field=top_k] .gs-number"), "3");
    opened.find("[data-command=branch-again]").click();
    vi.advanceTimersByTime(1000);
    expect(opened.model.sent.filter(({ kind }) => kind === "settings")).toEqual([]);
  });

  test("the whole row can be clicked, once; the keyboard walks from candidate to candidate", async () => {
    const opened = await pinned();
    opened.all(".gs-alternatives tbody td")[0].click();
    expect(sent(opened).map(({ token }) => token)).toEqual([11]);
    press(opened.find(".gs-alternatives"), "ArrowDown");
    expect(document.activeElement).toBe(opened.all(".gs-candidate")[0]);
    press(opened.all(".gs-candidate")[0], "ArrowDown");
    expect(document.activeElement).toBe(opened.all(".gs-candidate")[1]);
    press(opened.all(".gs-candidate")[1], "ArrowDown");
    press(opened.all(".gs-candidate")[1], "ArrowUp");
    expect(document.activeElement).toBe(opened.all(".gs-candidate")[0]);
  });

  test("other text goes on from there as it was typed, with Enter too; what will be taken is written out", async () => {
    const opened = await pinned();
    const button = /** @type {HTMLButtonElement} */ (opened.find("[data-command=branch-text]"));
    const hint = () => opened.find(".gs-branching h4 span").textContent;
    expect(button.disabled).toBe(true);
    expect(hint()).toBe("as typed: a space counts");
    press(opened.find(".gs-branching input"), "Enter");
    expect(sent(opened)).toEqual([]);
    type(opened.find(".gs-branching input"), " dog");
    expect(hint()).toBe('as typed: " dog"');
    button.click();
    press(opened.find(".gs-branching input"), "Enter");
    expect(sent(opened).map(({ position, text, token }) => [position, text, token])).toEqual([
      [3, " dog", undefined],
      [3, " dog", undefined],
    ]);
  });

  test("Enter takes what stands there, also before it is drawn", async () => {
    const opened = await pinned();
    const input = /** @type {HTMLInputElement} */ (opened.find(".gs-branching input"));
    input.value = " dog";
    press(input, "Enter");
    expect(sent(opened).map(({ text }) => text)).toEqual([" dog"]);
  });

  test("the model chooses again, or goes on behind it", async () => {
    const opened = await pinned(1);
    opened.find("[data-command=branch-again]").click();
    opened.find("[data-command=branch-behind]").click();
    expect(sent(opened).map(({ position, text, token }) => [position, text, token])).toEqual([
      [1, undefined, undefined],
      [2, undefined, undefined],
    ]);
  });

  test("of the sequence that it is in", async () => {
    const opened = await open();
    play(opened, [generated(["a", "b"]), generated(["c", "d"])], {
      about: { lanes: [{}, { prompt: 0, sequence: 1 }] },
    });
    opened.all(".gs-t")[3].click();
    paint();
    opened.find("[data-command=branch-again]").click();
    expect(sent(opened)[0]).toMatchObject({ lane: 1, position: 1 });
  });

  test("not of what an encoder read", async () => {
    const opened = await open();
    play(opened, [generated(["a"]), [{ text: "s" }]], { about: { lanes: [{ source: 1 }] } });
    opened.all("[data-kind=source] .gs-t")[0].click();
    paint();
    expect(opened.all(".gs-branching")).toEqual([]);
    opened.all("[data-kind=lane] .gs-t")[0].click();
    paint();
    expect(opened.all(".gs-branching")).toHaveLength(1);
  });

  test("not while the model loads, nor when the kernel is gone, and the reason is there", async () => {
    const opened = await pinned();
    type(opened.find(".gs-branching input"), "x");
    expect(opened.disabled()).toEqual([false, false, false, false, false, false]);
    opened.model.set("status", { phase: "loading", text: "", progress: null });
    paint();
    expect(opened.disabled()).toEqual([true, true, true, true, true, true]);
    expect(opened.find(".gs-branching h4 span").textContent).toBe("The model is loading");
    expect(opened.find(".gs-candidate").title).toBe("The model is loading");
    opened.all(".gs-alternatives tbody td")[0].click();
    press(opened.find(".gs-branching input"), "Enter");
    opened.model.set("status", { phase: "ready", text: "", progress: null });
    opened.model.emit("comm_live_update");
    paint();
    expect(opened.disabled()).toEqual([true, true, true, true, true, true]);
    expect(opened.find(".gs-branching h4 span").textContent).toBe("The kernel is gone");
    expect(sent(opened)).toEqual([]);
  });

  test("of a run that lives a token is pinned first: the newest is another one in a moment", async () => {
    const opened = await open();
    play(opened, rows, { promptTokens: 2 });
    expect(opened.find(".gs-branching h4 span").textContent).toBe("Pin a token first");
    opened.all(".gs-alternatives tbody td")[0].click();
    expect(sent(opened)).toEqual([]);
    opened.all(".gs-t")[3].click();
    paint();
    opened.all(".gs-alternatives tbody td")[0].click();
    expect(sent(opened)).toHaveLength(1);
  });

  test("what was wrong stands there, and nowhere else; what was typed is kept until the run is there", async () => {
    const opened = await pinned();
    type(opened.find(".gs-branching input"), "x");
    opened.find("[data-command=branch-text]").click();
    const problem = { field: "text", value: "'x'", message: "the text has no tokens", way_out: "Type another one." };
    opened.model.receive({ kind: "problems", problems: [problem] });
    paint();
    expect(opened.all("[role=alert]").map((alert) => alert.textContent)).toEqual([
      "the text has no tokens Type another one.",
    ]);
    expect(opened.find(".gs-branching [role=alert]")).toBeTruthy();
    const box = /** @type {HTMLInputElement} */ (opened.find(".gs-branching input"));
    expect(box.value).toBe("x");
    opened.model.receive({ kind: "problems", problems: [] });
    play(opened, rows, { run: "r2", promptTokens: 2 });
    expect(opened.all("[role=alert]")).toEqual([]);
    expect(box.value).toBe("");
  });

  test("what is wrong with a setting is told there, too, with its name", async () => {
    const opened = await pinned();
    opened.find("[data-command=branch-again]").click();
    const problem = { field: "temperature", value: "0", message: "0 is not allowed", way_out: "Use more." };
    opened.model.receive({ kind: "problems", problems: [problem] });
    paint();
    expect(opened.find(".gs-branching [role=alert]").textContent).toBe("Temperature: 0 is not allowed Use more.");
    expect(opened.find("[data-field=temperature] .gs-problem").textContent).toContain("0 is not allowed");
  });

  test("a problem of the prompt's own run stands in the form", async () => {
    const opened = await pinned();
    opened.find("[data-command=branch-again]").click();
    opened.find("[data-command=generate]").click();
    const problem = { field: "text", value: "", message: "no", way_out: "" };
    opened.model.receive({ kind: "problems", problems: [problem] });
    paint();
    expect(opened.all(".gs-settings [role=alert]")).toHaveLength(1);
    expect(opened.all(".gs-branching [role=alert]")).toEqual([]);
  });
});

test("a session without a run, or with an obstacle, sends nothing whatever is pressed", async () => {
  const { model, life } = await pinned();
  const session = new Session(/** @type {any} */ (model), life.signal);
  session.onward.branch(0, 1);
  expect(model.sent.filter(({ kind }) => kind === "branch")).toEqual([]);
  model.receive(new FakeRun("r9", rows).begin(2));
  model.set("status", { phase: "loading", text: "", progress: null });
  session.onward.type("replyText", "x");
  session.onward.branch(0, 1);
  session.onward.reply(0);
  expect(model.sent.filter(({ kind }) => kind === "branch" || kind === "reply")).toEqual([]);
});

describe("keep going", () => {
  test("behind the last token, once the run is over", async () => {
    const opened = await open();
    const keep = () => /** @type {HTMLButtonElement} */ (opened.find("[data-command=keep]"));
    expect(opened.find(".gs-onward").hidden).toBe(true);
    const fake = play(opened, rows, { promptTokens: 2 });
    expect(opened.find(".gs-onward").hidden).toBe(false);
    expect([keep().disabled, keep().title]).toEqual([true, "The run is still going"]);
    opened.model.receive(fake.end({ state: "stopped" }));
    paint();
    expect(keep().disabled).toBe(false);
    keep().click();
    expect(sent(opened)).toEqual([{ kind: "branch", run: "r1", lane: 0, position: 5, settings: expect.anything() }]);
    opened.model.receive({
      kind: "problems",
      problems: [{ field: "at", value: "5", message: "too long", way_out: "" }],
    });
    paint();
    expect(opened.find(".gs-onward [role=alert]").textContent?.trim()).toBe("too long");
    expect(opened.all(".gs-branching [role=alert]")).toEqual([]);
  });

  test("of several sequences of the one that is inspected, and says so", async () => {
    const opened = await open();
    const about = { lanes: [{}, { prompt: 0, sequence: 1 }] };
    const fake = play(opened, [generated(["a"]), generated(["b", "c"])], { about });
    opened.model.receive(fake.end({ state: "finished" }));
    paint();
    const keep = () => opened.find("[data-command=keep]");
    expect(keep().textContent?.trim()).toBe("Keep going sequence 1");
    opened.all(".gs-t")[2].click();
    paint();
    expect(keep().textContent?.trim()).toBe("Keep going sequence 2");
    keep().click();
    expect(sent(opened)[0]).toMatchObject({ lane: 1, position: 2 });
  });
});
