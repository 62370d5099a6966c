// The settings as they stand in the form: edited here, sent debounced, and taken over from Python's trait.
//
// While an edit is on its way the trait's echo is older than the form and is left alone; wrong values stay in the form
// with their problems until they are mended, while the trait keeps the last valid settings.
import { complete, readSchema } from "./schema.js";

/** @typedef {import("@anywidget/types").AnyModel} Model */
/** @typedef {Record<string, any>} Json */

const DEBOUNCE_MS = 250;
const ANSWER_TIMEOUT_MS = 3000;

export class Draft {
  /** @type {Json} */
  values = {};
  /** @type {{ tag: string, strategies: import("./schema.js").Strategy[] }} */
  form = { tag: "strategy", strategies: [] };

  #model;
  #send;
  /** Values of fields that the present strategy does not have, for a switch back. @type {Json} */
  #kept = {};
  /** @type {ReturnType<typeof setTimeout> | undefined} */
  #timer;
  /** @type {ReturnType<typeof setTimeout> | undefined} */
  #answerTimer;
  #edited = false;
  /** There is something in the form that is not to be sent as it is. */
  #unfinished = false;
  #unanswered = 0;

  /**
   * @param {Model} model
   * @param {(settings: Json) => void} send
   */
  constructor(model, send) {
    this.#model = model;
    this.#send = send;
    this.readForm();
    this.adopt();
  }

  readForm() {
    this.form = readSchema(this.#model.get("schema") ?? {});
  }

  get strategy() {
    return this.form.strategies.find(({ name }) => name === this.values[this.form.tag]) ?? this.form.strategies[0];
  }

  /** Take the trait over, unless the form is ahead of it. */
  adopt() {
    if (this.#edited || this.#unfinished || this.#unanswered > 0) {
      return;
    }
    const { tag, strategies } = this.form;
    const settings = /** @type {Json} */ (this.#model.get("settings") ?? {});
    const strategy = strategies.find(({ name }) => name === settings[tag]) ?? strategies[0];
    this.values = strategy ? complete(strategy, tag, settings) : settings;
    this.#kept = { ...this.#kept, ...this.values };
  }

  /**
   * @param {string} name
   * @param {unknown} value
   */
  edit(name, value) {
    this.#put(name, value);
    this.#later();
  }

  /**
   * An edit that is not worth a message yet: an entry that is still empty. The next edit takes it along.
   * @param {string} name
   * @param {unknown} value
   */
  begin(name, value) {
    if (this.#edited) {
      this.sendNow();
    }
    this.#put(name, value);
    this.#unfinished = true;
  }

  /**
   * @param {string} name
   * @param {unknown} value
   */
  #put(name, value) {
    this.values = { ...this.values, [name]: value };
    this.#kept = { ...this.#kept, ...this.values };
  }

  /** @param {string} name */
  choose(name) {
    const { tag, strategies } = this.form;
    const strategy = strategies.find((candidate) => candidate.name === name);
    if (strategy) {
      this.values = complete(strategy, tag, this.#kept);
      this.#later();
    }
  }

  /** The settings go out in another message, which is answered like their own: `generate` carries them too. */
  flush() {
    clearTimeout(this.#timer);
    this.#edited = false;
    this.#unfinished = false;
    this.#expectAnswer();
  }

  /** Send the settings as they stand, without waiting for more edits. */
  sendNow() {
    this.flush();
    this.#send(this.values);
  }

  /** @param {boolean} valid Whether the kernel had nothing against the settings. */
  answered(valid) {
    this.#unanswered = Math.max(0, this.#unanswered - 1);
    if (this.#unanswered === 0) {
      clearTimeout(this.#answerTimer);
      if (valid) {
        this.adopt();
      }
    }
  }

  close() {
    clearTimeout(this.#timer);
    clearTimeout(this.#answerTimer);
  }

  #later() {
    this.#edited = true;
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => this.sendNow(), DEBOUNCE_MS);
  }

  #expectAnswer() {
    this.#unanswered += 1;
    clearTimeout(this.#answerTimer);
    this.#answerTimer = setTimeout(() => {
      this.#unanswered = 0;
    }, ANSWER_TIMEOUT_MS);
  }
}
