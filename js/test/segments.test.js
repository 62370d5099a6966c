import { describe, expect, test } from "vitest";
import { FakeRun } from "../dev/fake_kernel.js";
import { outcomeOf, outcomeTexts, describe as said } from "../src/segments.js";
import { copyText } from "../src/views/tokens.js";
import { generated, open, paint } from "./helpers.js";

/** @typedef {import("../src/wire.js").WireSegment} Segment */

/**
 * @param {Partial<Segment>} change
 * @returns {Segment}
 */
const segment = (change) => ({
  ...{ lane: 0, kind: "model", turn: 1, start: 0, stop: 0 },
  ...{ reused: null, computed: null, text: null, reward: null },
  ...change,
});

const given = (/** @type {string[]} */ texts) => texts.map((text) => ({ text, raw: 0.5, processed: 0.5 }));
const rows = [...given(["Q", "?"]), ...generated(["use", " x"]), ...given(["7", "<r>"]), ...generated(["so", " 7"])];
const segments = [
  segment({ kind: "prompt", turn: 0, start: 0, stop: 2 }),
  segment({ start: 2, stop: 4, reused: 0, computed: 2, text: "nothing is known" }),
  segment({ kind: "tool", start: 4, stop: 6, text: "calculator" }),
  segment({ turn: 2, start: 6, stop: 8, reused: 1200, computed: 3 }),
  segment({ kind: "end", turn: 2, start: 8, stop: 8, text: "submit" }),
  segment({ kind: "reward", turn: 2, start: 8, stop: 8, reward: 0.83333 }),
];

async function conversation() {
  const opened = await open();
  const fake = new FakeRun("r1", rows, { segments, environment: true, lanes: [{ prompt_tokens: 2 }] });
  opened.model.receive(fake.begin(2));
  const tokens = (/** @type {number} */ from, /** @type {number} */ to) => {
    opened.model.receive(fake.data(from, to));
    paint();
  };
  const table = (/** @type {number} */ from, /** @type {number} */ to) => {
    opened.model.receive(fake.table("segments", from, to));
    paint();
  };
  const words = (/** @type {Element} */ label) =>
    [...label.querySelectorAll("[data-text]")]
      .map((part) => /** @type {HTMLElement} */ (part).dataset.text)
      .join(" · ");
  const labels = () => opened.all(".gs-segment").map((label) => `${label.nextSibling?.textContent}: ${words(label)}`);
  return { ...opened, fake, tokens, table, labels, outcome: () => opened.all(".gs-outcome").map(words) };
}

