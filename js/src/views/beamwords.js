// What a step of a beam search is in words: the heading, the ends of rows, the text behind what all share. Draws only.
import { html, nothing, render } from "lit-html";
import { ancestor, pathTo } from "../beamtree.js";
import { scoreText } from "./beamtext.js";
import { segmented } from "./segmented.js";

/** @typedef {import("../beamtree.js").BeamNode} BeamNode */
/** @typedef {import("../beamtree.js").BeamTree} BeamTree */
/** @typedef {import("../beamscene.js").Leaf} Leaf */

/**
 * @typedef {object} Head
 * @property {BeamTree | undefined} tree Undefined before the first step.
 * @property {number} step The one that is looked at.
 * @property {number} prompt
 * @property {number} prompts
 * @property {(prompt: number) => void} show
 * @property {() => void} newest
 */

/**
 * @param {HTMLElement} element
 * @param {Head} head
 */
export function drawHead(element, { tree, step, prompt, prompts, show, newest }) {
  const options = Array.from({ length: prompts }, (_, i) => ({ value: String(i), label: `prompt ${i + 1}` }));
  render(
    html`${prompts > 1 ? segmented("Prompt", options, String(prompt), (value) => show(Number(value))) : nothing}
      <p class="gs-bwhen">${
        tree === undefined
          ? "The tree of hypotheses grows here, step by step."
          : html`<b>step ${step + 1}</b> of ${tree.n}<span>${events(tree, step)}</span>`
      }</p>
      <button type="button" class="gs-bnewest" data-lm-suppress-shortcuts="true"
        ?disabled=${tree === undefined || step === tree.n - 1} @click=${newest}>newest ⇥</button>
      <ul class="gs-blegend" aria-label="Signs">
        <li data-line="settled">shared by all</li><li data-line="live">lives</li><li data-line="dead">✕ died</li>
        <li data-line="finished">■ finished</li><li data-line="chosen">★ chosen</li>
        <li data-line="heat" title="Colour of a token: its probability, from 100 % to improbable">improbable</li>
      </ul>`,
    element,
  );
}

/**
 * What is said at the end of each row.
 * @param {BeamTree} tree
 * @param {number} step
 * @param {Leaf[]} leaves
 * @param {ReadonlyMap<BeamNode, number>} sequences
 */
export function endsOf(tree, step, leaves, sequences) {
  const ranks = new Map(tree.ranked(step).map(({ node, rank }) => [node, rank]));
  const places = new Map(tree.pool(step).map((one) => [one.node, one]));
  return new Map(
    leaves.map(({ node, fate }) => {
      const place = places.get(node);
      const became = sequences.has(node) ? `★ sequence ${sequences.get(node)} ` : "";
      const pooled = place ? `■ pool ${place.place}  ${scoreText(place.score, 3)}` : "■ out of the pool";
      const rank = ranks.get(node);
      if (fate === "finished" || (fate === "chosen" && node.finished)) {
        return [node, `${became}${pooled}`];
      }
      if (rank !== undefined) {
        return [node, `${became}#${rank}  ${scoreText(node.score)}`];
      }
      return [
        node,
        fate === "died" ? `✕ died  ${scoreText(node.score)}` : `${node.finished ? "■" : "✕"} at step ${node.died + 1}`,
      ];
    }),
  );
}

/**
 * What happened in a step.
 * @param {BeamTree} tree
 * @param {number} step
 */
function events(tree, step) {
  const before = (tree.live[step - 1] ?? []).filter((node) => node !== null);
  const made = [...tree.made(step)];
  const died = before.filter(
    (node) => node.died === step && !node.children.some((child) => child.step === step),
  ).length;
  const forked = before.filter((node) => node.children.filter((child) => child.beam !== null).length > 1).length;
  const finished = made.filter((node) => node.finished).length;
  const happened = [`${forked} forked`, `${died} died`, `${finished} finished`].filter(
    (part) => !part.startsWith("0 "),
  );
  return happened.length === 0 ? "all went on" : happened.join(", ");
}

/**
 * @param {(BeamNode | null)[]} settled By group.
 * @param {number} live How many hypotheses live.
 */
export function sharedText(settled, live) {
  const shared = settled.reduce((sum, node) => sum + (node === null ? 0 : node.step + 1), 0);
  const tokens = shared === 1 ? "1 token" : `${shared} tokens`;
  if (live === 0) {
    return `${tokens} that all live hypotheses shared to the last`;
  }
  return `${tokens} that ${settled.length > 1 ? "the live hypotheses of each group" : `all ${live} live hypotheses`} share`;
}

/**
 * The text of a hypothesis behind what all share: what it has in common with another row, and what is its own.
 * @param {BeamNode} node
 * @param {BeamNode | null} settled
 * @param {import("../beamscene.js").Scene} scene
 */
export function restOf(node, settled, { cells }) {
  const shares = settled !== null && ancestor(node, settled.step) === settled;
  const path = pathTo(node, shares ? settled.step : -1);
  const fork = path.findLastIndex((one) => one !== node && one.children.filter((child) => cells.has(child)).length > 1);
  const text = (/** @type {BeamNode[]} */ nodes) => nodes.map((one) => one.text).join("");
  return { common: text(path.slice(0, fork + 1)), own: text(path.slice(fork + 1)) };
}
