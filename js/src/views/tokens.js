// The pane of tokens: draws what came, follows the end, and says which token a person points at. Spans are made by
// spans.js; what is known about a token is shown by the inspector.
import { literal } from "../format.js";
import { TokenRecord } from "../record.js";
import { TokenSpans } from "./spans.js";

/** @typedef {import("../session.js").Session} Session */

/**
 * Which token the inspector shows, and why.
 * @typedef {object} Pick
 * @property {number | null} index
 * @property {"pinned" | "pointed" | "latest"} why
 */

/** Milliseconds of one frame that drawing may take. */
const BUDGET_MS = 12;
const NEAR_END_PX = 24;

export class TokensView {
  element = document.createElement("div");
  spans;

  #session;
  #text = document.createElement("div");
  #jump = document.createElement("button");
  #announce = document.createElement("div");
  #onPick;
  /** @type {number | null} */
  #pinned = null;
  /** @type {number | null} */
  #pointed = null;
  /** @type {HTMLElement | null} */
  #marked = null;
  #following = true;
  #top = 0;

  /**
   * @param {Session} session
   * @param {() => void} onPick
   * @param {AbortSignal} signal
   */
  constructor(session, onPick, signal) {
    this.#session = session;
    this.#onPick = onPick;
    this.element.className = "gs-pane";
    this.#text.className = "gs-text";
    this.#text.tabIndex = 0;
    this.#text.dataset.lmSuppressShortcuts = "true";
    this.#text.setAttribute("role", "region");
    this.#text.setAttribute("aria-label", "Tokens. Arrow keys choose one, Enter pins it, Escape lets go.");
    this.#jump.className = "gs-jump";
    this.#jump.type = "button";
    this.#jump.dataset.lmSuppressShortcuts = "true";
    this.#jump.textContent = "↓ newest";
    this.#announce.className = "gs-sr";
    this.#announce.setAttribute("aria-live", "polite");
    this.element.append(this.#text, this.#jump, this.#announce);
    this.spans = new TokenSpans(this.#text, new TokenRecord());

    const options = { signal, passive: true };
    this.#text.addEventListener("pointerover", (event) => this.#point(indexAt(event)), options);
    this.#text.addEventListener("pointerleave", () => this.#point(null), options);
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

  /** @returns {Pick} */
  get pick() {
    if (this.#pinned !== null) {
      return { index: this.#pinned, why: "pinned" };
    }
    if (this.#pointed !== null) {
      return { index: this.#pointed, why: "pointed" };
    }
    return { index: this.spans.n > 0 ? this.spans.n - 1 : null, why: "latest" };
  }

  /** Draw what came, for as long as a frame allows; the rest in the next one. */
  update() {
    const { state, living } = this.#session;
    const record = state.tracks[0] ?? this.spans.record;
    if (this.spans.record !== record) {
      this.spans = new TokenSpans(this.#text, record);
      this.#pinned = null;
      this.#pointed = null;
      this.#marked = null;
      this.#following = true;
    }
    const before = this.spans.n;
    const start = performance.now();
    while (this.spans.n < record.n && (this.spans.n % 64 !== 0 || performance.now() - start < BUDGET_MS)) {
      this.spans.add();
    }
    if (this.spans.n < record.n) {
      this.#session.refresh();
    } else if (state.over) {
      this.spans.setTail(state.tails[0] ?? "");
    }
    this.element.toggleAttribute("data-empty", record.n === 0);
    this.element.toggleAttribute("data-idle", state.run === null);
    this.element.toggleAttribute("data-live", living && state.status?.state !== "queued");
    this.element.toggleAttribute("data-whitespace", this.#session.whitespace);
    this.#text.toggleAttribute("data-paused", state.status?.state === "paused");
    if (this.spans.n > before) {
      this.#toEnd();
    }
    this.element.toggleAttribute("data-behind", !this.#following);
  }

  /** @param {number | null} index */
  #point(index) {
    // Away from all tokens: a run that lives shows its newest again, else the last one stays.
    if (index !== null || this.#session.living) {
      this.#pointed = index;
      this.#mark();
    }
  }

  /** @param {MouseEvent} event */
  #click(event) {
    const index = indexAt(event);
    const selection = window.getSelection?.();
    if (index === null || (selection && !selection.isCollapsed)) {
      return;
    }
    this.#pinned = this.#pinned === index ? null : index;
    this.#pointed = index;
    this.#mark();
  }

  /** @param {KeyboardEvent} event */
  #key(event) {
    if ((event.ctrlKey || event.metaKey) && event.key === "a") {
      window.getSelection()?.selectAllChildren(this.#text);
      event.preventDefault();
      event.stopPropagation();
      return;
    }
    if (event.ctrlKey || event.metaKey || event.altKey) {
      return;
    }
    const last = this.spans.n - 1;
    const at = this.pick.index ?? 0;
    const target = { ArrowLeft: at - 1, ArrowRight: at + 1, Home: 0, End: last }[event.key];
    if (target !== undefined && last >= 0) {
      this.#move(Math.min(last, Math.max(0, target)));
    } else if (event.key === "Enter" && last >= 0) {
      this.#pinned = at;
      this.#mark();
    } else if (event.key === "Escape" && (this.#pinned !== null || this.#pointed !== null)) {
      this.#pinned = null;
      this.#pointed = null;
      this.#mark();
    } else {
      return;
    }
    event.preventDefault();
    // Escape would else also stop the run.
    event.stopPropagation();
  }

  /** @param {number} index */
  #move(index) {
    if (this.#pinned === null) {
      this.#pointed = index;
    } else {
      this.#pinned = index;
    }
    this.#following = index === this.spans.n - 1;
    this.spans.spans[index].scrollIntoView({ block: "nearest" });
    this.#mark();
    this.#announce.textContent = `Token ${index}: ${literal(this.spans.record.text(index))}`;
  }

  #mark() {
    const { index, why } = this.pick;
    this.#marked?.classList.remove("gs-pointed", "gs-pinned");
    this.#marked = why === "latest" || index === null ? null : this.spans.spans[index];
    this.#marked?.classList.add(why === "pinned" ? "gs-pinned" : "gs-pointed");
    this.#onPick();
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
