// What a run's execution did, in words: what is being prepared now, which passes ran in it, which did not and why, and
// what preparing cost. Draws only; knows no execution by name.
import { html, nothing } from "lit-html";
import { duration, small, whole } from "../format.js";

/** @typedef {import("../wire.js").WireExecution} Execution */

/**
 * @param {Execution | null | undefined} execution
 * @returns {string} "one token on a cache, tracing"; "" while nothing is being prepared.
 */
export function preparingText(execution) {
  const now = execution?.preparing ?? null;
  return now === null ? "" : [now.what, now.stage].filter((part) => part !== "").join(", ");
}

/**
 * @param {Execution | null | undefined} execution Null where none was asked for: nothing is drawn then.
 * @param {boolean} over Whether the run is over, so that nothing is still to come.
 */
export function executionText(execution, over) {
  if (!execution) {
    return nothing;
  }
  const facts = [passesText(execution, over), preparedText(execution, over)].filter((part) => part !== "");
  return html`<div class="gs-execution">
    <p><b>${execution.name}</b>: ${facts.join(", ")}</p>
    ${fallbackLines(execution)}
  </div>`;
}

/**
 * @param {Execution} execution
 * @param {boolean} over
 */
function passesText({ passes, compared, largest_difference }, over) {
  if (passes === 0 && compared === 0) {
    return over ? "no pass" : "no pass yet";
  }
  const text = count(passes, "pass", "passes");
  if (compared === 0) {
    return text;
  }
  const difference = largest_difference === null ? "" : ` (largest difference ${small(largest_difference)})`;
  return `${text}, ${whole(compared)} compared with eager${difference}`;
}

/**
 * @param {Execution} execution
 * @param {boolean} over
 */
function preparedText(execution, over) {
  if (execution.prepared > 0) {
    return `prepared in ${costText(execution)}`;
  }
  return over ? "nothing was to be prepared" : "";
}

/** @param {Execution} execution */
export function costText({ prepared, graphs }) {
  return `${duration(prepared)}, ${graphs === 0 ? "no new graph" : count(graphs, "graph", "graphs")}`;
}

/** @param {Execution} execution */
export function fallbackLines({ fallbacks, recompilations }) {
  return html`${fallbacks.map(({ reason, passes }) => html`<p class="gs-fallback">${count(passes, "pass", "passes")} ran eagerly: ${reason}</p>`)}
    ${recompilations > 0 ? html`<p class="gs-fallback">recompiled ${count(recompilations, "time", "times")}</p>` : nothing}`;
}

/**
 * @param {number} n
 * @param {string} one
 * @param {string} several
 */
const count = (n, one, several) => `${whole(n)} ${n === 1 ? one : several}`;
