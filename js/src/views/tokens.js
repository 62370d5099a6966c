// The pane of one sequence's tokens: draws what came, follows the end, and tells what a person does there. Spans are
// made by spans.js, what stands beside them by drafts.js, segments.js, forkmark.js and comparemarks.js; which token is chosen is known by lanes.js.
import { TokenRecord } from "../record.js";
import { CompareMarks } from "./comparemarks.js";
import { Drafts } from "./drafts.js";
import { ForkMark } from "./forkmark.js";
import { Segments } from "./segments.js";
import { TokenSpans } from "./spans.js";

/** @typedef {import("../session.js").Session} Session */
/** @typedef {import("./lanes.js").Row} Row */

/**
 * What a person does in the pane.
 * @typedef {object} Listeners
 * @property {(index: number | null) => void} point
 * @property {(index: number) => void} toggle Of the pin.
 * @property {(event: KeyboardEvent) => boolean} key Whether it was of use.
 */

const NEAR_END_PX = 24;

export class TokensView {
  element = document.createElement("div");
  spans;

  #session;
  #listeners;
  #text = document.createElement("div");
  #jump = document.createElement("button");
  #drafts;
  #fork;
  #compared;
  /** Of an environment's run. @type {Segments | null} */
  #segments = null;
  #life = new AbortController();
  /** @type {HTMLElement | null} */
  #marked = null;
  /** @type {number[] | null} */
  #weights = null;
  #following = true;
  #top = 0;

