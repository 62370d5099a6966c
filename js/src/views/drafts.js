// Assisted decoding in the text: tells accepted drafts from the model's own tokens, and puts the rejected ones beside
// them. Rejected drafts are no text of the model: their words stand in attributes, drawn by pseudo-elements, so that
// they can neither be selected nor copied. What a round means: ../drafts.js.
import { endOf } from "../drafts.js";
import { marks, percent } from "../format.js";

/** @typedef {import("../wire.js").WireRound} Round */
/** @typedef {import("./spans.js").TokenSpans} TokenSpans */

export class Drafts {
  #spans;
  #done = 0;

  /** @param {TokenSpans} spans */
  constructor(spans) {
    this.#spans = spans;
  }

  /**
   * Draw the rounds whose tokens are there; tokens and rounds come in either order.
   * @param {Round[]} rounds
   * @param {boolean} complete No token comes any more.
   * @returns {boolean} Whether something was drawn.
   */
  update(rounds, complete) {
    const before = this.#done;
    while (this.#done < rounds.length && (complete || endOf(rounds[this.#done]) <= this.#spans.n)) {
      this.#draw(rounds[this.#done]);
      this.#done += 1;
    }
    return this.#done > before;
  }

  /** @param {Round} round */
  #draw(round) {
    const { spans } = this.#spans;
    const { position, accepted } = round;
    spans[position]?.classList.add("gs-round");
    for (let at = 0; at < accepted; at += 1) {
      spans[position + at]?.classList.add("gs-accepted");
    }
    const rejected = round.text.slice(accepted).map((_, i) => rejectedDraft(round, accepted + i));
    // Where they would have stood: before the model's own token, which took their place.
    const next = spans[position + accepted];
    const last = spans[position + accepted - 1];
    if (next) {
      next.before(...rejected);
    } else {
      last?.after(...rejected);
    }
  }
}

/**
 * @param {Round} round
 * @param {number} at
 */
function rejectedDraft(round, at) {
  const element = document.createElement("i");
  element.className = "gs-rejected";
  element.setAttribute("aria-hidden", "true");
  element.dataset.text = drawn(round.text[at]);
  const target = round.target_logprob[at];
  element.title = [
    "drafted, rejected",
    `drafted with ${percent(round.draft_logprob[at])}`,
    `the model gives it ${target === null ? "0" : percent(target)}`,
  ].join("\n");
  return element;
}

/**
 * @param {string} text
 * @returns {string} White space alone as marks: struck through, it would be a bare line.
 */
function drawn(text) {
  return text.replace(text.trim() === "" ? /./gs : /[\n\r\t]/g, marks) || "∅";
}
