// What a token could have been: a row a candidate, with its probabilities. Each is a way on: a run that has it instead.
// Draws only.
import { html, nothing } from "lit-html";
import { literal, looseBytes, percent } from "../format.js";

/** @typedef {import("../record.js").Token} Token */
/** @typedef {import("./branching.js").Branching} Branching */

/**
 * @param {Token} token
 * @param {Branching | null} branching
 */
export function alternatives(token, branching) {
  const rows = token.alternatives;
  if (rows.length === 0) {
    return token.generated ? html`<p class="gs-unmeasured">no alternatives were recorded</p>` : nothing;
  }
  const listed = rows.some(({ chosen }) => chosen);
  return html`<div class="gs-alternatives" tabindex="0" data-lm-suppress-shortcuts="true" role="group"
      aria-label="Alternatives" @keydown=${walk}>
      <table>
        <thead>
          <tr><th scope="col">candidate</th><th scope="col">model’s own</th><th scope="col">as chosen</th></tr>
        </thead>
        <tbody>
          ${rows.map((row) => candidate(token.index, row, branching))}
        </tbody>
      </table>
    </div>
    <p class="gs-note">${listed ? "" : `the chosen token is not among these ${rows.length}`}</p>`;
}

/**
 * The whole row can be clicked; the keyboard has the button in it.
 * @param {number} index
 * @param {import("../record.js").Alternative} row
 * @param {Branching | null} branching
 */
function candidate(index, row, branching) {
  const name = looseBytes(row.text) ?? literal(row.text);
  const go = branching !== null && branching.obstacle === null ? () => branching.go(index, { token: row.id }) : null;
  const what = html`<span class="gs-mark" aria-hidden="true">${row.chosen ? "▸" : ""}</span>${written(row.text)}
    ${row.chosen ? html`<span class="gs-sr">(chosen)</span>` : nothing}`;
  return html`<tr data-chosen=${row.chosen ? "true" : nothing} data-cut=${row.logprob === null ? "true" : nothing}
    data-way=${go === null ? nothing : "true"} @click=${go ?? nothing}>
    <th scope="row" title=${`${name}, id ${row.id}`}>
      ${
        branching === null
          ? what
          : html`<button type="button" class="gs-candidate" data-lm-suppress-shortcuts="true" ?disabled=${go === null}
            title=${branching.obstacle ?? `Continue from here with ${name}, id ${row.id}`}>${what}</button>`
      }
    </th>
    ${bar("raw", row.rawLogprob)}
    ${row.logprob === null ? html`<td class="gs-bar"><span class="gs-cut" title="A processor removed this candidate: its probability was exactly zero">cut</span></td>` : bar("processed", row.logprob)}
  </tr>`;
}

/**
 * Up and down among the candidates; from the list itself into it.
 * @param {KeyboardEvent} event
 */
function walk(event) {
  const step = { ArrowUp: -1, ArrowDown: 1 }[event.key];
  const list = /** @type {HTMLElement} */ (event.currentTarget);
  const buttons = /** @type {HTMLButtonElement[]} */ ([...list.querySelectorAll("button:not(:disabled)")]);
  const at = buttons.indexOf(/** @type {HTMLButtonElement} */ (document.activeElement));
  const next = step === undefined ? undefined : buttons[at < 0 ? 0 : at + step];
  if (next !== undefined) {
    event.preventDefault();
    next.focus();
  }
}

/**
 * Bytes inside a character look like the chips of such tokens, not like a text with backslashes.
 * @param {string} text
 */
function written(text) {
  const bytes = looseBytes(text);
  return bytes === null
    ? html`<code>${literal(text)}</code>`
    : html`<code class="gs-loose" title="Bytes inside a character">${bytes}</code>`;
}

/**
 * @param {"raw" | "processed"} kind
 * @param {number | null | undefined} logprob Null is a probability of exactly zero.
 */
function bar(kind, logprob) {
  const share = logprob === null || logprob === undefined ? 0 : Math.exp(logprob);
  return html`<td class="gs-bar gs-${kind}" style="--p:${share.toFixed(4)}"><span>${logprob === null ? "0" : percent(logprob)}</span></td>`;
}
