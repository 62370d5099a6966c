// Looks and their answers, for the tests.

/** @typedef {import("../src/wire.js").Look} Look */

export const map = { layer: null, head: null, layers: 3, heads: 2 };

/**
 * @param {number} position
 * @param {Partial<Look>} [change]
 * @returns {Look}
 */
export const look = (position, change) => ({
  kind: "look",
  run: "r1",
  lane: 0,
  position,
  what: "attention",
  of: "self",
  layer: null,
  head: null,
  ...change,
});

/**
 * @param {number} position
 * @param {Partial<import("../src/wire.js").SeenAttention>} [change]
 * @returns {import("../src/wire.js").SeenAttention}
 */
export const attention = (position, change) => ({
  kind: "attention",
  run: "r1",
  lane: 0,
  position,
  of: "self",
  ...map,
  weights: Array.from({ length: position }, (_, i) => (i === 0 ? 0.75 : 0.25 / (position - 1))),
  ...change,
});

/**
 * @param {number} position Of the first row.
 * @param {number} n
 * @returns {import("../src/wire.js").SeenMatrix}
 */
export const matrix = (position, n) => ({
  kind: "matrix",
  run: "r1",
  lane: 0,
  position,
  of: "self",
  ...map,
  rows: Array.from({ length: n }, (_, i) => Array.from({ length: position + i }, () => 1 / (position + i))),
});
