import { describe, expect, test } from "vitest";
import { reuse } from "../dev/cache_scenes.js";
import { FakeRun } from "../dev/fake_kernel.js";
import { oneLine, sizeText } from "../src/format.js";
import { emptyState, reduce } from "../src/store.js";
import { generated, open, paint, play } from "./helpers.js";

/** @typedef {import("../src/wire.js").WireReuse} Reuse */

/** @param {string | null | undefined} text */
const plain = (text) =>
  text
    ?.replace(/\u202f/g, " ")
    .replace(/\s+/g, " ")
    .trim();

/**
 * @param {Partial<import("../src/wire.js").Status>} change
 * @param {{ settings?: Record<string, unknown>, about?: import("../dev/fake_kernel.js").About, rows?: import("../dev/fake_text.js").Row[][] }} [options]
 */
async function status(change, { settings, about, rows = [generated(["a"])] } = {}) {
  const opened = await open();
  const fake = play(opened, rows, { settings, about });
  opened.model.receive(fake.beat({ tracks: rows.map((each) => each.length) }, change));
  paint();
  const lines = () => opened.all(".gs-reuse p").map((line) => plain(line.textContent));
  const names = opened.all(".gs-readings dt").map((name) => name.textContent);
  const reading = (/** @type {string} */ name) => opened.all(".gs-readings dd")[names.indexOf(name)];
  return { opened, fake, lines, reading, kind: opened.find(".gs-reuse").dataset.reuse };
}

const ends = (/** @type {Partial<Reuse["end"]>} */ change) => ({ ...reuse().end, ...change });

