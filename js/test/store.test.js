import { describe, expect, test } from "vitest";
import { FakeRun, random } from "../dev/fake_kernel.js";
import { emptyState, gaps, reduce } from "../src/store.js";
import { generated } from "./helpers.js";

/** @typedef {import("../src/wire.js").BackMessage} BackMessage */
/** @typedef {import("../src/store.js").State} State */

const TEXTS = ["a", "b", "a", "c", "b", "d"];
const run = new FakeRun("r1", generated(TEXTS));

/**
 * @param {number} position
 * @returns {import("../src/wire.js").WireRound}
 */
const round = (position) => ({
  step: position,
  position,
  id: [1],
  text: [`draft ${position}`],
  draft_logprob: [-0.5],
  target_logprob: [null],
  accepted: 0,
  bonus: 1,
  seconds: 0.1,
});

/** Two lanes and the source of both, with rounds and choices beside them. */
function several() {
  const lanes = [{ source: 2 }, { source: 2, prompt: 0, sequence: 1 }];
  const choices = [0, 1].map((lane) => ({ lane, prompt: 0, step: 3, candidate: 0, score: -1.5 }));
  const tracks = [generated(TEXTS), generated(["x", "y", "z", "x"]), generated(["s", "t"])];
  const segments = [0, 2, 4].map((start) => segment(start));
  return new FakeRun("r1", tracks, { lanes, rounds: [0, 1, 2, 3, 4].map(round), choices, segments });
}

/**
 * @param {number} start
 * @returns {import("../src/wire.js").WireSegment}
 */
function segment(start) {
  const none = { reused: null, computed: null, text: null, reward: null };
  return { lane: 0, kind: "model", turn: 1, start, stop: start + 2, ...none };
}

/**
 * @param {BackMessage[]} messages
 * @param {State} [from]
 */
function play(messages, from = emptyState()) {
  let state = from;
  /** @type {(readonly import("../src/store.js").Gap[])[]} */
  const pulls = [];
  /** @type {Readonly<import("../src/store.js").Change> | null} */
  let change = null;
  for (const message of messages) {
    const next = reduce(state, message);
    state = next.state;
    change = next.change;
    pulls.push(change.pulls);
  }
  return { state, change, pulls, texts: texts(state) };
}

/** @param {State} state */
const texts = (state, track = 0) =>
  Array.from({ length: state.tracks[track]?.n ?? 0 }, (_, i) => state.tracks[track].text(i));

describe("rows of a track", () => {
  test("arrive in slices, each text sent once", () => {
    const { state, texts, pulls, change } = play([run.begin(0), run.data(0, 2), run.data(2, 6)]);
    expect(texts).toEqual(TEXTS);
    expect(state.tracks[0].strings).toEqual(["a", "b", "c", "d"]);
    expect(pulls).toEqual([[], [], []]);
    expect(change).toMatchObject({ track: 0, table: null, reset: false });
  });

  test("a gap asks for what is missing and takes nothing", () => {
    const { texts, pulls, state, change } = play([run.begin(0), run.data(0, 2), run.data(4, 6)]);
    expect(texts).toEqual(["a", "b"]);
    expect(pulls).toEqual([[], [], [{ track: 0, start: 2 }]]);
    expect(change?.track).toBeNull();
    expect(gaps(state)).toEqual([{ track: 0, start: 2 }]);
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
    expect(pulls).toEqual([[], [], [], []]);
    const [record] = state.tracks;
    expect(record.token(5)?.alternatives.map(({ text }) => text)).toEqual(["x50", "x51", "x52", "x53", "x54"]);
    expect(record.token(3)?.alternatives.map(({ id }) => id)).toEqual([30, 31, 32]);
  });

  test("a copy that lacks texts is thrown away and pulled anew; other tracks stay", () => {
    const fake = several();
    const frame = { ...fake.tracks[0].data(2, 6), strings_from: 7 };
    const { state, change } = play([fake.begin(0), fake.data(0, 2), fake.tracks[1].data(0, 2), frame]);
    expect(change).toMatchObject({ pulls: [{ track: 0, start: 0 }], reset: true });
    expect(texts(state)).toEqual([]);
    expect(texts(state, 1)).toEqual(["x", "y"]);
    expect(play([fake.data(0, 6)], state).texts).toEqual(TEXTS);
  });

  test("of a track that the run does not have are left alone", () => {
    const { state, change } = play([run.begin(0), { ...run.data(0, 2), track: 4 }]);
    expect(state.tracks).toHaveLength(1);
    expect(change).toMatchObject({ track: null, pulls: [] });
  });
});

