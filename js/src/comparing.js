// Lanes of a comparison: where each leaves the first one, numbers about each, and asking for one. No DOM.

/** @typedef {import("./session.js").Session} Session */
/** @typedef {import("./record.js").TokenRecord} TokenRecord */
/** @typedef {import("./schema.js").Field} Field */
/** @typedef {import("./store.js").State} State */

/** Kinds of settings whose values can be listed between commas. */
const LISTED = new Set(["slider", "number", "choice", "boolean"]);

/** What is varied to begin with, where the strategy has it. */
const USUAL = { name: "temperature", values: "0.5, 1, 1.5" };

/**
 * Follows one lane along another: how many generated tokens agree, from the first on. Both only grow.
 */
export class Agreement {
  same = 0;
  /** Whether a token differs, or one has ended where the other goes on. */
  parted = false;

  #lane;
  #other;
  #begin;

  /**
   * @param {TokenRecord} lane
   * @param {TokenRecord} other
   * @param {number} begin Where both begin to generate.
   */
  constructor(lane, other, begin) {
    this.#lane = lane;
    this.#other = other;
    this.#begin = begin;
  }

  /** @param {TokenRecord} lane @param {TokenRecord} other */
  of(lane, other) {
    return this.#lane === lane && this.#other === other;
  }

  /** @param {boolean} over Whether no token is to come, so that a shorter lane differs from a longer one. */
  update(over) {
    const [ours, theirs] = [this.#lane.columns.id, this.#other.columns.id];
    const known = Math.min(ours.length, theirs.length) - this.#begin;
    while (!this.parted && this.same < known) {
      const at = this.#begin + this.same;
      if (ours[at] === theirs[at]) {
        this.same += 1;
      } else {
        this.parted = true;
      }
    }
    this.parted ||= over && ours.length !== theirs.length;
    return this;
  }
}

/**
 * @typedef {object} Numbers What is known of a lane; null is unknown.
 * @property {number} tokens
 * @property {number | null} logprob Sum of the natural-log probabilities in the model's own distribution.
 * @property {number | null} perplexity
 * @property {number | null} entropy Mean, in bits.
 * @property {number | null} distinct1 Different tokens, as a share of all.
 * @property {number | null} distinct2 Different pairs of neighbours, as a share of all.
 * @property {number | null} first Seconds to the first token.
 * @property {number | null} rate Tokens a second, after the first.
 */

/**
 * @param {TokenRecord} record
 * @param {number} begin
 * @returns {Numbers} Of the generated tokens.
 */
export function numbersOf({ columns }, begin) {
  const ids = columns.id.slice(begin);
  const seconds = columns.seconds.slice(begin);
  const logprob = sum(columns.raw_logprob.slice(begin));
  const entropy = sum(columns.entropy.slice(begin));
  const rest = sum(seconds.slice(1));
  const pairs = ids.slice(1).map((id, i) => `${ids[i]} ${id}`);
  return {
    tokens: ids.length,
    logprob,
    perplexity: logprob === null ? null : Math.exp(-logprob / ids.length),
    entropy: entropy === null ? null : entropy / ids.length,
    distinct1: share(ids),
    distinct2: share(pairs),
    first: seconds[0] ?? null,
    rate: rest !== null && rest > 0 ? (ids.length - 1) / rest : null,
  };
}

/**
 * @param {(number | null)[]} values
 * @returns {number | null} Null where one is unknown, and of none.
 */
function sum(values) {
  let total = 0;
  for (const value of values) {
    if (value === null) {
      return null;
    }
    total += value;
  }
  return values.length === 0 ? null : total;
}

/** @param {unknown[]} values */
const share = (values) => (values.length === 0 ? null : new Set(values).size / values.length);

/**
 * @typedef {object} Axis A setting that is varied.
 * @property {string} name
 * @property {string} values As typed, between commas.
 */

export class Comparing {
  open = false;
  /** @type {Axis[]} */
  axes = [];
  seeds = 2;

  #session;
  /** @type {Agreement[]} */
  #agreements = [];

  /** @param {Session} session */
  constructor(session) {
    this.#session = session;
  }

  /** @returns {Field[]} What can be varied: the strategy's own settings, and those about its length. */
  get fields() {
    const fields = this.#session.draft.strategy?.fields ?? [];
    return fields.filter(({ kind, group, name }) => LISTED.has(kind) && group !== "observe" && name !== "seed");
  }

