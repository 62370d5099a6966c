import { expect, test } from "vitest";
import { drawInspector } from "../src/views/inspector.js";
import { open, paint, play } from "./helpers.js";

const base = {
  index: 17,
  id: 9,
  text: " sat\n",
  bytes: "20736174",
  special: false,
  generated: true,
  rawLogprob: Math.log(0.25),
  logprob: Math.log(0.5),
  entropy: 1.5,
  rank: 2,
  seconds: 0.0213,
  /** @type {boolean | null} */
  cached: null,
  group: [17],
  /** @type {import("../src/record.js").Alternative[]} */
  alternatives: [],
};

/** @type {import("../src/views/inspector.js").Beside} */
const beside = {
  why: "pinned",
  where: "",
  source: false,
  origin: null,
  shown: 10,
  parts: ["alternatives"],
  part: "alternatives",
  choose: () => {},
  offers: [],
  branching: null,
  measurePrompt: () => {},
};

/**
 * @param {Partial<import("../src/record.js").Token>} [change]
 * @param {Partial<typeof beside>} [around]
 */
function draw(change = {}, around = {}) {
  const element = document.createElement("aside");
  drawInspector(element, { ...base, ...change }, { ...beside, ...around });
  const cells = (/** @type {string} */ selector) =>
    [...element.querySelectorAll(selector)].map((cell) => cell.textContent?.replace(/\s+/g, " ").trim());
  return { element, cells };
}

test("tells who the token is, with its white space visible and its bytes", () => {
  const { cells } = draw();
  expect(cells(".gs-literal")).toEqual(['" sat\\n"']);
  expect(cells(".gs-ids dd")).toEqual(["9", "20 73 61 74"]);
  expect(cells(".gs-kicker b")).toEqual(["17"]);
});

test("labels both probabilities, in percent and in bits", () => {
  const { cells } = draw();
  expect(cells(".gs-raw")).toEqual(["model’s own 25.0 % 2.00 bits"]);
  expect(cells(".gs-processed")).toEqual(["as chosen 50.0 % 1.00 bits"]);
  expect(cells(".gs-facts dd")).toEqual(["1.50 bits", "#2", "21 ms"]);
});

test("unknown is a dash, never a zero", () => {
  const { cells } = draw({ logprob: null, entropy: null, rank: null, seconds: null, bytes: null });
  expect(cells(".gs-processed")).toEqual(["as chosen – –"]);
  expect(cells(".gs-facts dd")).toEqual(["–", "–", "–"]);
  expect(cells(".gs-ids dd")).toEqual(["9", "–"]);
});

test("an entropy of zero and a certain token are numbers", () => {
  const { cells } = draw({ rawLogprob: 0, entropy: 0, seconds: 0 });
  expect(cells(".gs-raw")).toEqual(["model’s own 100 % 0.00 bits"]);
  expect(cells(".gs-facts dd")).toEqual(["0.00 bits", "#2", "0.0 ms"]);
});

test("alternatives: a bar for each distribution, cut is cut, zero is zero, the chosen one is marked", () => {
  const { element, cells } = draw({
    alternatives: [
      { id: 1, text: " the", rawLogprob: Math.log(0.5), logprob: null, chosen: false },
      { id: 9, text: " sat\n", rawLogprob: Math.log(0.25), logprob: Math.log(0.5), chosen: true },
      { id: 3, text: " no", rawLogprob: null, logprob: null, chosen: false },
    ],
  });
  expect(cells(".gs-alternatives tbody tr")).toEqual([
    '" the" 50.0 % cut',
    '▸" sat\\n" (chosen) 25.0 % 50.0 %',
    '" no" 0 cut',
  ]);
  const bars = [...element.querySelectorAll(".gs-bar")].map((bar) => bar.getAttribute("style"));
  expect(bars).toEqual(["--p:0.5000", null, "--p:0.2500", "--p:0.5000", "--p:0.0000", null]);
  expect(cells(".gs-note")).toEqual([""]);
});

test("says when the chosen token is not among the alternatives", () => {
  const { cells } = draw({ alternatives: [{ id: 1, text: " the", rawLogprob: -0.1, logprob: -0.1, chosen: false }] });
  expect(cells(".gs-note")).toEqual(["the chosen token is not among these 1"]);
});

