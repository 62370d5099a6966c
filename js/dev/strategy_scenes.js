// Scenes of the harness for what strategies make: several sequences, an encoder, drafts, attention and the lens.
import { FakeRun } from "./fake_kernel.js";
import { answerLooks } from "./fake_looks.js";
import { believableRun, random, sentence } from "./fake_text.js";

/** @typedef {import("./fake_text.js").Row} Row */
/** @typedef {import("../src/wire.js").WireRound} Round */
/** @typedef {import("./fake_model.js").FakeModel} FakeModel */

const SEA = [
  [
    "The sea is",
    " calm tonight. The tide is full, the moon lies fair upon the straits; on the French coast the light gleams and is gone.",
  ],
  [
    "A recipe for bread:",
    " flour, water, salt and time. Mix them, wait, fold, wait again, and bake until the crust sings.",
  ],
  ["def area(r):", "\n    return 3.14159 * r ** 2\n\n\ndef volume(r, h):\n    return area(r) * h\n"],
];
const ENGLISH =
  "translate English to German: The house by the sea is small, but it has a wonderful view of the harbour.";
const GERMAN = "Das Haus am Meer ist klein, aber es hat einen wunderbaren Blick auf den Hafen.";

/**
 * @param {FakeModel} model
 * @param {FakeRun} run
 * @param {number} promptTokens
 * @param {Record<string, unknown>} settings
 * @param {Partial<import("../src/wire.js").Status>} change
 * @param {(string | null)[]} [whys]
 */
function playAll(model, run, promptTokens, settings, change, whys) {
  model.receive(run.begin(promptTokens, { alternatives: 10, max_new_tokens: 160, ...settings }));
  for (const track of run.tracks) {
    model.receive(track.data(0, track.rows.length, change));
  }
  model.receive(run.table("rounds", 0, run.counts.rounds, change));
  answerLooks(model, run);
  if (change.state === "finished") {
    model.receive(run.end(change, [], whys));
  } else {
    model.receive(run.beat(run.counts, change));
  }
}

/** @type {Partial<import("../src/wire.js").Status>} */
const READINGS = { elapsed: 2.41, first_token: 0.21, tokens_per_second: 31.4, observation_share: 0.034 };

/** @param {FakeModel} model */
export function batch(model) {
  const made = SEA.map(([prompt, answer], i) => sentence(prompt, answer, i + 1));
  const lanes = made.map(({ promptTokens }) => ({ prompt_tokens: promptTokens }));
  const run = new FakeRun(
    "batch",
    made.map(({ rows }) => rows),
    { lanes },
  );
  model.set(
    "prompt",
    SEA.map(([prompt]) => prompt),
  );
  playAll(model, run, 0, {}, { ...READINGS, state: "finished", generated: 36, why: null }, [
    "length",
    "eos",
    "stop string '\\n\\n\\n'",
  ]);
}

/** @param {FakeModel} model */
export function sequences(model) {
  const made = [0, 1, 2, 3, 4, 5].map((i) => sentence(SEA[i >> 1][0], SEA[i >> 1][1], i + 1));
  const lanes = made.map(({ promptTokens }, i) => ({ prompt_tokens: promptTokens, prompt: i >> 1, sequence: i & 1 }));
  playAll(
    model,
    new FakeRun(
      "sequences",
      made.map(({ rows }) => rows),
      { lanes },
    ),
    0,
    {},
    { ...READINGS, generated: 30 },
  );
}

/** @param {FakeModel} model */
export function encoder(model) {
  const target = sentence("", GERMAN, 4);
  target.rows.unshift({ text: "<pad>", special: true });
  const { rows: source } = sentence(ENGLISH, "", 5);
  const run = new FakeRun("encoder", [target.rows, [...source, { text: "</s>", special: true }]], {
    lanes: [{ source: 1 }],
    observed: ["attention", "cross", "encoder"],
  });
  model.set("prompt", ENGLISH);
  playAll(model, run, 1, {}, { ...READINGS, state: "finished", why: "eos", generated: target.rows.length - 1 });
}

/** @param {FakeModel} model */
export function drafts(model) {
  const { rows, promptTokens } = believableRun();
  const rounds = roundsOf(rows, promptTokens);
  const drafted = rounds.reduce((sum, { id }) => sum + id.length, 0);
  const accepted = rounds.reduce((sum, round) => sum + round.accepted, 0);
  const summary = { rounds: rounds.length, drafted, accepted, generated: rows.length - promptTokens };
  const status = { ...READINGS, state: /** @type {const} */ ("finished"), why: "eos", drafts: summary };
  playAll(
    model,
    new FakeRun("drafts", rows, { rounds }),
    promptTokens,
    {},
    { ...status, generated: summary.generated },
  );
}

/**
 * @param {Row[]} rows
 * @param {number} from
 * @returns {Round[]}
 */
export function roundsOf(rows, from) {
  const next = random(11);
  /** @type {Round[]} */
  const rounds = [];
  for (let position = from; position < rows.length; ) {
    const drafted = 5;
    const left = rows.length - position;
    const accepted = Math.min(left, Math.floor(6 * next() ** 0.7));
    const bonus = accepted < left ? 1 : 0;
    const texts = Array.from({ length: drafted }, (_, i) =>
      i < accepted ? rows[position + i].text : [" a", " the", " and", ",", "\n", " of"][Math.floor(6 * next())],
    );
    rounds.push({
      step: rounds.length,
      position,
      id: texts.map((_, i) => i),
      text: texts,
      draft_logprob: texts.map(() => Math.log(0.2 + 0.7 * next())),
      target_logprob: texts.map((_, i) => (i < accepted ? Math.log(0.6) : i === accepted ? Math.log(0.02) : null)),
      accepted,
      bonus,
      seconds: 0.04,
    });
    position += accepted + bonus;
  }
  return rounds;
}

/** @param {FakeModel} model */
export function looks(model) {
  const { rows, promptTokens } = believableRun();
  const run = new FakeRun("looks", rows, { observed: ["attention", "lens"] });
  const generated = rows.length - promptTokens;
  playAll(model, run, promptTokens, {}, { ...READINGS, state: "finished", why: "eos", generated });
}
