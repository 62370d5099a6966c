// The line above a sequence: what it is, how long, and how it ended. Draws only.
import { html, nothing } from "lit-html";
import { reasonText, whole } from "../format.js";
import { outcomeOf, outcomeTexts } from "../segments.js";
import { scoreText } from "./beamtext.js";

/**
 * @param {import("./lanes.js").Row} row
 * @param {import("../store.js").State} state
 */
export function laneHead({ track, lane, label }, { lanes, tracks, whys, tables, environment }) {
  const { n } = tracks[track];
  if (lane === null) {
    return html`<b>${label}</b> <span>${counted(n)}, read by the encoder</span>`;
  }
  if (environment) {
    return conversation(label, n, tables.segments, lane);
  }
  const generated = Math.max(0, n - lanes[lane].prompt_tokens);
  const why = whys[lane];
  const choice = tables.choices.find((row) => row.lane === lane);
  return html`<b>${label}</b> <span>${generated > 0 ? counted(generated) : nothing}</span>
    ${choice && choice.step >= 0 && choice.score !== null ? html`<span title="Score of the hypothesis, by which the search ranked it">score ${scoreText(choice.score, 3)}</span>` : nothing}
    ${why ? html`<span class="gs-lane-why">${reasonText(why, generated)}</span>` : nothing}`;
}

/**
 * @param {string} label
 * @param {number} n
 * @param {readonly import("../wire.js").WireSegment[]} segments
 * @param {number} lane
 */
function conversation(label, n, segments, lane) {
  const outcome = outcomeOf(segments, lane);
  const turns = segments.filter((row) => row.lane === lane && row.kind === "model").length;
  return html`<b>${label || "conversation"}</b> <span>${counted(n)}${turns > 0 ? `, ${turns} ${turns === 1 ? "turn" : "turns"}` : ""}</span>
    ${outcome.end === null ? nothing : html`<span class="gs-lane-why">${outcomeTexts(outcome).join(" · ")}</span>`}`;
}

/** @param {number} n */
const counted = (n) => `${whole(n)} ${n === 1 ? "token" : "tokens"}`;
