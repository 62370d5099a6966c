// The prompt, as text or as chat, and the commands below it. Draws the session's prompt; validating it is Python's part.
import { html, nothing, render } from "lit-html";
import { live } from "lit-html/directives/live.js";
import { focusNewest } from "./focus.js";
import { segmented } from "./segmented.js";

/** @typedef {import("../session.js").Session} Session */
/** @typedef {import("../wire.js").WireChatMessage} ChatMessage */

const ROLES = ["system", "user", "assistant"];
const MODES = [
  { value: "text", label: "Text", title: "Continue this text as it is" },
  { value: "chat", label: "Chat", title: "Messages, put together by the model's chat template" },
];

/**
 * @param {HTMLElement} element
 * @param {Session} session
 * @param {string} prefix Of the ids in this view.
 */
export function drawPrompt(element, session, prefix) {
  const { prompt, about } = session;
  const isChat = typeof prompt !== "string";
  const problem = session.problem("prompt");
  const problemId = problem ? `${prefix}-prompt-problem` : null;
  render(
    html`${isChat ? chat(session, prompt, problemId) : area(problemId, prompt, "Prompt", "Text to continue", (text) => session.setPrompt(text))}
    ${problem ? html`<p class="gs-problem" id=${problemId}><b>${problem.message}</b> ${problem.way_out}</p>` : nothing}
    ${commands(session, about.chat || isChat)}`,
    element,
  );
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
 * @param {boolean} hasModes Whether there is a choice between text and chat.
 */
function commands(session, hasModes) {
  const { prompt } = session;
  const mode = typeof prompt === "string" ? "text" : "chat";
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
      title="End the run; what came is kept" @click=${() => session.stop()}><i class="gs-glyph gs-stop"></i>${stopping ? "Stopping…" : html`Stop <kbd>Esc</kbd>`}</button>
    <button type="button" data-lm-suppress-shortcuts="true" data-command=${paused ? "resume" : "pause"}
      ?disabled=${gone || !living} title=${paused ? "Go on" : "Hold the run before its next token"}
      @click=${() => session.command(paused ? "resume" : "pause")}>
      <i class="gs-glyph ${paused ? "gs-resume" : "gs-pause"}"></i>${paused ? "Resume" : "Pause"}</button>
    <button type="button" data-lm-suppress-shortcuts="true" data-command="step"
      ?disabled=${gone || (!living && obstacle !== null)}
      title=${living ? "Decode one step, then hold" : "Start a run that is paused"}
      @click=${() => session.command("step")}><i class="gs-glyph gs-step"></i>Step</button>
    ${obstacle === null ? nothing : html`<span class="gs-obstacle">${obstacle}</span>`}
    ${hasModes ? segmented("Kind of prompt", MODES, mode, (to) => session.setPromptKind(to)) : nothing}
  </div>`;
}
