// Where a branch leaves the run that it came from: a mark before the first token that is its own. No text of the model, so
// it has none: CSS draws it, and it can be neither selected nor copied.
import { whole } from "../format.js";

/** @typedef {import("../wire.js").WireBranch} Branch */
/** @typedef {import("./spans.js").TokenSpans} TokenSpans */

export class ForkMark {
  #spans;
  #drawn = false;

  /** @param {TokenSpans} spans */
  constructor(spans) {
    this.#spans = spans;
  }

  /** @param {Branch | null} branch */
  update(branch) {
    const span = branch === null || this.#drawn ? undefined : this.#spans.spans[branch.position];
    if (branch === null || span === undefined) {
      return;
    }
    this.#drawn = true;
    const mark = document.createElement("i");
    mark.className = "gs-fork";
    mark.setAttribute("role", "img");
    mark.title = textOf(branch);
    mark.setAttribute("aria-label", mark.title);
    span.before(mark);
  }
}

/** @param {Branch} branch */
function textOf({ kind, position, added }) {
  const kept = `${whole(position)} ${position === 1 ? "token is" : "tokens are"} shared with the run it came from`;
  const given =
    added === 0 ? "the model chose what follows" : `${whole(added)} given behind ${position === 1 ? "it" : "them"}`;
  return `${kind === "reply" ? "The reply begins here" : "The branch begins here"}: ${kept}, ${given}`;
}
