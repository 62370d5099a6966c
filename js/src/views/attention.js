// What the model looked at when it chose a token: which layer and head, and the tokens with the largest shares. The
// shares over the text itself are drawn by spans.js, the matrix by matrix.js. Draws only.
import { html, nothing } from "lit-html";
import { literal, shareText } from "../format.js";
import { segmented } from "./segmented.js";

/** @typedef {import("../session.js").Session} Session */
/** @typedef {import("../looks.js").Of} Of */
/** @typedef {import("../wire.js").SeenAttention} SeenAttention */
/** @typedef {import("../wire.js").Unseen} Unseen */
/** @typedef {import("../record.js").TokenRecord} TokenRecord */

const LISTED = 24;

const MAPS = {
  self: { value: "self", label: "own tokens", title: "Attention on the tokens of the sequence before it" },
  cross: { value: "cross", label: "source", title: "Attention on the tokens that the encoder read" },
  encoder: { value: "encoder", label: "within source", title: "Attention of the encoder's tokens on each other" },
};

/**
 * @param {readonly string[]} observed
 * @returns {("self" | "cross")[]} Maps that a token of a lane has.
 */
export function mapsOf(observed) {
  return [
    ...(observed.includes("attention") ? [/** @type {const} */ ("self")] : []),
    ...(observed.includes("cross") ? [/** @type {const} */ ("cross")] : []),
  ];
}

/**
 * @param {string} label
 * @param {Of[]} maps
 * @param {Of} value
 * @param {(of: Of) => void} choose
 */
export function mapChoice(label, maps, value, choose) {
  return maps.length > 1
    ? segmented(
        label,
        maps.map((of) => MAPS[of]),
        value,
        (of) => choose(/** @type {Of} */ (of)),
      )
    : nothing;
}

/**
 * Which layer and head; the mean of all where none is chosen.
 * @param {Session} session
 * @param {Of} of
 */
export function layerAndHead(session, of) {
  const { choice, sizes } = session.looks;
  const { layers, heads } = sizes[of] ?? { layers: 0, heads: 0 };
  const choose = (/** @type {"layer" | "head"} */ what, /** @type {Event} */ event) => {
    const { value } = /** @type {HTMLSelectElement} */ (event.target);
    choice[what] = value === "" ? null : Number(value);
    session.refresh();
  };
  const select = (/** @type {"layer" | "head"} */ what, /** @type {number} */ n) => {
    const chosen = choice[what];
    // What is chosen is among the options also before an answer told how many there are.
    const all = Array.from({ length: Math.max(n, chosen === null ? 0 : chosen + 1) }, (_, i) => i);
    return html`<label>${what}<select data-lm-suppress-shortcuts="true" @change=${(/** @type {Event} */ event) => choose(what, event)}>
      <option value="" ?selected=${chosen === null}>mean</option>
      ${all.map((i) => html`<option value=${i} ?selected=${i === chosen}>${i}</option>`)}
    </select></label>`;
  };
  return html`<div class="gs-heads">${select("layer", layers)}${select("head", heads)}</div>`;
}

/**
 * @param {Session} session
 * @param {SeenAttention | Unseen | null} seen
 * @param {TokenRecord | undefined} over What the weights are over.
 * @param {string | null} obstacle Why nothing is asked for now.
 */
export function attentionPart(session, seen, over, obstacle) {
  const { choice } = session.looks;
  const maps = mapsOf(session.state.observed);
  const of = maps.includes(choice.of) ? choice.of : maps[0];
  return html`<div class="gs-attention">
    <div class="gs-choose">
      ${mapChoice("Attention on", maps, of, (next) => {
        choice.of = next === "cross" ? "cross" : "self";
        choice.matrix = choice.of;
        session.refresh();
      })}
      ${layerAndHead(session, of)}
    </div>
    ${obstacle ? html`<p class="gs-empty">${obstacle}</p>` : (unseen(seen) ?? shares(/** @type {SeenAttention} */ (seen), over))}
  </div>`;
}

/** @param {import("../connection.js").Seen | null} seen */
export function unseen(seen) {
  if (seen === null) {
    return html`<p class="gs-empty">asking the kernel…</p>`;
  }
  return seen.kind === "unseen" ? html`<p class="gs-empty">${seen.message}</p>` : null;
}

/**
 * @param {SeenAttention} seen
 * @param {TokenRecord | undefined} over
 */
function shares({ weights }, over) {
  const order = weights.map((_, index) => index).sort((a, b) => weights[b] - weights[a]);
  const listed = order.slice(0, LISTED);
  const most = weights[order[0]] || 1;
  const rest = order.slice(LISTED).reduce((sum, index) => sum + weights[index], 0);
  return html`<div class="gs-scroll" tabindex="0" data-lm-suppress-shortcuts="true" role="group" aria-label="Shares of attention">
    <table class="gs-shares">
      <thead><tr><th scope="col">looked at</th><th scope="col">token</th><th scope="col">share</th></tr></thead>
      <tbody>
        ${listed.map(
          (index) => html`<tr>
            <th scope="row"><code>${literal(over?.text(index) ?? "")}</code></th>
            <td>${index}</td>
            <td class="gs-bar gs-weight" style="--p:${(weights[index] / most).toFixed(4)}"><span>${shareText(weights[index])}</span></td>
          </tr>`,
        )}
      </tbody>
    </table>
    ${order.length > LISTED ? html`<p class="gs-rest">${order.length - LISTED} more tokens share ${shareText(rest)}</p>` : nothing}
  </div>`;
}
