// The runs of a scope as an indented tree: rows in the order in which they stand, each below the run it came from.
// Pure data; drawing is views/runs.js's part.

/**
 * One run, as the trait `tree` has it.
 * @typedef {object} TreeRun
 * @property {string} id
 * @property {string | null} parent
 * @property {number} lane
 * @property {number} position
 * @property {"run" | "branch" | "reply" | "environment"} kind
 * @property {string} title
 * @property {string} strategy
 * @property {string | null} [execution] How its forward passes run; null where that is as by default.
 * @property {import("./wire.js").Status["state"]} state
 * @property {number} tokens
 */

/**
 * @typedef {object} TreeRow
 * @property {TreeRun} run
 * @property {boolean[]} lines For each level above it whether a line passes by to a run below; then whether one does to a
 *   sibling of its own. Empty of a root.
 * @property {number | null} parent Row that it came from.
 * @property {number | null} child Row of the first that came from it.
 * @property {number} place Among its siblings, from 1 on.
 * @property {number} siblings With itself.
 */

/**
 * @param {readonly TreeRun[]} tree Oldest first. A run whose parent is not there, or not older, is a root.
 * @returns {TreeRow[]}
 */
export function rowsOfTree(tree) {
  /** @type {Map<string | null, TreeRun[]>} */
  const children = new Map([[null, []]]);
  for (const run of tree) {
    const parent = run.parent !== null && children.has(run.parent) ? run.parent : null;
    /** @type {TreeRun[]} */ (children.get(parent)).push(run);
    children.set(run.id, []);
  }
  /** @type {TreeRow[]} */
  const rows = [];
  /** @type {{ run: TreeRun, lines: boolean[], parent: number | null, place: number, siblings: number }[]} */
  const waiting = [];
  const put = (
    /** @type {string | null} */ id,
    /** @type {boolean[]} */ lines,
    /** @type {number | null} */ parent,
  ) => {
    const mine = children.get(id) ?? [];
    // The first is taken next: a stack, since a conversation may be deeper than calls may nest.
    for (let at = mine.length - 1; at >= 0; at -= 1) {
      const own = parent === null ? [] : [...lines, at < mine.length - 1];
      waiting.push({ run: mine[at], lines: own, parent, place: at + 1, siblings: mine.length });
    }
  };
  put(null, [], null);
  for (let next = waiting.pop(); next !== undefined; next = waiting.pop()) {
    const at = rows.length;
    rows.push({ ...next, child: null });
    if (next.parent !== null) {
      rows[next.parent].child ??= at;
    }
    put(next.run.id, next.lines, at);
  }
  return rows;
}
