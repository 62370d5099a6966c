// The view of a beam search alone, with what two searches of SmolLM2-135M really did: beam_search.json (8 beams, 128
// steps, 3 sequences) and beam_groups.json (diverse: 2 prompts, 4 beams in 2 groups). Options in the address:
// scene=beams|beamgroups, step=60 (rows that came; default all, then the search is over), play=1 (10 steps a second).

import { BeamsView } from "../src/views/beams.js";
import { followTheme } from "../src/views/theme.js";
import groups from "./beam_groups.json";
import search from "./beam_search.json";

/** @typedef {import("../src/views/beams.js").BeamSession} BeamSession */

/**
 * @param {typeof search | typeof groups} found
 * @returns {import("../src/wire.js").WireLane[]}
 */
const lanesOf = ({ choices }) =>
  choices.map(({ prompt, lane }) => ({
    prompt,
    sequence: choices.filter((one) => one.prompt === prompt && one.lane < lane).length,
    prompt_tokens: 8,
    source: null,
    label: "",
  }));

/**
 * @param {typeof search | typeof groups} found
 * @returns {BeamSession}
 */
export function beamSession(found) {
  return {
    state: {
      run: "beams",
      beams: { beams: found.beams, groups: found.groups },
      lanes: lanesOf(found),
      tables: { beams: [], choices: [] },
      settings: { max_new_tokens: Math.max(...found.steps.map(({ step }) => step)) + 1 },
      over: false,
    },
    living: true,
    refresh() {},
  };
}

export { groups, search };

/**
 * Play all steps, one every other frame. With step=1 in the address: `await beams.measure()`.
 * @param {(n: number) => void} more
 * @param {number} steps
 * @returns {Promise<{ median: number, p90: number }>} Milliseconds of a step with its layout, without its paint.
 */
async function measure(more, steps) {
  const frames = () => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)));
  const took = [];
  for (let step = 1; step < steps; step += 1) {
    await frames();
    const start = performance.now();
    more(1);
    document.body.getBoundingClientRect();
    took.push(performance.now() - start);
  }
  took.sort((a, b) => a - b);
  return { median: took[took.length >> 1], p90: took[Math.floor(took.length * 0.9)] };
}

/**
 * @param {HTMLElement} host
 * @param {URLSearchParams} options
 */
export function mountBeams(host, options) {
  const found = options.get("scene") === "beamgroups" ? groups : search;
  const session = beamSession(found);
  const { signal } = new AbortController();
  const view = new BeamsView(session, signal);
  const root = document.createElement("div");
  root.className = "genscope";
  root.append(view.element);
  followTheme(root, signal);
  host.append(root);
  let asked = false;
  session.refresh = () => {
    if (!asked) {
      asked = true;
      requestAnimationFrame(() => {
        asked = false;
        view.update();
      });
    }
  };
  const prompts = Math.max(...found.steps.map(({ prompt }) => prompt)) + 1;
  /** @param {number} n Steps more. */
  const more = (n) => {
    const { tables } = session.state;
    const rows = found.steps.slice(tables.beams.length, tables.beams.length + n * prompts);
    tables.beams.push(...rows);
    if (tables.beams.length === found.steps.length && !session.state.over) {
      tables.choices.push(...found.choices);
      session.state.over = true;
      session.living = false;
    }
    view.update();
  };
  more(Number(options.get("step") ?? (options.has("play") ? 0 : found.steps.length)));
  if (options.has("play")) {
    setInterval(() => more(1), 100);
  }
  Object.assign(window, { beams: { more, measure: () => measure(more, found.steps.length / prompts) } });
}
