// The same request in two executions: asking for it, and which twin is shown. What is shown of it: views/twin.js. No DOM.
import { twinOf } from "./traits.js";

/** @typedef {import("./session.js").Session} Session */

export class Twins {
  #session;
  #model;
  /** The twin whose view was closed, by its first run. @type {string | null} */
  #closed = null;

  /**
   * @param {Session} session
   * @param {import("@anywidget/types").AnyModel} model
   */
  constructor(session, model) {
    this.#session = session;
    this.#model = model;
  }

  /** The last twin, unless its view was closed. */
  get shown() {
    const twin = twinOf(this.#model);
    return twin === null || twin.eager.run === this.#closed ? null : twin;
  }

  /** Run the prompt twice: eagerly, and in the execution that the form has. */
  make() {
    const session = this.#session;
    if (session.obstacle === null) {
      const settings = session.settle();
      session.onward.asked = null;
      session.connection.send({ kind: "twin", prompt: session.prompt, settings });
    }
  }

  /** Show this twin no longer; its runs stay where they are. */
  close() {
    this.#closed = twinOf(this.#model)?.eager.run ?? null;
    this.#session.refresh();
  }
}