  /**
   * @param {Session} session
   * @param {Listeners} listeners
   */
  constructor(session, listeners) {
    this.#session = session;
    this.#listeners = listeners;
    this.element.className = "gs-pane";
    this.#text.className = "gs-text";
    this.#text.tabIndex = 0;
    this.#text.dataset.lmSuppressShortcuts = "true";
    this.#text.setAttribute("role", "region");
    this.#jump.className = "gs-jump";
    this.#jump.type = "button";
    this.#jump.dataset.lmSuppressShortcuts = "true";
    this.#jump.textContent = "↓ newest";
    this.element.append(this.#text, this.#jump);
    this.spans = new TokenSpans(this.#text, new TokenRecord());
    this.#drafts = new Drafts(this.spans);
    this.#fork = new ForkMark(this.spans);
    this.#compared = new CompareMarks(this.spans);

    const { signal } = this.#life;
    const options = { signal, passive: true };
    this.#text.addEventListener("pointerover", (event) => listeners.point(indexAt(event)), options);
    this.#text.addEventListener("pointerleave", () => listeners.point(null), options);
    this.#text.addEventListener("click", (event) => this.#click(event), options);
    this.#text.addEventListener("scroll", () => this.#scrolled(), options);
    this.#text.addEventListener("keydown", (event) => this.#key(event), { signal });
    this.#text.addEventListener("copy", (event) => copyText(event, this.#text), { signal });
    this.#jump.addEventListener("click", () => this.#follow(), options);
    if (typeof ResizeObserver === "function") {
      // Shown at last (a tab was chosen) or resized: the end is somewhere else.
      const observer = new ResizeObserver(() => this.#toEnd());
      observer.observe(this.#text);
      signal.addEventListener("abort", () => observer.disconnect());
    }
  }

  close() {
    this.#life.abort();
  }

  focus() {
    this.#text.focus();
  }

  /**
   * @param {Row} row
   * @param {number} deadline Rows that are not drawn by then come in the next frame.
   * @returns {boolean} Whether the tokens are other ones than before.
   */
  update(row, deadline) {
    const { state, living, whitespace, drafts } = this.#session;
    const record = state.tracks[row.track] ?? this.spans.record;
    const isNew = this.spans.record !== record;
    if (isNew) {
      const inEnvironment = state.environment && row.lane !== null;
      this.spans = new TokenSpans(this.#text, record, inEnvironment);
      this.#drafts = new Drafts(this.spans);
      this.#fork = new ForkMark(this.spans);
      this.#compared = new CompareMarks(this.spans);
      this.#segments = inEnvironment ? new Segments(this.spans, row.lane ?? 0) : null;
      this.#marked = null;
      this.#weights = null;
      this.#following = true;
    }
    const before = this.spans.n;
    while (this.spans.n < record.n && (this.spans.n % 64 !== 0 || performance.now() < deadline)) {
      this.spans.add();
    }
    // A round tells of tokens of the first lane.
    const complete = state.over && this.spans.n === record.n;
    const drafted = row.track === 0 && this.#drafts.update(state.tables.rounds, complete);
    const grew = (this.#segments?.update(state.tables.segments, complete) ?? false) || drafted;
    this.#fork.update(row.lane === null ? null : state.branch);
    if (row.lane !== null && row.lane > 0 && state.compared !== null) {
      const { prompt_tokens } = state.lanes[row.lane];
      this.#compared.update(this.#session.comparing.agreements(state)[row.lane], prompt_tokens);
    }
    if (this.spans.n < record.n) {
      this.#session.refresh();
    } else if (state.over) {
      this.spans.setTail(state.tails[row.track] ?? "");
    }
    const isLane = row.lane !== null;
    const what = row.label === "" ? "Tokens" : `Tokens of ${row.label}`;
    this.#text.setAttribute("aria-label", `${what}. Arrow keys choose one, Enter pins it, Escape lets go.`);
    this.element.toggleAttribute("data-empty", record.n === 0);
    this.element.toggleAttribute("data-idle", state.run === null);
    this.element.toggleAttribute("data-live", isLane && living && state.status?.state !== "queued");
    this.element.toggleAttribute("data-whitespace", whitespace);
    this.element.toggleAttribute("data-drafts", drafts && row.track === 0);
    this.#text.toggleAttribute("data-paused", state.status?.state === "paused");
    if (this.spans.n > before || grew) {
      this.#toEnd();
    }
    this.element.toggleAttribute("data-behind", !this.#following);
    return isNew;
  }

  /**
   * Bring a token into sight.
   * @param {number} index
   */
  show(index) {
    this.#following = index === this.spans.n - 1;
    this.spans.spans[index].scrollIntoView({ block: "nearest" });
  }

  /**
   * @param {number | null} index
   * @param {boolean} pinned
   */
  mark(index, pinned) {
    this.#marked?.classList.remove("gs-pointed", "gs-pinned");
    this.#marked = index === null ? null : this.spans.spans[index];
    this.#marked?.classList.add(pinned ? "gs-pinned" : "gs-pointed");
  }

  /** @param {number[] | null} weights Of attention, a token each. */
  attend(weights) {
    if (this.#weights !== weights) {
      this.#weights = weights;
      this.spans.attend(weights);
    }
    this.element.toggleAttribute("data-attention", weights !== null);
  }

  /** @param {MouseEvent} event */
  #click(event) {
    const index = indexAt(event);
    const selection = window.getSelection?.();
    if (index !== null && (!selection || selection.isCollapsed)) {
      this.#listeners.toggle(index);
    }
  }

  /** @param {KeyboardEvent} event */
  #key(event) {
    if ((event.ctrlKey || event.metaKey) && event.key === "a") {
      window.getSelection()?.selectAllChildren(this.#text);
    } else if (event.ctrlKey || event.metaKey || event.altKey || !this.#listeners.key(event)) {
      return;
    }
    event.preventDefault();
    // Escape would else also stop the run.
    event.stopPropagation();
  }

  #scrolled() {
    const { scrollTop, clientHeight, scrollHeight } = this.#text;
    if (scrollTop + clientHeight >= scrollHeight - NEAR_END_PX) {
      this.#following = true;
    } else if (scrollTop < this.#top) {
      // Only a person scrolls up; heights of chunks that come into sight move the end down.
      this.#following = false;
    }
    this.#top = scrollTop;
    this.element.toggleAttribute("data-behind", !this.#following);
  }

  #follow() {
    this.#following = true;
    this.#toEnd();
    this.element.removeAttribute("data-behind");
  }

  #toEnd() {
    if (this.#following && this.#session.living) {
      this.#text.scrollTop = this.#text.scrollHeight;
    }
  }
}

/**
 * @param {Event} event
 * @returns {number | null}
 */
function indexAt(event) {
  const span = event.target instanceof Element ? event.target.closest("[data-i]") : null;
  return span instanceof HTMLElement ? Number(span.dataset.i) : null;
}

/**
 * Copy the model's text: the browser would add a line break between chunks.
 * @param {ClipboardEvent} event
 * @param {HTMLElement} root
 */
export function copyText(event, root) {
  const selection = window.getSelection();
  if (!selection || selection.isCollapsed || !event.clipboardData) {
    return;
  }
  const range = selection.getRangeAt(0);
  if (root.contains(range.commonAncestorContainer)) {
    event.clipboardData.setData("text/plain", range.cloneContents().textContent ?? "");
    event.preventDefault();
    event.stopPropagation();
  }
}
