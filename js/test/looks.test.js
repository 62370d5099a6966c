import { beforeEach, describe, expect, test, vi } from "vitest";
import { Looks, REST_MS } from "../src/looks.js";
import { attention, look, matrix } from "./seen.js";

/** @typedef {import("../src/wire.js").Look} Look */

beforeEach(() => {
  vi.useFakeTimers({ toFake: ["setTimeout", "clearTimeout", "setInterval", "clearInterval", "Date"] });
});

function looks() {
  /** @type {Look[]} */
  const sent = [];
  const refresh = vi.fn();
  const kept = new Looks((message) => sent.push(message), refresh);
  return { kept, sent, refresh, view: {} };
}

describe("asking", () => {
  test("waits until the wish rests; of quick wishes only the newest is asked for", () => {
    const { kept, sent, view } = looks();
    for (const position of [3, 4, 5]) {
      expect(kept.want(view, look(position))).toBeNull();
      vi.advanceTimersByTime(REST_MS - 1);
    }
    expect(sent).toEqual([]);
    vi.advanceTimersByTime(1);
    expect(sent).toEqual([look(5)]);
  });

  test("drawing again asks for nothing again", () => {
    const { kept, sent, view } = looks();
    for (let i = 0; i < 60; i += 1) {
      kept.want(view, look(3));
      vi.advanceTimersByTime(16);
    }
    expect(sent).toHaveLength(1);
  });

  test("an answer is kept by run, lane, position, map, layer and head", () => {
    const { kept, sent, view, refresh } = looks();
    kept.want(view, look(3));
    vi.advanceTimersByTime(REST_MS);
    kept.answer(attention(3));
    expect(refresh).toHaveBeenCalledTimes(1);
    expect(kept.want(view, look(3))).toEqual(attention(3));
    for (const other of [
      look(4),
      look(3, { layer: 1 }),
      look(3, { head: 0 }),
      look(3, { run: "r2" }),
      look(3, { lane: 1 }),
    ]) {
      expect(kept.want(view, other)).toBeNull();
    }
    expect(kept.want(view, look(3))).toEqual(attention(3));
    vi.advanceTimersByTime(1000);
    expect(sent).toHaveLength(1);
    expect(kept.sizes.self).toEqual({ layers: 3, heads: 2 });
  });

  test("a late answer to an older wish is kept, and not shown for the newer one", () => {
    const { kept, view } = looks();
    kept.want(view, look(3));
    vi.advanceTimersByTime(REST_MS);
    kept.want(view, look(4));
    vi.advanceTimersByTime(REST_MS);
    kept.answer(attention(3));
    expect(kept.want(view, look(4))).toBeNull();
    kept.answer(attention(4));
    expect(kept.want(view, look(4))).toEqual(attention(4));
    expect(kept.kept(look(3))).toEqual(attention(3));
  });

  test("what nobody asked for is left alone", () => {
    const { kept, refresh } = looks();
    kept.answer(attention(3));
    expect(kept.kept(look(3))).toBeNull();
    expect(refresh).not.toHaveBeenCalled();
  });

  test("a matrix is the answer to the wish that it ends with, also where an answer before it was lost", () => {
    const { kept, view } = looks();
    for (const position of [5, 8]) {
      kept.want(view, look(position, { what: "matrix" }));
      vi.advanceTimersByTime(REST_MS);
    }
    kept.answer(matrix(4, 5));
    expect(kept.kept(look(8, { what: "matrix" }))).toMatchObject({ position: 4 });
    expect(kept.kept(look(5, { what: "matrix" }))).toBeNull();
  });

  test("a refusal is shown, and forgotten when the person goes elsewhere", () => {
    const { kept, sent, view } = looks();
    const refusal = { kind: /** @type {const} */ ("unseen"), run: "r1", lane: 0, position: 3, message: "not yet" };
    kept.want(view, look(3));
    vi.advanceTimersByTime(REST_MS);
    kept.answer({ ...refusal, what: "attention" });
    expect(kept.want(view, look(3))).toMatchObject({ kind: "unseen", message: "not yet" });
    kept.want(view, look(4));
    expect(kept.want(view, look(3))).toBeNull();
    vi.advanceTimersByTime(REST_MS);
    expect(sent.map(({ position }) => position)).toEqual([3, 3]);
  });

  test("a lost answer is asked for again, ever more slowly, while it is wanted", () => {
    const { kept, sent, view } = looks();
    kept.want(view, look(3));
    vi.advanceTimersByTime(REST_MS + 5000);
    expect(sent).toHaveLength(2);
    vi.advanceTimersByTime(5000);
    expect(sent).toHaveLength(2);
    vi.advanceTimersByTime(5000);
    expect(sent).toHaveLength(3);
    kept.leave(view, "attention");
    vi.advanceTimersByTime(600_000);
    expect(sent).toHaveLength(3);
    expect(vi.getTimerCount()).toBe(0);
  });

  test("two views may show two tokens, and share an answer", () => {
    const { kept, sent, view } = looks();
    const other = {};
    for (let i = 0; i < 20; i += 1) {
      kept.want(view, look(3));
      kept.want(other, look(4));
      vi.advanceTimersByTime(16);
    }
    expect(sent.map(({ position }) => position)).toEqual([3, 4]);
    kept.want(other, look(3));
    vi.advanceTimersByTime(REST_MS);
    expect(sent).toHaveLength(2);
    kept.answer(attention(3));
    expect(kept.want(other, look(3))).toEqual(kept.want(view, look(3)));
    kept.closeAll();
    expect(vi.getTimerCount()).toBe(0);
  });

  test("not more than some answers are kept, the newest", () => {
    const { kept, view } = looks();
    for (let position = 1; position <= 60; position += 1) {
      kept.want(view, look(position));
      vi.advanceTimersByTime(REST_MS);
      kept.answer(attention(position));
    }
    expect(kept.kept(look(12))).toBeNull();
    expect(kept.kept(look(13))).not.toBeNull();
    expect(kept.kept(look(60))).not.toBeNull();
  });
});
