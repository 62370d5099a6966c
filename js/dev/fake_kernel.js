// Runs without a kernel: rows (fake_text.js) cut into the wire's messages. For the harness and the tests.
import { hexOf, idOf } from "./fake_text.js";

export { believableRun, random } from "./fake_text.js";

/** @typedef {import("./fake_text.js").Row} Row */
/** @typedef {import("../src/wire.js").Data} Data */
/** @typedef {import("../src/wire.js").Status} Status */

/**
 * @param {Partial<Status>} [change]
 * @returns {Status}
 */
export function status(change = {}) {
  return {
    state: "decoding",
    why: null,
    error: null,
    generated: 0,
    elapsed: 0,
    first_token: null,
    tokens_per_second: null,
    queue_ahead: 0,
    observation_share: null,
    drafts: null,
    reuse: null,
    execution: null,
    ...change,
  };
}

/**
 * @param {number[]} tracks
 * @param {Partial<import("../src/wire.js").Counts>} [tables]
 * @returns {import("../src/wire.js").Counts}
 */
export const counts = (tracks, tables) => ({ tracks, rounds: 0, beams: 0, choices: 0, segments: 0, ...tables });

/** Cuts the rows of one track into data frames, each text sent once. */
export class FakeTrack {
  /** @type {string[]} */
  #strings = [];
  /** @type {Map<string, number>} */
  #known = new Map();
  /** Strings needed before each row. @type {number[]} */
  #before = [];

  /**
   * @param {string} run
   * @param {Row[]} rows
   * @param {number} [track]
   */
  constructor(run, rows, track = 0) {
    this.run = run;
    this.rows = rows;
    this.track = track;
    for (const row of rows) {
      this.#before.push(this.#strings.length);
      for (const text of [row.text, ...(row.alternatives ?? []).map((one) => one.text)]) {
        if (!this.#known.has(text)) {
          this.#known.set(text, this.#strings.length);
          this.#strings.push(text);
        }
      }
    }
    this.#before.push(this.#strings.length);
  }

  /**
   * @param {number} from
   * @param {number} to
   * @param {Partial<Status>} [change]
   * @returns {Data}
   */
  data(from, to, change) {
    const rows = this.rows.slice(from, to);
    const log = (/** @type {number | null | undefined} */ p) => (p === null || p === undefined ? null : Math.log(p));
    const index = (/** @type {string} */ text) => this.#known.get(text) ?? 0;
    const alternatives = rows.flatMap((row) => row.alternatives ?? []);
    return {
      kind: "data",
      run: this.run,
      track: this.track,
      seq: from,
      n: rows.length,
      strings_from: this.#before[from],
      strings: this.#strings.slice(this.#before[from], this.#before[from + rows.length]),
      status: status({ generated: this.rows.slice(0, to).filter((row) => row.generated).length, ...change }),
      columns: {
        id: rows.map((row) => row.id ?? idOf(row.text)),
        text: rows.map((row) => index(row.text)),
        bytes: rows.map((row) => (row.bytes === undefined ? hexOf(row.text) : row.bytes)),
        group: rows.map((row, i) => row.group ?? from + i),
        special: rows.map((row) => (row.special ? 1 : 0)),
        generated: rows.map((row) => (row.generated ? 1 : 0)),
        raw_logprob: rows.map((row) => log(row.raw)),
        logprob: rows.map((row) => log(row.processed)),
        entropy: rows.map((row) => row.entropy ?? null),
        rank: rows.map((row) => row.rank ?? null),
        seconds: rows.map((row) => row.seconds ?? null),
        cached: rows.map((row) => row.cached ?? null),
        alt_n: rows.map((row) => row.alternatives?.length ?? 0),
        alt_id: alternatives.map((one) => one.id),
        alt_text: alternatives.map((one) => index(one.text)),
        alt_raw_logprob: alternatives.map((one) => log(one.raw)),
        alt_logprob: alternatives.map((one) => log(one.processed)),
      },
    };
  }
}

/** @typedef {Partial<import("../src/wire.js").WireLane>} LaneAbout */

