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

describe("a field that counts only while a switch is on", () => {
  const fields = (/** @type {import("./helpers.js").Opened} */ { all }) =>
    all(".gs-settings .gs-field").map((field) => field.dataset.field);

  test("is drawn only then; its value is kept and sent all the same", async () => {
    const opened = await open({ settings: { strategy: "prompt_lookup", do_sample: true, temperature: 0.6 } });
    expect(fields(opened)).toContain("temperature");
    opened.find("[data-field=do_sample] input").click();
    vi.advanceTimersByTime(300);
    paint();
    expect(fields(opened)).not.toContain("temperature");
    expect(sent(opened).at(-1)).toMatchObject({ do_sample: false, temperature: 0.6 });
    opened.find("[data-field=do_sample] input").click();
    paint();
    const box = /** @type {HTMLInputElement} */ (opened.find("[data-field=temperature] .gs-number"));
    expect(box.value).toBe("0.6");
  });

  test("shows a problem that it has while it is hidden", async () => {
    const opened = await open({ settings: { strategy: "prompt_lookup" } });
    const problem = { field: "temperature", value: "0", message: "0 is not allowed", way_out: "Use more." };
    opened.model.receive({ kind: "problems", problems: [problem] });
    paint();
    expect(opened.find(".gs-strategy .gs-problem").textContent).toBe("temperature: 0 is not allowed Use more.");
  });
});

describe("many strategies", () => {
  const options = (/** @type {import("./helpers.js").Opened} */ { all }) =>
    /** @type {HTMLOptionElement[]} */ (all(".gs-strategy option"));

  test("stand in a list, with what the chosen one does", async () => {
    const opened = await open({ settings: { strategy: "beam" } });
    expect(options(opened).map(({ value }) => value)).toEqual(readSchema(schema).strategies.map(({ name }) => name));
    expect(options(opened)).toHaveLength(11);
    expect(opened.find(".gs-description").textContent).toMatch(/^Follows the most probable hypotheses/);
    const stop = /** @type {HTMLSelectElement} */ (opened.find("[data-field=early_stopping] select"));
    expect([...stop.options].map(({ value }) => value)).toEqual(["estimate", "first", "never"]);
    stop.value = "never";
    stop.dispatchEvent(new Event("change", { bubbles: true }));
    vi.advanceTimersByTime(300);
    expect(sent(opened).at(-1)).toMatchObject({ strategy: "beam", early_stopping: "never" });
  });

  test("one that cannot be used says why and cannot be chosen", async () => {
    const about = { model: "m", chat: false, context: null, unavailable: { assisted: "no assistant was given" } };
    const opened = await open({ about });
    const assisted = options(opened).find(({ value }) => value === "assisted");
    expect(assisted?.disabled).toBe(true);
    expect(assisted?.textContent).toBe("Assisted (draft model) – no assistant was given");
    expect(options(opened).filter(({ disabled }) => disabled)).toHaveLength(1);
  });

  test("one that Python chose although it cannot be used stays chosen, and says why", async () => {
    const about = { model: "m", chat: false, context: null, unavailable: { assisted: "no assistant was given" } };
    const opened = await open({ about, settings: { strategy: "assisted" } });
    const chosen = options(opened).find((option) => option.hasAttribute("selected"));
    expect([chosen?.value, chosen?.disabled]).toEqual(["assisted", false]);
    expect(opened.find(".gs-strategy .gs-warning").textContent).toBe("Not with this model: no assistant was given");
  });

  const { strategies } = readSchema(schema);
  test.each(strategies.map(({ name }) => name))(
    "a switch from %s to any other keeps what they share, and the prompt",
    async (from) => {
      const opened = await open({ settings: { strategy: from }, prompt: "stays" });
      const changed = {
        max_new_tokens: 77,
        seed: 5,
        alternatives: 3,
        repetition_penalty: 1.3,
        temperature: 0.4,
        num_beams: 3,
      };
      const own = strategies.find(({ name }) => name === from)?.fields.map(({ name }) => name) ?? [];
      const given = Object.fromEntries(Object.entries(changed).filter(([name]) => own.includes(name)));
      opened.model.set("settings", { ...opened.model.get("settings"), ...given });
      paint();
      for (const { name, fields } of strategies) {
        choose(opened, name);
        vi.advanceTimersByTime(300);
        const shared = Object.entries(given).filter(([key]) => fields.some((field) => field.name === key));
        expect(shared.length).toBeGreaterThanOrEqual(3);
        expect(sent(opened).at(-1) ?? { strategy: from, ...given }).toMatchObject({
          strategy: name,
          ...Object.fromEntries(shared),
        });
        expect(Object.keys(sent(opened).at(-1)).sort()).toEqual(
          ["strategy", ...fields.map((field) => field.name)].sort(),
        );
      }
      expect(opened.model.get("prompt")).toBe("stays");
    },
  );
});

describe("what observing costs", () => {
  const asked = (/** @type {import("./helpers.js").Opened} */ { model }) =>
    model.sent.filter(({ kind }) => kind === "costs");
  const unfold = (/** @type {import("./helpers.js").Opened} */ opened) => {
    const group = /** @type {HTMLDetailsElement} */ (opened.find("details[data-group=observe]"));
    group.open = true;
    group.dispatchEvent(new Event("toggle"));
    paint();
  };
  const costs = (/** @type {import("./helpers.js").Opened} */ { all }) =>
    all(".gs-cost").map((cost) => [cost.closest(".gs-field")?.getAttribute("data-field"), cost.textContent]);

  test("is asked for once, when someone looks, and stands below the setting", async () => {
    const about = { model: "m", chat: false, context: null, unavailable: {}, costs: null };
    const opened = await open({ about });
    expect(asked(opened)).toEqual([]);
    unfold(opened);
    unfold(opened);
    expect(asked(opened)).toEqual([{ kind: "costs" }]);
    expect(costs(opened)).toEqual([
      ["attention", "measuring what this costs…"],
      ["logit_lens", "measuring what this costs…"],
      ["prompt_probabilities", "measuring what this costs…"],
    ]);
    opened.model.set("about", { ...about, costs: { attention: "2.1 times the time of a step" } });
    paint();
    expect(costs(opened)).toEqual([["attention", "2.1 times the time of a step"]]);
    expect(asked(opened)).toHaveLength(1);
  });

  test("is not asked for where it is known, nor before the model is there", async () => {
    const known = await open({ about: { model: "m", costs: {} } });
    unfold(known);
    expect(asked(known)).toEqual([]);
    const loading = await open({ status: { phase: "loading", text: "", progress: null } });
    unfold(loading);
    expect(asked(loading)).toEqual([]);
    expect(costs(loading)).toEqual([]);
    loading.model.set("status", { phase: "ready", text: "", progress: null });
    paint();
    expect(asked(loading)).toEqual([{ kind: "costs" }]);
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
