// The logit lens: what each layer would have said, from the last to the first. Draws only.
import { html, nothing } from "lit-html";
import { literal, looseBytes, percent, whole } from "../format.js";
import { unseen } from "./attention.js";

/** @typedef {import("../wire.js").SeenLens} SeenLens */
/** @typedef {import("../wire.js").LensLayer} LensLayer */
/** @typedef {import("../wire.js").Unseen} Unseen */

/**
 * @param {SeenLens | Unseen | null} seen
 * @param {number | null} chosen Id of the token that was chosen.
 * @param {string | null} obstacle Why nothing is asked for now.
 */
export function lensPart(seen, chosen, obstacle) {
  if (obstacle !== null) {
    return html`<p class="gs-empty">${obstacle}</p>`;
  }
  return unseen(seen) ?? table(/** @type {SeenLens} */ (seen), chosen);
}

/**
 * @param {SeenLens} seen
 * @param {number | null} chosen
 */
function table({ layers }, chosen) {
  const last = Math.max(...layers.map(({ layer }) => layer));
  return html`<div class="gs-scroll" tabindex="0" data-lm-suppress-shortcuts="true" role="group" aria-label="Logit lens">
    <table class="gs-lens">
      <thead>
        <tr><th scope="col">layer</th><th scope="col">would say</th><th scope="col" title="Of the token that was chosen in the end">chosen</th></tr>
      </thead>
      <tbody>
        ${[...layers].sort((a, b) => b.layer - a.layer).map((layer) => row(layer, last, chosen))}
      </tbody>
    </table>
  </div>`;
}

/**
 * @param {LensLayer} layer
 * @param {number} last
 * @param {number | null} chosen
 */
function row({ layer, id, text, logprob, chosen_logprob: own, chosen_rank: rank }, last, chosen) {
  const all = id.map((_, k) => `${looseBytes(text[k]) ?? literal(text[k])}  ${share(logprob[k])}`).join("\n");
  const hit = id[0] === chosen;
  const name = layer === 0 ? "0" : String(layer);
  const title =
    layer === 0 ? "The embeddings" : layer === last ? "The model's own distribution" : `After layer ${layer}`;
  const others = text.slice(1, 3).map((other) => looseBytes(other) ?? literal(other));
  return html`<tr data-chosen=${hit ? "true" : nothing} title=${all}>
    <th scope="row" title=${title}>${name}</th>
    <td class="gs-bar gs-raw" style="--p:${probability(logprob[0]).toFixed(4)}">
      <span><span class="gs-mark" aria-hidden="true">${hit ? "▸" : ""}</span><code>${looseBytes(text[0]) ?? literal(text[0] ?? "")}</code>${hit ? html`<span class="gs-sr">(chosen)</span>` : nothing}
      <small>${others.join(" ")}</small></span>
    </td>
    <td class="gs-bar gs-processed" style="--p:${probability(own).toFixed(4)}"><span>${share(own)} <small>#${whole(rank)}</small></span></td>
  </tr>`;
}

/** @param {number | null | undefined} logprob Null is a probability of exactly zero. */
const probability = (logprob) => (logprob === null || logprob === undefined ? 0 : Math.exp(logprob));

/** @param {number | null | undefined} logprob */
const share = (logprob) => (logprob === null ? "0" : percent(logprob));
