import { describe, expect, test } from "vitest";
import { emptyState } from "../src/store.js";
import { rowsOf } from "../src/views/lanes.js";
import { generated, open, paint, play, press } from "./helpers.js";

/** @typedef {Partial<import("../src/wire.js").WireLane>} Lane */

/** @param {Lane[]} lanes */
function labels(lanes) {
  const full = lanes.map((lane) => ({ prompt: 0, sequence: 0, prompt_tokens: 1, source: null, label: "", ...lane }));
  return rowsOf({ ...emptyState(), lanes: full }).map(({ track, lane, label }) => [track, lane, label]);
}

describe("labels tell apart what there is", () => {
  test("one sequence needs none", () => {
    expect(labels([])).toEqual([[0, 0, ""]]);
    expect(labels([{}])).toEqual([[0, 0, ""]]);
  });

  test("prompts, sequences, and both", () => {
    expect(labels([{}, { prompt: 1 }]).map(([, , label]) => label)).toEqual(["prompt 1", "prompt 2"]);
    expect(labels([{}, { sequence: 1 }]).map(([, , label]) => label)).toEqual(["sequence 1", "sequence 2"]);
    const both = [{}, { sequence: 1 }, { prompt: 1 }, { prompt: 1, sequence: 1 }];
    expect(labels(both).map(([, , label]) => label)).toEqual([
      "prompt 1 · sequence 1",
      "prompt 1 · sequence 2",
      "prompt 2 · sequence 1",
      "prompt 2 · sequence 2",
    ]);
  });

  test("a source stands above the first lane that reads it", () => {
    expect(labels([{ source: 1 }])).toEqual([
      [1, null, "source"],
      [0, 0, "target"],
    ]);
    const two = [{ source: 2 }, { sequence: 1, source: 2 }];
    expect(labels(two)).toEqual([
      [2, null, "source"],
      [0, 0, "sequence 1"],
      [1, 1, "sequence 2"],
    ]);
    const batch = [{ source: 2 }, { prompt: 1, source: 3 }];
    expect(labels(batch).map(([, , label]) => label)).toEqual([
      "source · prompt 1",
      "prompt 1",
      "source · prompt 2",
      "prompt 2",
    ]);
  });
});

async function batch() {
  const opened = await open();
  const rows = [generated(["a", "b", "c"]), generated(["x", "y"]), generated(["u", "v", "w"])];
  const fake = play(opened, rows, { promptTokens: 1, about: { lanes: [{}, {}, {}] } });
  const words = (/** @type {string} */ selector) =>
    opened.all(selector).map((e) => e.textContent?.replace(/\s+/g, " ").trim());
  const panes = () => opened.all(".gs-text");
  const tokens = (/** @type {number} */ lane) =>
    /** @type {HTMLElement[]} */ ([...panes()[lane].querySelectorAll(".gs-t")]);
  const shown = () => opened.find(".gs-literal").textContent;
  return { ...opened, fake, words, panes, tokens, shown };
}

