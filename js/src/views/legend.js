// What the colours and lines mean: a swatch a bucket with numbers at the boundaries, or one with a word a category, how
// many tokens are in each, and which one the inspected token is in. Draws only.
import { html, nothing, render } from "lit-html";
import { whole } from "../format.js";
import { BUCKETS, bucketClass } from "../measures.js";

/** @typedef {import("../measures.js").Measure} Measure */
/** @typedef {import("../measures.js").Scale} Scale */

const ALL = Array.from({ length: BUCKETS }, (_, bucket) => bucket);

/**
 * What is marked in the text besides the colours.
 * @typedef {object} Shown
 * @property {boolean} drafted Drafts.
 * @property {boolean} reused What the prefix cache gave, and what was computed.
 */

/**
 * @param {HTMLElement} element
 * @param {Measure} measure
 * @param {Scale} scale
 * @param {Uint32Array} tally Tokens in each bucket, then the unknown.
 * @param {number | null} marked Bucket of the inspected token.
 * @param {Shown} shown
 */
export function drawLegend(element, measure, scale, tally, marked, shown) {
  element.dataset.scale = scale.key;
  render(
    html`${measure.categories ? categories(measure.categories, scale, tally, marked) : buckets(measure, scale, tally, marked)}
      <div class="gs-keys">
        ${measure.categories ? nothing : html`<span><i class="gs-key ${bucketClass(scale, null)}"></i>unknown</span>`}
        ${shown.reused ? reusedKeys() : html`<span><i class="gs-key gs-key-prompt"></i>prompt</span>`}
        <span><i class="gs-key gs-key-special"></i>special</span>
        ${shown.drafted ? draftKeys() : nothing}
      </div>`,
    element,
  );
}

/**
 * @param {Measure} measure
 * @param {Scale} scale
 * @param {Uint32Array} tally
 * @param {number | null} marked
 */
function buckets(measure, scale, tally, marked) {
  const most = Math.max(1, ...tally.slice(0, BUCKETS));
  return html`<div class="gs-scale" role="img" aria-label=${`${measure.title}, from ${measure.ends[0]} to ${measure.ends[1]}`}>
    <div class="gs-histogram">
      ${ALL.map((bucket) => {
        // A square root, so that the few surprising tokens stay visible beside the many expected ones.
        const height = Math.sqrt(tally[bucket] / most);
        return html`<i style="--h:${height.toFixed(3)}" title=${`${tally[bucket]} generated tokens`}></i>`;
      })}
    </div>
    <div class="gs-swatches">
      ${ALL.map((bucket) => html`<i class=${bucketClass(scale, bucket)} data-marked=${bucket === marked ? "true" : nothing}></i>`)}
    </div>
    <div class="gs-ticks">
      <span style="--at:0">${measure.ends[0]}</span>
      ${Object.entries(measure.ticks).map(
        ([bucket, label]) => html`<span style="--at:${(Number(bucket) + 1) / BUCKETS}">${label}</span>`,
      )}
      <span style="--at:1">${measure.ends[1]}</span>
    </div>
  </div>`;
}

/**
 * A swatch with a word for each category, and for given tokens of which it is not known.
 * @param {readonly string[]} names
 * @param {Scale} scale
 * @param {Uint32Array} tally
 * @param {number | null} marked
 */
function categories(names, scale, tally, marked) {
  const known = names.map((name, bucket) => ({ name, bucket, count: tally[bucket] })).reverse();
  return html`<ul class="gs-categories">
    ${[...known, { name: "unknown", bucket: null, count: tally[BUCKETS] }].map(
      ({
        name,
        bucket,
        count,
      }) => html`<li data-marked=${bucket !== null && bucket === marked ? "true" : nothing} title=${`${count} given tokens`}>
        <i class=${bucketClass(scale, bucket)}></i>${name} <b>${whole(count)}</b></li>`,
    )}
    <li class="gs-neither">generated tokens have neither</li>
  </ul>`;
}

function reusedKeys() {
  return html`<span title="Keys and values of these came from the prefix cache"><i class="gs-key gs-key-hit"></i>prompt, reused</span>
    <span><i class="gs-key gs-key-computed"></i>computed</span>`;
}

function draftKeys() {
  return html`<span><i class="gs-key gs-key-accepted"></i>accepted draft</span>
    <span><i class="gs-key-rejected">abc</i>rejected</span>`;
}