test("rows of a table: an overlap is skipped, a gap is pulled", () => {
  const fake = several();
  const part = (/** @type {number} */ from, /** @type {number} */ to) => fake.table("rounds", from, to);
  const { state, pulls } = play([fake.begin(0), part(0, 2), part(1, 3), part(4, 5), part(3, 5)]);
  expect(state.tables.rounds.map(({ position }) => position)).toEqual([0, 1, 2, 3, 4]);
  expect(pulls).toEqual([[], [], [], [{ table: "rounds", start: 3 }], []]);
  expect(gaps(state)).toEqual([]);
});

describe("lost, doubled and reordered messages", () => {
  /**
   * Everything the kernel would send, in pieces of random length.
   * @param {FakeRun} fake
   * @param {() => number} next
   */
  function frames(fake, next) {
    /** @type {BackMessage[]} */
    const all = [];
    const cut = (/** @type {number} */ n, /** @type {(from: number, to: number) => BackMessage} */ make) => {
      for (let at = 0; at < n; ) {
        const to = Math.min(n, at + 1 + Math.floor(3 * next()));
        all.push(make(at, to));
        at = to;
      }
    };
    for (const track of fake.tracks) {
      cut(track.rows.length, (from, to) => track.data(from, to));
    }
    cut(fake.counts.rounds, (from, to) => fake.table("rounds", from, to));
    cut(fake.counts.choices, (from, to) => fake.table("choices", from, to));
    cut(fake.counts.segments, (from, to) => fake.table("segments", from, to));
    return all;
  }

  test.each(Array.from({ length: 60 }, (_, seed) => seed))("heal by pulls: %i", (seed) => {
    const fake = several();
    const next = random(seed * 7919 + 1);
    const damaged = frames(fake, next)
      .filter(() => next() > 0.25)
      .flatMap((message) => (next() > 0.7 ? [message, message] : [message]))
      .map((message) => ({ message, at: next() }))
      .sort((one, other) => one.at - other.at)
      .map(({ message }) => message);
    let { state } = play([fake.begin(0), ...damaged, fake.end({ state: "finished" }, ["", "\ufffd"], ["eos", null])]);
    let rounds = 0;
    for (let missing = gaps(state); missing.length > 0; missing = gaps(state)) {
      const { track, table, start } = missing[0];
      // One row an answer, so that a pull that asks for too much or too little shows.
      const answer =
        track !== undefined
          ? fake.tracks[track].data(start, start + 1)
          : fake.table(/** @type {import("../src/store.js").TableName} */ (table), start, start + 1);
      ({ state } = play([answer], state));
      rounds += 1;
      expect(rounds).toBeLessThan(30);
    }
    expect([0, 1, 2].map((track) => texts(state, track))).toEqual([TEXTS, ["x", "y", "z", "x"], ["s", "t"]]);
    expect(state.tables.rounds).toEqual(fake.about.rounds);
    expect(state.tables.choices).toEqual(fake.about.choices);
    expect(state.tables.segments).toEqual(fake.about.segments);
    expect(state).toMatchObject({ over: true, tails: ["", "\ufffd", ""], whys: ["eos", null] });
  });
});

