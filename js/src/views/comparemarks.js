// In the lane of a comparison: which tokens are those of the first lane, and the first that is another one. Classes of
// spans only; what agrees: ../comparing.js.

/** @typedef {import("./spans.js").TokenSpans} TokenSpans */
/** @typedef {import("../comparing.js").Agreement} Agreement */

export class CompareMarks {
  #spans;
  #marked = 0;
  #parted = false;

  /** @param {TokenSpans} spans */
  constructor(spans) {
    this.#spans = spans;
  }

  /**
   * @param {Agreement | undefined} agreement
   * @param {number} begin Where the lane begins to generate.
   */
  update(agreement, begin) {
    if (agreement === undefined) {
      return;
    }
    const { spans } = this.#spans;
    while (this.#marked < agreement.same && begin + this.#marked < spans.length) {
      spans[begin + this.#marked].classList.add("gs-same");
      this.#marked += 1;
    }
    const first = spans[begin + agreement.same];
    if (agreement.parted && !this.#parted && first !== undefined) {
      this.#parted = true;
      first.classList.add("gs-differs");
      first.title = "The first token that is not the first lane's";
    }
  }
}
