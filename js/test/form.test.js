import { beforeEach, describe, expect, test, vi } from "vitest";
import { readNumber, readSchema, sliderRange } from "../src/schema.js";
import { open, paint, press, schema, type } from "./helpers.js";

const INVENTED = {
  $defs: {
    Dream: {
      title: "Dreaming",
      description: "Wanders.",
      type: "object",
      properties: {
        strategy: { const: "dream", default: "dream" },
        depth: {
          type: "number",
          minimum: 0,
          exclusiveMaximum: 4,
          step: 0.5,
          default: 1,
          title: "Depth",
          group: "strategy",
        },
        mood: { type: "string", enum: ["calm", "wild"], default: "calm", title: "Mood", group: "strategy" },
        beams: { type: "integer", minimum: 1, default: 4, title: "Beams", group: "strategy" },
        note: { type: "string", default: "", title: "Note", group: "length" },
        seed: {
          anyOf: [{ type: "integer", minimum: 0 }, { type: "null" }],
          default: null,
          title: "Seed",
          group: "randomness",
        },
        awake: { type: "boolean", default: true, title: "Awake", group: "unheard of" },
        parts: {
          type: "array",
          items: { type: "string", enum: ["x", "y"] },
          default: [],
          title: "Parts",
          group: "observe",
        },
        words: { type: "array", items: { type: "string" }, default: ["a\nb"], title: "Words", group: "observe" },
      },
    },
  },
  discriminator: { propertyName: "strategy" },
  oneOf: [{ $ref: "#/$defs/Dream" }],
};

beforeEach(() => {
  vi.useFakeTimers({ toFake: ["setTimeout", "clearTimeout", "setInterval", "clearInterval"] });
});

/** @param {import("./helpers.js").Opened} opened */
const sent = ({ model }) => model.sent.filter(({ kind }) => kind === "settings").map(({ settings }) => settings);

/**
 * @param {import("./helpers.js").Opened} opened
 * @param {string} strategy
 */
function choose(opened, strategy) {
  const select = /** @type {HTMLSelectElement} */ (opened.find(".gs-strategy select"));
  select.value = strategy;
  select.dispatchEvent(new Event("change", { bubbles: true }));
  paint();
}

describe("any schema", () => {
  test("is read into fields", () => {
    const { tag, strategies } = readSchema(INVENTED);
    expect(tag).toBe("strategy");
    expect(strategies[0].fields.map(({ name, kind }) => [name, kind])).toEqual([
      ["depth", "slider"],
      ["mood", "choice"],
      ["beams", "number"],
      ["note", "text"],
      ["seed", "number"],
      ["awake", "boolean"],
      ["parts", "choices"],
      ["words", "texts"],
    ]);
    expect(strategies[0].fields.find(({ name }) => name === "seed")).toMatchObject({
      nullable: true,
      integer: true,
      min: 0,
    });
  });

  test("draws an invented strategy, with unheard-of groups in sight", async () => {
    const opened = await open({ schema: INVENTED, settings: { strategy: "dream", mood: "wild" } });
    expect(opened.all(".gs-settings > .gs-fields .gs-field").map((field) => field.dataset.field)).toEqual([
      "depth",
      "mood",
      "beams",
      "awake",
    ]);
    expect(opened.all(".gs-settings details").map((group) => group.dataset.group)).toEqual([
      "length",
      "randomness",
      "observe",
    ]);
    expect(/** @type {HTMLSelectElement} */ (opened.find("[data-field=mood] select")).value).toBe("wild");
    expect(opened.find(".gs-description").textContent).toBe("Wanders.");
    opened.find("[data-field=parts] input").click();
    vi.advanceTimersByTime(300);
    expect(sent(opened).at(-1)).toMatchObject({ strategy: "dream", parts: ["x"], words: ["a\nb"] });
  });

  test("an empty schema draws no form and breaks nothing", async () => {
    const opened = await open({ schema: {}, settings: {} });
    expect(opened.find(".gs-settings").textContent?.trim()).toBe("");
  });

  test("a slider covers what can be aimed at, and the value", () => {
    const [field] = readSchema(INVENTED).strategies[0].fields;
    expect(sliderRange(field, 1)).toEqual({ min: 0, max: 3.5, step: 0.5 });
    const temperature = readSchema(schema).strategies[1].fields.find(({ name }) => name === "temperature");
    expect(temperature && sliderRange(temperature, 0.8)).toEqual({ min: 0.05, max: 2, step: 0.05 });
    expect(temperature && sliderRange(temperature, 30).max).toBe(30);
  });

  test("numbers are read as they are meant; what is none stays text", () => {
    const fields = readSchema(INVENTED).strategies[0].fields;
    const seed = /** @type {import("../src/schema.js").Field} */ (fields.find(({ name }) => name === "seed"));
    expect(readNumber(fields[0], " 0.70 ")).toBe(0.7);
    expect(readNumber(fields[0], "")).toBe("");
    expect(readNumber(fields[0], "warm")).toBe("warm");
    expect(readNumber(seed, "")).toBeNull();
    expect(readNumber(seed, "9223372036854775807")).toBe("9223372036854775807");
  });
});

