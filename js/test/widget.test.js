import { beforeEach, describe, expect, test, vi } from "vitest";
import { controller, generated, open, paint, play, press, type } from "./helpers.js";

beforeEach(() => {
  vi.useFakeTimers({ toFake: ["setTimeout", "clearTimeout", "setInterval", "clearInterval", "Date"] });
});

/** @param {import("./helpers.js").Opened} opened */
const commands = ({ model }) => model.sent.filter(({ kind }) => kind !== "pull");

describe("commands", () => {
  test("Ctrl+Enter generates with the prompt and settings as they stand, typed a moment ago", async () => {
    const opened = await open();
    type(opened.find(".gs-prompt textarea"), "Once");
    type(opened.find("[data-field=top_k] .gs-number"), "3");
    press(opened.find(".gs-prompt textarea"), "Enter", { ctrlKey: true });
    expect(opened.model.get("prompt")).toBe("Once");
    const [message, ...more] = commands(opened);
    expect(message).toMatchObject({ kind: "generate", prompt: "Once", settings: { strategy: "sample", top_k: 3 } });
    vi.advanceTimersByTime(1000);
    expect(more).toEqual([]);
    expect(commands(opened)).toHaveLength(1);
  });

  test("a bare Enter does not", async () => {
    const opened = await open();
    press(opened.find(".gs-prompt textarea"), "Enter");
    expect(commands(opened)).toEqual([]);
  });

  test("stop, pause, resume and step name the run", async () => {
    const opened = await open();
    const fake = play(opened, generated(["a"]));
    opened.find("[data-command=pause]").click();
    opened.model.receive(fake.beat({ tracks: [1] }, { state: "paused" }));
    paint();
    opened.find("[data-command=step]").click();
    opened.find("[data-command=resume]").click();
    opened.find("[data-command=stop]").click();
    expect(commands(opened)).toEqual(["pause", "step", "resume", "stop"].map((kind) => ({ kind, run: "r1" })));
    opened.model.receive(fake.end({ state: "stopped" }));
    paint();
    expect(/** @type {HTMLButtonElement} */ (opened.find("[data-command=stop]")).disabled).toBe(true);
    press(opened.find(".gs-prompt textarea"), "Escape");
    expect(commands(opened)).toHaveLength(4);
  });

  test("a step where no run is going starts a paused one, after prompt and settings have gone out", async () => {
    const opened = await open();
    type(opened.find(".gs-prompt textarea"), "Once");
    type(opened.find("[data-field=top_k] .gs-number"), "3");
    opened.find("[data-command=step]").click();
    expect(opened.model.get("prompt")).toBe("Once");
    vi.advanceTimersByTime(1000);
    const [settings, step, ...more] = commands(opened);
    expect(settings).toMatchObject({ kind: "settings", settings: { top_k: 3 } });
    expect(step).toEqual({ kind: "step" });
    expect(more).toEqual([]);
  });

  test("while the model loads nothing is generated, and the reason is in sight", async () => {
    const loading = { phase: "loading", text: "Reading weights", progress: 0.25 };
    const opened = await open({ status: loading });
    const button = /** @type {HTMLButtonElement} */ (opened.find("[data-command=generate]"));
    expect(button.disabled).toBe(true);
    expect(button.title).toBe("The model is loading");
    expect(opened.find(".gs-obstacle").textContent).toBe("The model is loading");
    expect(opened.find(".gs-loading [role=status]").textContent).toBe("Reading weights");
    expect(opened.find(".gs-loading [role=progressbar]").getAttribute("aria-valuenow")).toBe("0.25");
    press(opened.find(".gs-prompt textarea"), "Enter", { ctrlKey: true });
    expect(commands(opened)).toEqual([]);
    opened.model.set("status", { phase: "ready", text: "", progress: null });
    paint();
    expect(button.disabled).toBe(false);
  });
});