describe("several sequences", () => {
  test("each has its own pane, label, count, and at the end its tail and reason", async () => {
    const { words, panes, model, fake } = await batch();
    expect(panes().map((pane) => pane.textContent)).toEqual(["abc", "xy", "uvw"]);
    expect(words(".gs-lane-head")).toEqual(["prompt 1 2 tokens", "prompt 2 1 token", "prompt 3 2 tokens"]);
    expect(panes().map((pane) => pane.getAttribute("aria-label")?.slice(0, 18))).toEqual([
      "Tokens of prompt 1",
      "Tokens of prompt 2",
      "Tokens of prompt 3",
    ]);
    model.receive(fake.end({ state: "finished" }, ["", "\ufffd"], ["eos", "length", null]));
    paint();
    expect(panes().map((pane) => pane.textContent)).toEqual(["abc", "xy\ufffd", "uvw"]);
    expect(words(".gs-lane-head")).toEqual([
      "prompt 1 2 tokens end of sequence",
      "prompt 2 1 token reached 1 token",
      "prompt 3 2 tokens",
    ]);
  });

  test("a token of one is pinned, one of another is not marked, and the inspector names the sequence", async () => {
    const { tokens, all, shown, words } = await batch();
    tokens(1)[0].click();
    expect(shown()).toBe('"x"');
    expect(words(".gs-where")).toEqual(["prompt 2"]);
    tokens(2)[2].dispatchEvent(new Event("pointerover", { bubbles: true }));
    expect(shown()).toBe('"x"');
    expect(all(".gs-pinned").map((e) => e.textContent)).toEqual(["x"]);
    tokens(2)[2].click();
    expect(shown()).toBe('"w"');
    expect(all(".gs-pinned").map((e) => e.textContent)).toEqual(["w"]);
    expect(all(".gs-pointed")).toEqual([]);
  });

  test("arrows move within one, up and down lead to the next", async () => {
    const { panes, shown } = await batch();
    press(panes()[0], "End");
    expect(shown()).toBe('"c"');
    press(panes()[0], "ArrowDown");
    expect(shown()).toBe('"y"');
    expect(document.activeElement).toBe(panes()[1]);
    press(panes()[1], "ArrowLeft");
    expect(shown()).toBe('"x"');
    press(panes()[1], "ArrowUp");
    expect(shown()).toBe('"a"');
    press(panes()[0], "ArrowUp");
    expect(shown()).toBe('"a"');
  });

  test("the legend counts all of them", async () => {
    const { all } = await batch();
    const counted = all(".gs-histogram i").map(({ title }) => Number.parseInt(title, 10));
    expect(counted.reduce((sum, n) => sum + n, 0)).toBe(8);
  });

  test("a run of one sequence after it is a bare pane again", async () => {
    const opened = await batch();
    opened.tokens(2)[0].click();
    play(opened, generated(["only"]), { run: "r2" });
    expect(opened.panes().map((pane) => pane.textContent)).toEqual(["only"]);
    expect(opened.find(".gs-lane-head").textContent?.trim()).toBe("");
    expect(opened.find(".gs-lanes").hasAttribute("data-several")).toBe(false);
    expect(opened.shown()).toBe('"only"');
    expect(opened.all(".gs-where")).toEqual([]);
  });

  test("long ones are drawn over several frames, all of them", async () => {
    const opened = await open();
    const rows = Array.from({ length: 4 }, () => generated(Array.from({ length: 300 }, () => "w ")));
    play(opened, rows, { about: { lanes: [{}, {}, {}, {}] } });
    expect(opened.all(".gs-text").map((pane) => pane.querySelectorAll(".gs-t").length)).toEqual([300, 300, 300, 300]);
  });

  test("a beam search says the score of what it chose", async () => {
    const opened = await open();
    const choices = [0, 1].map((lane) => ({ lane, prompt: 0, step: lane - 1, candidate: 0, score: -0.25 }));
    const about = { lanes: [{ prompt: 0 }, { prompt: 0, sequence: 1 }], choices };
    const fake = play(opened, [generated(["a"]), generated(["b"])], { about });
    opened.model.receive(fake.table("choices", 0, 2));
    paint();
    const heads = opened.all(".gs-lane-head").map((head) => head.textContent?.replace(/\s+/g, " ").trim());
    // The search had nothing for its first lane here: its score would be a guess.
    expect(heads).toEqual(["sequence 1 1 token", "sequence 2 1 token score −0.250"]);
  });
});

describe("an encoder", () => {
  async function encoded() {
    const opened = await open();
    const rows = [generated(["<pad>", "Das"]), [{ text: "The" }, { text: " sea" }]];
    const about = { lanes: [{ source: 1 }], observed: /** @type {any} */ (["cross"]) };
    play(opened, rows, { promptTokens: 1, about });
    return opened;
  }

  test("what it read stands above, named as the source, in panes and status", async () => {
    const { all, find } = await encoded();
    expect(all(".gs-lane").map((lane) => [lane.dataset.kind, lane.querySelector(".gs-text")?.textContent])).toEqual([
      ["source", "The sea"],
      ["lane", "<pad>Das"],
    ]);
    expect(find(".gs-lane-head").textContent?.replace(/\s+/g, " ").trim()).toBe("source 2 tokens, read by the encoder");
    const names = all(".gs-readings dt").map((name) => name.textContent);
    expect(names).toContain("source");
    expect(all(".gs-readings dd")[names.indexOf("source")].textContent).toBe("2");
  });

  test("its tokens are inspected as such: nobody predicted them", async () => {
    const { all, find } = await encoded();
    all(".gs-t")[1].click();
    expect(find(".gs-kicker").textContent).toContain("source");
    expect(find(".gs-unmeasured").textContent).toBe("read by the encoder, not predicted");
  });

  test("cross attention is drawn over the source", async () => {
    const { all, find, model } = await encoded();
    find('.gs-part [data-value="attention"]').click();
    all("[data-kind=lane] .gs-t")[1].click();
    paint();
    const look = { run: "r1", lane: 0, position: 1, of: /** @type {const} */ ("cross"), layer: null, head: null };
    await new Promise((done) => setTimeout(done, 150));
    expect(model.sent.at(-1)).toEqual({ kind: "look", what: "attention", ...look });
    model.receive({ kind: "attention", ...look, layers: 2, heads: 2, weights: [0.1, 0.9] });
    paint();
    expect(all(".gs-attended").map((e) => e.textContent)).toEqual(["The", " sea"]);
  });
});