/**
 * A run of several sequences, as the kernel tells of it. `data` and the others of the first lane stand here too.
 * @typedef {object} About
 * @property {LaneAbout[]} [lanes] Of each lane what is not usual; a track beyond the lanes is a source.
 * @property {import("../src/wire.js").BeamShape | null} [beams]
 * @property {import("../src/wire.js").Begin["observed"]} [observed]
 * @property {import("../src/wire.js").WireRound[]} [rounds]
 * @property {import("../src/wire.js").WireBeamStep[]} [steps]
 * @property {import("../src/wire.js").WireBeamChoice[]} [choices]
 * @property {import("../src/wire.js").WireSegment[]} [segments]
 * @property {import("../src/wire.js").WireBranch | null} [branch]
 * @property {import("../src/wire.js").WireCompared[] | null} [compared]
 * @property {boolean} [environment]
 */

export class FakeRun {
  /** @type {FakeTrack[]} */
  tracks;

  /**
   * @param {string} run
   * @param {Row[] | Row[][]} rows Of one lane, or of each track.
   * @param {About} [about]
   */
  constructor(run, rows, about = {}) {
    this.run = run;
    const tracks = /** @type {Row[][]} */ (rows.length > 0 && Array.isArray(rows[0]) ? rows : [rows]);
    this.tracks = tracks.map((each, track) => new FakeTrack(run, each, track));
    this.about = about;
  }

  get rows() {
    return this.tracks[0].rows;
  }

  /**
   * Of the first lane.
   * @param {number} from
   * @param {number} to
   * @param {Partial<Status>} [change]
   */
  data(from, to, change) {
    return this.tracks[0].data(from, to, change);
  }

  /**
   * @param {number} promptTokens Of lanes that do not say theirs.
   * @param {Record<string, unknown>} [settings]
   * @returns {import("../src/wire.js").Begin}
   */
  begin(promptTokens, settings = {}) {
    const {
      lanes = [{}],
      beams = null,
      branch = null,
      compared = null,
      environment = false,
      observed = [],
    } = this.about;
    return {
      kind: "begin",
      run: this.run,
      lanes: lanes.map((lane, i) => ({
        prompt: i,
        sequence: 0,
        prompt_tokens: promptTokens,
        source: null,
        label: "",
        ...lane,
      })),
      tracks: this.tracks.length,
      beams,
      branch,
      compared,
      environment,
      observed,
      settings,
      status: status({ state: "prefilling" }),
    };
  }

  /** @returns {import("../src/wire.js").Counts} */
  get counts() {
    const { rounds = [], steps = [], choices = [], segments = [] } = this.about;
    return counts(
      this.tracks.map(({ rows }) => rows.length),
      { rounds: rounds.length, beams: steps.length, choices: choices.length, segments: segments.length },
    );
  }

  /**
   * @param {import("../src/store.js").TableName} table
   * @param {number} from
   * @param {number} to
   * @param {Partial<Status>} [change]
   * @returns {import("../src/store.js").Rows}
   */
  table(table, from, to, change) {
    const { rounds, steps: beams, choices, segments } = this.about;
    const rows = { rounds, beams, choices, segments }[table] ?? [];
    const message = {
      kind: "rows",
      run: this.run,
      table,
      seq: from,
      rows: rows.slice(from, to),
      status: status(change),
    };
    return /** @type {any} */ (message);
  }

  /**
   * @param {Partial<import("../src/wire.js").Counts>} known
   * @param {Partial<Status>} [change]
   * @returns {import("../src/wire.js").Beat}
   */
  beat(known, change) {
    return { kind: "beat", run: this.run, counts: { ...counts([]), ...known }, status: status(change) };
  }

  /**
   * @param {Partial<Status>} change
   * @param {string | string[]} [tails] Of the first track, or of each.
   * @param {(string | null)[]} [whys]
   * @returns {import("../src/wire.js").End}
   */
  end(change, tails = [], whys = []) {
    const given = [tails].flat();
    return {
      kind: "end",
      run: this.run,
      counts: this.counts,
      tails: this.tracks.map((_, track) => given[track] ?? ""),
      whys: (this.about.lanes ?? [{}]).map((_, lane) => whys[lane] ?? change.why ?? null),
      status: status(change),
    };
  }
}
