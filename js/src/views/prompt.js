// The prompt, as text, as chat or as several of them, and the commands below it. Draws the session's prompt; validating it is Python's part.
import { html, nothing, render } from "lit-html";
import { live } from "lit-html/directives/live.js";
import { isBatch, kindOf } from "../prompts.js";
import { focusNewest } from "./focus.js";
import { segmented } from "./segmented.js";

/** @typedef {import("../session.js").Session} Session */
/** @typedef {import("../wire.js").WireChatMessage} ChatMessage */
/** @typedef {import("../prompts.js").One} One */

const ROLES = ["system", "user", "assistant"];
const MODES = [
  { value: "text", label: "Text", title: "Continue this text as it is" },
  { value: "chat", label: "Chat", title: "Messages, put together by the model's chat template" },
  { value: "several", label: "Several", title: "A batch: several prompts in one run" },
];

/**
 * @param {HTMLElement} element
 * @param {Session} session
 * @param {string} prefix Of the ids in this view.
 */
export function drawPrompt(element, session, prefix) {
  const { prompt, about } = session;
  const problem = session.problem("prompt");
  const problemId = problem ? `${prefix}-prompt-problem` : null;
  render(
    html`${editor(session, prompt, problemId)}
    ${problem ? html`<p class="gs-problem" id=${problemId}><b>${problem.message}</b> ${problem.way_out}</p>` : nothing}
    ${commands(session, about.chat)}`,
    element,
  );
}

/**
 * @param {Session} session
 * @param {import("../prompts.js").Prompt} prompt
 * @param {string | null} problemId
 */
function editor(session, prompt, problemId) {
  if (typeof prompt === "string") {
    return area(problemId, prompt, "Prompt", "Text to continue", (text) => session.setPrompt(text));
  }
  return isBatch(prompt) ? batch(session, prompt, problemId) : chat(session, prompt, problemId);
}

/**
 * @param {Session} session
 * @param {One[]} prompts
 * @param {string | null} problemId
 */
function batch(session, prompts, problemId) {
  const edit = (/** @type {number} */ at, /** @type {string} */ text) =>
    session.setPrompt(prompts.map((one, i) => (i === at ? text : one)));
  const add = (/** @type {Event} */ event) => {
    session.setPrompt([...prompts, ""]);
    focusNewest(event, "textarea");
  };
  return html`<div class="gs-batch">
    ${prompts.map(
      (one, at) => html`<div class="gs-one">
        <span class="gs-number-of" aria-hidden="true">${at + 1}</span>
        ${typeof one === "string" ? area(problemId, one, `Prompt ${at + 1}`, "Text to continue", (text) => edit(at, text)) : talk(one, at)}
        <button type="button" class="gs-icon" data-lm-suppress-shortcuts="true" ?disabled=${prompts.length === 1}
          aria-label=${`Remove prompt ${at + 1}`} title="Remove this prompt"
          @click=${() => session.setPrompt(prompts.filter((_, i) => i !== at))}>×</button>
      </div>`,
    )}
    <button type="button" class="gs-add" data-lm-suppress-shortcuts="true" @click=${add}>+ prompt</button>
  </div>`;
}

/**
 * A conversation among several prompts is kept as it is.
 * @param {ChatMessage[]} messages
 * @param {number} at
 */
function talk(messages, at) {
  return html`<div class="gs-talk" role="group" aria-label=${`Prompt ${at + 1}, a conversation`} title="A conversation; kept as it is">
    ${messages.map(({ role, content }) => html`<p dir="auto"><b>${role}</b> ${content}</p>`)}
  </div>`;
}

/**
 * @param {string | null} problemId Of the text that says what is wrong, if anything is.
 * @param {string} value
 * @param {string} label
 * @param {string} placeholder
 * @param {(text: string) => void} edit
 */
function area(problemId, value, label, placeholder, edit) {
  // The sizer holds the same text and gives the area its height, also in a tab that is hidden now.
  return html`<div class="gs-area" data-value=${`${value}\u200b`}>
    <textarea rows="1" dir="auto" spellcheck="false" data-lm-suppress-shortcuts="true" aria-label=${label}
      placeholder=${placeholder} aria-invalid=${problemId === null ? "false" : "true"}
      aria-describedby=${problemId ?? nothing} .value=${live(value)}
      @input=${(/** @type {InputEvent} */ event) => edit(/** @type {HTMLTextAreaElement} */ (event.target).value)}></textarea>
  </div>`;
}

