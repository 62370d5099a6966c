// What the front end knows of the current run: a reducer over the kernel's messages. No DOM, no model, no timers.
//
// The protocol is described in widget/wire.py. The rules here: another run's frames are ignored, rows that are here
// already are skipped, and whatever shows that rows are missing asks for a pull (sending it is the connection's part).
// What a person looks into beside the rows (attention, the logit lens) is not of the run's state: looks.js keeps it.
import { TokenRecord } from "./record.js";

/** @typedef {import("./wire.js").BackMessage} BackMessage */
/** @typedef {import("./wire.js").Counts} Counts */
/** @typedef {import("./wire.js").Data} Data */
/** @typedef {import("./wire.js").Status} Status */
/** @typedef {import("./wire.js").WireLane} WireLane */
/** @typedef {import("./wire.js").WireProblem} WireProblem */
/** @typedef {Extract<BackMessage, { kind: "rows" }>} Rows */
/** @typedef {Rows["table"]} TableName */

/**
 * @typedef {object} Tables
 * @property {import("./wire.js").WireRound[]} rounds
 * @property {import("./wire.js").WireBeamStep[]} beams
 * @property {import("./wire.js").WireBeamChoice[]} choices
 * @property {import("./wire.js").WireSegment[]} segments
 */

/**
 * @typedef {object} State
 * @property {string | null} run
 * @property {ReadonlySet<string>} past Runs that were shown before; what still arrives of them is old.
 * @property {WireLane[]} lanes Lane `i` is track `i`.
 * @property {TokenRecord[]} tracks Records of the lanes and, behind them, of the sources. Each grows in place; other
 *   objects for another run.
 * @property {Tables} tables Grow in place, as the tracks.
 * @property {Counts} known Rows that the kernel is known to have.
 * @property {import("./wire.js").BeamShape | null} beams
 * @property {import("./wire.js").WireBranch | null} branch
 * @property {import("./wire.js").WireCompared[] | null} compared By lane; null where nothing is compared.
 * @property {boolean} environment
 * @property {import("./wire.js").Begin["observed"]} observed
 * @property {Record<string, unknown> | null} settings
 * @property {Status | null} status
 * @property {string[]} tails By track, once the run is over.
 * @property {(string | null)[]} whys By lane, once the run is over.
 * @property {boolean} over
 * @property {WireProblem[]} problems
 */

/**
 * Rows that are wanted: of a track or of a table from `start` on; without either, everything.
 * @typedef {{ track?: number, table?: TableName, start: number }} Gap
 */

/**
 * What one message changed.
 * @typedef {object} Change
 * @property {boolean} reset A record or a table is another one.
 * @property {number | null} track The track that grew.
 * @property {TableName | null} table The table that grew.
 * @property {boolean} status
 * @property {boolean} problems
 * @property {readonly Gap[]} pulls
 */

export const TABLES = /** @type {const} */ (["rounds", "beams", "choices", "segments"]);

/** @type {Readonly<Gap>} */
export const EVERYTHING = { start: 0 };

/** @returns {State} */
export function emptyState() {
  return {
    run: null,
    past: new Set(),
    lanes: [],
    tracks: [],
    tables: { rounds: [], beams: [], choices: [], segments: [] },
    known: { tracks: [], rounds: 0, beams: 0, choices: 0, segments: 0 },
    beams: null,
    branch: null,
    compared: null,
    environment: false,
    observed: [],
    settings: null,
    status: null,
    tails: [],
    whys: [],
    over: false,
    problems: [],
  };
}

/** @type {Readonly<Change>} */
const NOTHING = { reset: false, track: null, table: null, status: false, problems: false, pulls: [] };

/**
 * @param {State} state
 * @returns {Gap[]} What the kernel has and is not here.
 */
