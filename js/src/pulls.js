// Which pulls are under way, and when they are sent again. What is missing is the store's word; sending is connection.js's.
//
// Of each track and table at most one pull is under way. They are sent again, ever more slowly, while answers are
// missing: a kernel that runs a long cell answers late, and would then answer each copy.

/** @typedef {import("./store.js").Gap} Gap */

export const PULL_TIMEOUT_MS = 2000;
const PULL_TIMEOUT_MAX_MS = 30_000;
/** Among the things that a pull asks for. */
const ALL = "all";

/**
 * @param {{ track?: number | null, table?: string | null }} part
 * @returns {string} Which track or table it is.
 */
const keyOf = ({ track, table }) => String(track ?? table ?? ALL);

export class Pulls {
  #send;
  #late;
  /** Null while no answer is awaited. @type {ReturnType<typeof setTimeout> | null} */
  #timer = null;
  /** What was asked for. @type {Set<string>} */
  #asked = new Set();
  #patience = PULL_TIMEOUT_MS;

  /**
   * @param {(gap: Readonly<Gap>, run: string | null) => void} send
   * @param {() => void} late Answers did not come: what is still missing may be asked for again.
   */
  constructor(send, late) {
    this.#send = send;
    this.#late = late;
  }

  /**
   * Ask, unless it is on its way.
   * @param {Readonly<Gap>} gap
   * @param {string | null} run
   */
  ask(gap, run) {
    const what = keyOf(gap);
    if (!this.#asked.has(what) && !this.#asked.has(ALL)) {
      this.#asked.add(what);
      if (this.#timer === null) {
        this.#wait();
      }
      this.#send(gap, run);
    }
  }

  /**
   * A run is new, or everything follows: what is known to be missing is on its way.
   * @param {boolean} isNew
   * @param {Gap[]} missing
   */
  begun(isNew, missing) {
    const asked = this.#asked.delete(ALL) ? missing.map(keyOf) : this.#asked;
    this.#asked = new Set(isNew ? [] : asked);
    this.#patience = PULL_TIMEOUT_MS;
    this.#watch();
  }

  /**
   * Rows came. If more of what was asked for is missing it is on its way: watch for it, without asking again now.
   * @param {{ track: number | null, table: string | null }} part
   * @param {Gap[]} missing
   */
  came(part, missing) {
    const what = keyOf(part);
    // Rows that nobody waits for must not keep the others waiting.
    if (this.#asked.has(what)) {
      this.#patience = PULL_TIMEOUT_MS;
      if (!missing.some((gap) => keyOf(gap) === what)) {
        this.#asked.delete(what);
      }
      this.#watch();
    }
  }

  stop() {
    clearTimeout(this.#timer ?? undefined);
    this.#timer = null;
    this.#asked.clear();
  }

  #watch() {
    if (this.#asked.size > 0) {
      this.#wait();
    } else {
      this.stop();
    }
  }

  #wait() {
    clearTimeout(this.#timer ?? undefined);
    this.#timer = setTimeout(() => {
      this.stop();
      this.#patience = Math.min(2 * this.#patience, PULL_TIMEOUT_MAX_MS);
      this.#late();
    }, this.#patience);
  }
}
