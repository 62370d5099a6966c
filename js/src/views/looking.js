// What is looked into of the chosen token: which parts there are, what is asked of the kernel for the one that is
// shown, and where its weights are drawn. Asking and keeping is looks.js's part.
import { attentionPart, mapsOf } from "./attention.js";
import { lensPart } from "./lens.js";

/** @typedef {import("../session.js").Session} Session */
/** @typedef {import("../session.js").Part} Part */
/** @typedef {import("./lanes.js").LanesView} LanesView */
/** @typedef {import("./lanes.js").Pick} Pick */

/**
 * Whether a person has chosen the token: what changes with every new token is not worth asking for.
 * @param {Session} session
 * @param {Pick} pick
 */
export const isChosen = (session, { why }) => why !== "latest" || !session.living;

/**
 * @param {Session} session
 * @param {LanesView} lanes
 * @returns {{ parts: Part[], part: Part, content: () => unknown }}
 */
export function lookInto(session, lanes) {
  const { state, looks } = session;
  const maps = mapsOf(state.observed);
  /** @type {Part[]} */
  const parts = ["alternatives"];
  if (maps.length > 0) {
    parts.push("attention");
  }
  if (state.observed.includes("lens")) {
    parts.push("lens");
  }
  const part = parts.includes(session.part) ? session.part : "alternatives";
  if (part !== "attention") {
    looks.leave(lanes, "attention");
    lanes.attend(null, null);
  }
  if (part !== "lens") {
    looks.leave(lanes, "lens");
  }
  const { pick } = lanes;
  const obstacle = obstacleTo(session, pick);
  const { run } = state;
  const look =
    obstacle === null && run !== null && pick.index !== null
      ? { kind: /** @type {const} */ ("look"), run, lane: pick.track, position: pick.index }
      : null;
  if (part === "lens") {
    const seen = look && ask(session, lanes, { ...look, what: "lens" });
    const chosen = pick.index === null ? null : (state.tracks[pick.track]?.columns.id[pick.index] ?? null);
    return { parts, part, content: () => lensPart(asLens(seen), chosen, obstacle) };
  }
  if (part === "attention") {
    const { choice } = looks;
    const of = maps.includes(choice.of) ? choice.of : maps[0];
    const seen =
      look && ask(session, lanes, { ...look, what: "attention", of, layer: choice.layer, head: choice.head });
    const track = of === "cross" ? (state.lanes[pick.track]?.source ?? pick.track) : pick.track;
    lanes.attend(track, seen?.kind === "attention" ? seen.weights : null);
    return { parts, part, content: () => attentionPart(session, asAttention(seen), state.tracks[track], obstacle) };
  }
  return { parts, part, content: () => null };
}

/**
 * @param {Session} session
 * @param {object} view Whose wish it is.
 * @param {import("../wire.js").Look} look
 * @returns {import("../connection.js").Seen | null} Null while it is not here.
 */
export function ask({ connection, looks }, view, look) {
  if (connection.alive) {
    return looks.want(view, look);
  }
  looks.leave(view, look.what);
  const message = "The kernel is gone, and with it what it saw.";
  return looks.kept(look) ?? { ...look, kind: "unseen", message };
}

/**
 * @param {Session} session
 * @param {Pick} pick
 * @returns {string | null} Why there is nothing to ask for.
 */
function obstacleTo(session, pick) {
  if (session.state.lanes[pick.track] === undefined) {
    return "Choose a token of the target: these belong to its choice.";
  }
  if (!isChosen(session, pick)) {
    return "Point at a token, or pin one.";
  }
  return pick.index === 0 ? "The first token was not chosen: nothing comes before it." : null;
}

/** @param {import("../connection.js").Seen | null} seen */
const asLens = (seen) => (seen?.kind === "lens" || seen?.kind === "unseen" ? seen : null);

/** @param {import("../connection.js").Seen | null} seen */
const asAttention = (seen) => (seen?.kind === "attention" || seen?.kind === "unseen" ? seen : null);
