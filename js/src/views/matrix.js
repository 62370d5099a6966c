// Attention as a matrix: a row a token that looks, a column a token that is looked at. One pixel of a canvas is one
// weight, scaled up by the browser, so that 256 rows cost nothing to draw or to point at.
import { html, nothing, render } from "lit-html";
import { literal, shareText } from "../format.js";
import { layerAndHead, mapChoice, mapsOf, unseen } from "./attention.js";
import { ask } from "./looking.js";

/** @typedef {import("../session.js").Session} Session */
/** @typedef {import("../looks.js").Of} Of */
/** @typedef {import("../wire.js").SeenMatrix} SeenMatrix */
/** @typedef {import("../record.js").TokenRecord} TokenRecord */
/** @typedef {import("./lanes.js").Pick} Pick */

/** Beyond so many tokens there is no room for their names beside the matrix. */
const NAMED = 40;
const CELL_NAMED_PX = 15;
const WIDE_PX = 640;

export class MatrixView {
  element = document.createElement("details");

  #session;
  #body = document.createElement("div");
  /** @type {{ seen: SeenMatrix, ink: string, canvas: HTMLCanvasElement } | null} */
  #drawn = null;
  /** @type {{ row: number, column: number } | null} */
  #at = null;
  #refresh;

  /**
   * @param {Session} session
   * @param {() => void} refresh Have this view drawn again.
   */
  constructor(session, refresh) {
    this.#session = session;
    this.#refresh = refresh;
    this.element.className = "gs-matrix-fold";
    const summary = document.createElement("summary");
    summary.dataset.lmSuppressShortcuts = "true";
    summary.textContent = "attention matrix";
    this.#body.className = "gs-matrix-body";
    this.element.append(summary, this.#body);
    this.element.addEventListener("toggle", refresh);
  }

  /**
   * @param {Pick} pick
   * @param {boolean} asks Whether the pick has come to rest.
   */
  update(pick, asks) {
    const { state, looks } = this.#session;
    const maps = matricesOf(state.observed);
    this.element.hidden = maps.length === 0;
    if (maps.length === 0 || !this.element.open || state.run === null) {
      looks.leave(this, "matrix");
      return;
    }
    const { choice } = looks;
    const of = maps.includes(choice.matrix) ? choice.matrix : maps[0];
    const lane = state.lanes[pick.track] ? pick.track : state.lanes.findIndex(({ source }) => source === pick.track);
    const source = state.lanes[lane]?.source ?? lane;
    const last = (/** @type {number} */ track) => (state.tracks[track]?.n ?? 0) - 1;
    // Within the source all rows, whichever token is chosen.
    const position = of === "encoder" ? last(source) : pick.track === lane ? (pick.index ?? -1) : last(lane);
    const can = position >= 0 && (asks || of === "encoder");
    const seen = can
      ? ask(this.#session, this, {
          kind: "look",
          run: state.run,
          lane,
          position,
          what: "matrix",
          of,
          layer: choice.layer,
          head: choice.head,
        })
      : null;
    render(
      html`<div class="gs-choose">
          ${mapChoice("Matrix of", maps, of, (next) => {
            choice.matrix = next;
            this.#session.refresh();
          })}
          ${layerAndHead(this.#session, of)}
          <p class="gs-readout">${seen?.kind === "matrix" ? this.#readout(seen, of, lane, source) : nothing}</p>
        </div>
        ${can ? (unseen(seen) ?? this.#picture(/** @type {SeenMatrix} */ (seen), of, lane, source)) : html`<p class="gs-empty">Point at a token, or pin one: the matrix ends with it.</p>`}`,
      this.#body,
    );
    if (seen?.kind === "matrix") {
      this.#paint(seen);
    }
  }

