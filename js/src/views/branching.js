// Going on from the inspected token with something else in its place: with a candidate, with any text, with whatever the
// model chooses this time, or behind it. Draws only; commands: ../onward.js.
import { html, nothing } from "lit-html";
import { live } from "lit-html/directives/live.js";
import { literal } from "../format.js";
import { isChosen } from "./looking.js";
import { problems } from "./onward.js";

/** @typedef {import("../session.js").Session} Session */
/** @typedef {import("./lanes.js").Pick} Pick */

/**
 * @typedef {object} Branching
 * @property {string | null} obstacle Why nothing can be started now.
 * @property {(position: number, given?: import("../onward.js").Given) => void} go
 * @property {string} text Other text, as typed so far.
 * @property {(text: string) => void} type
 * @property {unknown} problems What was wrong with the last attempt, drawn.
 */

/**
 * @param {Session} session
 * @param {Pick} pick
 * @returns {Branching | null} Null where nothing branches off: what an encoder read is no sequence of its own.
 */
export function branchingAt(session, pick) {
  const { onward, state } = session;
  if (state.lanes[pick.track] === undefined) {
    return null;
  }
  return {
    obstacle: session.obstacle ?? (isChosen(session, pick) ? null : "Pin a token first"),
    go: (position, given) => onward.branch(pick.track, position, given),
    text: onward.branchText,
    type: (text) => onward.type("branchText", text),
    problems: problems(session, "branch"),
  };
}

/**
 * @param {number} index Of the token.
 * @param {Branching} branching
 */
export function branchingGroup(index, { obstacle, go, text, type, problems }) {
  const disabled = obstacle !== null;
  /** @param {string} given */
  const say = (given) => {
    if (!disabled && given !== "") {
      go(index, { text: given });
    }
  };
  /** @param {KeyboardEvent} event */
  const key = (event) => {
    if (event.key === "Enter" && !event.ctrlKey && !event.metaKey && !event.isComposing) {
      event.preventDefault();
      // What stands there now: it may not be drawn yet.
      say(/** @type {HTMLInputElement} */ (event.currentTarget).value);
    }
  };
  return html`<div class="gs-branching" role="group" aria-label="Continue from here">
    <h4>Continue from here <span>${hint(obstacle, text)}</span></h4>
    <div class="gs-other">
      <input type="text" data-lm-suppress-shortcuts="true" autocomplete="off" spellcheck="false" ?disabled=${disabled}
        aria-label="Other text for this place, taken as typed" placeholder="other text…" title=${obstacle ?? ""}
        .value=${live(text)} @keydown=${key}
        @input=${(/** @type {InputEvent} */ event) => type(/** @type {HTMLInputElement} */ (event.target).value)} />
      <button type="button" data-lm-suppress-shortcuts="true" data-command="branch-text" ?disabled=${disabled || text === ""}
        title=${obstacle ?? "Another run has this text here, and goes on behind it"} @click=${() => say(text)}>Continue</button>
    </div>
    <div class="gs-others">
      <button type="button" data-lm-suppress-shortcuts="true" data-command="branch-again" ?disabled=${disabled}
        title=${obstacle ?? "Another run has the model choose this token again, with the settings of the form"}
        @click=${() => go(index)}>choose again</button>
      <button type="button" data-lm-suppress-shortcuts="true" data-command="branch-behind" ?disabled=${disabled}
        title=${obstacle ?? "Another run keeps this token, and has the model choose the next one"}
        @click=${() => go(index + 1)}>go on behind it</button>
    </div>
    ${problems ?? nothing}
  </div>`;
}

/**
 * A space before a word makes it another token: what will be taken is written out.
 * @param {string | null} obstacle
 * @param {string} text
 */
function hint(obstacle, text) {
  if (obstacle !== null) {
    return obstacle;
  }
  return text === "" ? "as typed: a space counts" : html`as typed: <code>${literal(text)}</code>`;
}