/**
 * @param {Session} session
 * @param {ChatMessage[]} messages
 * @param {string | null} problemId
 */
function chat(session, messages, problemId) {
  /**
   * @param {number} at
   * @param {Partial<ChatMessage>} change
   */
  const edit = (at, change) =>
    session.setPrompt(messages.map((message, i) => (i === at ? { ...message, ...change } : message)));
  const add = (/** @type {Event} */ event) => {
    session.setPrompt([...messages, { role: messages.at(-1)?.role === "user" ? "assistant" : "user", content: "" }]);
    focusNewest(event, "textarea");
  };
  return html`<div class="gs-chat">
    ${messages.map(
      (message, at) => html`<div class="gs-message" data-role=${message.role}>
        <select data-lm-suppress-shortcuts="true" aria-label=${`Role of message ${at + 1}`}
          @change=${(/** @type {Event} */ event) => edit(at, { role: /** @type {HTMLSelectElement} */ (event.target).value })}>
          ${[...new Set([...ROLES, message.role])].map((role) => html`<option value=${role} ?selected=${role === message.role} .selected=${live(role === message.role)}>${role}</option>`)}
        </select>
        ${area(problemId, message.content, `Message ${at + 1}`, "Message", (content) => edit(at, { content }))}
        <button type="button" class="gs-icon" data-lm-suppress-shortcuts="true" ?disabled=${messages.length === 1}
          aria-label=${`Remove message ${at + 1}`} title="Remove this message"
          @click=${() => session.setPrompt(messages.filter((_, i) => i !== at))}>×</button>
      </div>`,
    )}
    <button type="button" class="gs-add" data-lm-suppress-shortcuts="true" @click=${add}>+ message</button>
  </div>`;
}

/**
 * @param {Session} session
 * @param {boolean} hasChat Whether the model has a chat template.
 */
function commands(session, hasChat) {
  const { prompt } = session;
  const mode = kindOf(prompt);
  const modes = MODES.filter(({ value }) => value !== "chat" || hasChat || mode === "chat");
  const { living, obstacle, stopping } = session;
  const state = session.state.status?.state;
  const gone = !session.connection.alive;
  const paused = state === "paused";
  const mac = /Mac|iP(hone|ad)/.test(navigator.userAgent);
  return html`<div class="gs-commands">
    <button type="button" class="gs-primary" data-lm-suppress-shortcuts="true" data-command="generate"
      ?disabled=${obstacle !== null} title=${obstacle ?? "Start a run"} @click=${() => session.generate()}>
      Generate <kbd>${mac ? "⌘" : "Ctrl"} ⏎</kbd>
    </button>
    <button type="button" data-lm-suppress-shortcuts="true" data-command="stop" ?disabled=${gone || !living}
      title=${state === "preparing" ? "Cancel preparing, and end the run" : "End the run; what came is kept"} @click=${() => session.stop()}><i class="gs-glyph gs-stop"></i>${stopping ? "Stopping…" : html`Stop <kbd>Esc</kbd>`}</button>
    <button type="button" data-lm-suppress-shortcuts="true" data-command=${paused ? "resume" : "pause"}
      ?disabled=${gone || !living} title=${paused ? "Go on" : "Hold the run before its next token"}
      @click=${() => session.command(paused ? "resume" : "pause")}>
      <i class="gs-glyph ${paused ? "gs-resume" : "gs-pause"}"></i>${paused ? "Resume" : "Pause"}</button>
    <button type="button" data-lm-suppress-shortcuts="true" data-command="step"
      ?disabled=${gone || (!living && obstacle !== null)}
      title=${living ? "Decode one step, then hold" : "Start a run that is paused"}
      @click=${() => session.command("step")}><i class="gs-glyph gs-step"></i>Step</button>
    ${obstacle === null ? nothing : html`<span class="gs-obstacle" title=${obstacle}>${obstacle}</span>`}
    ${segmented("Kind of prompt", modes, mode, (to) => session.setPromptKind(/** @type {import("../prompts.js").PromptKind} */ (to)))}
  </div>`;
}
