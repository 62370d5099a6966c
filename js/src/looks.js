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
const PATIENCE_MS = 5000;
const PATIENCE_MAX_MS = 40_000;
const KEPT = 48;
/** Answers of a kind that are waited for at most; older ones are lost. */
const AWAITED = 8;

/**
 * What one view wants of one kind.
 * @typedef {object} Wish
 * @property {string} key
 * @property {ReturnType<typeof setTimeout> | undefined} timer Until it is asked for, then until it is asked for again.
 */

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
  /** By view. @type {Map<object, Partial<Record<What, Wish>>>} */
  #wishes = new Map();
  /** What answers are awaited of, oldest first. @type {Record<What, Look[]>} */
  #asked = { attention: [], matrix: [], lens: [] };
  #patience = PATIENCE_MS;
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
   * @param {object} view Whose wish it is: two views may show two tokens.
   * @param {Look} look
   * @returns {Seen | null} Null while it is not here.
   */
  want(view, look) {
    const mine = this.#of(view);
    const key = keyOf(look);
    if (mine[look.what]?.key !== key) {
      this.leave(view, look.what);
      const timer = this.#kept.has(key) ? undefined : setTimeout(() => this.#ask(view, look), REST_MS);
      mine[look.what] = { key, timer };
    }
    return this.kept(look);
  }

  /**
   * @param {Look} look
   * @returns {Seen | null} What is here, without asking.
   */
  kept(look) {
    return this.#kept.get(keyOf(look)) ?? null;
  }

  /**
   * The view shows nothing of this kind any more.
   * @param {object} view
   * @param {What} what
   */
  leave(view, what) {
    const mine = this.#of(view);
    const wish = mine[what];
    if (wish) {
      clearTimeout(wish.timer);
      // A refusal may hold for a moment only: the token was not there yet. Who comes back to it asks again.
      if (this.#kept.get(wish.key)?.kind === "unseen") {
        this.#kept.delete(wish.key);
      }
      delete mine[what];
    }
  }

  /** @param {Seen} seen */
  answer(seen) {
    const asked = this.#asked[seen.kind === "unseen" ? seen.what : seen.kind];
    const exact = asked.findIndex((look) => fits(look, seen) && endsThere(look, seen));
    const at = exact < 0 ? asked.findIndex((look) => fits(look, seen)) : exact;
    if (at < 0) {
      return;
    }
    // Answers come in the order of the requests: what was asked before is lost.
    const [look] = asked.splice(0, at + 1).slice(-1);
    if (seen.kind === "attention" || seen.kind === "matrix") {
      this.sizes[seen.of] = { layers: seen.layers, heads: seen.heads };
    }
    const key = keyOf(look);
    this.#kept.set(key, seen);
    for (const old of this.#kept.keys()) {
      if (this.#kept.size <= KEPT) {
        break;
      }
      this.#kept.delete(old);
    }
    this.#patience = PATIENCE_MS;
    for (const mine of this.#wishes.values()) {
      if (mine[look.what]?.key === key) {
        clearTimeout(mine[look.what]?.timer);
      }
    }
    this.#refresh();
  }

  /** @param {object} view That is no more. */
  close(view) {
    for (const what of /** @type {What[]} */ (Object.keys(this.#of(view)))) {
      this.leave(view, what);
    }
    this.#wishes.delete(view);
  }

  closeAll() {
    for (const view of [...this.#wishes.keys()]) {
      this.close(view);
    }
  }

  /** @param {object} view */
  #of(view) {
    let mine = this.#wishes.get(view);
    if (!mine) {
      mine = {};
      this.#wishes.set(view, mine);
    }
    return mine;
  }

  /**
   * @param {object} view
   * @param {Look} look
   */
  #ask(view, look) {
    const key = keyOf(look);
    const asked = this.#asked[look.what];
    if (!asked.some((other) => keyOf(other) === key)) {
      this.#asked[look.what] = [...asked.slice(1 - AWAITED), look];
      this.#send(look);
    }
    const wish = this.#of(view)[look.what];
    if (wish) {
      wish.timer = setTimeout(() => {
        // Lost, or the kernel runs a long cell and would answer each copy: ask again, ever more slowly.
        this.#patience = Math.min(2 * this.#patience, PATIENCE_MAX_MS);
        this.#asked[look.what] = this.#asked[look.what].filter((other) => keyOf(other) !== key);
        this.#ask(view, look);
      }, this.#patience);
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
