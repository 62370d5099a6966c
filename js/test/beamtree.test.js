import { describe, expect, test } from "vitest";
import groups from "../dev/beam_groups.json";
import search from "../dev/beam_search.json";
import { sceneAt } from "../src/beamscene.js";
import { ancestor, BeamTree, pathTo } from "../src/beamtree.js";

/**
 * @param {typeof search | typeof groups} found
 * @param {number} [prompt]
 */
function grow(found, prompt = 0) {
  const tree = new BeamTree({ beams: found.beams, groups: found.groups });
  for (const row of found.steps.filter((one) => one.prompt === prompt)) {
    tree.add(row);
  }
  return tree;
}

/**
 * A step in short: candidates as "beam text score", with "." behind one that stops.
 * @param {number} step
 * @param {string[]} candidates
 * @param {number[]} live
 * @param {[number, number][]} [pool] Step and candidate.
 * @returns {import("../src/wire.js").WireBeamStep}
 */
function row(step, candidates, live, pool = []) {
  const parts = candidates.map((one) => one.split(" "));
  const score = parts.map((part) => Number(part[2]));
  return {
    prompt: 0,
    step,
    id: parts.map((_, i) => i),
    text: parts.map((part) => part[1]),
    beam: parts.map((part) => Number(part[0])),
    score,
    stops: parts.map((part) => (part[3] === "." ? 1 : 0)),
    live,
    live_score: live.map((candidate) => score[candidate]),
    finished: pool.map(([at, candidate]) => ({ step: at, candidate, score: -0.5 })),
  };
}

/** Two beams: a forks at step 1 and b dies there; at step 2 ab finishes and ac goes on; at step 3 both are of ac. */
const SMALL = [
  row(0, ["0 a -1", "0 b -2"], [0, 1]),
  row(1, ["0 b -1.5", "0 c -1.75", "1 z -4"], [0, 1]),
  row(2, ["0 ! -1.6 .", "1 d -2", "1 e -2.5"], [1, 2], [[2, 0]]),
  row(3, ["0 f -2.25", "0 g -2.5", "1 h -9"], [0, 1], [[2, 0]]),
];

function small(steps = SMALL.length) {
  const tree = new BeamTree({ beams: 2, groups: 1 });
  for (const one of SMALL.slice(0, steps)) {
    tree.add(one);
  }
  return tree;
}

const texts = (/** @type {import("../src/beamtree.js").BeamNode[]} */ nodes) => nodes.map(({ text }) => text).join("");

/** @param {import("../src/beamscene.js").Scene} scene */
const rows = ({ leaves }) => leaves.map(({ node, fate, row: at }) => `${at} ${texts(pathTo(node))} ${fate}`);

describe("nodes", () => {
  test("know their parent, the log-probability of their own token, and the whole", () => {
    const node = small().node(2, 2);
    expect(node).toMatchObject({ text: "e", score: -2.5, logprob: -0.75, beam: 1 });
    expect(texts(pathTo(/** @type {any} */ (node)))).toBe("ace");
    expect(small().node(0, 1)?.logprob).toBe(-2);
  });

  test("rounding makes no token more than certain; a bias may", () => {
    const tree = new BeamTree({ beams: 1, groups: 1 });
    tree.add(row(0, ["0 a -1"], [0]));
    tree.add(row(1, ["0 b -0.99999"], [0]));
    tree.add(row(2, ["0 c -0.5"], [0]));
    expect([1, 2].map((step) => tree.node(step, 0)?.logprob)).toEqual([0, -0.5 + 0.99999]);
  });

  test("are not made for candidates that were dropped at once", () => {
    expect(small().node(1, 2)).toBeNull();
  });

  test("die in the step that leaves them without live children, with all that led to them alone", () => {
    const tree = small();
    const died = (/** @type {number} */ step, /** @type {number} */ candidate) => tree.node(step, candidate)?.died;
    expect(died(0, 1)).toBe(1);
    // "ab" came to its end with a child that finished; "ae" was beaten.
    expect([died(1, 0), died(2, 0), died(2, 2)]).toEqual([2, 3, 3]);
    expect([died(0, 0), died(1, 1), died(2, 1), died(3, 0)]).toEqual(Array(4).fill(Number.POSITIVE_INFINITY));
  });

  test("a beam that holds nothing has none", () => {
    const tree = new BeamTree({ beams: 2, groups: 1 });
    tree.add({ ...row(0, ["0 a -1"], [0, 0]), live_score: [-1, null] });
    expect(tree.live[0].map((node) => node?.text ?? null)).toEqual(["a", null]);
    tree.add({ ...row(1, ["0 b -2", "1 x -3"], [0, 1]), score: [-2, null], live_score: [-2, null] });
    expect(tree.ranked(1).map(({ node }) => node.text)).toEqual(["b"]);
    expect(tree.candidates(1, 0).map(({ text }) => text)).toEqual(["b"]);
  });
});

test("what is settled grows as branches die, and is kept for each step", () => {
  const tree = small();
  expect(tree.settled.map(([node]) => (node === null ? "" : texts(pathTo(node))))).toEqual(["", "a", "ac", "acd"]);
});

