// Turns rows of the record into spans inside block chunks: one span a token, append-only. No listeners, no scrolling.
//
// A chunk is a block with `content-visibility: auto`, so that the browser skips what is out of sight. A new block is a
// new line, so chunks end after a newline where there is one in time; `gs-hard` marks the ones that could not.
// In an environment a chunk ends with each stretch, too: what the model wrote and what a tool answered stand in blocks of
// their own.
// Text from the model enters through text nodes only. White-space marks and byte chips are drawn by pseudo-elements
// from attributes, so that the text content of the spans is the text.

import { marks, shareText, turnsText } from "../format.js";
import { BUCKETS, bucketClass, bucketOf, SCALES } from "../measures.js";

/** @typedef {import("../record.js").TokenRecord} TokenRecord */

/** Of the tallest bar; less than that is not seen. */
const ATTENTION_MIN = 0.04;
const CHUNK_MIN = 128;
const CHUNK_MAX = 512;
const SPACE = /[ \t\n\r\u00a0]+/g;

/** How many tokens are in each bucket, by scale: generated ones, or given ones; the last entry counts the unknown. */
export function emptyTally() {
  return Object.fromEntries(SCALES.map(({ key }) => [key, new Uint32Array(BUCKETS + 1)]));
}

export class TokenSpans {
  /** @type {HTMLSpanElement[]} */
  spans = [];
  tally = emptyTally();

  #root;
  #record;
  #stretches;
  /** @type {HTMLElement | null} */
  #chunk = null;
  #inChunk = 0;
  /** Whether a token of the model's came. */
  #generated = false;
  /** @type {HTMLElement | null} */
  #tail = null;
  /** @type {HTMLElement[]} */
  #attended = [];

  /**
   * @param {HTMLElement} root Emptied; holds the chunks.
   * @param {TokenRecord} record
   * @param {boolean} [stretches] Whether generated and given tokens take turns, as in an environment.
   */
  constructor(root, record, stretches = false) {
    this.#root = root;
    this.#record = record;
    this.#stretches = stretches;
    root.replaceChildren();
  }

  /** @returns {TokenRecord} */
  get record() {
    return this.#record;
  }

  get n() {
    return this.spans.length;
  }

  /** Append the next row. */
  add() {
    const index = this.spans.length;
    const text = this.#record.text(index);
    const { generated } = this.#record.columns;
    if (this.#stretches && index > 0 && generated[index] !== generated[index - 1]) {
      this.#chunk = null;
    }
    const span = document.createElement("span");
    span.className = this.#classes(index);
    span.dataset.i = String(index);
    this.#join(span, index, text);
    // Only these: isolated tokens do not join to Arabic words, nor stand in their order.
    span.classList.toggle("gs-turns", turnsText(text));
    fill(span, text);
    this.spans.push(span);
    const chunk = this.#open();
    chunk.append(span);
    if (span.classList.contains("gs-tool")) {
      chunk.classList.add("gs-tools");
    }
    this.#inChunk += 1;
    this.#maybeCut(text);
  }

  /**
   * What an unfinished character at the very end decodes to; no token of its own.
   * @param {string} text
   */
  setTail(text) {
    if (text === (this.#tail?.textContent ?? "")) {
      return;
    }
    this.#tail?.remove();
    this.#tail = document.createElement("span");
    this.#tail.className = "gs-tail";
    this.#tail.title = "What the unfinished character at the end decodes to; no token of its own";
    this.#tail.textContent = text;
    this.#open().append(this.#tail);
  }

  /**
   * Put something below the last token.
   * @param {HTMLElement} element
   */
  close(element) {
    this.#root.append(element);
  }

  /**
   * Show the share of attention that each token got, or none.
   * @param {number[] | null} weights From position 0 on.
   */
  attend(weights) {
    for (const span of this.#attended) {
      span.classList.remove("gs-attended");
      span.style.removeProperty("--a");
      span.removeAttribute("title");
    }
    this.#attended = [];
    // Not by spreading: there may be more weights than a call may have arguments.
    const most = weights?.reduce((a, b) => Math.max(a, b), 0) ?? 0;
    weights?.forEach((weight, index) => {
      const span = this.spans[index];
      // A square root, so that the many small shares stay visible beside the few large ones.
      const height = most > 0 ? Math.sqrt(weight / most) : 0;
      if (span && height >= ATTENTION_MIN) {
        span.classList.add("gs-attended");
        span.style.setProperty("--a", height.toFixed(3));
        span.title = `${shareText(weight)} of the attention`;
        this.#attended.push(span);
      }
    });
  }

  #open() {
    if (this.#chunk === null) {
      this.#chunk = document.createElement("div");
      this.#chunk.className = "gs-chunk";
      this.#inChunk = 0;
      this.#root.append(this.#chunk);
    }
    return this.#chunk;
  }

  /** @param {string} text */
  #maybeCut(text) {
    const newline = text.endsWith("\n");
    // Not between the tokens of one character, whose text comes with the last.
    const full = this.#inChunk >= CHUNK_MAX && text !== "";
    if (full || (newline && this.#inChunk >= CHUNK_MIN)) {
      this.#chunk?.classList.toggle("gs-hard", !newline);
      this.#chunk = null;
    }
  }

  /** @param {number} index */
  #classes(index) {
    const { columns } = this.#record;
    const generated = columns.generated[index] === 1;
    let classes = generated ? "gs-t" : "gs-t gs-in";
    if (!generated && this.#stretches && this.#generated) {
      classes += " gs-tool";
    }
    this.#generated ||= generated;
    for (const scale of SCALES) {
      const bucket = bucketOf(scale, columns[scale.column][index]);
      classes += ` ${bucketClass(scale, bucket)}`;
      if (generated !== scale.given) {
        this.tally[scale.key][bucket ?? BUCKETS] += 1;
      }
    }
    if (columns.special[index] === 1) {
      classes += " gs-special";
    }
    if (generated && (index === 0 || columns.generated[index - 1] !== 1)) {
      classes += " gs-first";
    }
    return classes;
  }

  /**
   * Tokens of one character look like one unit: classes for its two ends, and a chip where a token has no text.
   * @param {HTMLElement} span
   * @param {number} index
   * @param {string} text
   */
  #join(span, index, text) {
    const first = this.#record.columns.group[index];
    if (first < index) {
      span.classList.add("gs-group", "gs-group-end");
      this.spans[index - 1].classList.remove("gs-group-end");
      this.spans[first].classList.add("gs-group", "gs-group-start");
    }
    if (text === "") {
      span.classList.add("gs-chip");
      span.dataset.hex = this.#record.columns.bytes[index]?.toUpperCase() || "∅";
    }
  }
}

/**
 * @param {HTMLElement} span
 * @param {string} text
 */
function fill(span, text) {
  // The usual case, one space before a word, needs no element of its own.
  const usual = /^ (?![ \t\n\r\u00a0])/.test(text);
  span.classList.toggle("gs-sp", usual);
  let done = 0;
  for (const { 0: space, index } of text.matchAll(SPACE)) {
    if (usual && index === 0) {
      continue;
    }
    if (index > done) {
      span.append(text.slice(done, index));
    }
    const mark = document.createElement("i");
    mark.className = "gs-w";
    mark.dataset.w = marks(space);
    mark.textContent = space;
    span.append(mark);
    done = index + space.length;
  }
  if (done < text.length) {
    span.append(text.slice(done));
  }
}