  /** The axes that this strategy has. */
  get varied() {
    return this.axes.filter(({ name }) => this.fields.some((field) => field.name === name));
  }

  /** What differs, by lane without seeds: each value of one axis with each of the others. */
  get changes() {
    /** @type {Record<string, unknown>[]} */
    let made = [{}];
    for (const { name, values } of this.varied) {
      const field = this.fields.find((one) => one.name === name);
      const read = values
        .split(",")
        .map((one) => one.trim())
        .filter((one) => one !== "")
        .map((one) => readValue(/** @type {Field} */ (field), one));
      made = made.flatMap((one) => (read.length === 0 ? [one] : read.map((value) => ({ ...one, [name]: value }))));
    }
    return made;
  }

  toggle() {
    this.open = !this.open;
    if (this.open && this.axes.length === 0) {
      this.add();
    }
    this.#session.refresh();
  }

  add() {
    const free = this.fields.filter(({ name }) => !this.axes.some((axis) => axis.name === name));
    const usual = free.find(({ name }) => name === USUAL.name);
    const field = usual ?? free[0];
    if (field) {
      this.axes = [...this.axes, { name: field.name, values: usual ? USUAL.values : proposed(field) }];
    }
    this.#session.refresh();
  }

  /** @param {number} at */
  remove(at) {
    this.axes = this.axes.filter((_, i) => i !== at);
    this.#session.refresh();
  }

  /**
   * @param {number} at
   * @param {Partial<Axis>} change
   */
  edit(at, change) {
    const field = change.name === undefined ? null : this.fields.find(({ name }) => name === change.name);
    const values = field ? { values: field.name === USUAL.name ? USUAL.values : proposed(field) } : {};
    this.axes = this.axes.map((axis, i) => (i === at ? { ...axis, ...values, ...change } : axis));
    this.#session.refresh();
  }

  /** @param {number} seeds */
  setSeeds(seeds) {
    this.seeds = seeds;
    this.#session.refresh();
  }

  start() {
    const session = this.#session;
    if (session.obstacle === null) {
      const settings = session.settle();
      session.onward.asked = null;
      const { changes } = this;
      session.connection.send({ kind: "compare", prompt: session.prompt, settings, changes, seeds: this.seeds });
    }
  }

  /** @param {number} lane */
  stopLane(lane) {
    const { run } = this.#session.state;
    if (run !== null) {
      this.#session.connection.send({ kind: "stop_lane", run, lane });
    }
  }

  /**
   * How far each lane agrees with the first one.
   * @param {State} state
   * @returns {readonly Agreement[]} Empty where nothing is compared.
   */
  agreements({ compared, tracks, lanes, over }) {
    if (compared === null || lanes.length === 0) {
      this.#agreements = [];
      return this.#agreements;
    }
    lanes.forEach(({ prompt_tokens }, i) => {
      if (!this.#agreements[i]?.of(tracks[i], tracks[0])) {
        this.#agreements[i] = new Agreement(tracks[i], tracks[0], prompt_tokens);
      }
      this.#agreements[i].update(over);
    });
    this.#agreements.length = lanes.length;
    return this.#agreements;
  }
}

/**
 * @param {Field} field
 * @param {string} text
 * @returns {unknown} What cannot be read stays text: Python says what is wrong with it.
 */
function readValue(field, text) {
  if (field.kind === "boolean") {
    return text === "true" || text === "false" ? text === "true" : text;
  }
  if (field.kind === "choice") {
    return text;
  }
  const value = Number(text);
  return Number.isFinite(value) ? value : text;
}

/** @param {Field} field */
function proposed({ kind, options, default: usual, step, min }) {
  if (kind === "boolean") {
    return "false, true";
  }
  if (kind === "choice") {
    return options.join(", ");
  }
  if (typeof usual !== "number") {
    return "";
  }
  const further = step === null ? Math.max(1, Math.round(usual / 2)) : step * 5;
  const other = usual - further < (min ?? Number.NEGATIVE_INFINITY) ? usual + further : usual - further;
  return [usual, Number(other.toPrecision(6))].sort((a, b) => a - b).join(", ");
}
