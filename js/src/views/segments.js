// An environment's lane as a conversation: a label above each stretch of prompt, model and tool, and what became of the
// lane below its end. Labels are no text of the model: their words stand in attributes, drawn by pseudo-elements, so that
// they can neither be selected nor copied. What they say: ../segments.js.
import { describe, nameOf, outcomeOf, outcomeTexts } from "../segments.js";

/** @typedef {import("../wire.js").WireSegment} Segment */
/** @typedef {import("./spans.js").TokenSpans} TokenSpans */
/** @typedef {{ element: HTMLElement, name: HTMLElement, note: HTMLElement }} Label */

export class Segments {
  #spans;
  #lane;
  /** Labels by the position that they stand before. @type {Map<number, Label>} */
  #labels = new Map();
  /** Tokens that were looked at. */
  #seen = 0;
  /** Rows of the table, of any lane, that were drawn. */
  #done = 0;
  #outcome = document.createElement("div");

  /**
   * @param {TokenSpans} spans
   * @param {number} lane
   */
  constructor(spans, lane) {
    this.#spans = spans;
    this.#lane = lane;
    this.#outcome.className = "gs-outcome";
  }

  /**
   * Draw the segments whose tokens are there; tokens and segments come in either order. What no row tells of yet is
   * the model's while it is generated, and else a tool's.
   * @param {readonly Segment[]} rows
   * @param {boolean} complete No token comes any more.
   * @returns {boolean} Whether something was drawn.
   */
  update(rows, complete) {
    const before = this.#seen + this.#done;
    const { n, record } = this.#spans;
    for (; this.#seen < n; this.#seen += 1) {
      const generated = record.columns.generated[this.#seen];
      if (this.#seen === 0 || generated !== record.columns.generated[this.#seen - 1]) {
        this.#label(this.#seen, generated === 1 ? "model" : this.#seen === 0 ? "prompt" : "tool");
      }
    }
    while (this.#done < rows.length && this.#draw(rows[this.#done], complete)) {
      this.#done += 1;
    }
    if (this.#done === rows.length) {
      this.#end(rows);
    }
    return this.#seen + this.#done > before;
  }

  /**
   * @param {Segment} row
   * @param {boolean} complete
   * @returns {boolean} False where tokens are still to come that it stands before, or behind.
   */
  #draw(row, complete) {
    const { lane, kind, start, stop } = row;
    if (lane !== this.#lane) {
      return true;
    }
    const { n } = this.#spans;
    if (kind === "end" || kind === "reward") {
      return start <= n || complete;
    }
    if (start >= n) {
      return complete;
    }
    const { name, note } = describe(row);
    const label = start === stop ? this.#extra(start, kind) : this.#label(start, kind);
    label.name.dataset.text = name;
    label.note.dataset.text = note;
    label.note.toggleAttribute("data-miss", kind === "model" && row.reused === 0);
    return true;
  }

  /**
   * @param {number} at
   * @param {import("../segments.js").StretchKind} kind
   * @returns {Label} The one before this token.
   */
  #label(at, kind) {
    const made = this.#labels.get(at);
    if (made) {
      made.element.dataset.kind = kind;
      return made;
    }
    const label = newLabel(kind);
    this.#spans.spans[at].before(label.element);
    this.#labels.set(at, label);
    return label;
  }

  /**
   * Of a stretch without tokens: above the label of the one that follows at the same place.
   * @param {number} at
   * @param {import("../segments.js").StretchKind} kind
   * @returns {Label}
   */
  #extra(at, kind) {
    const label = newLabel(kind);
    (this.#labels.get(at)?.element ?? this.#spans.spans[at]).before(label.element);
    return label;
  }

  /** @param {readonly Segment[]} rows */
  #end(rows) {
    const texts = outcomeTexts(outcomeOf(rows, this.#lane));
    if (texts.length > this.#outcome.childElementCount) {
      this.#outcome.replaceChildren(
        ...texts.map((text) => {
          const element = document.createElement("b");
          element.dataset.text = text;
          return element;
        }),
      );
      this.#spans.close(this.#outcome);
    }
  }
}

/**
 * @param {import("../segments.js").StretchKind} kind
 * @returns {Label}
 */
function newLabel(kind) {
  const element = document.createElement("div");
  const [name, note] = [document.createElement("b"), document.createElement("i")];
  element.className = "gs-segment";
  element.dataset.kind = kind;
  name.dataset.text = nameOf(kind, null);
  element.append(name, note);
  return { element, name, note };
}