describe("what a run took from the prefix cache", () => {
  test("how much, what it saved, and both tokens where it ended", async () => {
    const { lines, reading, kind } = await status({ reuse: reuse({ tokens: 430, reused: 412 }) });
    expect(kind).toBe("hit");
    expect(plain(reading("prompt").textContent)).toBe("412 of 430 reused");
    expect(reading("prompt").parentElement?.title).toContain("came from the prefix cache");
    expect(lines()).toEqual([
      "reused 412 of 430 prompt tokens (9.2 MB), saved about 310 ms (estimated)",
      'no more: at token 19 the prompt has " function", where " poem" or " haiku\\n" is known',
    ]);
  });

  test.each(
    /** @type {[Partial<Reuse>, string][]} */ ([
      [{ saved: 0.29, saved_measured: true }, "saved 290 ms (measured)"],
      [{ saved: null }, "time saved is not known"],
      [{ saved: -0.002, saved_measured: true }, "cost more than it saved, by 2.0 ms (measured)"],
      [{ saved: 0 }, "saved about 0.0 ms (estimated)"],
    ]),
  )("time saved: %j", async (/** @type {Partial<Reuse>} */ change, text) => {
    const { lines, opened } = await status({ reuse: reuse(change) });
    expect(lines()[0]).toBe(`reused 19 of 31 prompt tokens (9.2 MB), ${text}`);
    const how = opened.all(".gs-saved").map((part) => part.dataset.how);
    expect(how).toEqual(change.saved === null ? [] : [change.saved_measured ? "measured" : "estimated"]);
  });

  test("of what is known in place of a token, some; the others are counted", async () => {
    const { lines } = await status({ reuse: reuse({ end: ends({ cached: ["a", "b", "\u200b", "d", "e"] }) }) });
    expect(lines()[1]).toBe(
      'no more: at token 19 the prompt has " function", where "a" or "b" or "\\u200b" or 2 more is known',
    );
  });

  test("nothing reused has a reason, and is a zero", async () => {
    const end = ends({ kind: "empty", position: 0, message: "nothing is known of this model" });
    const { lines, reading, kind } = await status({ reuse: reuse({ reused: 0, saved: null, end }) });
    expect(kind).toBe("miss");
    expect(plain(reading("prompt").textContent)).toBe("0 of 31 reused");
    expect(lines()).toEqual(["nothing reused: nothing is known of this model"]);
  });

  test("all of it known needs no excuse", async () => {
    const { lines } = await status({ reuse: reuse({ end: ends({ kind: "whole", message: "all of it is known" }) }) });
    expect(lines()[1]).toBe("all of it is known");
  });

  test("of several prompts it says which one", async () => {
    const end = ends({ prompt: 1, kind: "ends", message: "what is known ends after 3 tokens" });
    const { lines } = await status(
      { reuse: reuse({ end }) },
      { about: { lanes: [{}, {}] }, rows: [generated(["a"]), generated(["b"])] },
    );
    expect(lines()[1]).toBe("no more: prompt 2: what is known ends after 3 tokens");
  });

  test("no cache, a cache switched off, and a run that still waits are three things", async () => {
    const none = await status({ reuse: null });
    expect([none.kind, ...none.lines()]).toEqual(["none", "no prefix cache"]);
    const off = await status({ reuse: null }, { settings: { prefix_cache: false } });
    expect([off.kind, ...off.lines()]).toEqual(["off", "prefix cache switched off"]);
    const queued = await status({ state: "queued", elapsed: null });
    expect([queued.kind, ...queued.lines()]).toEqual([
      "waiting",
      "the prefix cache is asked when the run leaves the queue",
    ]);
    expect(plain(off.reading("prompt").textContent)).toBe("0");
  });

  test("of an encoder-decoder model, sources and the decoder's tokens", async () => {
    const rows = [generated(["a"]), [{ text: "s" }, { text: "t" }]];
    const change = { tokens: 1, reused: 0, sources: 1, sources_reused: 1 };
    const { lines, reading, kind } = await status(
      { reuse: reuse(change) },
      { about: { lanes: [{ source: 1 }] }, rows },
    );
    expect(kind).toBe("hit");
    expect(plain(reading("source").textContent)).toBe("2 1 of 1 reused");
    expect(lines()[0]).toBe("reused 1 of 1 source and 0 of 1 decoder tokens (9.2 MB), saved about 310 ms (estimated)");
  });

  test("checking it: the same, or a warning; while it goes on, neither", async () => {
    const settings = { verify_cache: true };
    const verified = { difference: 7.4e-6, largest: 29.14, agrees: true };
    const good = await status({ reuse: reuse({ verified }) }, { settings });
    expect(good.lines()[2]).toBe("verified: largest logit difference 7.4e-6 of 29.1, same most probable token");
    const bad = await status({ reuse: reuse({ verified: { ...verified, difference: 0.83, agrees: false } }) });
    expect(plain(bad.opened.find(".gs-reuse .gs-warning").textContent)).toBe(
      "not the same: largest logit difference 0.83 of 29.1, and another token is the most probable without the cache",
    );
    expect(good.opened.all(".gs-reuse .gs-warning")).toEqual([]);
    const waits = await status({ reuse: reuse() }, { settings });
    expect(waits.lines()[2]).toBe("verifying: the prompt is read without the cache, too…");
    waits.opened.model.receive(waits.fake.end({ state: "finished", reuse: reuse() }));
    paint();
    expect(waits.lines()).toHaveLength(2);
  });

  test("a template that wrote earlier turns anew is said", async () => {
    const branch = /** @type {const} */ ({
      run: "r0",
      lane: 0,
      position: 12,
      added: 5,
      kind: "reply",
      rewritten: true,
    });
    const { lines } = await status({ reuse: reuse() }, { about: { branch } });
    expect(lines().at(-1)).toBe("the chat template wrote earlier turns anew: the cache was lost from token 12 on");
    const appended = await status({ reuse: reuse() }, { about: { branch: { ...branch, rewritten: false } } });
    expect(appended.opened.all(".gs-rewritten")).toEqual([]);
  });
});