describe("runs", () => {
  test("begin says what the run is made of", () => {
    const fake = several();
    const { state } = play([{ ...fake.begin(3), beams: { beams: 4, groups: 2 }, observed: ["attention", "cross"] }]);
    expect(state.tracks.map(({ n }) => n)).toEqual([0, 0, 0]);
    expect(state.lanes).toEqual([
      { prompt: 0, sequence: 0, prompt_tokens: 3, source: 2, label: "" },
      { prompt: 0, sequence: 1, prompt_tokens: 3, source: 2, label: "" },
    ]);
    expect(state).toMatchObject({ beams: { beams: 4, groups: 2 }, observed: ["attention", "cross"] });
  });

  test("begin says where it branches off, and whether it is an environment's", () => {
    const branch = /** @type {const} */ ({ run: "r0", lane: 1, position: 4, added: 1, kind: "reply", rewritten: true });
    const { state } = play([new FakeRun("r1", [], { branch, environment: true }).begin(0)]);
    expect(state).toMatchObject({ branch, environment: true });
    expect(play([run.begin(0)], state).state).toMatchObject({ branch: null, environment: false });
  });

  test("a run that was shown before is shown again, anew, and the one between is old then", () => {
    const between = new FakeRun("r2", generated(["z"]));
    const shownAgain = play([run.begin(0), run.data(0, 6), between.begin(0), between.data(0, 1), run.begin(0)]);
    expect(shownAgain.change).toMatchObject({ reset: true });
    expect(shownAgain.texts).toEqual([]);
    const { texts, pulls, state } = play([run.data(0, 6), between.data(0, 1)], shownAgain.state);
    expect(texts).toEqual(TEXTS);
    expect(pulls).toEqual([[], []]);
    expect([...state.past]).toEqual(["r2"]);
  });

  test("another begin starts empty records and tables; the older run's frames are ignored", () => {
    const older = several();
    const newer = new FakeRun("r2", generated(["z"]));
    const { state, texts, pulls } = play([
      older.begin(0),
      older.data(0, 2),
      older.table("rounds", 0, 2),
      newer.begin(0),
      older.data(2, 4),
      older.table("rounds", 2, 3),
      newer.data(0, 1),
    ]);
    expect(state.run).toBe("r2");
    expect(texts).toEqual(["z"]);
    expect(state.tables.rounds).toEqual([]);
    expect(pulls.flat()).toEqual([]);
  });

  test("begin of the run that is here already keeps its rows", () => {
    const fake = several();
    const { texts, change, state } = play([
      fake.begin(0),
      fake.data(0, 3),
      fake.table("choices", 0, 2),
      fake.begin(0),
      fake.data(0, 4),
    ]);
    expect(texts).toEqual(["a", "b", "a", "c"]);
    expect(state.tables.choices).toHaveLength(2);
    expect(change?.track).toBe(0);
  });

  test("a run whose begin was lost is pulled from its start", () => {
    for (const message of [run.beat({ tracks: [4] }), run.data(0, 1), several().table("rounds", 0, 1)]) {
      const { pulls, texts } = play([message]);
      expect(pulls).toEqual([[{ start: 0 }]]);
      expect(texts).toEqual([]);
    }
  });
});

describe("signs of life", () => {
  test("a beat that knows more rows pulls, one that does not is quiet", () => {
    const fake = several();
    const { pulls } = play([
      fake.begin(0),
      fake.data(0, 2),
      fake.beat({ tracks: [2, 0, 0] }),
      fake.beat({ tracks: [5, 0, 1], rounds: 3 }),
    ]);
    expect(pulls).toEqual([
      [],
      [],
      [],
      [
        { track: 0, start: 2 },
        { track: 2, start: 0 },
        { table: "rounds", start: 0 },
      ],
    ]);
  });

  test("end keeps the tails, says why, and pulls a lost end", () => {
    const { state, pulls } = play([run.begin(0), run.data(0, 5), run.end({ state: "finished", why: "eos" }, "\ufffd")]);
    expect(state.over).toBe(true);
    expect(state.tails).toEqual(["\ufffd"]);
    expect(state.whys).toEqual(["eos"]);
    expect(pulls.at(-1)).toEqual([{ track: 0, start: 5 }]);
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