describe("status", () => {
  const readings = (/** @type {import("./helpers.js").Opened} */ { all }) =>
    Object.fromEntries(
      all(".gs-readings div").map((row) => [
        row.querySelector("dt")?.textContent,
        row.querySelector("dd")?.textContent?.replace(/\s+/g, " "),
      ]),
    );

  test("unknown is a dash", async () => {
    const opened = await open();
    expect(readings(opened)).toEqual({
      tokens: "– / –",
      prompt: "–",
      "tokens/s": "–",
      "first token": "–",
      elapsed: "–",
      observing: "–",
    });
  });

  test("shows what was measured, zero too, and why the run ended", async () => {
    const opened = await open();
    const fake = play(opened, generated(["a"]), { promptTokens: 0, settings: { max_new_tokens: 4 } });
    const change = { elapsed: 61.2, first_token: 0.0042, tokens_per_second: 9.876, generated: 1, observation_share: 0 };
    opened.model.receive(fake.end({ ...change, state: "finished", why: "stop string '\\n'" }));
    paint();
    expect(readings(opened)).toEqual({
      tokens: "1 / 4",
      prompt: "0",
      "tokens/s": "9.88",
      "first token": "4.2 ms",
      elapsed: "1 min 1 s",
      observing: "0.0 %",
    });
    expect(opened.find(".gs-state").textContent?.trim()).toBe("finished: stop string '\\n'");
    expect(opened.find(".gs-status .gs-progress").getAttribute("style")).toBe("--share:0.2500");
  });

  test.each([
    ["eos", 7, "finished: end of sequence"],
    ["length", 1200, "finished: reached 1,200 tokens"],
    ["length", 1, "finished: reached 1 token"],
    ["constructor", 1, "finished: constructor"],
  ])("says why a run ended: %s", async (why, count, sentence) => {
    const opened = await open();
    const fake = play(opened, generated(["a"]));
    opened.model.receive(fake.end({ state: "finished", why, generated: count }));
    paint();
    expect(opened.find(".gs-state").textContent?.trim()).toBe(sentence);
  });

  test("of several sequences it says how many ended for which reason", async () => {
    const opened = await open();
    const about = { lanes: [{}, {}, {}, {}] };
    const fake = play(
      opened,
      [1, 2, 3, 4].map(() => generated(["a"])),
      { about },
    );
    const end = fake.end({ state: "finished", why: "length (2), eos (1)", generated: 40 });
    opened.model.receive({ ...end, whys: ["length", "eos", "length", null] });
    paint();
    expect(opened.find(".gs-state").textContent?.trim()).toBe("finished: 2 × reached 40 tokens, 1 × end of sequence");
  });

  test("of several sequences the speed is of each, and prompts are as long as they are", async () => {
    const opened = await open();
    const lanes = [{ prompt_tokens: 1 }, { prompt_tokens: 3 }];
    play(opened, [generated(["a", "b"]), generated(["a", "b", "c", "d"])], { about: { lanes } });
    expect(readings(opened)).toMatchObject({ "tokens/s each": "–", prompt: "1–3" });
  });

  test.each([
    [
      { rounds: 26, drafted: 62, accepted: 44, generated: 62 },
      "71 % of 62 drafts kept, 18 wasted, 2.4 tokens a forward pass",
    ],
    [{ rounds: 3, drafted: 0, accepted: 0, generated: 3 }, "nothing was drafted, 1.0 tokens a forward pass"],
    [{ rounds: 0, drafted: 0, accepted: 0, generated: 0 }, "no draft was checked yet"],
  ])("says what drafting was worth: %j", async (drafts, sentence) => {
    const opened = await open();
    const fake = play(opened, generated(["a"]));
    expect(opened.all(".gs-drafted")).toEqual([]);
    opened.model.receive(fake.beat({ tracks: [1] }, { drafts }));
    paint();
    expect(opened.find(".gs-drafted").textContent?.replace("\u202f", " ")).toBe(sentence);
  });

  test("errors are shown in full, and what came is kept", async () => {
    const opened = await open();
    const fake = play(opened, generated(["kept"]));
    opened.model.receive(fake.end({ state: "failed", error: "ValueError: x\nDo y." }));
    paint();
    expect(opened.find(".gs-status .gs-error").textContent).toBe("ValueError: x\nDo y.");
    expect(opened.find(".gs-text").textContent).toBe("kept");
  });

  test("the queue, silence, and a dead kernel", async () => {
    const opened = await open();
    const fake = play(opened, generated(["a"]));
    opened.model.receive(fake.beat({ tracks: [1] }, { state: "queued", queue_ahead: 2 }));
    paint();
    expect(opened.find(".gs-state").textContent?.trim()).toBe("queued, 2 before it");
    vi.advanceTimersByTime(8000);
    paint();
    expect(opened.find(".gs-warning").textContent).toBe("No sign of life from the kernel for 8 s.");
    opened.model.emit("comm_live_update");
    paint();
    expect(opened.find(".gs-state").textContent?.trim()).toBe("kernel gone");
    expect(opened.find(".gs-warning").textContent).toBe("Kernel gone: what came is kept; run the cell again.");
    const buttons = /** @type {HTMLButtonElement[]} */ (opened.all(".gs-commands [data-command]"));
    expect(buttons.every((button) => button.disabled)).toBe(true);
    expect(fake.rows).toHaveLength(1);
  });
});

describe("life of a view", () => {
  test("two views share the run; one goes, the other stays", async () => {
    const opened = await open();
    const second = document.createElement("div");
    document.body.append(second);
    await opened.show(second, controller().signal);
    const fake = play(opened, generated(["a"]));
    expect(second.querySelectorAll(".gs-t")).toHaveLength(1);
    opened.view.abort();
    expect(opened.all(".genscope")).toEqual([]);
    opened.model.receive(fake.beat({ tracks: [1] }, { state: "paused" }));
    paint();
    expect(second.querySelector(".gs-state")?.textContent?.trim()).toBe("paused");
  });

  test("a view that comes later shows the whole run", async () => {
    const opened = await open();
    play(opened, generated(["a", "b"]));
    const later = document.createElement("div");
    document.body.append(later);
    await opened.show(later, controller().signal);
    expect(later.querySelector(".gs-text")?.textContent).toBe("ab");
  });

  test("nothing listens when the model is gone", async () => {
    const { model, view, life } = await open();
    view.abort();
    life.abort();
    expect(model.listening).toBe(0);
    expect(vi.getTimerCount()).toBe(0);
  });

  test("every element that can have the focus keeps bare keys from the notebook", async () => {
    const opened = await open({ about: { model: "m", chat: true, context: null } });
    play(opened, [{ ...generated(["a"])[0], alternatives: [{ text: "b", raw: 0.5, processed: 0.5, id: 3 }] }]);
    opened.find("[data-field=stop_strings] .gs-add").click();
    opened.find('[data-value="chat"]').click();
    paint();
    const focusable = opened.all("button, input, select, textarea, summary, [tabindex]");
    expect(focusable.length).toBeGreaterThan(30);
    expect(
      focusable.filter((element) => element.dataset.lmSuppressShortcuts !== "true").map((e) => e.outerHTML),
    ).toEqual([]);
  });
});
