// Below the status: what the prefix cache gave, and how to go on behind the end of the run, or with the next turn of its
// conversation. Its place is kept while the run lives. Draws only; commands: ../onward.js.
import { html, nothing, render } from "lit-html";
import { live } from "lit-html/directives/live.js";
import { kindOf } from "../prompts.js";
import { reuseText } from "./reuse.js";

/** @typedef {import("../session.js").Session} Session */

/**
 * @param {HTMLElement} element
 * @param {Session} session
 * @param {{ lane: number, label: string }} chosen Which sequence goes on, and its name where there are several.
 */
export function drawOnward(element, session, { lane, label }) {
  const { state } = session;
  element.hidden = state.run === null;
  if (state.run === null) {
    render(nothing, element);
    return;
  }
  const n = state.tracks[lane]?.n ?? 0;
  const obstacle = obstacleTo(session);
  const behind = label === "" ? "" : ` of ${label}`;
  render(
    html`${reuseText(state)}
      <button type="button" class="gs-keep" data-lm-suppress-shortcuts="true" data-command="keep"
        ?disabled=${obstacle !== null || n === 0}
        title=${obstacle ?? `Another run goes on behind the last token${behind}, with the settings of the form`}
        @click=${() => session.onward.branch(lane, n, {}, "keep")}>Keep going${label === "" ? nothing : html` <small>${label}</small>`}</button>
      ${problems(session, "keep")}
      ${kindOf(session.prompt) === "chat" && session.about.chat && !state.environment ? replyBox(session, lane, behind) : nothing}`,
    element,
  );
}

/** @param {Session} session */
const obstacleTo = (session) => session.obstacle ?? (session.living ? "The run is still going" : null);

/**
 * @param {Session} session
 * @param {import("../onward.js").Asked} what
 */
export function problems(session, what) {
  const fields = session.draft.strategy?.fields ?? [];
  return session.onward.problems(what).map(({ field, message, way_out }) => {
    // Of a setting, which is told beside its control as well.
    const title = fields.find(({ name }) => name === field)?.title;
    return html`<p class="gs-problem" role="alert"><b>${title === undefined ? "" : `${title}: `}${message}</b> ${way_out}</p>`;
  });
}

/**
 * @param {Session} session
 * @param {number} lane
 * @param {string} behind
 */
function replyBox(session, lane, behind) {
  const { onward } = session;
  const obstacle = obstacleTo(session);
  const say = () => {
    if (obstacle === null) {
      onward.reply(lane);
    }
  };
  /** @param {KeyboardEvent} event */
  const key = (event) => {
    // Enter also ends the writing of a word in some scripts.
    if (event.key === "Enter" && !event.shiftKey && !event.ctrlKey && !event.metaKey && !event.isComposing) {
      event.preventDefault();
      say();
    }
  };
  return html`<div class="gs-reply">
    <div class="gs-area" data-value=${`${onward.replyText}\u200b`}>
      <textarea rows="1" dir="auto" spellcheck="false" data-lm-suppress-shortcuts="true" aria-label=${`Reply to the conversation${behind}`}
        placeholder=${`Reply${behind}: the next turn of the user`} .value=${live(onward.replyText)} @keydown=${key}
        @input=${(/** @type {InputEvent} */ event) => onward.type("replyText", /** @type {HTMLTextAreaElement} */ (event.target).value)}></textarea>
    </div>
    <button type="button" class="gs-primary" data-lm-suppress-shortcuts="true" data-command="reply"
      ?disabled=${obstacle !== null || onward.replyText === ""} title=${obstacle ?? "Say this as the next turn; Shift and Enter for a new line"}
      @click=${say}>Reply <kbd>⏎</kbd></button>
    ${problems(session, "reply")}
  </div>`;
}
