// A comparison above its lanes: the prompt that they share, and a table of numbers, a row a lane. And, below the
// settings, the panel that asks for one. Draws only; what is compared: ../comparing.js.
import { html, nothing, render } from "lit-html";
import { guard } from "lit-html/directives/guard.js";
import { numbersOf } from "../comparing.js";
import { duration, oneLine, perSecond, UNKNOWN, whole } from "../format.js";

/** @typedef {import("../session.js").Session} Session */
/** @typedef {import("../comparing.js").Comparing} Comparing */
/** @typedef {import("../comparing.js").Numbers} Numbers */

/** Seeds that can be asked for here; more from Python. */
const MOST_SEEDS = 8;
const MOST_LANES = 64;

/** @type {{ name: keyof Numbers, title: string, explains: string, text: (value: number) => string }[]} */
const COLUMNS = [
  { name: "tokens", title: "tokens", explains: "Generated tokens", text: whole },
  {
    name: "logprob",
    title: "log-prob.",
    explains: "Sum of the natural-log probabilities of the generated tokens, in the model's own distribution",
    text: (value) => value.toFixed(1),
  },
  {
    name: "perplexity",
    title: "perplexity",
    explains: "exp of the mean surprisal of the generated tokens, in the model's own distribution",
    text: (value) => value.toPrecision(3),
  },
  { name: "entropy", title: "entropy", explains: "Mean entropy, in bits", text: (value) => value.toFixed(2) },
  {
    name: "distinct1",
    title: "distinct-1",
    explains: "Different tokens, as a share of all (arXiv:1510.03055)",
    text: (value) => value.toFixed(2),
  },
  {
    name: "distinct2",
    title: "distinct-2",
    explains: "Different pairs of neighbouring tokens, as a share of all (arXiv:1510.03055)",
    text: (value) => value.toFixed(2),
  },
  { name: "first", title: "first token", explains: "Time to the first token", text: duration },
  {
    name: "rate",
    title: "tokens/s",
    explains: "After the first token; lanes of one batch share their forward passes",
    text: (value) => perSecond(value),
  },
];

/**
 * @param {HTMLElement} element
 * @param {Session} session
 */
export function drawComparison(element, session) {
  const { state, comparing } = session;
  const { compared, tracks, lanes, status } = state;
  element.hidden = compared === null;
  if (compared === null) {
    render(nothing, element);
    return;
  }
  const agreements = comparing.agreements(state);
  const lengths = tracks.map(({ n }) => n).join(" ");
  // A frame a token: they are made when there is something new.
  const drawn = () => html`<div class="gs-compare-head">
      <h3>Comparison <span>${whole(lanes.length)} lanes${sharedText(compared)}</span></h3>
      <p class="gs-verdict">${partingText(agreements)}</p>
    </div>
    ${sharedPrompt(session)}
    <div class="gs-compare-table"><table>
      <thead><tr><th scope="col">lane</th><th scope="col" title="Generated tokens from the first on that are those of the first lane">as the first</th>
        ${COLUMNS.map(({ title, explains }) => html`<th scope="col" title=${explains}>${title}</th>`)}<td></td></tr></thead>
      <tbody>${lanes.map((lane, i) => row(session, agreements[i], i, numbersOf(tracks[i], lane.prompt_tokens)))}</tbody>
    </table></div>`;
  render(guard([state.run, lengths, state.whys, status?.state], drawn), element);
}

/** @param {readonly import("../wire.js").WireCompared[]} compared */
function sharedText(compared) {
  const batches = new Set(compared.map(({ batch }) => batch)).size;
  return batches === 1 && compared.length > 1
    ? ", rows of one batch"
    : batches > 1
      ? ` in ${whole(batches)} runs, one after the other`
      : "";
}

/** @param {readonly import("../comparing.js").Agreement[]} agreements */
function partingText(agreements) {
  const parted = agreements.filter(({ parted }) => parted);
  if (agreements.length < 2 || parted.length === 0) {
    return agreements.length > 1 ? "all lanes agree so far" : "";
  }
  const same = Math.min(...parted.map(({ same }) => same));
  return `first difference at generated token ${whole(same)}`;
}

/** The prompt, once for all lanes. @param {Session} session */
function sharedPrompt({ state }) {
  const [lane] = state.lanes;
  const [record] = state.tracks;
  const n = Math.min(record.n, lane.prompt_tokens);
  return html`<div class="gs-shared-prompt" tabindex="0" role="group" aria-label="The prompt that all lanes share" dir="auto">${Array.from(
    { length: n },
    (_, i) => html`<span data-cached=${record.columns.cached[i] === 1 ? "hit" : nothing}>${record.text(i)}</span>`,
  )}</div>`;
}

