// What a person starts from a run that is there: a branch at one of its tokens, a reply to its conversation, or a look
// at an older run. Keeps what she is typing for that, and which of these the kernel's problems answer. No DOM.

/** @typedef {import("./session.js").Session} Session */
/** @typedef {"branch" | "keep" | "reply"} Asked From the inspector, behind the end, or as the next turn. */
/** @typedef {{ token?: number, text?: string }} Given What stands at the position; without it the model chooses. */

export class Onward {
  /** Other text for a branch, as it stands in the inspector. */
  branchText = "";
  /** The next turn of a conversation, as it stands in the reply box. */
  replyText = "";
  /** What was asked for last, until the run is there or something else is asked for. @type {Asked | null} */
  asked = null;

  #session;

  /** @param {Session} session */
  constructor(session) {
    this.#session = session;
  }

  /**
   * @param {"branchText" | "replyText"} which
   * @param {string} text
   */
  type(which, text) {
    this[which] = text;
    this.#session.refresh();
  }

  /**
   * Go on from the first `position` tokens of a lane.
   * @param {number} lane
   * @param {number} position
   * @param {Given} [given]
   * @param {Asked} [asked]
   */
  branch(lane, position, given = {}, asked = "branch") {
    const { run } = this.#session.state;
    if (run !== null && this.#session.obstacle === null) {
      const settings = this.#session.settle();
      this.asked = asked;
      this.#session.connection.send({ kind: "branch", run, lane, position, ...given, settings });
    }
  }

  /**
   * Say the text that was typed as the next turn.
   * @param {number} lane
   */
  reply(lane) {
    const { run } = this.#session.state;
    if (run !== null && this.#session.obstacle === null && this.replyText !== "") {
      const settings = this.#session.settle();
      this.asked = "reply";
      this.#session.connection.send({ kind: "reply", run, lane, text: this.replyText, settings });
    }
  }

  /** @param {string} run */
  show(run) {
    if (run !== this.#session.state.run) {
      this.#session.connection.send({ kind: "show", run });
    }
  }

  /** Another run is shown: what was typed for it has been said. */
  begun() {
    if (this.asked === "branch") {
      this.branchText = "";
    } else if (this.asked === "reply") {
      this.replyText = "";
    }
    this.asked = null;
  }

  /**
   * @param {Asked} what
   * @returns {readonly import("./wire.js").WireProblem[]} Why it was not started.
   */
  problems(what) {
    return this.asked === what ? this.#session.state.problems : [];
  }
}
