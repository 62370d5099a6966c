// What the stretches of an environment's lane are called, and what became of it. Texts from rows; no DOM.
import { whole } from "./format.js";

/** @typedef {import("./wire.js").WireSegment} Segment */
/** @typedef {"prompt" | "model" | "tool"} StretchKind */

/**
 * @param {Segment} segment With tokens.
 * @returns {{ name: string, note: string }} What it is, and of the model's what was reused for it.
 */
export function describe(segment) {
  return {
    name: nameOf(segment.kind, segment.turn, segment.text),
    note: segment.kind === "model" ? noteOf(segment) : "",
  };
}

/**
 * @param {Segment["kind"]} kind
 * @param {number | null} turn Null while it is not known.
 * @param {string | null} [tools]
 */
export function nameOf(kind, turn, tools = null) {
  if (kind === "model") {
    return turn === null ? "model" : `model, turn ${turn}`;
  }
  return kind === "tool" && tools ? `tool: ${tools}` : kind;
}

/** @param {Segment} segment */
function noteOf({ reused, computed, text }) {
  if (reused === null || computed === null) {
    return text ?? "";
  }
  return reused > 0 || !text ? `reused ${whole(reused)} of ${whole(reused + computed)}` : `nothing reused: ${text}`;
}

/**
 * @typedef {object} Outcome
 * @property {string | null} end Why the lane ended; null while it goes on.
 * @property {number | null} reward
 */

/**
 * @param {readonly Segment[]} segments Of all lanes.
 * @param {number} lane
 * @returns {Outcome}
 */
export function outcomeOf(segments, lane) {
  /** @type {Outcome} */
  const outcome = { end: null, reward: null };
  for (const segment of segments) {
    if (segment.lane === lane && segment.kind === "end") {
      outcome.end = segment.text ?? "";
    } else if (segment.lane === lane && segment.kind === "reward") {
      outcome.reward = segment.reward;
    }
  }
  return outcome;
}

/** @param {Outcome} outcome */
export function outcomeTexts({ end, reward }) {
  const texts = [];
  if (end !== null) {
    texts.push(end === "" ? "ended" : `ended: ${end}`);
  }
  if (reward !== null) {
    texts.push(`reward ${String(Number(reward.toPrecision(3))).replace("-", "−")}`);
  }
  return texts;
}
