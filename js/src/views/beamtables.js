// A beam search in words: its live hypotheses, its pool, and everything about one of them. Draws only.
import { html, nothing } from "lit-html";
import { literal, percent, UNKNOWN } from "../format.js";
import { groupName, keyOf, lineText, scoreText, tokenText } from "./beamtext.js";

/** @typedef {import("../beamtree.js").BeamNode} BeamNode */
/** @typedef {import("../beamtree.js").BeamTree} BeamTree */
/** @typedef {import("../beamtree.js").Ranked} Ranked */
/** @typedef {import("../beamtree.js").Pooled} Pooled */
/** @typedef {import("../beamtree.js").Candidate} Candidate */

/**
 * @typedef {object} Shown
 * @property {BeamTree} tree
 * @property {number} step
 * @property {BeamNode | null} pick
 * @property {"pinned" | "pointed" | "best" | "chosen"} why
 * @property {ReadonlyMap<BeamNode, number>} sequences What the chosen ones became, from 1.
 * @property {ReadonlySet<BeamNode>} chosen
 * @property {(node: BeamNode) => { common: string, own: string }} rest The text behind what all share.
 */

const WHY = { pinned: "pinned", pointed: "pointed at", best: "best now", chosen: "chosen" };

/**
 * @param {Shown} shown
 * @returns {unknown}
 */
export function hypotheses(shown) {
  const { tree, step } = shown;
  const live = tree.ranked(step);
  const pool = tree.pool(step);
  return [
    table(
      "Live",
      live.length,
      ["rank", "score", "text after what all share"],
      tree.beams,
      "Log-probability of the whole hypothesis",
      live.map(({ node, rank }) => row(shown, node, String(rank), node.score, null)),
    ),
    table(
      "Finished",
      pool.length,
      ["place", "score", "ended at", "text"],
      tree.beams,
      "Log-probability over length to the power of the length penalty: what the pool is ranked by",
      pool.map(({ node, score, place }) => row(shown, node, String(place), score, node.step + 1)),
    ),
  ];
}

/**
 * @param {string} title
 * @param {number} n
 * @param {string[]} heads
 * @param {number} most
 * @param {string} meaning Of the score.
 * @param {unknown[]} rows
 */
function table(title, n, heads, most, meaning, rows) {
  return html`<section class="gs-bhyps" aria-label=${`${title} hypotheses`}>
    <h4>${title} <span>${n === 0 ? "none" : n}</span></h4>
    ${
      n === 0
        ? nothing
        : html`<div class="gs-brows" style="--rows:${most}" tabindex="0" role="group" aria-label=${`${title} hypotheses`}
            data-lm-suppress-shortcuts="true">
            <table>
              <thead><tr>${heads.map((head) => html`<th scope="col" title=${head === "score" ? meaning : nothing}>${head}</th>`)}</tr></thead>
              <tbody>${rows}</tbody>
            </table>
          </div>`
    }
  </section>`;
}

/**
 * @param {Shown} shown
 * @param {BeamNode} node
 * @param {string} place
 * @param {number | null} score
 * @param {number | null} ended
 */
function row({ tree, pick, sequences, chosen, rest }, node, place, score, ended) {
  const became = sequences.get(node);
  const { common, own } = rest(node);
  return html`<tr data-key=${keyOf(node)} data-first=${place === "1" ? "true" : nothing}
      data-chosen=${chosen.has(node) ? "true" : nothing} data-pick=${node === pick ? "true" : nothing}>
    <th scope="row">${tree.groups > 1 ? groupName(node.group) : nothing}${place}</th>
    <td>${scoreText(score, ended === null ? 2 : 3)}</td>
    ${ended === null ? nothing : html`<td>${ended}</td>`}
    <td class="gs-btext" title=${literal(common + own)}><div>${star(became, chosen.has(node))}<span><bdi><i>${lineText(common)}</i>${lineText(own)}</bdi></span></div></td>
  </tr>`;
}

/**
 * @param {number | undefined} became
 * @param {boolean} chosen
 */
