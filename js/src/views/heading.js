// Which model is looked at, and how far its loading is. Draws only.
import { html, nothing, render } from "lit-html";
import { whole } from "../format.js";

/** @typedef {import("../session.js").Session} Session */

/**
 * @param {HTMLElement} element
 * @param {Session} session
 */
export function drawHeading(element, session) {
  const { about, load } = session;
  const known = typeof load.progress === "number";
  element.dataset.phase = load.phase;
  render(
    html`<div class="gs-title">
        <svg viewBox="0 0 28 16" aria-hidden="true"><path d="M1 8h5l2-5 4 11 4-13 3 9 2-2h6" /></svg>
        <b>${about.model || "genscope"}</b>
        ${about.context === null ? nothing : html`<span title="Longest sequence that the model reads">context ${whole(about.context)}</span>`}
      </div>
      ${
        load.phase === "loading"
          ? html`<div class="gs-loading">
            <span role="status" title=${load.text}>${load.text || "The model is loading"}</span>
            <div class="gs-progress" role="progressbar" aria-label="Loading" aria-valuemin="0" aria-valuemax="1"
              aria-valuenow=${load.progress ?? nothing} data-unknown=${known ? nothing : "true"}
              style="--share:${(load.progress ?? 0).toFixed(4)}"></div>
          </div>`
          : nothing
      }
      ${load.phase === "error" ? html`<pre class="gs-error" role="alert">${load.text || "The model did not load"}</pre>` : nothing}`,
    element,
  );
}