describe("a lane of an environment", () => {
  test("has a label above each stretch, and below it what became of it", async () => {
    const { tokens, table, labels, outcome, all, find } = await conversation();
    tokens(0, 8);
    table(0, 6);
    expect(labels()).toEqual([
      "Q: prompt · ",
      "use: model, turn 1 · nothing reused: nothing is known",
      "7: tool: calculator · ",
      "so: model, turn 2 · reused 1,200 of 1,203",
    ]);
    expect(all(".gs-segment").map((label) => label.dataset.kind)).toEqual(["prompt", "model", "tool", "model"]);
    expect(outcome()).toEqual(["ended: submit · reward 0.833"]);
    expect(find(".gs-text").lastElementChild).toBe(find(".gs-outcome"));
    expect(find(".gs-lane-head").textContent?.replace(/\s+/g, " ").trim()).toBe(
      "conversation 8 tokens, 2 turns ended: submit · reward 0.833",
    );
  });

  test("live, a stretch is the model's while it is generated, else the tool's, until a row tells more", async () => {
    const { tokens, table, labels, outcome } = await conversation();
    tokens(0, 3);
    expect(labels()).toEqual(["Q: prompt", "use: model"]);
    table(0, 3);
    expect(labels()).toEqual(["Q: prompt · ", "use: model, turn 1 · nothing reused: nothing is known"]);
    tokens(3, 5);
    expect(labels()[2]).toBe("7: tool: calculator · ");
    tokens(5, 7);
    expect(labels()[3]).toBe("so: model");
    // Rows may be ahead of the tokens: the outcome stands below the last of them all the same.
    table(3, 6);
    expect(outcome()).toEqual([]);
    tokens(7, 8);
    expect(outcome()).toEqual(["ended: submit · reward 0.833"]);
  });

  test("each stretch is a block of its own; what a tool said is told apart, and is not the model's", async () => {
    const { tokens, all } = await conversation();
    tokens(0, 8);
    expect(all(".gs-chunk").map((chunk) => chunk.textContent)).toEqual(["Q?", "use x", "7<r>", "so 7"]);
    expect(all(".gs-tools").map((chunk) => chunk.textContent)).toEqual(["7<r>"]);
    expect(all(".gs-tool").map((span) => span.textContent)).toEqual(["7", "<r>"]);
    expect(all(".gs-hard")).toEqual([]);
    const counted = all(".gs-histogram i").map(({ title }) => Number.parseInt(title, 10));
    expect(counted.reduce((sum, n) => sum + n, 0)).toBe(4);
  });

  test("labels are no text: neither of the pane, nor copied", async () => {
    const { tokens, table, find } = await conversation();
    tokens(0, 8);
    table(0, 6);
    expect(find(".gs-text").textContent).toBe("Q?use x7<r>so 7");
    const selection = window.getSelection();
    selection?.selectAllChildren(find(".gs-text"));
    /** @type {string[]} */
    const copied = [];
    const event = {
      clipboardData: { setData: (/** @type {string} */ _, /** @type {string} */ text) => copied.push(text) },
    };
    copyText(/** @type {any} */ ({ ...event, preventDefault() {}, stopPropagation() {} }), find(".gs-text"));
    expect(copied).toEqual(["Q?use x7<r>so 7"]);
    selection?.removeAllRanges();
  });

  test("names of tools are data", async () => {
    const opened = await open();
    const named = [segment({ kind: "tool", start: 0, stop: 1, text: "<img src=x>" })];
    const fake = new FakeRun("r1", given(["a"]), { segments: named, environment: true });
    for (const message of [fake.begin(0), fake.data(0, 1), fake.table("segments", 0, 1)]) {
      opened.model.receive(message);
    }
    paint();
    expect(opened.find(".gs-segment b").dataset.text).toBe("tool: <img src=x>");
    expect(opened.host.querySelector("img")).toBeNull();
  });

  test("a stretch without tokens is named above the next one; another lane's rows are not its own", async () => {
    const opened = await open();
    const mixed = [
      segment({ lane: 1, start: 0, stop: 1, reused: 5, computed: 5 }),
      segment({ kind: "tool", start: 1, stop: 1, text: "silent" }),
      segment({ turn: 2, start: 1, stop: 2, reused: 1, computed: 1 }),
    ];
    const about = { segments: mixed, environment: true, lanes: [{}, {}] };
    const fake = new FakeRun("r1", [[...given(["a"]), ...generated(["b"])], generated(["c"])], about);
    opened.model.receive(fake.begin(1));
    for (const track of fake.tracks) {
      opened.model.receive(track.data(0, track.rows.length));
    }
    opened.model.receive(fake.table("segments", 0, 3));
    paint();
    const texts = opened.all(".gs-segment b").map((label) => label.dataset.text);
    expect(texts).toEqual(["prompt", "tool: silent", "model, turn 2", "model, turn 1"]);
    expect(opened.all(".gs-segment i").map((label) => label.dataset.text)).toEqual([
      undefined,
      "",
      "reused 1 of 2",
      "reused 5 of 10",
    ]);
  });

  test("a usual run has no labels, and is not cut where the prompt ends", async () => {
    const opened = await open();
    const fake = new FakeRun("r1", rows, { segments });
    for (const message of [fake.begin(2), fake.data(0, 8), fake.table("segments", 0, 6)]) {
      opened.model.receive(message);
    }
    paint();
    expect(opened.all(".gs-segment, .gs-outcome, .gs-tool")).toEqual([]);
    expect(opened.all(".gs-chunk")).toHaveLength(1);
    expect(opened.find(".gs-lane-head").textContent?.trim()).toBe("");
  });
});

describe("texts", () => {
  test.each([
    [{ reused: 5, computed: 7 }, "reused 5 of 12"],
    [{ reused: 0, computed: 7 }, "reused 0 of 7"],
    [{ reused: 0, computed: 7, text: "why" }, "nothing reused: why"],
    [{ reused: null, computed: null }, ""],
    [{ reused: null, computed: null, text: "no prefix cache" }, "no prefix cache"],
  ])("what was reused for a turn: %j", (change, note) => expect(said(segment(change)).note).toBe(note));

  test("an end without a reason, and a reward that is none", () => {
    const rows = [
      segment({ kind: "end" }),
      segment({ kind: "reward" }),
      segment({ lane: 1, kind: "reward", reward: -1 }),
    ];
    expect(outcomeTexts(outcomeOf(rows, 0))).toEqual(["ended"]);
    expect(outcomeTexts(outcomeOf(rows, 1))).toEqual(["reward −1"]);
    expect(outcomeTexts(outcomeOf([segment({ kind: "reward", reward: 0 })], 0))).toEqual(["reward 0"]);
  });
});