describe("editing", () => {
  test("sends all settings, once for quick typing, and never writes the trait", async () => {
    const opened = await open();
    const box = opened.find("[data-field=temperature] .gs-number");
    type(box, "0.");
    expect(/** @type {HTMLInputElement} */ (box).value).toBe("0.");
    type(box, "0.7");
    vi.advanceTimersByTime(240);
    expect(sent(opened)).toEqual([]);
    vi.advanceTimersByTime(20);
    expect(sent(opened)).toHaveLength(1);
    expect(sent(opened)[0]).toMatchObject({ strategy: "sample", temperature: 0.7, top_k: 50, keep: [], seed: null });
    expect(opened.model.get("settings")).toEqual({ strategy: "sample", temperature: 0.8 });
  });

  test("arrow keys step without rounding noise, and stay within the bounds", async () => {
    const opened = await open({ settings: { strategy: "sample", temperature: 0.1 } });
    const box = /** @type {HTMLInputElement} */ (opened.find("[data-field=temperature] .gs-number"));
    press(box, "ArrowUp");
    expect(box.value).toBe("0.15");
    press(box, "ArrowDown");
    press(box, "ArrowDown");
    press(box, "ArrowDown");
    expect(box.value).toBe("0.05");
  });

  test("a switch of strategy keeps what fits, and the rest for the way back", async () => {
    const opened = await open();
    type(opened.find("[data-field=repetition_penalty] .gs-number"), "1.2");
    type(opened.find("[data-field=top_k] .gs-number"), "7");
    choose(opened, "greedy");
    vi.advanceTimersByTime(300);
    paint();
    expect(sent(opened).at(-1)).toMatchObject({ strategy: "greedy", repetition_penalty: 1.2 });
    expect(sent(opened).at(-1)).not.toHaveProperty("top_k");
    expect(opened.all("[data-field=top_k]")).toEqual([]);
    choose(opened, "sample");
    vi.advanceTimersByTime(300);
    expect(sent(opened).at(-1)).toMatchObject({ strategy: "sample", repetition_penalty: 1.2, top_k: 7 });
  });

  test("back to the default", async () => {
    const opened = await open();
    opened.find("[data-field=temperature] .gs-icon").click();
    vi.advanceTimersByTime(300);
    paint();
    expect(sent(opened).at(-1).temperature).toBe(1);
    expect(opened.all("[data-field=temperature] .gs-icon")).toEqual([]);
  });
});

describe("folded groups", () => {
  const problem = { field: "max_new_tokens", value: "", message: "empty", way_out: "Use more." };

  test("are opened by a new problem, and closed by nobody but the person", async () => {
    const opened = await open();
    const group = /** @type {HTMLDetailsElement} */ (opened.find("details[data-group=length]"));
    const tell = (/** @type {any[]} */ ...problems) => {
      opened.model.receive({ kind: "problems", problems });
      paint();
    };
    tell(problem);
    expect(group.open).toBe(true);
    const box = opened.find("[data-field=max_new_tokens] input");
    box.focus();
    tell();
    expect(group.open).toBe(true);
    expect(document.activeElement).toBe(box);
    tell(problem);
    group.open = false;
    tell(problem);
    expect(group.open).toBe(false);
    tell(problem, { ...problem, field: "min_new_tokens" });
    expect(group.open).toBe(true);
  });
});

