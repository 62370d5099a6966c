// The sequences of a run below each other, each in a pane of its own, and above them what an encoder read. Says which
// token a person looks at, in whichever pane. A single sequence is a bare pane. What a pane draws: tokens.js.
import { nothing, render } from "lit-html";
import { literal } from "../format.js";
import { SCALES } from "../measures.js";
import { laneHead } from "./lanehead.js";
import { emptyTally } from "./spans.js";
import { TokensView } from "./tokens.js";

/** @typedef {import("../session.js").Session} Session */
/** @typedef {import("../store.js").State} State */
/** @typedef {import("../wire.js").WireLane} WireLane */

/**
 * Which token the inspector shows, and why.
 * @typedef {object} Pick
 * @property {number} track
 * @property {number | null} index
 * @property {"pinned" | "pointed" | "latest"} why
 */

/** @typedef {{ track: number, index: number }} Place */

/** Milliseconds of one frame that drawing may take. */
const BUDGET_MS = 12;

/**
 * @typedef {object} Row One sequence on the page.
 * @property {number} track
 * @property {number | null} lane Null: a source.
 * @property {string} label "" where there is nothing to tell apart.
 */

/**
 * @param {State} state
 * @returns {Row[]} Each source above the first lane that reads it.
 */
export function rowsOf({ lanes }) {
  const prompts = new Set(lanes.map(({ prompt }) => prompt)).size;
  const sequences = new Set(lanes.map(({ sequence }) => sequence)).size;
  const name = (/** @type {WireLane} */ { prompt, sequence, label }, /** @type {boolean} */ withSequence) =>
    (withSequence && label) ||
    [
      prompts > 1 ? `prompt ${prompt + 1}` : "",
      withSequence && (sequences > 1 || (lanes.length > 1 && prompts === 1)) ? `sequence ${sequence + 1}` : "",
    ]
      .filter(Boolean)
      .join(" · ");
  /** @type {Row[]} */
  const rows = [];
  lanes.forEach((lane, track) => {
    const { source } = lane;
    if (source !== null && !rows.some((row) => row.track === source)) {
      rows.push({ track: source, lane: null, label: ["source", name(lane, false)].filter(Boolean).join(" · ") });
    }
    rows.push({ track, lane: track, label: name(lane, true) || (source === null ? "" : "target") });
  });
  return rows.length > 0 ? rows : [{ track: 0, lane: 0, label: "" }];
}

export class LanesView {
  element = document.createElement("div");
  /** @type {{ root: HTMLElement, head: HTMLElement, view: TokensView }[]} */
  #panes = [];
  /** @type {Row[]} */
  #rows = [];
  #session;
  #onPick;
  #announce = document.createElement("div");
  /** @type {Place | null} */
  #pinned = null;
  /** @type {Place | null} */
  #pointed = null;

  /**
   * @param {Session} session
   * @param {() => void} onPick
   * @param {AbortSignal} signal
   */
  constructor(session, onPick, signal) {
    this.#session = session;
    this.#onPick = onPick;
    this.element.className = "gs-lanes";
    this.#announce.className = "gs-sr";
    this.#announce.setAttribute("aria-live", "polite");
    this.element.append(this.#announce);
    signal.addEventListener("abort", () => this.#trim(0));
  }

  /** @returns {Pick} */
  get pick() {
    if (this.#pinned !== null) {
      return { ...this.#pinned, why: "pinned" };
    }
    if (this.#pointed !== null) {
      return { ...this.#pointed, why: "pointed" };
    }
    const n = this.view(0)?.spans.n ?? 0;
    return { track: 0, index: n > 0 ? n - 1 : null, why: "latest" };
  }

  /** Of all lanes together. */
  get tally() {
    const sum = emptyTally();
    for (const [at, { view }] of this.#panes.entries()) {
      if (this.#rows[at].lane !== null) {
        for (const { key } of SCALES) {
          view.spans.tally[key].forEach((count, bucket) => {
            sum[key][bucket] += count;
          });
        }
      }
    }
    return sum;
  }

  /** @param {number} track */
  view(track) {
    return this.#panes[this.#rows.findIndex((row) => row.track === track)]?.view;
  }

  /** @param {number} track */
  row(track) {
    return this.#rows.find((row) => row.track === track);
  }

  /** Draw what came, for as long as a frame allows; the rest in the next one. */
  update() {
    const { state } = this.#session;
    this.#rows = rowsOf(state);
    this.#trim(this.#rows.length);
    while (this.#panes.length < this.#rows.length) {
      this.#add();
    }
    const several = this.#rows.length > 1;
    const headed = several || state.environment;
    this.element.toggleAttribute("data-several", several);
    this.element.toggleAttribute("data-environment", state.environment);
    this.element.toggleAttribute("data-compared", state.compared !== null);
    this.element.toggleAttribute("data-idle", state.run === null);
    const deadline = performance.now() + BUDGET_MS;
    this.#rows.forEach((row, at) => {
      const { root, head, view } = this.#panes[at];
      root.dataset.kind = row.lane === null ? "source" : "lane";
      render(headed ? laneHead(row, state) : nothing, head);
      if (view.update(row, deadline)) {
        this.#forget(row.track);
      }
    });
    for (const place of [this.#pinned, this.#pointed]) {
      if (place !== null && this.view(place.track) === undefined) {
        this.#forget(place.track);
      }
    }
  }

  /**
   * Draw shares of attention over the tokens of one track.
   * @param {number | null} track
   * @param {number[] | null} weights
   */
  attend(track, weights) {
    for (const [at, { view }] of this.#panes.entries()) {
      view.attend(this.#rows[at].track === track ? weights : null);
    }
  }

  #add() {
    const root = document.createElement("section");
    root.className = "gs-lane";
    const head = document.createElement("header");
    head.className = "gs-lane-head";
    const at = this.#panes.length;
    const track = () => this.#rows[at].track;
    const view = new TokensView(this.#session, {
      point: (index) => this.#point(track(), index),
      toggle: (index) => this.#toggle({ track: track(), index }),
      key: (event) => this.#key(at, event),
    });
    root.append(head, view.element);
    this.#announce.before(root);
    this.#panes.push({ root, head, view });
  }

  /** @param {number} n */
  #trim(n) {
    for (const { root, view } of this.#panes.splice(n)) {
      view.close();
      root.remove();
    }
  }

  /**
   * Its tokens are other ones now.
   * @param {number} track
   */
  #forget(track) {
    this.#pinned = this.#pinned?.track === track ? null : this.#pinned;
    this.#pointed = this.#pointed?.track === track ? null : this.#pointed;
  }

