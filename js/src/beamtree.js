// The tree of a beam search: from the rows of the wire to nodes. Pure data; what is drawn of it is beamscene.js.
//
// A step costs work in proportion to its candidates: a branch that dies is walked once, and what is settled (what all
// live hypotheses share) only grows at its end.

/** @typedef {import("./wire.js").WireBeamStep} WireBeamStep */
/** @typedef {import("./wire.js").WireBeamChoice} WireBeamChoice */
/** @typedef {import("./wire.js").BeamShape} BeamShape */

/**
 * A hypothesis and its last token: a candidate that came to live or to finish.
 * @typedef {object} BeamNode
 * @property {number} step
 * @property {number} candidate
 * @property {number} id
 * @property {string} text
 * @property {BeamNode | null} parent
 * @property {number} group
 * @property {number | null} beam Where it lives; null of one that finished at once.
 * @property {number} lane Of the overview: children go on in the lane of their parent where they can.
 * @property {number | null} score Log-probability of the whole hypothesis.
 * @property {number | null} logprob Of the token alone.
 * @property {BeamNode[]} children In order of their candidates, which never changes.
 * @property {number} alive Children from which live hypotheses descend.
 * @property {number} died The first step at which no live hypothesis descends from it; infinite while one does.
 * @property {boolean} finished It came into the pool when it was made.
 */

/** @typedef {{ node: BeamNode, score: number | null, place: number }} Pooled */
/** @typedef {{ node: BeamNode, rank: number }} Ranked */

/**
 * @typedef {object} Candidate
 * @property {number} candidate
 * @property {number} id
 * @property {string} text
 * @property {number | null} score
 * @property {BeamNode | null} parent The hypothesis that it continues.
 * @property {BeamNode | null} node Null where it was dropped at once.
 */

export class BeamTree {
  /** @type {WireBeamStep[]} */
  steps = [];
  /** The first tokens. @type {BeamNode[]} */
  roots = [];
  /** By step and beam. @type {(BeamNode | null)[][]} */
  live = [];
  /** By step and group, the last node that all live hypotheses of the group share. @type {(BeamNode | null)[][]} */
  settled = [];

  /** By step and candidate. @type {Map<number, BeamNode>[]} */
  #nodes = [];

  /** @param {BeamShape} shape */
  constructor({ beams, groups }) {
    this.beams = beams;
    this.groups = groups;
    this.width = beams / groups;
  }

  get n() {
    return this.steps.length;
  }

  /** @param {WireBeamStep} row The next step. */
  add(row) {
    const before = this.live.at(-1);
    const { step } = row;
    const nodes = /** @type {Map<number, BeamNode>} */ (new Map());
    this.steps.push(row);
    this.#nodes.push(nodes);
    const holds = row.live.map((candidate, beam) => {
      const node = row.live_score[beam] === null ? null : this.#make(row, candidate);
      if (node !== null) {
        node.beam = beam;
      }
      return node;
    });
    for (const { step: at, candidate } of row.finished) {
      const there = nodes.get(candidate);
      if (at === step && there) {
        // At the length limit what lives finishes too.
        there.finished = true;
      } else if (at === step) {
        const node = this.#make(row, candidate);
        if (node !== null) {
          node.finished = true;
          node.died = step + 1;
        }
      }
    }
    const made = [...nodes.values()].sort((a, b) => a.candidate - b.candidate);
    for (const node of made) {
      (node.parent?.children ?? this.roots).push(node);
    }
    this.live.push(holds);
    for (const node of holds) {
      if (node?.parent) {
        node.parent.alive += 1;
      }
    }
    for (const node of before ?? []) {
      bury(node, step);
    }
    this.#giveLanes(made);
    this.#settle();
  }

