// Where the run stands: state, why it ended, progress, speed, errors. Every number is measured in the kernel; what is
// not known is a dash. Draws only.
import { html, nothing, render } from "lit-html";
import { duration, perSecond, shareText, UNKNOWN, whole } from "../format.js";

/** @typedef {import("../session.js").Session} Session */

/** @type {Record<string, string>} */
const WORDS = {
  queued: "queued",
  prefilling: "reading the prompt",
  decoding: "decoding",
  paused: "paused",
  finished: "finished",
  stopped: "stopped",
  failed: "failed",
};

/**
 * @param {HTMLElement} element
 * @param {Session} session
 */
export function drawStatus(element, session) {
  const { alive, silence } = session.connection;
  const { status, settings, lanes } = session.state;
  const limit = settings?.max_new_tokens;
  const generated = status?.generated;
  const share = typeof limit === "number" && limit > 0 && generated !== undefined ? generated / limit : null;
  element.dataset.state = alive ? (status?.state ?? "idle") : "gone";
  render(
    html`<div class="gs-state">
        <i class="gs-lamp"></i>
        <span role="status">${sentenceOf(session)}</span>
      </div>
      <div class="gs-progress" role="progressbar" aria-label="Generated tokens" aria-valuemin="0"
        aria-valuemax=${typeof limit === "number" ? limit : nothing} aria-valuenow=${generated ?? nothing}
        style="--share:${Math.min(1, share ?? 0).toFixed(4)}"></div>
      <dl class="gs-readings">
        ${reading("tokens", html`${whole(generated)}<small> / ${typeof limit === "number" ? whole(limit) : UNKNOWN}</small>`, "Generated tokens, of at most")}
        ${reading("prompt", whole(lanes[0]?.prompt_tokens), "Tokens of the prompt")}
        ${reading("tokens/s", perSecond(status?.tokens_per_second), "Generated tokens a second after the first, pauses left out")}
        ${reading("first token", duration(status?.first_token), "From leaving the queue to the first generated token")}
        ${reading("elapsed", duration(status?.elapsed), "Since the run left the queue, pauses left out")}
        ${reading("observing", shareText(status?.observation_share), "Share of the elapsed time that measuring and recording took")}
      </dl>
      ${alive ? nothing : html`<p class="gs-warning" role="alert">Kernel gone: what came is kept; run the cell again.</p>`}
      ${silence > 0 ? html`<p class="gs-warning">No sign of life from the kernel for ${silence} s.</p>` : nothing}
      ${status?.error ? html`<pre class="gs-error" role="alert">${status.error}</pre>` : nothing}`,
    element,
  );
}

/** @type {Record<string, (generated: number) => string>} */
const REASONS = {
  eos: () => "end of sequence",
  length: (generated) => `reached ${whole(generated)} ${generated === 1 ? "token" : "tokens"}`,
};

/**
 * @param {Session} session
 * @returns {string}
 */
function sentenceOf({ connection, state, stopping }) {
  const { status } = state;
  if (!connection.alive) {
    return "kernel gone";
  }
  if (stopping) {
    return "stopping…";
  }
  if (status === null) {
    return "no run yet";
  }
  const word = WORDS[status.state] ?? status.state;
  if (status.state === "queued" && status.queue_ahead > 0) {
    return `${word}, ${status.queue_ahead} before it`;
  }
  const why = status.why && Object.hasOwn(REASONS, status.why) ? REASONS[status.why](status.generated) : status.why;
  return why ? `${word}: ${why}` : word;
}

/**
 * @param {string} name
 * @param {unknown} value
 * @param {string} explains
 */
function reading(name, value, explains) {
  return html`<div title=${explains}><dt>${name}</dt><dd>${value}</dd></div>`;
}