  /**
   * @param {number} track
   * @param {number | null} index
   */
  #point(track, index) {
    // Away from all tokens: a run that lives shows its newest again, else the last one stays.
    if (index !== null || this.#session.living) {
      this.#pointed = index === null ? null : { track, index };
      this.#mark();
    }
  }

  /** @param {Place} place */
  #toggle(place) {
    this.#pinned = samePlace(this.#pinned, place) ? null : place;
    this.#pointed = place;
    this.#mark();
  }

  /**
   * @param {number} at Of the pane.
   * @param {KeyboardEvent} event
   * @returns {boolean} Whether it was of use.
   */
  #key(at, event) {
    const { track } = this.#rows[at];
    const { n } = this.#panes[at].view.spans;
    const { pick } = this;
    const { compared, lanes } = this.#session.state;
    // The prompt of a comparison stands above its lanes.
    const first = compared === null ? 0 : (lanes[track]?.prompt_tokens ?? 0);
    const index = pick.track === track ? (pick.index ?? 0) : n - 1;
    const target = { ArrowLeft: index - 1, ArrowRight: index + 1, Home: first, End: n - 1 }[event.key];
    const other = this.#panes[at + ({ ArrowUp: -1, ArrowDown: 1 }[event.key] ?? Number.NaN)];
    if (target !== undefined && n > 0) {
      this.#move({ track, index: Math.min(n - 1, Math.max(first, target)) });
    } else if (other !== undefined && other.view.spans.n > 0) {
      other.view.focus();
      const there = this.#rows[this.#panes.indexOf(other)].track;
      this.#move({ track: there, index: Math.min(other.view.spans.n - 1, Math.max(0, index)) });
    } else if (event.key === "Enter" && n > 0) {
      this.#pinned = { track, index };
      this.#mark();
    } else if (event.key === "Escape" && (this.#pinned !== null || this.#pointed !== null)) {
      this.#pinned = null;
      this.#pointed = null;
      this.#mark();
    } else {
      return false;
    }
    return true;
  }

  /** @param {Place} place */
  #move(place) {
    if (this.#pinned === null) {
      this.#pointed = place;
    } else {
      this.#pinned = place;
    }
    const view = this.view(place.track);
    view?.show(place.index);
    this.#mark();
    const label = this.#rows.length > 1 ? `${this.row(place.track)?.label}, token` : "Token";
    this.#announce.textContent = `${label} ${place.index}: ${literal(view?.spans.record.text(place.index) ?? "")}`;
  }

  #mark() {
    const { track, index, why } = this.pick;
    this.#rows.forEach((row, at) => {
      this.#panes[at].view.mark(row.track === track && why !== "latest" ? index : null, why === "pinned");
    });
    this.#onPick();
  }
}

/**
 * @param {Place | null} one
 * @param {Place} other
 */
const samePlace = (one, other) => one?.track === other.track && one.index === other.index;
