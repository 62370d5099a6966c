// The record of a run's tokens as the front end holds it: columns that only grow. No messages, no DOM.

/** @typedef {import("./wire.js").Columns} Columns */
/** @typedef {import("./measures.js").NumberColumn} NumberColumn */

/**
 * @typedef {object} Alternative
 * @property {number} id
 * @property {string} text
 * @property {number | null} rawLogprob Null is a probability of exactly zero.
 * @property {number | null | undefined} logprob Null: cut by a processor. Undefined: unknown, as the token's own is.
 * @property {boolean} chosen
 */

/**
 * @typedef {object} Token
 * @property {number} index
 * @property {number} id
 * @property {string} text
 * @property {string | null} bytes
 * @property {boolean} special
 * @property {boolean} generated
 * @property {number | null} rawLogprob
 * @property {number | null} logprob
 * @property {number | null} entropy
 * @property {number | null} rank
 * @property {number | null} seconds
 * @property {boolean | null} cached Of a given token: whether its keys and values came from the prefix cache.
 * @property {number[]} group Positions of the tokens that make its character together; itself alone if one.
 * @property {Alternative[]} alternatives
 */

/** Columns with one entry a token. */
const BY_TOKEN = /** @type {const} */ ([
  "id",
  "text",
  "bytes",
  "group",
  "special",
  "generated",
  "raw_logprob",
  "logprob",
  "entropy",
  "rank",
  "seconds",
  "cached",
  "alt_n",
]);

/** Columns with `alt_n` entries a token. */
const BY_ALTERNATIVE = /** @type {const} */ (["alt_id", "alt_text", "alt_raw_logprob", "alt_logprob"]);

/**
 * Append to a column of whatever type, not by spreading: a slice may be longer than a call may have arguments.
 * @param {unknown[]} column
 * @param {unknown[]} values
 * @param {number} from
 */
function extend(column, values, from) {
  for (let i = from; i < values.length; i += 1) {
    column.push(values[i]);
  }
}

/** Grows in place, so that 50,000 tokens cost no copies; nothing in it ever changes once it is there. */
export class TokenRecord {
  /** @type {string[]} */
  strings = [];
  /** @type {Columns} */
  columns = /** @type {any} */ (
    Object.fromEntries([...BY_TOKEN, ...BY_ALTERNATIVE].map((name) => /** @type {[string, unknown[]]} */ ([name, []])))
  );
  /** Where each token's alternatives begin. @type {number[]} */
  altStart = [];

  get n() {
    return this.columns.id.length;
  }

  /**
   * @param {Columns} columns
   * @param {number} skip Rows at the start that are here already.
   */
  append(columns, skip) {
    let altSkip = 0;
    for (let i = 0; i < skip; i += 1) {
      altSkip += columns.alt_n[i];
    }
    let start = this.columns.alt_id.length;
    for (let i = skip; i < columns.id.length; i += 1) {
      this.altStart.push(start);
      start += columns.alt_n[i];
    }
    for (const name of BY_TOKEN) {
      extend(this.columns[name], columns[name], skip);
    }
    for (const name of BY_ALTERNATIVE) {
      extend(this.columns[name], columns[name], altSkip);
    }
  }

  /** @param {number} index */
  text(index) {
    return this.strings[this.columns.text[index]] ?? "";
  }

  /**
   * @param {NumberColumn} column
   * @param {number} index
   * @returns {number | null} Null is unknown.
   */
  number(column, index) {
    return this.columns[column][index] ?? null;
  }

  /**
   * @param {number} index
   * @returns {number[]} Positions of the tokens that make one character with this one, in order.
   */
  group(index) {
    const { group } = this.columns;
    const first = group[index];
    const members = [];
    for (let i = first; i < this.n && group[i] === first; i += 1) {
      members.push(i);
    }
    return members;
  }

  /**
   * @param {number} index
   * @returns {Token | null} Null where there is no such row.
   */
  token(index) {
    if (index < 0 || index >= this.n) {
      return null;
    }
    const c = this.columns;
    const cached = this.number("cached", index);
    return {
      index,
      id: c.id[index],
      text: this.text(index),
      bytes: c.bytes[index] ?? null,
      special: c.special[index] === 1,
      generated: c.generated[index] === 1,
      rawLogprob: this.number("raw_logprob", index),
      logprob: this.number("logprob", index),
      entropy: this.number("entropy", index),
      rank: this.number("rank", index),
      seconds: this.number("seconds", index),
      cached: cached === null ? null : cached === 1,
      group: this.group(index),
      alternatives: this.#alternatives(index),
    };
  }

  /**
   * @param {number} index
   * @returns {Alternative[]}
   */
  #alternatives(index) {
    const c = this.columns;
    // A prompt was not chosen from anything: there, null says nothing about a cut.
    const known = c.logprob[index] !== null;
    return Array.from({ length: c.alt_n[index] }, (_, k) => {
      const at = this.altStart[index] + k;
      return {
        id: c.alt_id[at],
        text: this.strings[c.alt_text[at]] ?? "",
        rawLogprob: c.alt_raw_logprob[at],
        logprob: known ? c.alt_logprob[at] : undefined,
        chosen: c.alt_id[at] === c.id[index],
      };
    });
  }
}
