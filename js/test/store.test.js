import { describe, expect, test } from "vitest";
import { FakeRun, status } from "../dev/fake_kernel.js";
import { emptyState, isBehind, reduce } from "../src/store.js";
import { generated } from "./helpers.js";

const TEXTS = ["a", "b", "a", "c", "b", "d"];
const run = new FakeRun("r1", generated(TEXTS));

/**
 * @param {import("../src/wire.js").BackMessage[]} messages
 * @param {import("../src/store.js").State} [from]
 */
function play(messages, from = emptyState()) {
  let state = from;
  /** @type {(number | null)[]} */
  const pulls = [];
  /** @type {Readonly<import("../src/store.js").Change> | null} */
  let change = null;
  for (const message of messages) {
    const next = reduce(state, message);
    state = next.state;
    change = next.change;
    pulls.push(change.pull);
  }
  return { state, change, pulls, texts: Array.from({ length: state.record.n }, (_, i) => state.record.text(i)) };
}

describe("rows", () => {
  test("arrive in slices, each text sent once", () => {
    const { state, texts, pulls } = play([run.begin(0), run.data(0, 2), run.data(2, 6)]);
    expect(texts).toEqual(TEXTS);
    expect(state.record.strings).toEqual(["a", "b", "c", "d"]);
    expect(pulls).toEqual([null, null, null]);
  });

  test("a gap asks for what is missing and takes nothing", () => {
    const { texts, pulls, state } = play([run.begin(0), run.data(0, 2), run.data(4, 6)]);
    expect(texts).toEqual(["a", "b"]);
    expect(pulls).toEqual([null, null, 2]);
    expect(isBehind(state)).toBe(true);
  });

  test("an overlap is skipped, with the texts and alternatives that came with it", () => {
    const rows = generated(TEXTS).map((row, i) => ({
      ...row,
      alternatives: Array.from({ length: i }, (_, k) => ({
        text: `x${i}${k}`,
        id: 10 * i + k,
        raw: 0.1,
        processed: null,
      })),
    }));
    const other = new FakeRun("r1", rows);
    const { texts, state, pulls } = play([other.begin(0), other.data(0, 3), other.data(1, 3), other.data(2, 6)]);
    expect(texts).toEqual(TEXTS);
    expect(pulls).toEqual([null, null, null, null]);
    expect(state.record.token(5)?.alternatives.map(({ text }) => text)).toEqual(["x50", "x51", "x52", "x53", "x54"]);
    expect(state.record.token(3)?.alternatives.map(({ id }) => id)).toEqual([30, 31, 32]);
  });

  test("a copy that lacks texts is thrown away and pulled anew", () => {
    const frame = { ...run.data(2, 6), strings_from: 7 };
    const { state, change, pulls } = play([run.begin(0), run.data(0, 2), frame]);
    expect(pulls.at(-1)).toBe(0);
    expect(change?.reset).toBe(true);
    expect(state.record.n).toBe(0);
    expect(play([run.data(0, 6)], state).texts).toEqual(TEXTS);
  });
});

describe("runs", () => {
  test("another begin starts an empty record; the older run's frames are ignored", () => {
    const newer = new FakeRun("r2", generated(["z"]));
    const { state, texts, pulls } = play([
      run.begin(0),
      run.data(0, 2),
      newer.begin(0),
      run.data(2, 4),
      newer.data(0, 1),
    ]);
    expect(state.run).toBe("r2");
    expect(texts).toEqual(["z"]);
    expect(pulls).toEqual([null, null, null, null, null]);
  });

  test("begin of the run that is here already keeps its rows", () => {
    const { texts, change } = play([run.begin(0), run.data(0, 3), run.begin(0), run.data(0, 4)]);
    expect(texts).toEqual(["a", "b", "a", "c"]);
    expect(change?.rows).toBe(true);
  });

  test("a run whose begin was lost is pulled from its start", () => {
    const { pulls, texts } = play([{ kind: "beat", run: "r9", n: 4, status: status() }]);
    expect(pulls).toEqual([0]);
    expect(texts).toEqual([]);
  });
});

describe("signs of life", () => {
  test("a beat that knows more rows pulls, one that does not is quiet", () => {
    const beat = (/** @type {number} */ n) => /** @type {const} */ ({ kind: "beat", run: "r1", n, status: status() });
    expect(play([run.begin(0), run.data(0, 2), beat(2), beat(5)]).pulls).toEqual([null, null, null, 2]);
  });

  test("end keeps the tail, says why, and pulls a lost end", () => {
    const { state, pulls } = play([run.begin(0), run.data(0, 5), run.end({ state: "finished", why: "eos" }, "\ufffd")]);
    expect(state.over).toBe(true);
    expect(state.tail).toBe("\ufffd");
    expect(state.status?.why).toBe("eos");
    expect(pulls.at(-1)).toBe(5);
  });
});

test("problems are kept until an empty list comes, also over a begin", () => {
  const problem = { field: "top_p", value: "2", message: "2 is not allowed", way_out: "Use less." };
  const first = play([{ kind: "problems", problems: [problem] }, run.begin(0)]);
  expect(first.state.problems).toEqual([problem]);
  expect(play([{ kind: "problems", problems: [] }], first.state).state.problems).toEqual([]);
});

test("a message of a kind that is not known changes nothing", () => {
  const state = emptyState();
  expect(reduce(state, /** @type {any} */ ({ kind: "future" })).state).toBe(state);
});
