// An anywidget model without a host: traits, events, and a list of what was sent. For the harness and the tests.

/** @typedef {(...args: any[]) => void} Listener */

export class FakeModel {
  /** @type {any[]} */
  sent = [];
  saves = 0;
  /** @type {any} */
  widget_manager = {};

  /** @type {Record<string, any>} */
  #traits;
  /** @type {Map<string, Set<Listener>>} */
  #listeners = new Map();

  /** @param {Record<string, any>} [traits] */
  constructor(traits = {}) {
    this.#traits = { ...DEFAULTS, ...traits };
  }

  /** @param {string} name */
  get(name) {
    return this.#traits[name];
  }

  /**
   * @param {string} name
   * @param {any} value
   */
  set(name, value) {
    if (this.#traits[name] !== value) {
      this.#traits[name] = value;
      this.emit(`change:${name}`);
    }
  }

  save_changes() {
    this.saves += 1;
  }

  /** @param {any} message */
  send(message) {
    this.sent.push(structuredClone(message));
    this.emit("sent", message);
  }

  /**
   * @param {string} name
   * @param {Listener} listener
   */
  on(name, listener) {
    const listeners = this.#listeners.get(name) ?? new Set();
    this.#listeners.set(name, listeners.add(listener));
  }

  /**
   * @param {string | null} [name]
   * @param {Listener | null} [listener]
   */
  off(name, listener) {
    if (name && listener) {
      this.#listeners.get(name)?.delete(listener);
    }
  }

  /** Listeners that are still there. */
  get listening() {
    return [...this.#listeners.values()].reduce((sum, set) => sum + set.size, 0);
  }

  /**
   * @param {string} name
   * @param {...any} args
   */
  emit(name, ...args) {
    for (const listener of [...(this.#listeners.get(name) ?? [])]) {
      listener(...args);
    }
  }

  /** As the kernel does. @param {import("../src/wire.js").BackMessage} message */
  receive(message) {
    this.emit("msg:custom", structuredClone(message), []);
  }
}

const DEFAULTS = {
  schema: {},
  settings: {},
  prompt: "",
  measure: "probability",
  whitespace: false,
  status: { phase: "ready", text: "", progress: null },
  about: { model: "fake", chat: false, context: null, prefix_cache: null },
  state: "idle",
  tree: [],
  twin_state: null,
  static_class: "",
};