describe("Python's word", () => {
  const problem = { field: "temperature", value: "0", message: "0 is not allowed", way_out: "Use more." };

  test("stands beside the control, which says that it is wrong", async () => {
    const opened = await open();
    opened.model.receive({ kind: "problems", problems: [problem] });
    paint();
    const box = opened.find("[data-field=temperature] .gs-number");
    expect(box.getAttribute("aria-invalid")).toBe("true");
    const described = opened.find(`#${box.getAttribute("aria-describedby")}`);
    expect(described.textContent?.replace(/\s+/g, " ")).toBe("0 is not allowed. Use more.");
    expect(opened.find("[data-field=top_p] .gs-number").getAttribute("aria-invalid")).toBe("false");
    opened.model.receive({ kind: "problems", problems: [] });
    paint();
    expect(opened.all(".gs-problem")).toEqual([]);
  });

  test("opens the folded group, and is shown at the top where there is no control for it", async () => {
    const opened = await open();
    const problems = [
      { ...problem, field: "seed" },
      { ...problem, field: "warp" },
      { ...problem, field: "prompt", message: "the prompt is empty" },
    ];
    opened.model.receive({ kind: "problems", problems });
    paint();
    expect(/** @type {HTMLDetailsElement} */ (opened.find("details[data-group=randomness]")).open).toBe(true);
    expect(opened.find(".gs-strategy .gs-problem").textContent).toContain("warp: 0 is not allowed");
    expect(opened.find(".gs-prompt .gs-problem").textContent).toContain("the prompt is empty");
    expect(opened.find(".gs-prompt textarea").getAttribute("aria-invalid")).toBe("true");
  });

  test("a trait that Python writes is taken over, but not over an edit that is on its way", async () => {
    const opened = await open();
    const box = /** @type {HTMLInputElement} */ (opened.find("[data-field=temperature] .gs-number"));
    opened.model.set("settings", { strategy: "sample", temperature: 1.5 });
    paint();
    expect(box.value).toBe("1.5");
    type(box, "0.9");
    opened.model.set("settings", { strategy: "sample", temperature: 0.2 });
    paint();
    expect(box.value).toBe("0.9");
    vi.advanceTimersByTime(300);
    opened.model.set("settings", { strategy: "sample", temperature: 0.9 });
    opened.model.receive({ kind: "problems", problems: [] });
    opened.model.set("settings", { strategy: "greedy" });
    paint();
    expect(opened.all("[data-field=temperature]")).toEqual([]);
  });

  test("wrong values stay in the form, although the trait keeps the last good ones", async () => {
    const opened = await open();
    const box = /** @type {HTMLInputElement} */ (opened.find("[data-field=temperature] .gs-number"));
    type(box, "hot");
    vi.advanceTimersByTime(300);
    expect(sent(opened).at(-1).temperature).toBe("hot");
    opened.model.receive({ kind: "problems", problems: [problem] });
    paint();
    expect(box.value).toBe("hot");
  });
});

describe("the prefix cache", () => {
  const about = { model: "m", chat: false, context: null, prefix_cache: 1_000_000_000 };

  test("is a group of its own, with its budget; checking counts while it is on", async () => {
    const opened = await open({ about });
    const group = opened.find("details[data-group=cache]");
    expect(group.querySelector("summary")?.textContent?.replace(/\s+/g, " ").trim()).toBe("Prefix cache up to 1.0 GB");
    const fields = () =>
      [...group.querySelectorAll("[data-field]")].map((one) => /** @type {HTMLElement} */ (one).dataset.field);
    expect(fields()).toEqual(["prefix_cache", "verify_cache"]);
    /** @type {HTMLInputElement} */ (opened.find("[data-field=prefix_cache] input")).click();
    paint();
    expect(fields()).toEqual(["prefix_cache"]);
    expect(group.querySelector("summary small")?.textContent).toBe("up to 1.0\u202fGB, prefix cache: false");
    vi.advanceTimersByTime(500);
    expect(sent(opened).at(-1)).toMatchObject({ prefix_cache: false });
  });

  test("is not offered where there is none, and a problem with it is told all the same", async () => {
    const opened = await open({ about: { ...about, prefix_cache: null } });
    expect(opened.all("details[data-group=cache], [data-field=prefix_cache], [data-field=verify_cache]")).toEqual([]);
    expect(opened.find(".gs-without").textContent).toBe("no prefix cache");
    const problem = { field: "verify_cache", value: "1", message: "not a truth value", way_out: "Use true or false." };
    opened.model.receive({ kind: "problems", problems: [problem] });
    paint();
    expect(opened.find(".gs-strategy [role=alert]").textContent).toContain("verify_cache: not a truth value");
  });
});
