import { describe, expect, test } from "vitest";
import { status } from "../dev/fake_kernel.js";
import { Agreement, numbersOf } from "../src/comparing.js";
import { TokenRecord } from "../src/record.js";
import { generated, open, paint, play } from "./helpers.js";

/** @param {number[]} ids */
function record(ids) {
  const made = new TokenRecord();
  add(made, ids);
  return made;
}

/**
 * @param {TokenRecord} made
 * @param {number[]} ids
 * @param {Partial<import("../src/wire.js").Columns>} [more]
 */
function add(made, ids, more = {}) {
  const n = ids.length;
  const all = (/** @type {any} */ value) => Array(n).fill(value);
  made.append(
    {
      id: ids,
      text: all(0),
      bytes: all(null),
      group: ids.map((_, i) => made.n + i),
      special: all(0),
      generated: all(1),
      raw_logprob: all(-1),
      logprob: all(-0.5),
      entropy: all(2),
      rank: all(1),
      seconds: all(0.5),
      alt_n: all(0),
      alt_id: [],
      alt_text: [],
      alt_raw_logprob: [],
      alt_logprob: [],
      cached: all(null),
      ...more,
    },
    0,
  );
}

describe("a lane and the first one", () => {
  test("agree up to the first token that differs, however they grow", () => {
    const [one, other] = [record([9, 9, 1, 2]), record([9, 9, 1])];
    const agreement = new Agreement(other, one, 2);
    expect([agreement.update(false).same, agreement.parted]).toEqual([1, false]);
    add(other, [2, 3]);
    expect([agreement.update(false).same, agreement.parted]).toEqual([2, false]);
    add(one, [4, 5]);
    expect([agreement.update(false).same, agreement.parted]).toEqual([2, true]);
    add(one, [3]);
    expect([agreement.update(true).same, agreement.parted]).toEqual([2, true]);
  });

  test("differ in the end where one is shorter", () => {
    const agreement = new Agreement(record([9, 1]), record([9, 1, 2]), 1);
    expect(agreement.update(false).parted).toBe(false);
    expect([agreement.update(true).parted, agreement.same]).toEqual([true, 1]);
  });
});

describe("numbers of a lane", () => {
  test("are of what it generated", () => {
    const made = record([1, 1]);
    add(made, [5, 6, 5, 6], { raw_logprob: [-1, -2, -3, -2], entropy: [1, 2, 3, 2], seconds: [0.25, 0.5, 0.25, 0.25] });
    expect(numbersOf(made, 2)).toEqual({
      tokens: 4,
      logprob: -8,
      perplexity: Math.exp(2),
      entropy: 2,
      distinct1: 0.5,
      distinct2: 2 / 3,
      first: 0.25,
      rate: 3,
    });
  });

  test("are unknown where one of them is, and of no tokens", () => {
    const made = record([1]);
    add(made, [5, 6], { raw_logprob: [-1, null], entropy: [null, 1], seconds: [null, 0.5] });
    const { logprob, perplexity, entropy, first, rate } = numbersOf(made, 1);
    expect([logprob, perplexity, entropy, first, rate]).toEqual([null, null, null, null, 2]);
    expect(Object.values(numbersOf(record([1]), 1))).toEqual([0, null, null, null, null, null, null, null]);
  });
});

/** @param {string | null | undefined} text */
const plain = (text) =>
  text
    ?.replace(/\u202f/g, " ")
    .replace(/\s+/g, " ")
    .trim();

/** @param {{ ids: number[][], live?: boolean }} told */
async function compared({ ids, live = false }) {
  const opened = await open();
  const { model } = opened;
  const full = status({ state: live ? "decoding" : "finished", generated: 3 });
  const lanes = ids.map((_, i) => ({
    prompt: 0,
    sequence: i,
    prompt_tokens: 2,
    source: null,
    label: `temperature 0.${i + 5}`,
  }));
  model.receive({
    kind: "begin",
    run: "c1",
    lanes,
    tracks: ids.length,
    beams: null,
    branch: null,
    compared: ids.map((_, group) => ({ group, batch: 0, settings: {} })),
    environment: false,
    observed: [],
    settings: {},
    status: full,
  });
  ids.forEach((own, track) => {
    const made = record([]);
    add(made, [7, 8, ...own]);
    const { columns } = made;
    const generated = columns.id.map((_, i) => (i < 2 ? 0 : 1));
    const cached = columns.id.map((_, i) => (i === 0 ? 1 : i === 1 ? 0 : null));
    const text = columns.id.map((id) => id);
    const strings = ["a", "b", "c", "d", "e", "f", "g", "The", " cat"];
    model.receive({
      kind: "data",
      run: "c1",
      track,
      seq: 0,
      n: own.length + 2,
      strings_from: 0,
      strings,
      columns: { ...columns, text, generated, cached },
      status: full,
    });
  });
  if (!live) {
    const counts = { tracks: ids.map((own) => own.length + 2), rounds: 0, beams: 0, choices: 0, segments: 0 };
    const whys = ids.map(() => "length");
    model.receive({ kind: "end", run: "c1", counts, tails: ids.map(() => ""), whys, status: full });
  }
  paint();
  return opened;
}

