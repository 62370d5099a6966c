// A believable run without a kernel: tokens with measures and alternatives, cut into wire frames. For the harness and
// the tests; not a model of anything.

/** @typedef {import("../src/wire.js").Data} Data */
/** @typedef {import("../src/wire.js").Status} Status */
/** @typedef {import("../src/wire.js").Columns} Columns */

/**
 * @typedef {object} Row
 * @property {string} text
 * @property {string | null} [bytes]
 * @property {boolean} [special]
 * @property {boolean} [generated]
 * @property {number} [group]
 * @property {number | null} [raw] Probability.
 * @property {number | null} [processed] Probability.
 * @property {number | null} [entropy]
 * @property {number | null} [rank]
 * @property {number | null} [seconds]
 * @property {number} [id]
 * @property {{ text: string, raw: number, processed: number | null, id: number }[]} [alternatives]
 */

/**
 * @param {number} seed
 * @returns {() => number} Uniform from 0 to 1, the same for the same seed.
 */
export function random(seed) {
  let state = seed;
  return () => {
    state = (state * 1664525 + 1013904223) % 4294967296;
    return state / 4294967296;
  };
}

/** @param {string} text */
const hexOf = (text) => [...new TextEncoder().encode(text)].map((b) => b.toString(16).padStart(2, "0")).join("");

/** @param {string} text */
const idOf = (text) => [...text].reduce((sum, c) => (sum * 31 + (c.codePointAt(0) ?? 0)) % 49152, 7);

const PROMPT = "Write a haiku about the sea, then a small function that counts words.";
const ANSWER = `Salt wind combs the waves,
a gull writes one slow circle 🌊
and the tide erases it.

\`\`\`python
def count_words(text: str) -> dict[str, int]:
    counts = {}
    for word in text.lower().split():
        counts[word] = counts.get(word, 0) + 1
    return counts
\`\`\`

The function lowers the text, splits it at white space and counts every word in one pass. For large files, read it line by line so that memory stays small. <script>alert("no")</script> is only text here & stays so.
`;

/**
 * Split as tokenizers do: a space belongs to the word after it.
 * @param {string} text
 * @returns {string[]}
 */
const pieces = (text) => text.match(/\n+| {2,}(?= )| ?[\p{L}]{1,7}| ?\p{N}| ?[^\s\p{L}\p{N}]+|\s/gu) ?? [];

const OTHERS = [
  " the",
  " a",
  ",",
  ".",
  " and",
  "\n",
  " it",
  " one",
  " slow",
  " of",
  " in",
  " 🌀",
  "ing",
  " =",
  " blue",
];

/**
 * @param {string} text
 * @param {() => number} next
 * @returns {Row}
 */
function measured(text, next) {
  const surprise = next() ** 3;
  const raw = Math.max(1e-5, 1 - surprise * 1.02 - 0.02 * next());
  const candidates = [...new Set(OTHERS)].filter((other) => other !== text).sort(() => next() - 0.5);
  let left = 1 - raw;
  const others = candidates.slice(0, 9).map((other) => {
    const p = left * (0.35 + 0.3 * next());
    left -= p;
    return { text: other, raw: Math.max(p, 1e-9), id: idOf(other) };
  });
  const all = [...others, { text, raw, id: idOf(text) }].sort((a, b) => b.raw - a.raw);
  const rank = all.findIndex((one) => one.text === text) + 1;
  const kept = all.slice(0, Math.max(rank, 4));
  const mass = kept.reduce((sum, one) => sum + one.raw, 0);
  const alternatives = all.map((one) => ({ ...one, processed: kept.includes(one) ? one.raw / mass : null }));
  return {
    text,
    generated: true,
    raw,
    processed: raw / mass,
    entropy: 7 * surprise * (0.6 + 0.4 * next()) + 0.05,
    rank: raw < 0.003 ? Math.round(20 + 900 * next()) : rank,
    seconds: 0.018 + 0.02 * next() ** 6 + (next() > 0.97 ? 0.12 : 0),
    alternatives,
  };
}

/**
 * @param {number} [n] How many generated tokens, at least; the answer is repeated.
 * @param {number} [seed]
 * @returns {{ rows: Row[], promptTokens: number }}
 */
export function believableRun(n = 0, seed = 3) {
  const next = random(seed);
  /** @type {Row[]} */
  const rows = [
    { text: "<|im_start|>", special: true },
    ...pieces(`user\n${PROMPT}`).map((text) => ({ text })),
    { text: "<|im_end|>", special: true },
    { text: "\n" },
    { text: "<|im_start|>", special: true },
    ...pieces("assistant\n").map((text) => ({ text })),
  ];
  const promptTokens = rows.length;
  do {
    for (const piece of pieces(ANSWER)) {
      if (/\p{Extended_Pictographic}/u.test(piece)) {
        const bytes = hexOf(piece).match(/../g) ?? [];
        const parts = [bytes.slice(0, 2).join(""), ...bytes.slice(2)];
        const group = rows.length;
        parts.forEach((hex, at) => {
          const text = at === parts.length - 1 ? piece : "";
          rows.push({ ...measured(text, next), bytes: hex, group, id: 200 + at });
        });
      } else {
        rows.push(measured(piece, next));
      }
    }
  } while (rows.length - promptTokens < n);
  rows.push({ ...measured("<|im_end|>", next), special: true });
  return { rows, promptTokens };
}

/**
 * @param {string} prompt
 * @param {string} answer
 * @param {number} seed
 * @returns {{ rows: Row[], promptTokens: number }}
 */
export function sentence(prompt, answer, seed) {
  const next = random(seed);
  const read = pieces(prompt).map((text) => /** @type {Row} */ ({ text }));
  return { rows: [...read, ...pieces(answer).map((text) => measured(text, next))], promptTokens: read.length };
}

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
    ...change,
  };
}

/**
 * @param {number[]} tracks
 * @param {Partial<import("../src/wire.js").Counts>} [tables]
 * @returns {import("../src/wire.js").Counts}
 */
export const counts = (tracks, tables) => ({ tracks, rounds: 0, beams: 0, choices: 0, ...tables });

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
    const { lanes = [{}], beams = null, observed = [] } = this.about;
    return {
      kind: "begin",
      run: this.run,
      lanes: lanes.map((lane, i) => ({ prompt: i, sequence: 0, prompt_tokens: promptTokens, source: null, ...lane })),
      tracks: this.tracks.length,
      beams,
      observed,
      settings,
      status: status({ state: "prefilling" }),
    };
  }

  /** @returns {import("../src/wire.js").Counts} */
  get counts() {
    const { rounds = [], steps = [], choices = [] } = this.about;
    return counts(
      this.tracks.map(({ rows }) => rows.length),
      { rounds: rounds.length, beams: steps.length, choices: choices.length },
    );
  }

  /**
   * @param {"rounds" | "beams" | "choices"} table
   * @param {number} from
   * @param {number} to
   * @param {Partial<Status>} [change]
   * @returns {import("../src/store.js").Rows}
   */
  table(table, from, to, change) {
    const rows = { rounds: this.about.rounds, beams: this.about.steps, choices: this.about.choices }[table] ?? [];
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