test("a prompt token without measures says how to get them; with measures it shows them", () => {
  const bare = { generated: false, rawLogprob: null, logprob: null, entropy: null, rank: null };
  expect(draw(bare).cells(".gs-unmeasured")).toEqual(["not measured: switch on “Probabilities of the prompt”"]);
  const measured = draw({ ...bare, rawLogprob: Math.log(0.25) });
  expect(measured.cells(".gs-unmeasured")).toEqual([]);
  expect(measured.cells(".gs-raw")).toEqual(["model’s own 25.0 % 2.00 bits"]);
});

test("the way to measure the prompt leads to its switch", async () => {
  const opened = await open();
  play(opened, [{ text: "p" }, { text: "a", generated: true, raw: 0.5 }]);
  opened.all(".gs-t")[0].dispatchEvent(new Event("pointerover", { bubbles: true }));
  paint();
  opened.find(".gs-unmeasured button").click();
  expect(/** @type {HTMLDetailsElement} */ (opened.find("details[data-group=observe]")).open).toBe(true);
  expect(document.activeElement).toBe(opened.find("[data-field=prompt_probabilities] input"));
});

test.each([
  ["a\u200bb", '"a\\u200bb"'],
  ["\u202eabc", '"\\u202eabc"'],
  ["soft\u00adhyphen", '"soft\\u00adhyphen"'],
  ["\ufeff\u0085\u2028\u00a0", '"\\ufeff\\u0085\\u2028\\u00a0"'],
  ["\u{e0001}", '"\\u{e0001}"'],
  ["👩\u200d👩\u200d👧 ❤\ufe0f", '"👩\u200d👩\u200d👧 ❤\ufe0f"'],
  ["👩\u200d", '"👩\\u200d"'],
  ["a b\n\\xE2", '"a b\\n\\\\xE2"'],
])("what cannot be seen is written as code: %j", (text, written) => {
  expect(draw({ text }).cells(".gs-literal")).toEqual([written]);
});

test("candidates that are bytes inside a character are bytes, not text with backslashes", () => {
  const rest = { rawLogprob: -0.1, logprob: -0.1, chosen: false };
  const { cells } = draw({
    alternatives: [
      { ...rest, id: 1, text: "\\xE2\\x80" },
      { ...rest, id: 2, text: "é\\xE2" },
    ],
  });
  expect(cells(".gs-alternatives .gs-loose")).toEqual(["E2 80"]);
  expect(cells(".gs-alternatives code")).toEqual(["E2 80", '"é\\\\xE2"']);
});

test("names the tokens of one character", () => {
  expect(draw({ group: [16, 17, 18] }).cells(".gs-ids")[0]).toContain("one character: tokens 16–18");
});

test("the legend marks the token's bucket and counts generated tokens", async () => {
  const opened = await open();
  play(opened, [
    { text: "p", raw: 0.5 },
    { text: "a", generated: true, raw: 0.995 },
    { text: "b", generated: true, raw: 0.995 },
  ]);
  const marked = () => opened.all(".gs-swatches i").map((swatch) => swatch.dataset.marked === "true");
  expect(marked().indexOf(true)).toBe(0);
  expect(opened.all(".gs-histogram i").map((bar) => bar.title)[0]).toBe("2 generated tokens");
  expect(opened.all(".gs-histogram i").map((bar) => bar.title)[6]).toBe("0 generated tokens");
  opened.all(".gs-t")[0].dispatchEvent(new Event("pointerover", { bubbles: true }));
  paint();
  expect(marked().indexOf(true)).toBe(6);
});

test("candidates of a prompt token were not cut: what processors would have done is unknown", async () => {
  const opened = await open();
  const alternatives = [{ text: "q", raw: 0.25, processed: null, id: 5 }];
  play(opened, [
    { text: "p", raw: 0.5, processed: null, alternatives },
    { text: "a", generated: true, raw: 0.5, processed: 0.5, alternatives },
  ]);
  const rows = () => opened.all(".gs-alternatives tbody tr").map((row) => row.textContent?.replace(/\s+/g, " ").trim());
  opened.all(".gs-t")[0].dispatchEvent(new Event("pointerover", { bubbles: true }));
  paint();
  expect(rows()).toEqual(['"q" 25.0 % –']);
  opened.all(".gs-t")[1].dispatchEvent(new Event("pointerover", { bubbles: true }));
  paint();
  expect(rows()).toEqual(['"q" 25.0 % cut']);
});