describe("the tokens", () => {
  const rows = [
    { text: "a", cached: 1 },
    { text: "b", cached: 1 },
    { text: "c", cached: 0 },
    { text: "d" },
    ...generated(["e", "f"]),
  ];

  async function tokens() {
    const opened = await open();
    const fake = play(opened, rows, { promptTokens: 4 });
    return { ...opened, fake };
  }

  test("know whether they were reused: hits, computed, or unknown", async () => {
    const { fake } = await tokens();
    const { state } = reduce(reduce(emptyState(), fake.begin(4)).state, fake.data(0, 6));
    expect([0, 2, 3, 4].map((i) => state.tracks[0].token(i)?.cached)).toEqual([true, false, null, null]);
  });

  test("hold whether they were hits, whichever measure is chosen", async () => {
    const { all, find } = await tokens();
    const which = (/** @type {string} */ name) => all(`.gs-text .${name}`).map((span) => span.textContent);
    expect(find(".gs-lanes").dataset.scale).toBe("p");
    expect(which("gs-c1")).toEqual(["a", "b"]);
    expect(which("gs-c0")).toEqual(["c"]);
    expect(which("gs-cx")).toEqual(["d", "e", "f"]);
  });

  test("are coloured by it as the last measure, which has words and counts, and one distribution", async () => {
    const opened = await tokens();
    const { all, find, model } = opened;
    expect(all(".gs-toolbar [role=radiogroup]:first-child button").at(-1)?.dataset.value).toBe("cache");
    find('[data-value="cache"]').click();
    paint();
    expect(model.get("measure")).toBe("cache");
    expect(find(".gs-lanes").dataset.scale).toBe("c");
    expect(all(".gs-categories li").map((one) => plain(one.textContent))).toEqual([
      "hit 2",
      "computed 1",
      "unknown 1",
      "generated tokens have neither",
    ]);
    expect(all(".gs-categories i").map((swatch) => swatch.className)).toEqual(["gs-c1", "gs-c0", "gs-cx"]);
    expect(all('[data-value="processed"]')).toEqual([]);
    const marked = () => all(".gs-categories li").map((one) => one.dataset.marked);
    all(".gs-t")[2].click();
    expect(marked()).toEqual([undefined, "true", undefined, undefined]);
    all(".gs-t")[4].dispatchEvent(new Event("pointerover", { bubbles: true }));
    all(".gs-t")[2].click();
    all(".gs-t")[4].click();
    expect(marked()).toEqual([undefined, undefined, undefined, undefined]);
  });

  test("say in the inspector what they were; generated and unknown ones say nothing", async () => {
    const { all } = await tokens();
    const said = [0, 2, 3, 4].map((i) => {
      all(".gs-t")[i].click();
      return all(".gs-cached").map((mark) => mark.textContent);
    });
    expect(said).toEqual([["hit"], ["computed"], [], []]);
  });

  test("the legend explains the lines where there was a cache", async () => {
    const { all, model, fake } = await tokens();
    const keys = () => all(".gs-keys span").map((key) => key.textContent);
    expect(keys()).toEqual(["unknown", "prompt", "special"]);
    model.receive(fake.beat({ tracks: [6] }, { reuse: reuse() }));
    paint();
    expect(keys()).toEqual(["unknown", "prompt, reused", "computed", "special"]);
  });
});

describe("where a branch begins", () => {
  const branch = /** @type {const} */ ({ run: "r0", lane: 0, position: 2, added: 1, kind: "branch", rewritten: false });

  test("is marked before its first own token, and is no text", async () => {
    const opened = await open();
    const fake = new FakeRun("r1", generated(["a", "b", "c", "d"]), { branch });
    opened.model.receive(fake.begin(0));
    opened.model.receive(fake.data(0, 2));
    paint();
    expect(opened.all(".gs-fork")).toEqual([]);
    opened.model.receive(fake.data(2, 4));
    paint();
    expect(opened.find(".gs-fork").nextSibling?.textContent).toBe("c");
    expect(opened.find(".gs-fork").title).toBe(
      "The branch begins here: 2 tokens are shared with the run it came from, 1 given behind them",
    );
    expect(opened.find(".gs-text").textContent).toBe("abcd");
    opened.model.receive(fake.beat({ tracks: [4] }));
    paint();
    expect(opened.all(".gs-fork")).toHaveLength(1);
  });

  test("is not marked in a run of its own, nor in a source", async () => {
    const opened = await open();
    play(opened, generated(["a", "b", "c"]));
    expect(opened.all(".gs-fork")).toEqual([]);
    const tracks = [generated(["a", "b", "c"]), [{ text: "s" }, { text: "t" }, { text: "u" }]];
    play(opened, tracks, { run: "r2", about: { branch, lanes: [{ source: 1 }] } });
    expect(opened.all("[data-kind=lane] .gs-fork")).toHaveLength(1);
    expect(opened.all("[data-kind=source] .gs-fork")).toEqual([]);
  });
});

test.each([
  [0, "0 bytes"],
  [999, "999 bytes"],
  [1500, "1.5 kB"],
  [9_216_000, "9.2 MB"],
  [99_960_000, "100 MB"],
  [999_600_000, "1.0 GB"],
  [2 ** 30, "1.1 GB"],
  [null, "–"],
])("a size of %j is %j", (bytes, text) => expect(plain(sizeText(bytes))).toBe(text));

test.each([
  ["  a b ", "··a b·"],
  ["a\nb\tc", "a⏎b→c"],
  ["a\u200bb\u202e", "a\ufffdb\ufffd"],
  ["👩\u200d👧", "👩\u200d👧"],
  ["<b>", "<b>"],
])("%j on one line is %j", (text, line) => expect(oneLine(text)).toBe(line));
