// What the colours mean: a swatch a bucket with numbers at the boundaries, how many tokens are in each, and which one
// the inspected token is in. Draws only.
import { html, nothing, render } from "lit-html";
import { BUCKETS, bucketClass } from "../measures.js";

/** @typedef {import("../measures.js").Measure} Measure */
/** @typedef {import("../measures.js").Scale} Scale */

const ALL = Array.from({ length: BUCKETS }, (_, bucket) => bucket);

/**
 * @param {HTMLElement} element
 * @param {Measure} measure
 * @param {Scale} scale
 * @param {Uint32Array} tally Generated tokens in each bucket, then the unknown.
 * @param {number | null} marked Bucket of the inspected token.
 * @param {boolean} drafted Whether drafts are shown in the text.
 * @param {boolean} drafted Whether drafts are shown in the text.
 */
export function drawLegend(element, measure, scale, tally, marked, drafted) {
  const most = Math.max(1, ...tally.slice(0, BUCKETS));
  element.dataset.scale = scale.key;
  render(
    html`<div class="gs-scale" role="img" aria-label=${`${measure.title}, from ${measure.ends[0]} to ${measure.ends[1]}`}>
        <div class="gs-histogram">
          ${ALL.map((bucket) => {
            // A square root, so that the few surprising tokens stay visible beside the many expected ones.
            const height = Math.sqrt(tally[bucket] / most);
            return html`<i style="--h:${height.toFixed(3)}" title=${`${tally[bucket]} generated tokens`}></i>`;
          })}
        </div>
        <div class="gs-swatches">
          ${ALL.map(
            (bucket) =>
              html`<i class=${bucketClass(scale, bucket)} data-marked=${bucket === marked ? "true" : nothing}></i>`,
          )}
        </div>
        <div class="gs-ticks">
          <span style="--at:0">${measure.ends[0]}</span>
          ${Object.entries(measure.ticks).map(
            ([bucket, label]) => html`<span style="--at:${(Number(bucket) + 1) / BUCKETS}">${label}</span>`,
          )}
          <span style="--at:1">${measure.ends[1]}</span>
        </div>
      </div>
      <div class="gs-keys">
        <span><i class="gs-key ${bucketClass(scale, null)}"></i>unknown</span>
        <span><i class="gs-key gs-key-prompt"></i>prompt</span>
        <span><i class="gs-key gs-key-special"></i>special</span>
        ${
          drafted
            ? html`<span><i class="gs-key gs-key-accepted"></i>accepted draft</span>
              <span><i class="gs-key-rejected">abc</i>rejected</span>`
            : nothing
        }
      </div>`,
    element,
  );
}