function star(became, chosen) {
  if (became !== undefined) {
    return html`<b class="gs-bseq" title=${`became sequence ${became}`}>★ ${became}</b>`;
  }
  return chosen ? html`<b class="gs-bseq" title="What was chosen descends from it">★</b>` : nothing;
}

/**
 * @param {Shown} shown
 * @returns {unknown}
 */
export function inspection(shown) {
  const { tree, pick, why } = shown;
  if (pick === null) {
    return html`<p class="gs-empty">Point at a token to see its scores and what it was up against; click to pin it.</p>`;
  }
  const rivals = tree.candidates(pick.step, pick.group);
  const rank = rivals.findIndex(({ candidate }) => candidate === pick.candidate) + 1;
  const beaten = rivals.length - rank;
  return html`<div class="gs-bfacts">
      <div class="gs-kicker">
        <span>step <b>${pick.step + 1}</b></span>
        ${tree.groups > 1 ? html`<span>group <b>${groupName(pick.group)}</b></span>` : nothing}
        <span>${fate(pick, shown)}</span>
        <span class="gs-why" data-why=${why === "pinned" ? "pinned" : nothing}>${WHY[why]}</span>
      </div>
      <code class="gs-literal" title="The text that this token adds, as written in code">${literal(pick.text)}</code>
      <dl class="gs-facts">
        <div><dt title="Probability of the token alone, after all processors">probability</dt><dd>${percent(pick.logprob)}</dd></div>
        <div><dt title="Natural logarithm of that">log-probability</dt><dd>${scoreText(pick.logprob, 3)}</dd></div>
        <div><dt title="Log-probability of the whole hypothesis up to this token">total</dt><dd>${scoreText(pick.score, 3)}</dd></div>
        <div><dt title="Among the candidates of its step, by the total">rank</dt><dd>#${rank} of ${rivals.length}</dd></div>
        <div><dt>beat</dt><dd>${beaten}</dd></div>
        <div><dt>id</dt><dd>${pick.id}</dd></div>
      </dl>
    </div>
    <div class="gs-brivals" tabindex="0" data-lm-suppress-shortcuts="true" role="group" aria-label=${`Candidates of step ${pick.step + 1}`}>
      <table>
        <thead><tr><th scope="col">candidates of step ${pick.step + 1}</th><th scope="col">total</th><th scope="col">became</th></tr></thead>
        <tbody>${rivals.map((one, at) => rival(one, at + 1, pick))}</tbody>
      </table>
    </div>`;
}

/**
 * @param {BeamNode} node
 * @param {Shown} shown
 */
function fate(node, { tree, step, chosen, sequences }) {
  if (sequences.has(node)) {
    return `became sequence ${sequences.get(node)}`;
  }
  if (chosen.has(node)) {
    return "on a chosen path";
  }
  const pooled = tree.pool(step).find((one) => one.node === node);
  if (pooled) {
    return `finished, place ${pooled.place}`;
  }
  if (node.finished && node.step <= step) {
    return "finished, out of the pool";
  }
  return node.died <= step ? `died at step ${node.died + 1}` : "lives";
}

/**
 * @param {Candidate} candidate
 * @param {number} rank
 * @param {BeamNode} pick
 */
function rival({ candidate, text, score, parent, node }, rank, pick) {
  const became = node === null ? "dropped" : node.beam === null ? "■ finished" : "▸ lives on";
  return html`<tr data-key=${node === null ? nothing : keyOf(node)} data-pick=${candidate === pick.candidate ? "true" : nothing}
      data-out=${node === null ? "true" : nothing} data-sibling=${parent === pick.parent ? "true" : nothing}>
    <th scope="row" title=${`${literal(text)}${parent === null ? "" : ` after ${literal(parent.text)}`}`}><span class="gs-brank">${rank}</span>${
      parent === null ? nothing : html`<code class="gs-bafter">${tokenText(parent.text)}</code>`
    }<code>${tokenText(text)}</code></th>
    <td>${score === null ? UNKNOWN : scoreText(score)}</td>
    <td>${became}</td>
  </tr>`;
}