  /**
   * @param {SeenMatrix} seen
   * @param {Of} of
   * @param {number} lane
   * @param {number} source
   */
  #picture(seen, of, lane, source) {
    const { rows, position } = seen;
    const columns = widthOf(seen);
    const most = Math.max(columns, rows.length);
    const named = most <= NAMED;
    const cell = named ? CELL_NAMED_PX : Math.max(2, Math.min(12, Math.floor(WIDE_PX / most)));
    const { tracks } = this.#session.state;
    const down = tracks[of === "encoder" ? source : lane];
    const across = tracks[of === "self" ? lane : source];
    const names = (
      /** @type {TokenRecord | undefined} */ record,
      /** @type {number} */ from,
      /** @type {number} */ n,
    ) => Array.from({ length: n }, (_, i) => html`<span>${literal(record?.text(from + i) ?? "")}</span>`);
    return html`<div class="gs-scroll gs-matrix" style="--cell:${cell}px" data-named=${named ? "true" : nothing}
        tabindex="0" data-lm-suppress-shortcuts="true" role="img" aria-label=${`Attention of ${rows.length} tokens on ${columns}`}>
      ${named ? html`<div class="gs-columns" aria-hidden="true">${names(across, 0, columns)}</div>` : nothing}
      ${named ? html`<div class="gs-rows" aria-hidden="true">${names(down, position, rows.length)}</div>` : nothing}
      <canvas width=${columns} height=${rows.length} style="width:${columns * cell}px;height:${rows.length * cell}px"
        @pointermove=${(/** @type {PointerEvent} */ event) => this.#point(event, cell)}
        @pointerleave=${() => this.#leave()}></canvas>
    </div>`;
  }

  /**
   * @param {SeenMatrix} seen
   * @param {Of} of
   * @param {number} lane
   * @param {number} source
   */
  #readout({ rows, position }, of, lane, source) {
    const { tracks } = this.#session.state;
    const weight = this.#at === null ? undefined : rows[this.#at.row]?.[this.#at.column];
    if (this.#at === null || weight === undefined) {
      return html`rows look at columns; stronger is more (square root)`;
    }
    const name = (/** @type {number} */ track, /** @type {number} */ index) =>
      html`<code>${literal(tracks[track]?.text(index) ?? "")}</code> <small>${index}</small>`;
    const from = name(of === "encoder" ? source : lane, position + this.#at.row);
    return html`${from} looks at ${name(of === "self" ? lane : source, this.#at.column)}: <b>${shareText(weight)}</b>`;
  }

  /**
   * @param {PointerEvent} event
   * @param {number} cell
   */
  #point(event, cell) {
    const column = Math.floor(event.offsetX / cell);
    const row = Math.floor(event.offsetY / cell);
    if (this.#at?.row !== row || this.#at.column !== column) {
      this.#at = { row, column };
      this.#refresh();
    }
  }

  #leave() {
    this.#at = null;
    this.#refresh();
  }

  /** @param {SeenMatrix} seen */
  #paint(seen) {
    const canvas = this.#body.querySelector("canvas");
    const ink = getComputedStyle(this.#body).getPropertyValue("--gs-weight").trim();
    const context = canvas?.getContext("2d");
    // The canvas is a new one where something else was shown in between.
    if (
      !canvas ||
      !context ||
      (this.#drawn?.seen === seen && this.#drawn.ink === ink && this.#drawn.canvas === canvas)
    ) {
      return;
    }
    this.#drawn = { seen, ink, canvas };
    context.putImageData(new ImageData(pixels(seen, ink), widthOf(seen), seen.rows.length), 0, 0);
  }
}

/**
 * @param {readonly string[]} observed
 * @returns {Of[]}
 */
const matricesOf = (observed) => [
  ...mapsOf(observed),
  ...(observed.includes("encoder") ? [/** @type {const} */ ("encoder")] : []),
];

/** @param {SeenMatrix} seen Rows of `self` grow. */
export const widthOf = ({ rows }) => rows.reduce((most, row) => Math.max(most, row.length), 1);

/**
 * @param {SeenMatrix} seen
 * @param {string} ink `#rrggbb`.
 * @returns {Uint8ClampedArray<ArrayBuffer>} Four bytes a weight: the ink, as opaque as the weight is large. What no row
 *   has is clear.
 */
export function pixels(seen, ink) {
  const width = widthOf(seen);
  const colour = Number.parseInt(ink.slice(1), 16);
  const bytes = new Uint8ClampedArray(4 * width * seen.rows.length);
  seen.rows.forEach((row, y) => {
    row.forEach((weight, x) => {
      // A square root, so that small shares are seen.
      bytes.set([colour >> 16, (colour >> 8) & 255, colour & 255, 255 * Math.sqrt(weight)], 4 * (y * width + x));
    });
  });
  return bytes;
}