/**
 * @param {Session} session
 * @param {import("../comparing.js").Agreement} agreement
 * @param {number} lane
 * @param {Numbers} numbers
 */
function row(session, agreement, lane, numbers) {
  const { state, comparing } = session;
  const { label } = state.lanes[lane];
  const why = state.whys[lane];
  return html`<tr data-lane=${lane}>
    <th scope="row" title=${oneLine(label)}>${label}</th>
    <td>${lane === 0 ? UNKNOWN : agreement.parted ? whole(agreement.same) : numbers.tokens === 0 ? UNKNOWN : "all"}</td>
    ${COLUMNS.map(({ name, text }) => {
      const value = numbers[name];
      return html`<td data-unknown=${value === null ? "true" : nothing}>${value === null ? UNKNOWN : text(value)}</td>`;
    })}
    <td>${
      session.living && !why
        ? html`<button type="button" class="gs-link" data-lm-suppress-shortcuts="true" aria-label=${`Stop ${label}`}
          @click=${() => comparing.stopLane(lane)}>stop</button>`
        : (why ?? nothing)
    }</td>
  </tr>`;
}

/**
 * The panel that asks for a comparison.
 * @param {HTMLElement} element
 * @param {Session} session
 * @param {string} prefix Of ids.
 */
export function drawCompareForm(element, session, prefix) {
  const { comparing } = session;
  const lanes = comparing.changes.length * comparing.seeds;
  const why = session.obstacle ?? (lanes > MOST_LANES ? `At most ${MOST_LANES} lanes` : null);
  render(
    html`<button type="button" class="gs-disclose" data-lm-suppress-shortcuts="true" aria-expanded=${comparing.open}
        aria-controls="${prefix}-compare" @click=${() => comparing.toggle()}>Compare</button>
      <div id="${prefix}-compare" class="gs-compare-form" ?hidden=${!comparing.open}>${
        comparing.open
          ? html`${comparing.axes.map((axis, at) => axisRow(comparing, axis, at, prefix))}
            <div class="gs-compare-row">
              <button type="button" class="gs-link" data-lm-suppress-shortcuts="true" ?disabled=${comparing.axes.length >= 3 || comparing.fields.length <= comparing.axes.length}
                @click=${() => comparing.add()}>vary one more</button>
              <label>seeds <input type="number" min="1" max=${MOST_SEEDS} .value=${String(comparing.seeds)} data-lm-suppress-shortcuts="true"
                @change=${(/** @type {Event} */ event) => comparing.setSeeds(seedsOf(event))}></label>
              <button type="button" class="gs-button" data-command="compare" data-lm-suppress-shortcuts="true" ?disabled=${why !== null}
                title=${why ?? "Start them side by side"} @click=${() => comparing.start()}>Compare ${whole(lanes)} ${lanes === 1 ? "lane" : "lanes"}</button>
            </div>
            <p class="gs-note">Each value with each other one and each seed. Lanes that differ only in how a token is chosen run as rows of one
              batch; others take turns.</p>`
          : nothing
      }</div>`,
    element,
  );
}

/**
 * @param {Comparing} comparing
 * @param {import("../comparing.js").Axis} axis
 * @param {number} at
 * @param {string} prefix
 */
function axisRow(comparing, { name, values }, at, prefix) {
  const taken = new Set(comparing.axes.map((axis) => axis.name));
  return html`<div class="gs-compare-row">
    <label>vary <select data-lm-suppress-shortcuts="true" .value=${name}
      @change=${(/** @type {Event} */ event) => comparing.edit(at, { name: /** @type {HTMLSelectElement} */ (event.target).value })}>
      ${comparing.fields.map((field) => html`<option value=${field.name} ?selected=${field.name === name} ?disabled=${field.name !== name && taken.has(field.name)}>${field.title}</option>`)}
    </select></label>
    <label for="${prefix}-axis-${at}">over</label>
    <input id="${prefix}-axis-${at}" class="gs-values" type="text" spellcheck="false" .value=${values} placeholder="values, between commas" data-lm-suppress-shortcuts="true"
      @change=${(/** @type {Event} */ event) => comparing.edit(at, { values: /** @type {HTMLInputElement} */ (event.target).value })}>
    <button type="button" class="gs-icon" data-lm-suppress-shortcuts="true" aria-label="Vary this no more" @click=${() => comparing.remove(at)}>×</button>
  </div>`;
}

/** @param {Event} event */
function seedsOf(event) {
  const value = Number(/** @type {HTMLInputElement} */ (event.target).value);
  return Number.isInteger(value) ? Math.min(MOST_SEEDS, Math.max(1, value)) : 1;
}
