import { beforeEach, describe, expect, test, vi } from "vitest";
import { readSchema } from "../src/schema.js";
import { open, paint, schema } from "./helpers.js";

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
