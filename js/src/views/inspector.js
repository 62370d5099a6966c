// Everything known about one token: identity, measures, and the alternatives with both probabilities. Draws only.
import { html, nothing, render } from "lit-html";
import { bitsOf, duration, entropyText, hexBytes, literal, looseBytes, percent, UNKNOWN, whole } from "../format.js";

/** @typedef {import("../record.js").Token} Token */
/** @typedef {import("../record.js").Alternative} Alternative */
/** @typedef {import("./tokens.js").Pick} Pick */

const WHY = { pinned: "pinned", pointed: "pointed at", latest: "newest" };

/**
 * @param {HTMLElement} element
 * @param {Token | null} token
 * @param {Pick["why"]} why
 * @param {number} shown How many alternatives the run records, for a stable height.
 * @param {() => void} measurePrompt Leads to the setting that measures the prompt.
 */
export function drawInspector(element, token, why, shown, measurePrompt) {
  element.style.setProperty("--gs-rows", String(Math.min(12, Math.max(1, shown))));
  render(
    token === null ? empty() : [identity(token, why), measures(token, measurePrompt), alternatives(token)],
    element,
  );
}

function empty() {
  return html`<p class="gs-empty">Point at a token to see what else it could have been; click to pin it.</p>`;
}

/**
 * @param {Token} token
 * @param {Pick["why"]} why
 */
function identity(token, why) {
  const kind = token.generated ? "generated" : "prompt";
  return html`<header class="gs-identity">
    <div class="gs-kicker">
      <span>token <b>${token.index}</b></span><span>${kind}${token.special ? ", special" : ""}</span>
      <span class="gs-why" data-why=${why}>${WHY[why]}</span>
    </div>
    <code class="gs-literal" title="The text that this token adds, as written in code">${literal(token.text)}</code>
    <dl class="gs-ids">
      <div><dt>id</dt><dd>${token.id}</dd></div>
      <div><dt>bytes</dt><dd class="gs-bytes" title=${token.bytes ?? "not known"}>${hexBytes(token.bytes)}</dd></div>
      ${
        token.group.length > 1
          ? html`<div>
            <dt>one character:</dt>
            <dd>tokens ${token.group[0]}–${token.group[token.group.length - 1]}</dd>
          </div>`
          : nothing
      }
    </dl>
  </header>`;
}

/**
 * @param {Token} token
 * @param {() => void} measurePrompt
 */
function measures(token, measurePrompt) {
  const measured = [token.rawLogprob, token.logprob, token.entropy, token.rank].some((value) => value !== null);
  if (!token.generated && !measured) {
    return html`<p class="gs-unmeasured">not measured: <button type="button" class="gs-link" data-lm-suppress-shortcuts="true"
      @click=${measurePrompt}>switch on “Probabilities of the prompt”</button></p>`;
  }
  return html`<table class="gs-measures">
    <thead>
      <tr><td></td><th scope="col">probability</th><th scope="col">surprisal</th></tr>
    </thead>
    <tbody>
      <tr class="gs-raw">
        <th scope="row" title="The model's own distribution, before any processor">model’s own</th>
        <td class="gs-big">${percent(token.rawLogprob)}</td>
        <td>${bitsOf(token.rawLogprob)}</td>
      </tr>
      <tr class="gs-processed">
        <th scope="row" title="The distribution that the token was chosen from, after all processors">as chosen</th>
        <td class="gs-big">${percent(token.logprob)}</td>
        <td>${bitsOf(token.logprob)}</td>
      </tr>
    </tbody>
  </table>
  <dl class="gs-facts">
    <div><dt>entropy</dt><dd>${entropyText(token.entropy)}</dd></div>
    <div><dt>rank</dt><dd>${token.rank === null ? UNKNOWN : `#${whole(token.rank)}`}</dd></div>
    <div><dt>latency</dt><dd>${duration(token.seconds)}</dd></div>
  </dl>`;
}

/** @param {Token} token */
function alternatives(token) {
  const rows = token.alternatives;
  if (rows.length === 0) {
    return token.generated ? html`<p class="gs-unmeasured">no alternatives were recorded</p>` : nothing;
  }
  const listed = rows.some(({ chosen }) => chosen);
  return html`<div class="gs-alternatives" tabindex="0" data-lm-suppress-shortcuts="true" role="group"
      aria-label="Alternatives">
      <table>
        <thead>
          <tr><th scope="col">candidate</th><th scope="col">model’s own</th><th scope="col">as chosen</th></tr>
        </thead>
        <tbody>
          ${rows.map(
            (
              row,
            ) => html`<tr data-chosen=${row.chosen ? "true" : nothing} data-cut=${row.logprob === null ? "true" : nothing}>
              <th scope="row" title=${`${looseBytes(row.text) ?? literal(row.text)}, id ${row.id}`}>
                <span class="gs-mark" aria-hidden="true">${row.chosen ? "▸" : ""}</span>${written(row.text)}
                ${row.chosen ? html`<span class="gs-sr">(chosen)</span>` : nothing}
              </th>
              ${bar("raw", row.rawLogprob)}
              ${row.logprob === null ? html`<td class="gs-bar"><span class="gs-cut" title="A processor removed this candidate: its probability was exactly zero">cut</span></td>` : bar("processed", row.logprob)}
            </tr>`,
          )}
        </tbody>
      </table>
    </div>
    <p class="gs-note">${listed ? "" : `the chosen token is not among these ${rows.length}`}</p>`;
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
