import { describe, expect, test } from "vitest";
import { TREE } from "../dev/cache_scenes.js";
import { rowsOfTree } from "../src/runtree.js";
import { generated, open, paint, play, press } from "./helpers.js";

/**
 * @param {string} id
 * @param {string | null} parent
 * @returns {import("../src/runtree.js").TreeRun}
 */
const one = (id, parent) => ({
  ...{ id, parent, lane: 0, position: 3, kind: "branch", title: id },
  ...{ strategy: "greedy", state: "finished", tokens: 2 },
});

const tree = [one("a", null), one("b", "a"), one("c", null), one("d", "a"), one("e", "b"), one("f", "b")];

/** @param {import("../src/runtree.js").TreeRow[]} rows */
const drawn = (rows) => rows.map(({ run, lines }) => lines.map((on) => (on ? "|" : ".")).join("") + run.id);

describe("rows of the tree", () => {
  test("each run below the one it came from, with lines past those between", () => {
    expect(drawn(rowsOfTree(tree))).toEqual(["a", "|b", "||e", "|.f", ".d", "c"]);
  });

  test("know their parent, their first child, and their place among siblings", () => {
    const rows = rowsOfTree(tree);
    expect(rows.map(({ parent, child }) => [parent, child])).toEqual([
      [null, 1],
      [0, 2],
      [1, null],
      [1, null],
      [0, null],
      [null, null],
    ]);
    expect(rows.map(({ place, siblings }) => `${place}/${siblings}`)).toEqual([
      "1/2",
      "1/2",
      "1/2",
      "2/2",
      "2/2",
      "2/2",
    ]);
  });

  test("a run whose parent is not there is a root; every run has one row", () => {
    expect(drawn(rowsOfTree([one("b", "gone"), one("c", "b"), one("d", "d")]))).toEqual(["b", ".c", "d"]);
    expect(rowsOfTree([])).toEqual([]);
  });

  test("a long conversation is as deep as it is", () => {
    const deep = Array.from({ length: 5000 }, (_, i) => one(String(i), i === 0 ? null : String(i - 1)));
    expect(rowsOfTree(deep).at(-1)?.lines).toHaveLength(4999);
  });
});

/** @param {Record<string, any>} [traits] */
async function runs(traits = { tree: TREE }) {
  const opened = await open(traits);
  play(opened, generated(["a"]), { run: "r2" });
  const items = () => opened.all("[role=treeitem]");
  const focused = () => /** @type {HTMLElement} */ (document.activeElement).dataset.run;
  const shows = () => opened.model.sent.filter(({ kind }) => kind === "show").map(({ run }) => run);
  return { ...opened, items, focused, shows };
}

describe("the panel", () => {
  test("is hidden while there is one run only", async () => {
    const { find, model, items } = await runs({ tree: TREE.slice(0, 1) });
    expect(find(".gs-runs").hidden).toBe(true);
    model.set("tree", TREE.slice(0, 2));
    paint();
    expect(find(".gs-runs").hidden).toBe(false);
    expect(items()).toHaveLength(2);
    model.set("tree", []);
    paint();
    expect(find(".gs-runs").hidden).toBe(true);
    expect(items()).toEqual([]);
  });

  test("has a row a run: where it branches off, its text, strategy, tokens and state", async () => {
    const { items } = await runs();
    const rows = items().map((row) => [...row.querySelectorAll("span")].map((part) => part.textContent?.trim()));
    expect(rows[0]).toEqual(["…is calm tonight. The tide is full, the moon", "sample", "60 tokens"]);
    expect(rows[1]).toEqual(["at token 12·dark sky lies over the harbour and⏎", "sample", "60 tokens"]);
    expect(rows[7]).toEqual(["replyAnd now one about the mountains, please. Snow", "sample", "41 tokens"]);
    expect(rows[8][0]).toBe("environmentQuestion: what is 12 × (3 + 4)? Let me");
    expect(items().map((row) => row.dataset.state)[4]).toBe("failed");
    expect(
      items()
        .map((row) => row.getAttribute("aria-level"))
        .join(""),
    ).toBe("123323121");
    expect(items()[3].getAttribute("aria-label")).toBe("at token 31, ··quiet water, beam, 40 tokens, finished");
  });

  test("text of the model is text", async () => {
    const { items, host } = await runs({ tree: [one("<img src=x>", null), one("<b>no</b>", null)] });
    expect(items()[1].querySelector("bdi")?.textContent).toBe("<b>no</b>");
    expect(host.querySelector(".gs-tree img, .gs-tree b")).toBeNull();
  });

  test("says which one is shown; that one can be reached with Tab", async () => {
    const opened = await runs();
    const { items } = opened;
    const state = () => items().map((row) => `${row.getAttribute("aria-current")}${row.tabIndex}`);
    expect(state().indexOf("true0")).toBe(1);
    expect(state().filter((each) => each === "null-1")).toHaveLength(8);
    play(opened, generated(["z"]), { run: "r7" });
    expect(state().indexOf("true0")).toBe(6);
    play(opened, generated(["z"]), { run: "unheard of" });
    expect(state()[0]).toBe("null0");
  });

  test("a click shows a run, unless it is shown", async () => {
    const { items, shows } = await runs();
    items()[3].click();
    items()[1].click();
    expect(shows()).toEqual(["r4"]);
  });

  test("arrow keys walk it, Enter and Space show a run", async () => {
    const { items, shows, focused } = await runs();
    items()[1].focus();
    /** @type {(string | undefined)[]} */
    const path = [];
    for (const key of [
      "ArrowDown",
      "ArrowDown",
      "ArrowLeft",
      "ArrowLeft",
      "ArrowLeft",
      "ArrowUp",
      "ArrowRight",
      "ArrowRight",
      "ArrowRight",
      "End",
      "ArrowDown",
      "Home",
    ]) {
      press(/** @type {HTMLElement} */ (document.activeElement), key);
      path.push(focused());
    }
    expect(path).toEqual(["r3", "r4", "r2", "r1", "r1", "r1", "r2", "r3", "r3", "r9", "r9", "r1"]);
    expect(shows()).toEqual([]);
    press(items()[0], "Enter");
    press(items()[4], " ");
    expect(shows()).toEqual(["r1", "r5"]);
  });

  test("keys that are commands of the widget or the page stay so", async () => {
    const { items, model, shows } = await runs();
    press(items()[3], "Enter", { ctrlKey: true });
    expect(model.sent.some(({ kind }) => kind === "generate")).toBe(true);
    expect(shows()).toEqual([]);
  });

  test("of many runs, the one that is shown is brought into sight, in the list only", async () => {
    const many = Array.from({ length: 200 }, (_, i) => one(`x${i}`, i === 0 ? null : `x${i >> 1}`));
    const opened = await runs({ tree: many });
    const list = opened.find(".gs-tree");
    Object.defineProperty(list, "clientHeight", { value: 180 });
    const at = () => opened.items().findIndex((row) => row.dataset.run === "x150");
    for (const [i, row] of opened.items().entries()) {
      Object.defineProperty(row, "offsetTop", { value: 24 * i });
      Object.defineProperty(row, "offsetHeight", { value: 24 });
    }
    play(opened, generated(["z"]), { run: "x150" });
    expect(at()).toBeGreaterThan(8);
    expect(list.scrollTop).toBe(24 * at() - 78);
    list.scrollTop = 5;
    opened.model.set("tree", [...many]);
    paint();
    // A person scrolled away: only another run brings the list back.
    expect(list.scrollTop).toBe(5);
  });
});
