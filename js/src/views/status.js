// Where the run stands: state, why it ended, progress, speed, errors. Every number is measured in the kernel; what is
// not known is a dash. Draws only.
import { html, nothing, render } from "lit-html";
import { duration, perSecond, reasonText, shareText, UNKNOWN, whole } from "../format.js";
import { executionText, preparingText } from "./execution.js";

/** @typedef {import("../session.js").Session} Session */

/** States as a person reads them. @type {Record<string, string>} */
export const WORDS = {
  queued: "queued",
  preparing: "preparing",
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
  const several = lanes.length > 1;
  const limit = settings?.max_new_tokens;
  const generated = status?.generated;
  const share = typeof limit === "number" && limit > 0 && generated !== undefined ? generated / limit : null;
  element.dataset.state = alive ? (status?.state ?? "idle") : "gone";
  render(
    html`<div class="gs-state">
        <i class="gs-lamp"></i>
        <span role="status">${sentenceOf(session)}</span>
        ${secondsOf(session)}
      </div>
      <div class="gs-progress" role="progressbar" aria-label="Generated tokens" aria-valuemin="0"
        aria-valuemax=${typeof limit === "number" ? limit : nothing} aria-valuenow=${generated ?? nothing}
        style="--share:${Math.min(1, share ?? 0).toFixed(4)}"></div>
      <dl class="gs-readings">
        ${reading("tokens", html`${whole(generated)}<small> / ${typeof limit === "number" ? whole(limit) : UNKNOWN}</small>`, "Generated tokens, of at most")}
        ${readingOfPrompts(session.state)}
        ${reading(several ? "tokens/s each" : "tokens/s", perSecond(status?.tokens_per_second), `Generated tokens${several ? " of one sequence" : ""} a second after the first, pauses left out`)}
        ${reading("first token", duration(status?.first_token), "From leaving the queue to the first generated token")}
        ${reading("elapsed", duration(status?.elapsed), "Since the run left the queue, pauses left out")}
        ${reading("observing", shareText(status?.observation_share), "Share of the elapsed time that measuring and recording took")}
      </dl>
      ${status?.drafts ? html`<p class="gs-drafted">${draftsText(status.drafts)}</p>` : nothing}
      ${executionText(status?.execution, session.state.over)}
      ${alive ? nothing : html`<p class="gs-warning" role="alert">Kernel gone: what came is kept; run the cell again.</p>`}
      ${silence > 0 ? html`<p class="gs-warning">No sign of life from the kernel for ${silence} s.</p>` : nothing}
      ${status?.error ? html`<pre class="gs-error" role="alert">${status.error}</pre>` : nothing}`,
    element,
  );
}

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
  const preparing = status.state === "preparing" ? preparingText(status.execution) : "";
  if (preparing !== "") {
    return `${word}: ${preparing}`;
  }
  return status.why ? `${word}: ${whyText(status.why, status.generated, state.whys)}` : word;
}

/**
 * How long it has been preparing, as last told. Beside the sentence: a screen reader need not read each second.
 * @param {Session} session
 */
function secondsOf({ connection, state, stopping }) {
  const { status } = state;
  const now = status?.execution?.preparing ?? null;
  return status?.state !== "preparing" || now === null || stopping || !connection.alive
    ? nothing
    : html`<small class="gs-seconds">${duration(now.seconds)}</small>`;
}

/**
 * Why a run ended; of several sequences that ended for several reasons, how many for each.
 * @param {string} why Of the run as a whole.
 * @param {number} generated
 * @param {readonly (string | null)[]} whys By lane.
 */
function whyText(why, generated, whys) {
  const reasons = [...new Set(whys)].filter((one) => one !== null);
  if (reasons.length < 2) {
    return reasonText(why, generated);
  }
  return reasons
    .map((one) => `${whys.filter((other) => other === one).length} × ${reasonText(one, generated)}`)
    .join(", ");
}

/**
 * How long what was read is: of several prompts from the shortest to the longest.
 * @param {import("../store.js").State} state
 */
function readingOfPrompts({ lanes, tracks, status }) {
  const encoded = lanes.length > 0 && lanes.every(({ source }) => source !== null);
  const counts = lanes.map(({ source, prompt_tokens }) => (source === null ? prompt_tokens : tracks[source].n));
  const [least, most] = [Math.min(...counts), Math.max(...counts)];
  // A source is never empty: its tokens are still on their way.
  const known = lanes.length > 0 && (!encoded || least > 0);
  const text = known ? (least === most ? whole(most) : `${whole(least)}–${whole(most)}`) : UNKNOWN;
  const reuse = status?.reuse ?? null;
  if (encoded) {
    const reused =
      reuse === null ? nothing : html`<small> ${whole(reuse.sources_reused)} of ${whole(reuse.sources)} reused</small>`;
    return reading(
      "source",
      html`${text}${reused}`,
      "Tokens that the encoder read, and how many texts it need not read again",
    );
  }
  if (reuse !== null) {
    return reading(
      "prompt",
      html`${whole(reuse.reused)}<small> of ${whole(reuse.tokens)} reused</small>`,
      `Tokens of ${lanes.length > 1 ? "all prompts" : "the prompt"} whose keys and values came from the prefix cache, and all of them; the others were computed`,
    );
  }
  return reading("prompt", text, lanes.length > 1 ? "Tokens of the prompts" : "Tokens of the prompt");
}

/** @param {import("../wire.js").WireDraftSummary} drafts */
function draftsText({ rounds, drafted, accepted, generated }) {
  if (rounds === 0) {
    return "no draft was checked yet";
  }
  const perPass = `${(generated / rounds).toFixed(1)} tokens a forward pass`;
  return drafted === 0
    ? `nothing was drafted, ${perPass}`
    : `${Math.round((100 * accepted) / drafted)}\u202f% of ${whole(drafted)} drafts kept, ${whole(drafted - accepted)} wasted, ${perPass}`;
}

/**
 * @param {string} name
 * @param {unknown} value
 * @param {string} explains
 */
function reading(name, value, explains) {
  return html`<div title=${explains}><dt>${name}</dt><dd>${value}</dd></div>`;
}