describe("a comparison on the page", () => {
  test("shows the prompt once, and lanes by their labels", async () => {
    const { all, find } = await compared({
      ids: [
        [1, 2, 3],
        [1, 4, 3],
      ],
    });
    expect(find(".gs-shared-prompt").textContent).toBe("The cat");
    expect(all(".gs-shared-prompt [data-cached=hit]").map((one) => one.textContent)).toEqual(["The"]);
    expect(all(".gs-lane-head b").map((one) => one.textContent)).toEqual(["temperature 0.5", "temperature 0.6"]);
    expect(find(".gs-lanes").hasAttribute("data-compared")).toBe(true);
    expect(plain(find(".gs-comparison h3").textContent)).toBe("Comparison 2 lanes, rows of one batch");
  });

  test("marks what is as in the first lane, and the first token that is not", async () => {
    const { all, find } = await compared({
      ids: [
        [1, 2, 3],
        [1, 4, 3],
        [1, 2, 3],
      ],
    });
    const lanes = all(".gs-lane");
    const texts = (/** @type {number} */ lane, /** @type {string} */ name) =>
      [...lanes[lane].querySelectorAll(name)].map((one) => one.textContent);
    expect(texts(0, ".gs-same")).toEqual([]);
    expect([texts(1, ".gs-same"), texts(1, ".gs-differs")]).toEqual([["b"], ["e"]]);
    expect([texts(2, ".gs-same"), texts(2, ".gs-differs")]).toEqual([["b", "c", "d"], []]);
    expect(plain(find(".gs-comparison .gs-verdict").textContent)).toBe("first difference at generated token 1");
    const column = all(".gs-compare-table tbody tr").map((row) => row.children[1].textContent);
    expect(column).toEqual(["–", "1", "all"]);
  });

  test("stops a lane", async () => {
    const { all, model } = await compared({
      ids: [
        [1, 2],
        [1, 4],
      ],
      live: true,
    });
    const button = /** @type {HTMLButtonElement} */ (all(".gs-compare-table tr[data-lane='1'] button")[0]);
    expect(button.getAttribute("aria-label")).toBe("Stop temperature 0.6");
    button.click();
    expect(model.sent.at(-1)).toEqual({ kind: "stop_lane", run: "c1", lane: 1 });
  });

  test("is gone with the next run", async () => {
    const opened = await compared({ ids: [[1], [2]] });
    const { find } = opened;
    expect(find(".gs-comparison").hidden).toBe(false);
    play(opened, generated(["a"]));
    expect(find(".gs-comparison").hidden).toBe(true);
    expect(find(".gs-lanes").hasAttribute("data-compared")).toBe(false);
  });
});

describe("asking for a comparison", () => {
  async function asking() {
    const opened = await open();
    opened.find(".gs-compare-asked .gs-disclose").click();
    paint();
    return opened;
  }

  /** @param {Element} element @param {string} value */
  function type(element, value) {
    /** @type {HTMLInputElement} */ (element).value = value;
    element.dispatchEvent(new Event("change"));
    paint();
  }

  test("proposes a setting, and sends each value with each other one", async () => {
    const { all, find, model } = await asking();
    expect(find(".gs-compare-asked [data-command=compare]").textContent).toBe("Compare 6 lanes");
    type(all(".gs-values")[0], "0.5, 1.5,");
    const more = all(".gs-compare-row .gs-link").find((one) => one.textContent === "vary one more");
    /** @type {HTMLButtonElement} */ (more).click();
    paint();
    type(all(".gs-compare-asked select")[1], "top_k");
    type(all(".gs-values")[1], "5, x");
    type(find(".gs-compare-asked input[type=number]"), "3");
    expect(find("[data-command=compare]").textContent).toBe("Compare 12 lanes");
    find("[data-command=compare]").click();
    const { kind, prompt, settings, changes, seeds } = model.sent.at(-1);
    expect([kind, prompt, settings.strategy, seeds]).toEqual(["compare", "Hello", "sample", 3]);
    expect(changes).toEqual([
      { temperature: 0.5, top_k: 5 },
      { temperature: 0.5, top_k: "x" },
      { temperature: 1.5, top_k: 5 },
      { temperature: 1.5, top_k: "x" },
    ]);
  });

  test("offers no setting twice, and one that is varied no more is free again", async () => {
    const { all, find } = await asking();
    const options = () => [.../** @type {HTMLSelectElement} */ (all(".gs-compare-asked select")[0]).options];
    expect(options().map(({ value }) => value)).toContain("repetition_penalty");
    expect(options().map(({ value }) => value)).not.toContain("seed");
    find("[aria-label='Vary this no more']").click();
    paint();
    expect(all(".gs-values")).toEqual([]);
    expect(find("[data-command=compare]").textContent).toBe("Compare 2 lanes");
  });

  test("says why it cannot start", async () => {
    const { all, find } = await asking();
    type(all(".gs-values")[0], Array.from({ length: 40 }, (_, i) => String(i + 1)).join(","));
    expect(find("[data-command=compare]").hasAttribute("disabled")).toBe(true);
    expect(find("[data-command=compare]").title).toBe("At most 64 lanes");
  });
});
