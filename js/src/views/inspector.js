// Everything known about one token: identity, measures, and below them what it could have been, what the model looked
// at, or what its layers would have said; last, the ways to go on from it. Draws only.
import { html, nothing, render } from "lit-html";
import { bitsOf, duration, entropyText, hexBytes, literal, percent, UNKNOWN, whole } from "../format.js";
import { alternatives } from "./alternatives.js";
import { branchingGroup } from "./branching.js";
import { segmented } from "./segmented.js";

/** @typedef {import("../record.js").Token} Token */
/** @typedef {import("./lanes.js").Pick} Pick */
/** @typedef {import("../session.js").Part} Part */
/** @typedef {import("../drafts.js").Origin} Origin */

const WHY = { pinned: "pinned", pointed: "pointed at", latest: "newest" };

/**
 * What is shown besides the token's own row of the record.
 * @typedef {object} Beside
 * @property {Pick["why"]} why
 * @property {string} where Its sequence, "" where there is one only.
 * @property {boolean} source Read by an encoder.
 * @property {Origin | null} origin Whether it was drafted.
 * @property {number} shown How many alternatives the run records, for a stable height.
 * @property {Part[]} parts What there is to choose from; one is not offered as a choice.
 * @property {Part} part
 * @property {(part: Part) => void} choose
 * @property {() => unknown} [content] Of a part other than the alternatives.
 * @property {{ title: string, go: () => void }[]} offers What could be observed as well, and the way to its switch.
 * @property {import("./branching.js").Branching | null} branching Ways to go on from here.
 * @property {() => void} measurePrompt Leads to the setting that measures the prompt.
 */

/** @type {Record<Part, { label: string, title: string }>} */
const PARTS = {
  alternatives: { label: "Alternatives", title: "What else the token could have been" },
  attention: { label: "Attention", title: "What the model looked at when it chose the token" },
  lens: { label: "Logit lens", title: "What each layer would have said" },
};

/**
 * @param {HTMLElement} element
 * @param {Token | null} token
 * @param {Beside} beside
 */
export function drawInspector(element, token, beside) {
  element.style.setProperty("--gs-rows", String(Math.min(12, Math.max(1, beside.shown))));
  const { part, parts, content } = beside;
  render(
    token === null
      ? empty()
      : [
          identity(token, beside),
          measures(token, beside),
          html`<div class="gs-part">
            ${
              parts.length > 1
                ? segmented(
                    "Look into",
                    parts.map((value) => ({ value, ...PARTS[value] })),
                    part,
                    (value) => beside.choose(/** @type {Part} */ (value)),
                  )
                : nothing
            }
            ${part === "alternatives" ? alternatives(token, beside.branching) : content?.()}
          </div>`,
          beside.branching === null ? nothing : branchingGroup(token.index, beside.branching),
          offers(beside),
        ],
    element,
  );
}

/** @param {Beside} beside */
function offers({ offers }) {
  return offers.length === 0
    ? nothing
    : html`<p class="gs-offers">not observed: ${offers.map(
        ({ title, go }, i) =>
          html`${i > 0 ? ", " : nothing}<button type="button" class="gs-link" data-lm-suppress-shortcuts="true" title="Switch it on for the next run" @click=${go}>${title}</button>`,
      )}</p>`;
}

function empty() {
  return html`<p class="gs-empty">Point at a token to see what else it could have been; click to pin it.</p>`;
}

/**
 * @param {Token} token
 * @param {Beside} beside
 */
function identity(token, { why, where, source, origin }) {
  const kind = source ? "source" : token.generated ? "generated" : "prompt";
  return html`<header class="gs-identity">
    <div class="gs-kicker">
      <span>token <b>${token.index}</b></span><span>${kind}${token.special ? ", special" : ""}</span>
      ${cachedText(token)}
      ${where === "" ? nothing : html`<span class="gs-where" title=${where}>${where}</span>`}
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
    ${origin === null ? nothing : html`<p class="gs-origin" data-origin=${origin.kind}>${originText(origin)}</p>`}
  </header>`;
}

/** @param {Token} token */
function cachedText({ generated, cached }) {
  if (generated || cached === null) {
    return nothing;
  }
  return cached
    ? html`<span class="gs-cached" data-cached="hit" title="Its keys and values came from the prefix cache">hit</span>`
    : html`<span class="gs-cached" data-cached="computed" title="Its keys and values were computed in this run">computed</span>`;
}

/** @param {Origin} origin */
function originText({ kind, logprob }) {
  if (kind === "own") {
    return "the model’s own";
  }
  return logprob === null ? "accepted draft" : `accepted draft, drafted with ${percent(logprob)}`;
}

/**
 * @param {Token} token
 * @param {Beside} beside
 */
function measures(token, { measurePrompt, source }) {
  const measured = [token.rawLogprob, token.logprob, token.entropy, token.rank].some((value) => value !== null);
  if (source && !measured) {
    return html`<p class="gs-unmeasured">read by the encoder, not predicted</p>`;
  }
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
