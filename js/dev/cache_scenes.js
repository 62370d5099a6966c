// Scenes of the harness for the prefix cache: hits on a prompt, a miss, a check, a tree of runs, a conversation to reply
// to, and an environment with tools.
import { FakeRun } from "./fake_kernel.js";
import { believableRun, sentence } from "./fake_text.js";

/** @typedef {import("./fake_text.js").Row} Row */
/** @typedef {import("./fake_model.js").FakeModel} FakeModel */
/** @typedef {import("../src/wire.js").WireReuse} Reuse */
/** @typedef {import("../src/wire.js").WireSegment} Segment */

const READINGS = { elapsed: 1.84, first_token: 0.038, tokens_per_second: 48.2, observation_share: 0.031 };
const SETTINGS = { alternatives: 10, max_new_tokens: 160, prefix_cache: true, verify_cache: false };

/**
 * @param {Partial<Reuse>} [change]
 * @returns {Reuse}
 */
export function reuse(change) {
  return {
    tokens: 31,
    reused: 19,
    nbytes: 9_216_000,
    sources_reused: null,
    sources: null,
    end: { prompt: 0, kind: "differs", position: 19, asked: " function", cached: [" poem", " haiku\n"], message: "" },
    saved: 0.31,
    saved_measured: false,
    verified: null,
    ...change,
  };
}

/**
 * @param {Row[]} rows
 * @param {number} promptTokens
 * @param {number} hits
 * @returns {Row[]} The first of the prompt as hits, the others as computed.
 */
const withHits = (rows, promptTokens, hits) =>
  rows.map((row, i) => (i < promptTokens ? { ...row, cached: i < hits ? 1 : 0 } : row));

/**
 * @param {FakeModel} model
 * @param {FakeRun} run
 * @param {number} promptTokens
 * @param {Partial<import("../src/wire.js").Status>} change
 * @param {Record<string, unknown>} [settings]
 */
function playOne(model, run, promptTokens, change, settings) {
  const generated = run.rows.length - promptTokens;
  const status = { ...READINGS, generated, state: /** @type {const} */ ("finished"), why: "eos", ...change };
  model.receive(run.begin(promptTokens, { ...SETTINGS, ...settings }));
  for (const track of run.tracks) {
    model.receive(track.data(0, track.rows.length, status));
  }
  model.receive(run.table("segments", 0, run.counts.segments, status));
  model.receive(status.state === "finished" ? run.end(status) : run.beat(run.counts, status));
}

/** @param {FakeModel} model */
export function hits(model) {
  const { rows, promptTokens } = believableRun();
  const run = new FakeRun("hits", withHits(rows, promptTokens, 19));
  playOne(model, run, promptTokens, { reuse: reuse({ tokens: promptTokens }) });
}

/** @param {FakeModel} model */
export function verified(model) {
  const { rows, promptTokens } = believableRun();
  const checked = { difference: 7.4e-6, largest: 29.1, agrees: true };
  const message = "all of it is known; the last token is computed for its outputs";
  /** @type {Reuse["end"]} */
  const end = { prompt: 0, kind: "whole", position: promptTokens - 1, asked: "\n", cached: [], message };
  const change = {
    tokens: promptTokens,
    reused: promptTokens - 1,
    saved: 0.29,
    saved_measured: true,
    verified: checked,
  };
  const run = new FakeRun("verified", withHits(rows, promptTokens, promptTokens - 1));
  const summary = reuse({ ...change, end });
  playOne(model, run, promptTokens, { reuse: summary }, { verify_cache: true });
  model.set("measure", "cache");
}

/** @param {FakeModel} model */
export function miss(model) {
  const { rows, promptTokens } = believableRun();
  const run = new FakeRun("miss", withHits(rows, promptTokens, 0));
  const end = reuse().end;
  const summary = reuse({
    tokens: promptTokens,
    reused: 0,
    nbytes: 0,
    saved: null,
    end: { ...end, position: 0, asked: "<|im_start|>", cached: ["Once", "\n\n", " The", "def"] },
    verified: null,
  });
  playOne(model, run, promptTokens, { reuse: summary });
}

/** @param {FakeModel} model */
export function disagrees(model) {
  const { rows, promptTokens } = believableRun();
  const run = new FakeRun("disagrees", withHits(rows, promptTokens, 19));
  const checked = { difference: 0.83, largest: 29.1, agrees: false };
  playOne(model, run, promptTokens, { reuse: reuse({ tokens: promptTokens, verified: checked }) });
}

/** @type {import("../src/runtree.js").TreeRun[]} */
export const TREE = [
  ["r1", null, 0, "run", "…is calm tonight. The tide is full, the moon", "sample", "finished", 60],
  ["r2", "r1", 12, "branch", " dark sky lies over the harbour and\n", "sample", "finished", 60],
  ["r3", "r2", 20, "branch", ", however, the boats", "greedy", "stopped", 22],
  ["r4", "r2", 31, "branch", "  quiet water", "beam", "finished", 40],
  ["r5", "r1", 12, "branch", " sea of stars\tabove", "sample", "failed", 3],
  ["r6", "r5", 15, "branch", "", "sample", "decoding", 18],
  ["r7", null, 0, "run", "…Write a haiku about the sea. Salt wind combs", "sample", "finished", 36],
  ["r8", "r7", 52, "reply", "And now one about the mountains, please. Snow", "sample", "finished", 41],
  ["r9", null, 0, "environment", "Question: what is 12 × (3 + 4)? Let me", "sample", "finished", 93],
].map(
  ([id, parent, position, kind, title, strategy, state, tokens]) =>
    /** @type {any} */ ({ id, parent, lane: 0, position, kind, title, strategy, state, tokens }),
);

