// Which generated tokens were drafted, from the rounds of assisted decoding. No DOM.

/** @typedef {import("./wire.js").WireRound} Round */

/**
 * @typedef {object} Origin
 * @property {"accepted" | "own"} kind An accepted draft, or the model's own token behind the drafts.
 * @property {number | null} logprob That an accepted draft was drafted with; null where drafts have none.
 */

/**
 * @param {Round} round
 * @returns {number} Position after the round's last token.
 */
export const endOf = ({ position, accepted, bonus }) => position + accepted + bonus;

/**
 * @param {Round[]} rounds In the order of their positions.
 * @param {number} index Position of a token in lane 0.
 * @returns {Origin | null} Null where no round tells of it: the prompt, or a round that is still to come.
 */
export function originOf(rounds, index) {
  let low = 0;
  let high = rounds.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (endOf(rounds[middle]) <= index) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  const round = rounds[low];
  if (round === undefined || index < round.position) {
    return null;
  }
  const at = index - round.position;
  return at < round.accepted
    ? { kind: "accepted", logprob: round.draft_logprob[at] ?? null }
    : { kind: "own", logprob: null };
}
