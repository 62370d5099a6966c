// The settings form, drawn from the schema that Python sent. One control: control.js. By name it knows two fields only.
import { html, nothing, render } from "lit-html";
import { live } from "lit-html/directives/live.js";
import { ref } from "lit-html/directives/ref.js";
import { sizeText } from "../format.js";
import { control } from "./control.js";
import { segmented } from "./segmented.js";

/** @typedef {import("../session.js").Session} Session */
/** @typedef {import("../schema.js").Field} Field */

/** Groups that are folded away; the first group, and any that is not listed, is always in sight. */
const FOLDED = ["length", "randomness", "cache", "execution", "observe"];
/** Names of groups that are not called as the schema calls them. @type {Record<string, string>} */
const TITLES = { cache: "Prefix cache" };
/** Settings whose cost is measured when someone looks. */
const MEASURED = ["attention", "logit_lens"];
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
  const { unavailable, prefix_cache: budget } = session.about;
  if (!strategy) {
    render(nothing, element);
    return;
  }
  // A field that does not count is out of sight; its value is kept.
  const fields = strategy.fields.filter(
    ({ when, group }) => (when === null || draft.values[when] === true) && (group !== "cache" || budget !== null),
  );
  const main = fields.filter(({ group }) => !FOLDED.includes(group));
  const names = new Set(["prompt", draft.form.tag, ...fields.map(({ name }) => name)]);
  // A problem with something that has no control here must not be lost.
  const { asked } = session.onward;
  // Where a branch was asked for they stand there.
  const homeless = asked === null ? session.state.problems.filter(({ field }) => !names.has(field)) : [];
  render(
    html`<div class="gs-strategy">
        ${strategies(session)}
        <p class="gs-description">${strategy.description}</p>
        ${unavailable[strategy.name] ? html`<p class="gs-warning">Not with this model: ${unavailable[strategy.name]}</p>` : nothing}
        ${[...homeless, session.problem(draft.form.tag)].map((problem) =>
          problem
            ? html`<p class="gs-problem" role="alert"><b>${problem.field}: ${problem.message}</b> ${problem.way_out}</p>`
            : nothing,
        )}
      </div>
      <div class="gs-fields">${main.map((field) => control(session, field, prefix))}</div>
      <div class="gs-folds">${FOLDED.map((group) =>
        group === "cache" && budget === null
          ? html`<p class="gs-without">no prefix cache</p>`
          : fold(session, group, fields, prefix),
      )}</div>`,
    element,
  );
}

/** @param {Session} session */
function strategies(session) {
  const { form, strategy, values } = session.draft;
  const { unavailable } = session.about;
  const options = form.strategies.map(({ name, title, description }) => ({
    value: name,
    label: title,
    title: unavailable[name] ?? description,
    disabled: name in unavailable,
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
    ${options.map(
      ({ value, label, disabled }) => html`<option value=${value} ?disabled=${disabled && value !== strategy.name}
        ?selected=${value === strategy.name} .selected=${live(value === strategy.name)}>${label}${disabled ? ` – ${unavailable[value]}` : ""}</option>`,
    )}
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
  const observes = group === "observe";
  const notes = group === "cache" ? `up to ${sizeText(session.about.prefix_cache)}` : "";
  return html`<details data-group=${group} ${ref((details) => reveal(details, wrong))} @toggle=${observes ? () => session.refresh() : nothing}
    ${observes ? ref((details) => askCosts(details, session)) : nothing}>
    <summary data-lm-suppress-shortcuts="true">
      <span>${TITLES[group] ?? group}</span>
      <small>${[notes, summary(session, changed)].filter(Boolean).join(", ")}</small>
    </summary>
    ${notes === "" ? nothing : html`<p class="gs-cost">${notes}</p>`}
    <div class="gs-fields">${mine.map((field) => control(session, field, prefix, observes ? costOf(session, field) : null))}${
      group === "execution" ? twinButton(session, changed.length > 0) : nothing
    }</div>
  </details>`;
}

/**
 * Beside the execution: the request in it and without it.
 * @param {Session} session
 * @param {boolean} chosen Whether it is another one than the default, which the other is compared with.
 */
function twinButton(session, chosen) {
  const busy = session.living ? "A run is going" : null;
  const obstacle = session.obstacle ?? busy ?? (chosen ? null : "Choose an execution to compare the default with");
  return html`<div class="gs-field gs-compare"><button type="button" data-lm-suppress-shortcuts="true" data-command="twin"
    ?disabled=${obstacle !== null} title=${obstacle ?? "Run this request twice, without and with the execution, and compare the two"}
    @click=${() => session.twins.make()}><i class="gs-glyph gs-two"></i>Twin</button>
    <p class="gs-aside">The same request both ways, side by side: tokens, logits, time.</p></div>`;
}

/**
 * @param {Element | undefined} details
 * @param {Session} session
 */
function askCosts(details, session) {
  if (details instanceof HTMLDetailsElement && details.open) {
    session.askCosts();
  }
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
 * @param {Session} session
 * @param {Field} field
 * @returns {string | null} What the setting costs, as measured.
 */
function costOf({ about, load }, { name }) {
  if (about.costs !== null) {
    return about.costs[name] ?? null;
  }
  return MEASURED.includes(name) && load.phase === "ready" ? "measuring what this costs…" : null;
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
