// The settings form, drawn from the schema that Python sent. One control: control.js. No field is known by name here.
import { html, nothing, render } from "lit-html";
import { ref } from "lit-html/directives/ref.js";
import { control } from "./control.js";
import { segmented } from "./segmented.js";

/** @typedef {import("../session.js").Session} Session */
/** @typedef {import("../schema.js").Field} Field */

/** Groups that are folded away; the first group, and any that is not listed, is always in sight. */
const FOLDED = ["length", "randomness", "observe"];
/** More strategies than this do not fit side by side. */
const SEGMENTS_MAX = 6;

/**
 * @param {HTMLElement} element
 * @param {Session} session
 * @param {string} prefix Of the ids in this view.
 */
export function drawForm(element, session, prefix) {
  const { draft } = session;
  const { strategy } = draft;
  if (!strategy) {
    render(nothing, element);
    return;
  }
  const main = strategy.fields.filter(({ group }) => !FOLDED.includes(group));
  const names = new Set(["prompt", draft.form.tag, ...strategy.fields.map(({ name }) => name)]);
  // A problem with something that has no control here must not be lost.
  const homeless = session.state.problems.filter(({ field }) => !names.has(field));
  render(
    html`<div class="gs-strategy">
        ${strategies(session)}
        <p class="gs-description">${strategy.description}</p>
        ${[...homeless, session.problem(draft.form.tag)].map((problem) =>
          problem
            ? html`<p class="gs-problem" role="alert"><b>${problem.field}: ${problem.message}</b> ${problem.way_out}</p>`
            : nothing,
        )}
      </div>
      <div class="gs-fields">${main.map((field) => control(session, field, prefix))}</div>
      <div class="gs-folds">${FOLDED.map((group) => fold(session, group, strategy.fields, prefix))}</div>`,
    element,
  );
}

/** @param {Session} session */
function strategies(session) {
  const { form, strategy, values } = session.draft;
  const options = form.strategies.map(({ name, title, description }) => ({
    value: name,
    label: title,
    title: description,
  }));
  const choose = (/** @type {string} */ name) => {
    session.draft.choose(name);
    session.refresh();
  };
  if (options.length <= SEGMENTS_MAX) {
    return segmented("Strategy", options, values[form.tag] ?? strategy.name, choose);
  }
  return html`<select data-lm-suppress-shortcuts="true" aria-label="Strategy"
    @change=${(/** @type {Event} */ event) => choose(/** @type {HTMLSelectElement} */ (event.target).value)}>
    ${options.map(({ value, label }) => html`<option value=${value} ?selected=${value === strategy.name}>${label}</option>`)}
  </select>`;
}

/**
 * @param {Session} session
 * @param {string} group
 * @param {Field[]} fields
 * @param {string} prefix
 */
function fold(session, group, fields, prefix) {
  const mine = fields.filter((field) => field.group === group);
  if (mine.length === 0) {
    return nothing;
  }
  const wrong = mine.map(({ name }) => name).filter((name) => session.problem(name));
  const changed = mine.filter(({ name, default: fallback }) => !same(session.draft.values[name], fallback));
  return html`<details data-group=${group} ${ref((details) => reveal(details, wrong))}>
    <summary data-lm-suppress-shortcuts="true">
      <span>${group}</span>
      <small>${summary(session, changed)}</small>
    </summary>
    <div class="gs-fields">${mine.map((field) => control(session, field, prefix))}</div>
  </details>`;
}

/**
 * A new problem opens its group. Nothing closes it but the person: she may be typing there when the problem is gone.
 * @param {Element | undefined} details
 * @param {string[]} wrong
 */
function reveal(details, wrong) {
  if (details instanceof HTMLDetailsElement) {
    const before = (details.dataset.wrong ?? "").split(" ");
    if (wrong.some((name) => !before.includes(name))) {
      details.open = true;
    }
    details.dataset.wrong = wrong.join(" ");
  }
}

/**
 * Lead a person to a field: its group is open, and the keyboard is there.
 * @param {HTMLElement} form
 * @param {string} name
 */
export function showField(form, name) {
  const field = form.querySelector(`[data-field=${name}]`);
  const group = field?.closest("details");
  if (group) {
    group.open = true;
  }
  const box = field?.querySelector("input, select");
  if (box instanceof HTMLElement) {
    box.focus();
    field?.scrollIntoView?.({ block: "center" });
  }
}

/**
 * What differs from the defaults, so that a folded group hides nothing that matters.
 * @param {Session} session
 * @param {Field[]} changed
 */
function summary(session, changed) {
  return changed
    .map(({ name, title }) => {
      const value = session.draft.values[name];
      return `${title.toLowerCase()}: ${typeof value === "string" ? value : JSON.stringify(value)}`;
    })
    .join(", ");
}

/**
 * @param {unknown} one
 * @param {unknown} other
 */
export function same(one, other) {
  return JSON.stringify(one) === JSON.stringify(other);
}