export function gaps({ tracks, tables, known }) {
  /** @type {Gap[]} */
  const missing = [];
  tracks.forEach(({ n }, track) => {
    if (known.tracks[track] > n) {
      missing.push({ track, start: n });
    }
  });
  for (const table of TABLES) {
    if (known[table] > tables[table].length) {
      missing.push({ table, start: tables[table].length });
    }
  }
  return missing;
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
    case "rows":
      return message.run === state.run ? rows(state, message) : foreign(state, message.run);
    case "beat":
      return message.run === state.run ? heard(state, message) : foreign(state, message.run);
    case "end": {
      if (message.run !== state.run) {
        return foreign(state, message.run);
      }
      const { state: next, change } = heard(state, message);
      return { state: { ...next, tails: message.tails, whys: message.whys, over: true }, change };
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
  const { run, lanes, beams, branch, compared, environment, observed, settings, status } = message;
  const about = { run, lanes, beams, branch, compared, environment, observed, settings, status };
  if (run === state.run) {
    // The answer to a pull of everything: what is here stays, and the slices that follow overlap it.
    return { state: { ...state, ...about }, change: { ...NOTHING, status: true } };
  }
  const past = new Set(state.past);
  if (state.run !== null) {
    past.add(state.run);
  }
  // An older run may be shown again.
  past.delete(run);
  const empty = emptyState();
  const tracks = Array.from({ length: message.tracks }, () => new TokenRecord());
  const known = { ...empty.known, tracks: tracks.map(() => 0) };
  const next = { ...empty, ...about, tracks, known, past, problems: state.problems };
  return { state: next, change: { ...NOTHING, reset: true, status: true } };
}

/**
 * @param {State} state
 * @param {Data} message
 */
function data(state, message) {
  const { track, seq, n, strings } = message;
  const record = state.tracks[track];
  if (record === undefined) {
    return { state, change: NOTHING };
  }
  const { state: next, change } = told(state, message, {
    tracks: state.known.tracks.map((count, i) => (i === track ? Math.max(count, seq + n) : count)),
  });
  if (seq > record.n) {
    return { state: next, change: { ...change, pulls: [{ track, start: record.n }] } };
  }
  if (seq + n <= record.n) {
    return { state: next, change };
  }
  const stringsHeld = record.strings.length - message.strings_from;
  if (stringsHeld < 0) {
    // Texts are missing although no rows are: this copy cannot be continued.
    const tracks = state.tracks.map((other) => (other === record ? new TokenRecord() : other));
    return { state: { ...next, tracks }, change: { ...change, reset: true, pulls: [{ track, start: 0 }] } };
  }
  for (const text of strings.slice(stringsHeld)) {
    record.strings.push(text);
  }
  record.append(message.columns, record.n - seq);
  return { state: next, change: { ...change, track } };
}

/**
 * @param {State} state
 * @param {Rows} message
 */
function rows(state, message) {
  const { table, seq } = message;
  const held = /** @type {unknown[] | undefined} */ (state.tables[table]);
  if (held === undefined) {
    return { state, change: NOTHING };
  }
  const end = seq + message.rows.length;
  const { state: next, change } = told(state, message, { [table]: Math.max(state.known[table], end) });
  if (seq > held.length) {
    return { state: next, change: { ...change, pulls: [{ table, start: held.length }] } };
  }
  if (end <= held.length) {
    return { state: next, change };
  }
  for (let i = held.length - seq; i < message.rows.length; i += 1) {
    held.push(message.rows[i]);
  }
  return { state: next, change: { ...change, table } };
}

/**
 * @param {State} state
 * @param {{ status: Status }} message
 * @param {Partial<Counts>} counts Where they are newer.
 */
function told(state, { status }, counts) {
  return { state: { ...state, status, known: { ...state.known, ...counts } }, change: { ...NOTHING, status: true } };
}

/**
 * @param {State} state
 * @param {{ counts: Counts, status: Status }} message
 */
function heard(state, message) {
  const { known } = state;
  const { counts } = message;
  const most = (/** @type {TableName} */ table) => Math.max(known[table], counts[table]);
  const { state: next, change } = told(state, message, {
    tracks: known.tracks.map((count, track) => Math.max(count, counts.tracks[track] ?? 0)),
    rounds: most("rounds"),
    beams: most("beams"),
    choices: most("choices"),
    segments: most("segments"),
  });
  return { state: next, change: { ...change, pulls: gaps(next) } };
}

/**
 * A frame of a run that is not the current one: an older run's is ignored; a run never heard of means that its `begin`
 * was lost, so everything is wanted.
 * @param {State} state
 * @param {string} run
 */
function foreign(state, run) {
  return { state, change: state.past.has(run) ? NOTHING : { ...NOTHING, pulls: [EVERYTHING] } };
}