describe("a scene", () => {
  test("has a row for what lives, finishes or dies in its step, in the order of the tree", () => {
    const tree = small();
    expect(rows(sceneAt(tree, 0))).toEqual(["0 a live", "1 b live"]);
    expect(rows(sceneAt(tree, 1))).toEqual(["0 ab live", "1 ac live", "2 b died"]);
    expect(rows(sceneAt(tree, 2))).toEqual(["0 ab! finished", "1 acd live", "2 ace live"]);
    expect(rows(sceneAt(tree, 3))).toEqual(["0 acdf live", "1 acdg live", "2 ace died"]);
  });

  test("going back shows what was seen then", () => {
    for (let step = 0; step < SMALL.length; step += 1) {
      expect(rows(sceneAt(small(), step))).toEqual(rows(sceneAt(small(step + 1), step)));
    }
  });

  test("tells of each token where its parent is and what fell off", () => {
    const tree = small();
    const cell = (/** @type {number} */ step, /** @type {number} */ candidate) =>
      sceneAt(tree, 3).cells.get(/** @type {any} */ (tree.node(step, candidate)));
    expect(cell(0, 0)).toMatchObject({ row: 0, up: 0, goesOn: true, fallen: 1, pooled: 0 });
    expect(cell(3, 1)).toMatchObject({ row: 1, up: 1, goesOn: false, fallen: 0 });
    expect(cell(2, 2)).toMatchObject({ row: 2, up: 2 });
  });

  test("gives rows to what was chosen, and to what a person picked and is not there", () => {
    const tree = small();
    const chosen = [/** @type {any} */ (tree.node(2, 0))];
    expect(rows(sceneAt(tree, 3, { chosen }))).toContain("0 ab! chosen");
    expect(rows(sceneAt(tree, 3, { picked: tree.node(0, 1) }))).toContain("3 b picked");
    expect(rows(sceneAt(tree, 3, { picked: tree.node(1, 1) }))).toHaveLength(3);
  });
});

describe("the search of SmolLM2: 8 beams, 128 steps", () => {
  const tree = grow(search);

  test("every step has 8 live hypotheses, of 8 candidates in a row, until the length ends all", () => {
    for (let step = 0; step < 127; step += 1) {
      const { live, live_score } = search.steps[step];
      expect(tree.ranked(step).map(({ node }) => node.score)).toEqual(
        live_score.toSorted((a, b) => Number(b) - Number(a)),
      );
      expect(new Set(tree.live[step].map((node) => node?.candidate))).toEqual(new Set(live));
      expect(new Set(tree.live[step].map((node) => node?.lane)).size).toBe(8);
    }
    expect(tree.ranked(127)).toEqual([]);
  });

  test("what is settled is what all live hypotheses share, and no more", () => {
    for (let step = 0; step < 127; step += 1) {
      const paths = tree.ranked(step).map(({ node }) => pathTo(node));
      let shared = 0;
      while (paths.every((path) => path[shared] !== undefined && path[shared] === paths[0][shared])) {
        shared += 1;
      }
      expect(tree.settled[step][0]?.step ?? -1).toBe(shared - 1);
    }
  });

  test("a node is dead exactly from the step on at which no live hypothesis descends from it", () => {
    for (let step = 0; step < 126; step += 1) {
      const held = new Set(tree.ranked(step + 1).map(({ node }) => ancestor(node, step)));
      for (const node of tree.made(step)) {
        expect(node.died === step + 1).toBe(!held.has(node));
      }
    }
  });

  test("no two lines cross: what lies between a node and its parent descends from the parent", () => {
    for (let step = 0; step < 128; step += 1) {
      const { cells, leaves } = sceneAt(tree, step);
      for (const { node, row: at, up } of cells.values()) {
        for (const leaf of leaves.slice(at - up, at)) {
          expect(node.parent === null || ancestor(leaf.node, node.parent.step) === node.parent).toBe(true);
        }
      }
    }
  });

  test("two hypotheses never change their order", () => {
    for (let step = 1; step < 127; step += 1) {
      const before = sceneAt(tree, step - 1).leaves.map(({ node }) => node);
      const order = sceneAt(tree, step).leaves.flatMap(({ node }) => {
        const at = before.indexOf(/** @type {any} */ (ancestor(node, step - 1)));
        return at < 0 ? [] : [at];
      });
      expect(order).toEqual(order.toSorted((a, b) => a - b));
    }
  });

  test("the pool names hypotheses that end with a stop or at the limit, best first", () => {
    const pool = tree.pool(127);
    expect(pool.map(({ place }) => place)).toEqual([1, 2, 3, 4, 5, 6, 7, 8]);
    expect(pool[0].node).toMatchObject({ step: 109, candidate: 1, text: "<|im_end|>", finished: true });
    expect(pool[0].score).toBe(search.choices[0].score);
    expect(texts(pathTo(pool[0].node)).slice(0, 34)).toBe("The sky appears blue because of a ");
  });
});

describe("the diverse search of SmolLM2: 2 prompts, 4 beams in 2 groups", () => {
  test("groups stay apart: in their rows, ranks, lanes and what is settled", () => {
    for (const prompt of [0, 1]) {
      const tree = grow(groups, prompt);
      const step = 13;
      expect(tree.ranked(step).map(({ node, rank }) => [node.group, rank])).toEqual([
        [0, 1],
        [0, 2],
        [1, 1],
        [1, 2],
      ]);
      const order = sceneAt(tree, step).leaves.map(({ node }) => node.group);
      expect(order).toEqual(order.toSorted());
      for (let at = 0; at < 23; at += 1) {
        expect(tree.live[at].map((node) => node?.lane).toSorted()).toEqual([0, 1, 2, 3]);
      }
      for (const { node } of tree.ranked(step)) {
        expect(pathTo(node).every(({ group, lane }) => group === node.group && lane >> 1 === group)).toBe(true);
        expect(ancestor(node, tree.settled[step][node.group]?.step ?? -1)).toBe(tree.settled[step][node.group]);
      }
    }
  });
});
