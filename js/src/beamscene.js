// What is drawn of a beam search at a step: which hypotheses have a row, and where every token stands. Pure data: rows and
// steps, no DOM, no pixels.
import { ancestor } from "./beamtree.js";

/** @typedef {import("./beamtree.js").BeamNode} BeamNode */
/** @typedef {import("./beamtree.js").BeamTree} BeamTree */

/**
 * Why a hypothesis has a row of its own at a step.
 * @typedef {"live" | "died" | "finished" | "chosen" | "picked"} Fate
 */

/**
 * @typedef {object} Leaf
 * @property {BeamNode} node
 * @property {Fate} fate
 * @property {number} row
 */

/**
 * @typedef {object} Cell
 * @property {BeamNode} node
 * @property {number} row
 * @property {number} up Rows between it and its parent, which is never below.
 * @property {boolean} goesOn It has a child in its own row.
 * @property {number} fallen Branches that left it, ended, and have no row.
 * @property {number} pooled Of these, those that finished.
 */

/**
 * @typedef {object} Scene
 * @property {Leaf[]} leaves From top to bottom.
 * @property {Map<BeamNode, Cell>} cells
 */

/**
 * Which hypotheses have a row after a step, and where everything stands. Rows follow the tree, so no two lines cross,
 * and two hypotheses never change their order.
 * @param {BeamTree} tree
 * @param {number} step
 * @param {{ chosen?: BeamNode[], picked?: BeamNode | null }} [more] What else has a row.
 * @returns {Scene}
 */
export function sceneAt(tree, step, { chosen = [], picked = null } = {}) {
  /** @type {Map<BeamNode, Fate>} */
  const fates = new Map();
  const put = (/** @type {BeamNode | null} */ node, /** @type {Fate} */ fate) => {
    if (node !== null && (!fates.has(node) || fate === "chosen")) {
      fates.set(node, fate);
    }
  };
  for (const node of tree.made(step)) {
    put(node, node.finished ? "finished" : "live");
  }
  for (const node of tree.live[step - 1] ?? []) {
    // With finished children it did not end there: they did.
    if (node !== null && node.died === step && !node.children.some((child) => child.step <= step)) {
      put(node, "died");
    }
  }
  for (const node of chosen) {
    put(node, "chosen");
  }
  if (picked !== null && picked.step <= step && !isDrawn(picked, fates.keys())) {
    put(picked, "picked");
  }
  return layOut(fates, tree.roots, step);
}

/**
 * @param {BeamNode} node
 * @param {Iterable<BeamNode>} leaves
 */
function isDrawn(node, leaves) {
  return [...leaves].some((leaf) => ancestor(leaf, node.step) === node);
}

/**
 * @param {Map<BeamNode, Fate>} fates
 * @param {BeamNode[]} roots
 * @param {number} step
 * @returns {Scene}
 */
function layOut(fates, roots, step) {
  /** @type {Set<BeamNode>} */
  const drawn = new Set();
  for (const leaf of fates.keys()) {
    for (let at = /** @type {BeamNode | null} */ (leaf); at !== null && !drawn.has(at); at = at.parent) {
      drawn.add(at);
    }
  }
  /** @type {Leaf[]} */
  const leaves = [];
  const cells = new Map();
  // Without recursion: a path may be as long as a model's context.
  const stack = roots.filter((node) => drawn.has(node)).reverse();
  let row = 0;
  while (stack.length > 0) {
    const node = /** @type {BeamNode} */ (stack.pop());
    const on = node.children.filter((child) => drawn.has(child));
    const off = node.step < step ? node.children.filter((child) => !drawn.has(child)) : [];
    const pooled = off.filter(({ finished }) => finished).length;
    const above = node.parent === null ? row : cells.get(node.parent).row;
    const fate = fates.get(node);
    cells.set(node, { node, row, up: row - above, goesOn: on.length > 0, fallen: off.length, pooled });
    if (fate !== undefined) {
      leaves.push({ node, fate, row });
    }
    if (on.length === 0) {
      row += 1;
    }
    stack.push(...on.reverse());
  }
  return { leaves, cells };
}
