// What a run took from the prefix cache, in words: how much, what that saved, why not more, and what checking it gave.
// No cache is not the same as no hit. Draws only.
import { html, nothing } from "lit-html";
import { duration, literal, sizeText, small, whole } from "../format.js";

/** @typedef {import("../session.js").Session} Session */
/** @typedef {import("../store.js").State} State */
/** @typedef {import("../wire.js").WireReuse} Reuse */

/** Texts that are known in place of one that was asked for; more are counted. */
const KNOWN_MAX = 3;

/**
 * @param {State} state
 * @returns {"waiting" | "off" | "none" | "miss" | "hit"} `off`: switched off for this run; `none`: there is no cache.
 */
export function reuseKind({ status, settings }) {
  const reuse = status?.reuse ?? null;
  if (reuse !== null) {
    return reuse.reused > 0 || (reuse.sources_reused ?? 0) > 0 ? "hit" : "miss";
  }
  // Its time runs since it left the queue.
  if (status === null || status.state === "queued" || status.elapsed === null) {
    return "waiting";
  }
  return settings?.prefix_cache === false ? "off" : "none";
}

/**
 * @param {State} state Of a run.
 */
export function reuseText(state) {
  const kind = reuseKind(state);
  const reuse = state.status?.reuse ?? null;
  return html`<div class="gs-reuse" data-reuse=${kind}>
    ${reuse === null ? html`<p class="gs-quiet">${WITHOUT[kind]}</p>` : known(state, reuse)}
    ${
      state.branch?.rewritten
        ? html`<p class="gs-rewritten">the chat template wrote earlier turns anew: the cache was lost from token ${whole(state.branch.position)} on</p>`
        : nothing
    }
  </div>`;
}

/** @type {Record<ReturnType<typeof reuseKind>, string>} */
const WITHOUT = {
  waiting: "the prefix cache is asked when the run leaves the queue",
  off: "prefix cache switched off",
  none: "no prefix cache",
  miss: "",
  hit: "",
};

/**
 * @param {State} state
 * @param {Reuse} reuse
 */
function known(state, reuse) {
  const { settings, over } = state;
  const several = new Set(state.lanes.map(({ prompt }) => prompt)).size > 1;
  const reason = html`${several ? `prompt ${reuse.end.prompt + 1}: ` : ""}${reasonOf(reuse.end)}`;
  const hit = reuseKind(state) === "hit";
  const waits = settings?.verify_cache === true && hit && !over;
  return html`
    ${
      hit
        ? html`<p><b>${amountText(reuse)}</b>${savedText(reuse)}</p>
          <p class="gs-quiet">${reuse.end.kind === "whole" ? "" : "no more: "}${reason}</p>`
        : html`<p><b>nothing reused</b>: ${reason}</p>`
    }
    ${reuse.verified ? verified(reuse.verified) : waits ? html`<p class="gs-quiet">verifying: the prompt is read without the cache, too…</p>` : nothing}`;
}

/** @param {Reuse} reuse */
function amountText({ reused, tokens, nbytes, sources, sources_reused }) {
  const size = `(${sizeText(nbytes)})`;
  return sources === null
    ? `reused ${whole(reused)} of ${whole(tokens)} prompt tokens ${size}`
    : `reused ${whole(sources_reused)} of ${whole(sources)} ${sources === 1 ? "source" : "sources"} and ${whole(reused)} of ${whole(tokens)} decoder tokens ${size}`;
}

/** @param {Reuse} reuse */
function savedText({ saved, saved_measured }) {
  if (saved === null) {
    return ", time saved is not known";
  }
  const how = saved_measured ? "measured" : "estimated";
  const about = saved_measured ? "" : "about ";
  const word = saved < 0 ? "cost more than it saved, by" : "saved";
  return html`, <span class="gs-saved" data-how=${how}>${word} ${about}${duration(Math.abs(saved))} (${how})</span>`;
}

/** @param {import("../wire.js").WireReuseEnd} end */
function reasonOf({ kind, position, asked, cached, message }) {
  if (kind !== "differs") {
    return message;
  }
  const more = cached.length - KNOWN_MAX;
  const known = cached.slice(0, KNOWN_MAX).map((text, i) => html`${i > 0 ? " or " : ""}<code>${literal(text)}</code>`);
  return html`at token ${whole(position)} the prompt has <code>${literal(asked)}</code>, where ${known}${more > 0 ? ` or ${more} more` : ""} is known`;
}

/** @param {import("../wire.js").WireVerified} verified */
function verified({ difference, largest, agrees }) {
  const scale = `largest logit difference ${small(difference)} of ${largest.toFixed(1)}`;
  return agrees
    ? html`<p class="gs-verified">verified: ${scale}, same most probable token</p>`
    : html`<p class="gs-warning" role="alert">not the same: ${scale}, and another token is the most probable without the cache</p>`;
}
