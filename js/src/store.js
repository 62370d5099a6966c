// What the front end knows of the current run: a reducer over the kernel's messages. No DOM, no model, no timers.
//
// The protocol is described in widget/wire.py. The rules here: another run's frames are ignored, rows that are here
// already are skipped, and whatever shows that rows are missing asks for a pull (sending it is the connection's part).
import { TokenRecord } from "./record.js";

/** @typedef {import("./wire.js").BackMessage} BackMessage */
/** @typedef {import("./wire.js").Data} Data */
/** @typedef {import("./wire.js").Status} Status */
/** @typedef {import("./wire.js").WireProblem} WireProblem */

/**
 * @typedef {object} State
 * @property {string | null} run
 * @property {ReadonlySet<string>} past Runs that were shown before; what still arrives of them is old.
 * @property {number | null} promptTokens
 * @property {Record<string, unknown> | null} settings
 * @property {Status | null} status
 * @property {TokenRecord} record Grows in place; another object for another run.
 * @property {number} known Rows that the kernel is known to have.
 * @property {string} tail
 * @property {boolean} over
 * @property {WireProblem[]} problems
 */

/**
 * What one message changed.
 * @typedef {object} Change
 * @property {boolean} reset The record is another one.
 * @property {boolean} rows The record grew.
 * @property {boolean} status
 * @property {boolean} problems
 * @property {number | null} pull The record is wanted from this row on.
 */

/** @returns {State} */
export function emptyState() {
  return {
    run: null,
    past: new Set(),
    promptTokens: null,
    settings: null,
    status: null,
    record: new TokenRecord(),
    known: 0,
    tail: "",
    over: false,
    problems: [],
  };
}

/** @type {Readonly<Change>} */
const NOTHING = { reset: false, rows: false, status: false, problems: false, pull: null };

/**
 * @param {State} state
 * @returns {boolean} Whether the kernel has rows that are not here.
 */
export function isBehind(state) {
  return state.known > state.record.n;
}

/**
 * @param {State} state
 * @param {BackMessage} message
 * @returns {{ state: State, change: Readonly<Change> }}
 */
export function reduce(state, message) {
  switch (message.kind) {
    case "begin":
      return begin(state, message);
    case "data":
      return message.run === state.run ? data(state, message) : foreign(state, message.run);
    case "beat":
      return message.run === state.run ? heard(state, message.n, message.status) : foreign(state, message.run);
    case "end": {
      if (message.run !== state.run) {
        return foreign(state, message.run);
      }
      const next = heard(state, message.n, message.status);
      return { ...next, state: { ...next.state, tail: message.tail, over: true } };
    }
    case "problems":
      return { state: { ...state, problems: message.problems }, change: { ...NOTHING, problems: true } };
    default:
      return { state, change: NOTHING };
  }
}

/**
 * @param {State} state
 * @param {import("./wire.js").Begin} message
 */
function begin(state, message) {
  const { run, settings, status } = message;
  const about = { run, settings, status, promptTokens: message.prompt_tokens };
  if (run === state.run) {
    // The answer to a pull from 0: what is here stays, and the slices that follow overlap it.
    return { state: { ...state, ...about }, change: { ...NOTHING, status: true } };
  }
  const past = new Set(state.past);
  if (state.run !== null) {
    past.add(state.run);
  }
  past.delete(run);
  const next = { ...emptyState(), ...about, past, problems: state.problems };
  return { state: next, change: { ...NOTHING, reset: true, status: true } };
}

/**
 * @param {State} state
 * @param {Data} message
 */
function data(state, message) {
  const { record } = state;
  const { seq, n, status, strings } = message;
  const next = { ...state, status, known: Math.max(state.known, seq + n) };
  const change = { ...NOTHING, status: true };
  if (seq > record.n) {
    return { state: next, change: { ...change, pull: record.n } };
  }
  if (seq + n <= record.n) {
    return { state: next, change };
  }
  const stringsHeld = record.strings.length - message.strings_from;
  if (stringsHeld < 0) {
    // Texts are missing although no rows are: this copy cannot be continued.
    return { state: { ...next, record: new TokenRecord() }, change: { ...change, reset: true, pull: 0 } };
  }
  for (const text of strings.slice(stringsHeld)) {
    record.strings.push(text);
  }
  record.append(message.columns, record.n - seq);
  return { state: next, change: { ...change, rows: true } };
}

/**
 * @param {State} state
 * @param {number} n
 * @param {Status} status
 */
function heard(state, n, status) {
  const next = { ...state, status, known: Math.max(state.known, n) };
  return { state: next, change: { ...NOTHING, status: true, pull: isBehind(next) ? state.record.n : null } };
}

/**
 * A frame of a run that is not the current one: an older run's is ignored; a run never heard of means that its `begin`
 * was lost, so everything is wanted.
 * @param {State} state
 * @param {string} run
 */
function foreign(state, run) {
  return { state, change: state.past.has(run) ? NOTHING : { ...NOTHING, pull: 0 } };
}
