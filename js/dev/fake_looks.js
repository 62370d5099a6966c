// Believable attention and logit lens for the harness: answers `look` messages as the kernel does.
import { random } from "./fake_kernel.js";

/** @typedef {import("../src/wire.js").Look} Look */

const LAYERS = 12;
const HEADS = 8;

/**
 * @param {number} n
 * @param {number} seed
 * @param {boolean} sink Whether the first token draws attention to itself, as in decoders.
 * @returns {number[]} Shares that sum to 1.
 */
function shares(n, seed, sink) {
  const next = random(seed * 2654435761 + 17);
  const raw = Array.from({ length: n }, (_, i) => {
    const near = Math.exp(-(n - 1 - i) / 4);
    return next() ** 9 * 2 + near * next() + (sink && i === 0 ? 3 : 0) + 0.002;
  });
  const sum = raw.reduce((a, b) => a + b, 0);
  return raw.map((share) => share / sum);
}

/**
 * @param {import("./fake_model.js").FakeModel} model
 * @param {import("./fake_kernel.js").FakeRun} run
 */
export function answerLooks(model, run) {
  model.on("sent", (/** @type {Look} */ look) => {
    if (look.kind === "look" && look.run === run.run) {
      setTimeout(() => model.receive(answer(look, run)), 20);
    }
  });
}

/**
 * @param {Look} look
 * @param {import("./fake_kernel.js").FakeRun} run
 * @returns {import("../src/connection.js").Seen}
 */
function answer(look, run) {
  const { lane, position, of = "self", layer = null, head = null } = look;
  const { source = null } = run.about.lanes?.[lane] ?? {};
  const read = source === null ? 0 : run.tracks[source].rows.length;
  const place = { run: run.run, lane, position };
  const map = { layer, head, layers: LAYERS, heads: HEADS };
  const seed = (layer ?? 40) * 31 + (head ?? 50) * 7;
  const row = (/** @type {number} */ at) =>
    of === "self" ? shares(at, seed + at, true) : shares(read, seed + at * 3, false);
  if (look.what === "attention") {
    return { kind: "attention", ...place, of: of === "cross" ? "cross" : "self", ...map, weights: row(position) };
  }
  if (look.what === "matrix") {
    const n = of === "encoder" ? read : Math.min(256, position);
    const first = of === "encoder" ? 0 : position - n + 1;
    return {
      kind: "matrix",
      ...place,
      of,
      ...map,
      position: first,
      rows: Array.from({ length: n }, (_, i) => row(first + i)),
    };
  }
  return { kind: "lens", ...place, layers: lens(run.tracks[lane].rows[position], position) };
}

/**
 * @param {import("./fake_text.js").Row} token
 * @param {number} position
 * @returns {import("../src/wire.js").LensLayer[]}
 */
function lens(token, position) {
  const next = random(position + 5);
  const found = 4 + Math.floor(6 * next());
  const raw = token.raw ?? 0.4;
  const others = (token.alternatives ?? []).filter(({ text }) => text !== token.text);
  return Array.from({ length: LAYERS + 1 }, (_, layer) => {
    const own = layer >= found ? raw * ((layer + 1) / (LAYERS + 1)) ** 2 : 0.02 * next() ** 4;
    const candidates = [
      { id: -1, text: token.text, p: own },
      ...others.slice(0, 4).map(({ id, text }, k) => ({
        id,
        text,
        p: (1 - own) * 0.5 ** (k + 1 + (layer < found ? 0 : 1)) * (0.4 + 0.5 * next()),
      })),
    ].sort((a, b) => b.p - a.p);
    const top = candidates.slice(0, 5);
    return {
      layer,
      id: top.map(({ id }) => id),
      text: top.map(({ text }) => text),
      logprob: top.map(({ p }) => Math.log(p)),
      chosen_logprob: Math.log(own),
      chosen_rank: candidates.findIndex(({ id }) => id === -1) + 1 + (layer < found ? Math.round(900 * next()) : 0),
    };
  });
}