/** @param {FakeModel} model */
export function tree(model) {
  const { rows, promptTokens } = sentence(
    "The sea is calm tonight. The tide is full, the dark",
    " sky lies over the harbour and\nthe lamps of the boats are small, one behind the other.",
    3,
  );
  const branch = /** @type {const} */ ({
    run: "r1",
    lane: 0,
    position: 12,
    added: 1,
    kind: "branch",
    rewritten: false,
  });
  const run = new FakeRun("r2", withHits(rows, promptTokens, 12), { branch });
  const { end } = reuse();
  const known = { tokens: promptTokens, reused: 12, saved: 0.021, saved_measured: true };
  const summary = reuse({ ...known, end: { ...end, position: 12, asked: " dark", cached: [" moon", " sea"] } });
  model.set("tree", TREE);
  playOne(model, run, promptTokens, { reuse: summary });
}

/** @param {FakeModel} model */
export function reply(model) {
  const { rows, promptTokens } = believableRun();
  const branch = /** @type {const} */ ({ run: "r1", lane: 0, position: 19, added: 8, kind: "reply", rewritten: true });
  const run = new FakeRun("r8", withHits(rows, promptTokens, 19), { branch });
  model.set("prompt", [
    { role: "user", content: "Write a haiku about the sea." },
    {
      role: "assistant",
      content: "Salt wind combs the waves,\na gull writes one slow circle\nand the tide erases it.",
    },
    { role: "user", content: "Then a small function that counts words." },
  ]);
  model.set("tree", TREE.slice(6, 8));
  playOne(model, run, promptTokens, { reuse: reuse({ tokens: promptTokens, saved: null }) });
}

/**
 * @param {number} lane
 * @param {[Segment["kind"], string, Partial<Segment>?][]} parts
 * @returns {{ rows: Row[], segments: Segment[], promptTokens: number }}
 */
function conversation(lane, parts) {
  /** @type {Row[]} */
  const rows = [];
  /** @type {Segment[]} */
  const segments = [];
  let turn = 0;
  parts.forEach(([kind, text, change], at) => {
    const start = rows.length;
    const made = sentence(kind === "model" ? "" : text, kind === "model" ? text : "", 10 * lane + at + 1).rows;
    rows.push(
      ...(kind === "end" || kind === "reward" ? [] : made.map((row) => (row.generated ? row : { ...row, cached: 0 }))),
    );
    turn += kind === "model" ? 1 : 0;
    const none = { reused: null, computed: null, text: null, reward: null };
    segments.push({ lane, kind, turn, start, stop: rows.length, ...none, ...change });
  });
  return { rows, segments, promptTokens: segments[0].stop };
}

const ASK = "Use the tool <SimpleCalculator>expression<call> and submit with <submit>.\nQuestion: what is ";

/**
 * @param {FakeModel} model
 * @param {boolean} [living]
 */
export function environment(model, living = false) {
  const lanes = [
    conversation(0, [
      ["prompt", `${ASK}12 × (3 + 4)?`],
      [
        "model",
        "\n<request><SimpleCalculator>3 + 4<call>",
        { reused: 0, computed: 33, text: "nothing is known of this model" },
      ],
      ["tool", "7<response>", { text: "SimpleCalculator" }],
      ["model", "\n<request><SimpleCalculator>12 * 7<call>", { reused: 46, computed: 4 }],
      ["tool", "84<response>", { text: "SimpleCalculator" }],
      ["model", "\nResult = 84 <submit>", { reused: 64, computed: 5 }],
      ["end", "", { text: "submit" }],
      ["reward", "", { reward: 0.8333333 }],
    ]),
    conversation(1, [
      ["prompt", `${ASK}the capital of Peru, and how many live there?`],
      ["model", "\n<request><Search>capital of Peru<call>", { reused: 24, computed: 16 }],
      [
        "tool",
        "Lima is the capital and the largest city of Peru.\nIts metropolitan area had 10,151,000 people in 2023.<response>",
        { text: "Search" },
      ],
      ["model", "\nThe capital is Lima; about ten million people live in", { reused: 52, computed: 31 }],
    ]),
  ];
  if (!living) {
    lanes[1].segments.push({ ...lanes[1].segments[3], kind: "end", text: "max_turns", reused: null, computed: null });
    lanes[1].segments.push({
      ...lanes[1].segments[3],
      kind: "reward",
      text: null,
      reward: -1,
      reused: null,
      computed: null,
    });
  } else {
    lanes[1].segments.pop();
  }
  const about = {
    environment: true,
    segments: lanes.flatMap(({ segments }) => segments),
    lanes: lanes.map(({ promptTokens }, prompt) => ({ prompt, prompt_tokens: promptTokens })),
  };
  const run = new FakeRun(
    "environment",
    lanes.map(({ rows }) => rows),
    about,
  );
  const { end } = reuse();
  const summary = reuse({
    tokens: 73,
    reused: 24,
    nbytes: 1_100_000,
    saved: 0.044,
    end: { ...end, kind: "ends", message: "what is known ends after 0 tokens" },
  });
  /** @type {"decoding" | "finished"} */
  const state = living ? "decoding" : "finished";
  playOne(model, run, 0, { reuse: summary, generated: 61, state, why: living ? null : "submit (1), max_turns (1)" });
}

/** @param {FakeModel} model */
export const environment_live = (model) => environment(model, true);

/** @param {FakeModel} model */
export function uncached(model) {
  const { rows, promptTokens } = believableRun();
  model.set("about", { ...model.get("about"), prefix_cache: null });
  playOne(model, new FakeRun("uncached", rows), promptTokens, {});
}
