// Tokens and scores of a beam search as a person reads them: on one line, white space visible. No state.
import { looseBytes, marks, UNKNOWN } from "../format.js";

const SPACE = /[\t\n\r\u00a0]|^ +| +$| {2,}/g;

/**
 * @param {string} text
 * @returns {string} On one line; white space that one would not see is a mark.
 */
export function tokenText(text) {
  return text === "" ? "∅" : (looseBytes(text) ?? text.replace(SPACE, marks));
}

/**
 * @param {string} text Of several tokens.
 * @returns {string} On one line; line ends and tabs are marks, spaces stay.
 */
export const lineText = (text) => text.replace(/[\t\n\r]/g, marks);

/**
 * @param {number | null} score
 * @param {number} [digits]
 */
export function scoreText(score, digits = 2) {
  if (score === null) {
    return UNKNOWN;
  }
  const least = 10 ** -digits;
  // Almost certain is not certain.
  return score < 0 && score > -least / 2 ? `>\u202f−${least}` : score.toFixed(digits).replace("-", "−");
}

/** @param {number} group */
export const groupName = (group) => String.fromCodePoint(65 + (group % 26));

/** @param {import("../beamtree.js").BeamNode} node */
export const keyOf = (node) => `${node.step}:${node.candidate}`;
