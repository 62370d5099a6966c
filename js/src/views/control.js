// One control of the settings form with its label, help and problem. The kind of control comes from the field.
import { html, nothing } from "lit-html";
import { live } from "lit-html/directives/live.js";
import { ref } from "lit-html/directives/ref.js";
import { readNumber, sliderRange } from "../schema.js";
import { same } from "./form.js";
import { texts } from "./texts.js";

/** @typedef {import("../session.js").Session} Session */
/** @typedef {import("../schema.js").Field} Field */

/**
 * What the parts of a control need.
 * @typedef {object} Parts
 * @property {Field} field
 * @property {any} value
 * @property {string} id
 * @property {boolean} invalid
 * @property {string | typeof nothing} describedBy
 * @property {(value: unknown) => void} set
 * @property {(value: unknown) => void} begin As set, but too early to be sent.
 * @property {() => any} now The value, which may be newer than what is drawn.
 */

/**
 * @param {Session} session
 * @param {Field} field
 * @param {string} prefix
 * @param {string | null} [cost] What the setting costs.
 */
export function control(session, field, prefix, cost = null) {
  const id = `${prefix}-${field.name}`;
  const value = session.draft.values[field.name];
  const problem = session.problem(field.name);
  const set = (/** @type {unknown} */ next) => {
    session.draft.edit(field.name, next);
    session.refresh();
  };
  const begin = (/** @type {unknown} */ next) => {
    session.draft.begin(field.name, next);
    session.refresh();
  };
  const told = field.choices[String(value)];
  const now = () => session.draft.values[field.name];
  /** @type {Parts} */
  const parts = {
    field,
    value,
    id,
    set,
    begin,
    now,
    invalid: !!problem,
    describedBy: [problem ? `${id}-problem` : `${id}-help`, told === undefined ? "" : `${id}-choice`].join(" ").trim(),
  };
  const changed = !same(value, field.default);
  return html`<div class="gs-field" data-field=${field.name} data-kind=${field.kind} data-changed=${changed ? "true" : nothing}>
    <div class="gs-label">
      <label for=${id} title=${field.description}>${field.title}</label>
      ${
        changed
          ? html`<button type="button" class="gs-icon" data-lm-suppress-shortcuts="true" @click=${() => set(field.default)}
            title=${`Back to ${JSON.stringify(field.default)}`} aria-label=${`${field.title}: back to the default`}>↺</button>`
          : nothing
      }
    </div>
    ${input(parts)}
    ${cost === null ? nothing : html`<p class="gs-cost">${cost}</p>`}
    ${told === undefined ? nothing : html`<p class="gs-choice" id="${id}-choice">${told}</p>`}
    <span class="gs-sr" id="${id}-help">${field.description}</span>
    ${problem ? html`<p class="gs-problem" id="${id}-problem"><b>${problem.message}.</b> ${problem.way_out || field.wayOut}</p>` : nothing}
  </div>`;
}

/** @param {Parts} parts */
function input(parts) {
  switch (parts.field.kind) {
    case "slider":
      return html`<div class="gs-slider">${slider(parts)}${numberBox(parts)}</div>`;
    case "number":
      return numberBox(parts);
    case "boolean":
      return html`<input type="checkbox" role="switch" class="gs-switch" id=${parts.id} data-lm-suppress-shortcuts="true"
        aria-invalid=${parts.invalid} aria-describedby=${parts.describedBy} .checked=${live(parts.value === true)}
        @change=${(/** @type {Event} */ event) => parts.set(target(event).checked)} />`;
    case "choice":
      return html`<select id=${parts.id} data-lm-suppress-shortcuts="true" aria-invalid=${parts.invalid}
        aria-describedby=${parts.describedBy} @change=${(/** @type {Event} */ event) => parts.set(target(event).value)}>
        ${parts.field.options.map((option) => html`<option value=${option} title=${parts.field.choices[option] ?? nothing} ?selected=${option === parts.value}>${option}</option>`)}
      </select>`;
    case "choices":
      return choices(parts);
    case "texts":
      return texts(parts);
    default:
      return html`<input type="text" id=${parts.id} data-lm-suppress-shortcuts="true" aria-invalid=${parts.invalid}
        aria-describedby=${parts.describedBy} .value=${live(String(parts.value ?? ""))}
        @input=${(/** @type {Event} */ event) => parts.set(target(event).value)} />`;
  }
}

/** @param {Event} event */
const target = (event) => /** @type {HTMLInputElement} */ (event.target);

/** @param {Parts} parts */
function slider({ field, value, set, invalid }) {
  const { min, max, step } = sliderRange(field, value);
  const share = typeof value === "number" && max > min ? (value - min) / (max - min) : 0;
  return html`<input type="range" data-lm-suppress-shortcuts="true" aria-label=${field.title} aria-invalid=${invalid}
    min=${min} max=${max} step=${step} style="--share:${Math.min(1, Math.max(0, share)).toFixed(4)}"
    .value=${live(String(typeof value === "number" ? value : min))}
    @input=${(/** @type {Event} */ event) => set(Number(target(event).value))} />`;
}

/**
 * A text box, so that whatever was typed reaches Python, which says what is wrong with it.
 * @param {Parts} parts
 */
function numberBox({ field, value, id, set, invalid, describedBy }) {
  const step = field.step ?? 1;
  /** @param {KeyboardEvent} event */
  const nudge = (event) => {
    const direction = { ArrowUp: 1, ArrowDown: -1 }[event.key];
    if (direction !== undefined && typeof value === "number") {
      event.preventDefault();
      const lowest = field.min === null ? -Infinity : field.minExcluded ? field.min + step : field.min;
      const next = Math.min(field.max ?? Infinity, Math.max(lowest, value + direction * step));
      // 0.1 + 0.2: as many digits as the step has.
      set(Number(next.toFixed(10)));
    }
  };
  return html`<input type="text" class="gs-number" inputmode=${field.integer ? "numeric" : "decimal"} id=${id}
    autocomplete="off" data-lm-suppress-shortcuts="true" aria-invalid=${invalid} aria-describedby=${describedBy}
    placeholder=${field.nullable ? "any" : ""} @keydown=${nudge} ${ref((box) => show(box, field, value))}
    @input=${(/** @type {Event} */ event) => set(readNumber(field, target(event).value))} />`;
}

/**
 * The box's text changes only when it means another value: "0." must not become "0" while it is typed.
 * @param {Element | undefined} box
 * @param {Field} field
 * @param {unknown} value
 */
function show(box, field, value) {
  if (box instanceof HTMLInputElement && !same(readNumber(field, box.value), value ?? (field.nullable ? null : ""))) {
    box.value = value === null || value === undefined ? "" : String(value);
  }
}

/** @param {Parts} parts */
function choices({ field, value, id, set, invalid, describedBy }) {
  const chosen = Array.isArray(value) ? value : [];
  return html`<div class="gs-choices" id=${id} role="group" aria-label=${field.title} aria-describedby=${describedBy}>
    ${field.options.map(
      (option) => html`<label><input type="checkbox" data-lm-suppress-shortcuts="true" aria-invalid=${invalid}
        .checked=${live(chosen.includes(option))}
        @change=${(/** @type {Event} */ event) => set(field.options.filter((other) => (other === option ? target(event).checked : chosen.includes(other))))} />
        ${option}</label>`,
    )}
  </div>`;
}
