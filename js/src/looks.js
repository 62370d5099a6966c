// What a person looks into: attention and the logit lens of a token, asked for by need and kept a while. No DOM.
//
// Views say with every drawing what they want to show (`want`) and get what is here. A request goes out only after the
// wish has rested, so pointing about asks for nothing; of each kind the newest wish wins.

/** @typedef {import("./wire.js").Look} Look */
/** @typedef {import("./connection.js").Seen} Seen */
/** @typedef {import("./wire.js").SeenAttention} SeenAttention */
/** @typedef {import("./wire.js").SeenMatrix} SeenMatrix */
/** @typedef {import("./wire.js").SeenLens} SeenLens */
/** @typedef {import("./wire.js").Unseen} Unseen */
/** @typedef {Look["what"]} What */
/** @typedef {"self" | "cross" | "encoder"} Of */

export const REST_MS = 120;
const ANSWER_TIMEOUT_MS = 5000;
const KEPT = 48;
/** Answers of a kind that are waited for at most; older ones are lost. */
const AWAITED = 8;

/**
 * One for each kind of look.
 * @typedef {object} Slot
 * @property {string | null} wish Key of what is wanted now.
 * @property {ReturnType<typeof setTimeout> | undefined} timer Until it is asked for, then until it is asked for again.
 * @property {Look[]} asked What answers are awaited of, oldest first.
 */

/** @returns {Slot} */
const slot = () => ({ wish: null, timer: undefined, asked: [] });

/** @param {Look} look */
const keyOf = ({ run, lane, position, what, of, layer, head }) =>
  JSON.stringify([run, what, lane, position, of ?? null, layer ?? null, head ?? null]);

export class Looks {
  /** Which attention is shown, over tokens and as a matrix; null is the mean. */
  choice = {
    of: /** @type {"self" | "cross"} */ ("self"),
    matrix: /** @type {Of} */ ("self"),
    layer: /** @type {number | null} */ (null),
    head: /** @type {number | null} */ (null),
  };
  /** Layers and heads, as answers told. @type {Partial<Record<Of, { layers: number, heads: number }>>} */
  sizes = {};

  #send;
  #refresh;
  /** @type {Record<What, Slot>} */
  #slots = { attention: slot(), matrix: slot(), lens: slot() };
  /** Oldest first. @type {Map<string, Seen>} */
  #kept = new Map();

  /**
   * @param {(look: Look) => void} send
   * @param {() => void} refresh Have the views drawn again.
   */
  constructor(send, refresh) {
    this.#send = send;
    this.#refresh = refresh;
  }

  /**
   * @param {Look} look
   * @returns {Seen | null} Null while it is not here.
   */
  want(look) {
    const mine = this.#slots[look.what];
    const key = keyOf(look);
    if (mine.wish !== key) {
      this.#forgetRefusal(mine.wish);
      mine.wish = key;
      clearTimeout(mine.timer);
      if (!this.#kept.has(key)) {
        mine.timer = setTimeout(() => this.#ask(look), REST_MS);
      }
    }
    return this.#kept.get(key) ?? null;
  }

  /**
   * Nothing of this kind is shown any more.
   * @param {What} what
   */
  leave(what) {
    const mine = this.#slots[what];
    this.#forgetRefusal(mine.wish);
    mine.wish = null;
    clearTimeout(mine.timer);
  }

  /** @param {Seen} seen */
  answer(seen) {
    const what = seen.kind === "unseen" ? seen.what : seen.kind;
    const mine = this.#slots[what];
    const exact = mine.asked.findIndex((look) => fits(look, seen) && endsThere(look, seen));
    const at = exact < 0 ? mine.asked.findIndex((look) => fits(look, seen)) : exact;
    if (at < 0) {
      return;
    }
    // Answers come in the order of the requests: what was asked before is lost.
    const [look] = mine.asked.splice(0, at + 1).slice(-1);
    const key = keyOf(look);
    if (seen.kind === "attention" || seen.kind === "matrix") {
      this.sizes[seen.of] = { layers: seen.layers, heads: seen.heads };
    }
    this.#kept.set(key, seen);
    for (const old of this.#kept.keys()) {
      if (this.#kept.size <= KEPT) {
        break;
      }
      this.#kept.delete(old);
    }
    if (mine.wish === key) {
      clearTimeout(mine.timer);
      this.#refresh();
    }
  }

  close() {
    for (const { timer } of Object.values(this.#slots)) {
      clearTimeout(timer);
    }
  }

  /** @param {Look} look */
  #ask(look) {
    const mine = this.#slots[look.what];
    mine.asked = [...mine.asked.slice(1 - AWAITED), look];
    this.#send(look);
    mine.timer = setTimeout(() => {
      // Lost, or a kernel that runs a long cell: whoever still shows it asks again.
      mine.asked = mine.asked.filter((other) => other !== look);
      mine.wish = null;
      this.#refresh();
    }, ANSWER_TIMEOUT_MS);
  }

  /**
   * A refusal may hold for a moment only: the token was not there yet. Who comes back to it asks again.
   * @param {string | null} key
   */
  #forgetRefusal(key) {
    if (key !== null && this.#kept.get(key)?.kind === "unseen") {
      this.#kept.delete(key);
    }
  }
}

/**
 * @param {Look} look
 * @param {Seen} seen
 */
function fits(look, seen) {
  if (look.run !== seen.run || look.lane !== seen.lane) {
    return false;
  }
  switch (seen.kind) {
    case "attention":
      return look.position === seen.position && sameMap(look, seen);
    case "matrix":
      return sameMap(look, seen);
    default:
      return look.position === seen.position;
  }
}

/**
 * A matrix says where it begins. It should end where it was asked to, but may be cut where there is no more.
 * @param {Look} look
 * @param {Seen} seen
 */
const endsThere = (look, seen) => seen.kind !== "matrix" || seen.position + seen.rows.length - 1 === look.position;

/**
 * @param {Look} look
 * @param {SeenAttention | SeenMatrix} seen
 */
const sameMap = (look, seen) =>
  look.of === seen.of && (look.layer ?? null) === seen.layer && (look.head ?? null) === seen.head;