  /**
   * @param {WireBeamStep} row
   * @param {number} candidate
   * @returns {BeamNode | null} Null where its beam held nothing.
   */
  #make(row, candidate) {
    const { step } = row;
    const parent = step === 0 ? null : this.live[step - 1][row.beam[candidate]];
    if (step > 0 && parent === null) {
      return null;
    }
    const score = row.score[candidate];
    const sofar = parent === null ? 0 : parent.score;
    const node = {
      step,
      candidate,
      id: row.id[candidate],
      text: row.text[candidate],
      parent,
      group: Math.floor(row.beam[candidate] / this.width),
      beam: null,
      lane: row.beam[candidate],
      score,
      logprob: score === null || sofar === null ? null : difference(score, sofar),
      children: [],
      alive: 0,
      died: Number.POSITIVE_INFINITY,
      finished: false,
    };
    this.#nodes[step].set(candidate, node);
    return node;
  }

  /**
   * The first child keeps its parent's lane, the others take the nearest ones of their group that became free.
   * @param {BeamNode[]} made The best first.
   */
  #giveLanes(made) {
    const taken = new Set();
    const homeless = [];
    for (const node of made) {
      node.lane = node.parent?.lane ?? node.group * this.width;
      if (node.beam !== null) {
        if (taken.has(node.lane)) {
          homeless.push(node);
        }
        taken.add(node.lane);
      }
    }
    for (const node of homeless) {
      const own = Array.from({ length: this.width }, (_, i) => node.group * this.width + i);
      const free = own.filter((lane) => !taken.has(lane));
      const wish = node.lane;
      node.lane = free.sort((a, b) => Math.abs(a - wish) - Math.abs(b - wish) || a - b)[0] ?? wish;
      taken.add(node.lane);
    }
  }

  #settle() {
    const last = this.settled.at(-1);
    const now = /** @type {(BeamNode | null)[]} */ ([]);
    for (let group = 0; group < this.groups; group += 1) {
      let at = last?.[group] ?? null;
      for (;;) {
        const next = (at?.children ?? this.roots).filter((node) => node.group === group && lives(node));
        if (next.length !== 1) {
          break;
        }
        at = next[0];
      }
      now.push(at);
    }
    this.settled.push(now);
  }

  /**
   * @param {number} step
   * @param {number} candidate
   * @returns {BeamNode | null} Null of a candidate that neither lived nor finished.
   */
  node(step, candidate) {
    return this.#nodes[step]?.get(candidate) ?? null;
  }

  /**
   * @param {number} step
   * @returns {Iterable<BeamNode>} Those that came to live or to finish with it.
   */
  made(step) {
    return this.#nodes[step]?.values() ?? [];
  }

  /**
   * The live hypotheses after a step, the best first; of a diverse search group after group.
   * @param {number} step
   * @returns {Ranked[]}
   */
  ranked(step) {
    const score = (/** @type {BeamNode} */ node) => node.score ?? Number.NEGATIVE_INFINITY;
    const nodes = (this.live[step] ?? []).filter((node) => node !== null);
    nodes.sort((a, b) => a.group - b.group || score(b) - score(a) || a.candidate - b.candidate);
    return nodes.map((node, i) => ({ node, rank: i - nodes.findIndex(({ group }) => group === node.group) + 1 }));
  }

  /**
   * The finished hypotheses after a step, each with its place in the pool (of its group).
   * @param {number} step
   * @returns {Pooled[]}
   */
  pool(step) {
    /** @type {number[]} */
    const places = [];
    return (this.steps[step]?.finished ?? []).flatMap(({ step: at, candidate, score }) => {
      const node = this.node(at, candidate);
      if (node === null) {
        return [];
      }
      places[node.group] = (places[node.group] ?? 0) + 1;
      return [{ node, score, place: places[node.group] }];
    });
  }

  /**
   * What a step considered, the best first, and what became of it.
   * @param {number} step
   * @param {number} group
   * @returns {Candidate[]}
   */
  candidates(step, group) {
    const row = this.steps[step];
    const parents = step > 0 ? this.live[step - 1] : [];
    return row.id.flatMap((id, candidate) => {
      if (Math.floor(row.beam[candidate] / this.width) !== group || row.score[candidate] === null) {
        return [];
      }
      const parent = parents[row.beam[candidate]] ?? null;
      const node = this.node(step, candidate);
      return [{ candidate, id, text: row.text[candidate], score: row.score[candidate], parent, node }];
    });
  }
}

/**
 * What rounding leaves above zero is zero; a bias may really lift a score.
 * @param {number} score
 * @param {number} sofar
 */
function difference(score, sofar) {
  const own = score - sofar;
  return own > 0 && own < 1e-4 ? 0 : own;
}

/** @param {BeamNode} node */
const lives = (node) => node.died === Number.POSITIVE_INFINITY;

/**
 * @param {BeamNode | null} node
 * @param {number} step
 */
function bury(node, step) {
  for (let at = node; at !== null && at.alive === 0 && at.died > step; at = at.parent) {
    at.died = step;
    if (at.parent) {
      at.parent.alive -= 1;
    }
  }
}

/**
 * @param {BeamNode} node
 * @param {number} [after] Only what comes after this step.
 * @returns {BeamNode[]} From the first token, or the first after the step, to the node.
 */
export function pathTo(node, after = -1) {
  const path = [];
  for (let at = /** @type {BeamNode | null} */ (node); at !== null && at.step > after; at = at.parent) {
    path.push(at);
  }
  return path.reverse();
}

/**
 * @param {BeamNode} node
 * @param {number} step
 * @returns {BeamNode | null} Its ancestor at a step, which may be itself.
 */
export function ancestor(node, step) {
  let at = /** @type {BeamNode | null} */ (node);
  while (at !== null && at.step > step) {
    at = at.parent;
  }
  return at !== null && at.step === step ? at : null;
}
