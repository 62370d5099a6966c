// The view of a beam search: takes its rows in, says which step is looked at and which token a person points at, and
// has the parts drawn. The tree is beamtree.js, what is seen of it the strip, the overview, the settled text and the
// tables.
import { nothing, render } from "lit-html";
import { sceneAt } from "../beamscene.js";
import { ancestor, BeamTree, pathTo } from "../beamtree.js";
import { literal } from "../format.js";
import { BeamOverview } from "./beamoverview.js";
import { BeamSettled } from "./beamsettled.js";
import { BeamStrip } from "./beamstrip.js";
import { hypotheses, inspection } from "./beamtables.js";
import { scoreText } from "./beamtext.js";
import { drawHead, endsOf, restOf, sharedText } from "./beamwords.js";

/** @typedef {import("../beamtree.js").BeamNode} BeamNode */
/** @typedef {import("../wire.js").WireBeamStep} WireBeamStep */
/** @typedef {import("../wire.js").WireBeamChoice} WireBeamChoice */

/**
 * What is read of a session's state.
 * @typedef {object} BeamState
 * @property {string | null} run
 * @property {import("../wire.js").BeamShape | null} beams
 * @property {import("../wire.js").WireLane[]} lanes
 * @property {{ beams: WireBeamStep[], choices: WireBeamChoice[] }} tables Grow in place.
 * @property {Record<string, unknown> | null} settings
 * @property {boolean} over
 */

/** @typedef {{ state: BeamState, living: boolean, refresh(): void }} BeamSession */

const NEAR_END_PX = 24;
/** Settled tokens before the first fork that stay in the strip. */
const CONTEXT = 8;

export class BeamsView {
  element = document.createElement("div");

  #session;
  #head = part("div", "gs-bhead");
  #overview = new BeamOverview();
  #settled = new BeamSettled();
  #strip = new BeamStrip();
  #hypotheses = part("div", "gs-btables");
  #inspector = part("aside", "gs-binspector");
  #announce = part("div", "gs-sr");

  /** @type {string | null} */
  #run = null;
  /** By prompt. @type {BeamTree[]} */
  #trees = [];
  #read = 0;
  #prompt = 0;
  /** The step that is looked at; null is the newest. @type {number | null} */
  #at = null;
  /** @type {BeamNode | null} */
  #pinned = null;
  /** @type {BeamNode | null} */
  #pointed = null;
  #following = true;
  #left = 0;

  /**
   * @param {BeamSession} session
   * @param {AbortSignal} signal
   */
  constructor(session, signal) {
    this.#session = session;
    this.element.className = "gs-beams";
    const strip = this.#strip.element;
    strip.tabIndex = 0;
    strip.dataset.lmSuppressShortcuts = "true";
    strip.setAttribute("role", "region");
    strip.setAttribute("aria-label", "Tree of hypotheses. Arrow keys choose a token, Enter pins it, Escape lets go.");
    this.#inspector.setAttribute("aria-label", "Chosen token");
    this.#announce.setAttribute("aria-live", "polite");
    const foot = part("div", "gs-bfoot");
    foot.append(this.#hypotheses, this.#inspector);
    this.element.append(this.#head, this.#overview.element, this.#settled.element, strip, foot, this.#announce);

    const options = { signal, passive: true };
    this.element.addEventListener("pointerover", (event) => this.#point(this.#nodeAt(event)), options);
    this.element.addEventListener("pointerleave", () => this.#point(null), options);
    this.element.addEventListener("click", (event) => this.#click(event), options);
    strip.addEventListener("keydown", (event) => this.#key(event), { signal });
    strip.addEventListener("scroll", () => this.#scrolled(), options);
    this.#overview.slider.addEventListener("input", () => this.#slide(), options);
    if (typeof ResizeObserver === "function") {
      const observer = new ResizeObserver(() => this.#toEnd());
      observer.observe(strip);
      signal.addEventListener("abort", () => observer.disconnect());
    }
  }

  /** Take in what came, and draw it. */
  update() {
    const { state } = this.#session;
    this.element.hidden = state.beams === null;
    if (state.beams === null) {
      return;
    }
    if (state.run !== this.#run || state.tables.beams.length < this.#read) {
      this.#run = state.run;
      this.#trees = [];
      this.#read = 0;
      this.#prompt = 0;
      this.#startOver();
    }
    for (; this.#read < state.tables.beams.length; this.#read += 1) {
      const row = state.tables.beams[this.#read];
      this.#trees[row.prompt] ??= new BeamTree(state.beams);
      this.#trees[row.prompt].add(row);
    }
    this.element.style.setProperty("--beams", String(state.beams.beams));
    this.#draw();
  }

  #startOver() {
    this.#at = null;
    this.#pinned = null;
    this.#pointed = null;
    this.#following = true;
    this.#strip.clear();
    this.#overview.clear();
    this.#settled.clear();
  }

  get #tree() {
    return this.#trees[this.#prompt];
  }

  /** @param {BeamTree} tree */
  #step(tree) {
    return Math.min(this.#at ?? tree.n - 1, tree.n - 1);
  }

  #draw() {
    const tree = this.#tree;
    this.element.toggleAttribute("data-empty", tree === undefined);
    this.#drawHead(tree);
    if (tree === undefined) {
      render(nothing, this.#hypotheses);
      render(nothing, this.#inspector);
      return;
    }
    const { state } = this.#session;
    const step = this.#step(tree);
    const sequences = this.#sequences(tree);
    const pick = this.#pinned ?? this.#pointed;
    const chosenLeaves = [...sequences.keys()];
    const scene = sceneAt(tree, step, { chosen: chosenLeaves.filter((node) => node.step <= step), picked: pick });
    const chosen = new Set(chosenLeaves.flatMap((node) => pathTo(node)));
    const ranked = tree.ranked(step);
    const best = ranked[0]?.node ?? chosenLeaves[0] ?? null;
    const path = new Set(pick === null ? [] : pathTo(pick));
    const settled = tree.settled[step];
    const held = new Set(
      scene.leaves.flatMap(({ node, fate }) => (fate === "live" || fate === "finished" ? pathTo(node) : [])),
    );
    const marks = {
      step,
      first: Math.max(0, Math.min(...settled.map((node) => node?.step ?? -1)) + 1 - CONTEXT),
      settled,
      held,
      chosen,
      best: new Set(best === null ? [] : pathTo(best)),
      ends: endsOf(tree, step, scene.leaves, sequences),
      pointed: pick,
      path,
      pinned: this.#pinned !== null,
    };
    this.#strip.draw(scene, marks, tree.groups);
    const [first] = chosenLeaves;
    if (ranked.length === 0 && first !== undefined) {
      const lines = settled.map((_, group) => (group === first.group ? first : null));
      this.#settled.draw(`★ chosen: sequence ${sequences.get(first)}`, lines, tree.groups, pick);
    } else {
      this.#settled.draw(sharedText(settled, ranked.length), settled, tree.groups, pick);
    }
    const most = state.settings?.max_new_tokens;
    this.#overview.draw(tree, {
      step,
      horizon: state.over || typeof most !== "number" ? tree.n : Math.max(tree.n, most),
      live: held,
      chosen,
      picked: path,
      point: pick,
    });
    /** @type {import("./beamtables.js").Shown} */
    const shown = {
      tree,
      step,
      pick: pick ?? best,
      why: this.#pinned ? "pinned" : this.#pointed ? "pointed" : ranked.length > 0 ? "best" : "chosen",
      sequences,
      chosen,
      rest: (/** @type {BeamNode} */ node) => restOf(node, settled[node.group], scene),
    };
    render(hypotheses(shown), this.#hypotheses);
    render(inspection(shown), this.#inspector);
    this.#toEnd();
  }

  /** @param {BeamTree | undefined} tree */
  #drawHead(tree) {
    drawHead(this.#head, {
      tree,
      step: tree === undefined ? 0 : this.#step(tree),
      prompt: this.#prompt,
      prompts: Math.max(this.#trees.length, ...this.#session.state.lanes.map(({ prompt }) => prompt + 1)),
      show: (prompt) => this.#show(prompt),
      newest: () => this.#goTo(null),
    });
  }

  /**
   * @param {BeamTree} tree
   * @returns {Map<BeamNode, number>} Which sequence of this prompt each chosen hypothesis became, from 1.
   */
  #sequences(tree) {
    const { tables, lanes } = this.#session.state;
    const found = new Map();
    for (const { lane, prompt, step, candidate } of tables.choices) {
      const node = prompt === this.#prompt ? tree.node(step, candidate) : null;
      if (node !== null) {
        found.set(node, (lanes[lane]?.sequence ?? lane) + 1);
      }
    }
    return found;
  }

  /** @param {number} prompt */
  #show(prompt) {
    this.#prompt = prompt;
    this.#startOver();
    this.#draw();
  }

  #slide() {
    const step = Number(this.#overview.slider.value);
    this.#goTo(step >= this.#tree.n - 1 ? null : step);
  }

  /** @param {number | null} step */
  #goTo(step) {
    this.#at = step;
    this.#following = true;
    this.#pointed = null;
    this.#draw();
  }

  /** @param {Event} event */
  #nodeAt(event) {
    const element = event.target instanceof Element ? event.target.closest("[data-key]") : null;
    const [step, candidate] = (element instanceof HTMLElement ? (element.dataset.key ?? "") : "").split(":");
    return candidate === undefined ? null : (this.#tree?.node(Number(step), Number(candidate)) ?? null);
  }

  /** @param {BeamNode | null} node */
  #point(node) {
    if (node !== this.#pointed) {
      this.#pointed = node;
      this.#session.refresh();
    }
  }

  /** @param {MouseEvent} event */
  #click(event) {
    const node = this.#nodeAt(event);
    const selection = window.getSelection?.();
    if (node !== null && (!selection || selection.isCollapsed)) {
      this.#pinned = this.#pinned === node ? null : node;
      this.#session.refresh();
    }
  }

  /** @param {KeyboardEvent} event */
  #key(event) {
    if (event.ctrlKey || event.metaKey || event.altKey || this.#tree === undefined) {
      return;
    }
    const tree = this.#tree;
    const at = this.#pinned ?? this.#pointed ?? tree.ranked(this.#step(tree))[0]?.node ?? null;
    const target = at === null ? undefined : this.#neighbour(at, event.key);
    if (target !== undefined) {
      this.#move(target ?? at);
    } else if (event.key === "Enter" && at !== null) {
      this.#pinned = at;
    } else if (event.key === "Escape" && (this.#pinned !== null || this.#pointed !== null)) {
      this.#pinned = null;
      this.#pointed = null;
    } else {
      return;
    }
    event.preventDefault();
    // Escape would else also stop the run.
    event.stopPropagation();
    this.#session.refresh();
  }

  /**
   * @param {BeamNode} node
   * @param {string} key
   * @returns {BeamNode | null | undefined} Undefined where the key moves nothing.
   */
  #neighbour(node, key) {
    const tree = this.#tree;
    const step = this.#step(tree);
    const { cells, leaves } = sceneAt(tree, step, { picked: node });
    switch (key) {
      case "ArrowLeft":
        return node.parent;
      case "ArrowRight":
        return node.children.find((child) => cells.has(child)) ?? null;
      case "Home":
        return ancestor(node, 0);
      case "End":
        return tree.ranked(step)[0]?.node ?? null;
      case "ArrowUp":
      case "ArrowDown": {
        const column = leaves.map(({ node: leaf }) => ancestor(leaf, node.step)).filter((one) => one !== null);
        const all = [...new Set(column)];
        return all[all.indexOf(node) + (key === "ArrowUp" ? -1 : 1)] ?? null;
      }
      default:
        return undefined;
    }
  }

  /** @param {BeamNode | null} node */
  #move(node) {
    if (node === null) {
      return;
    }
    if (this.#pinned === null) {
      this.#pointed = node;
    } else {
      this.#pinned = node;
    }
    this.#following = node.step >= this.#step(this.#tree);
    this.#strip.cell(node)?.scrollIntoView?.({ block: "nearest", inline: "nearest" });
    this.#announce.textContent = `Step ${node.step + 1}: ${literal(node.text)}, total ${scoreText(node.score)}`;
  }

  #scrolled() {
    const { scrollLeft, clientWidth, scrollWidth } = this.#strip.element;
    if (scrollLeft + clientWidth >= scrollWidth - NEAR_END_PX) {
      this.#following = true;
    } else if (scrollLeft < this.#left) {
      // Only a person scrolls back; a step that comes moves the end away.
      this.#following = false;
    }
    this.#left = scrollLeft;
  }

  #toEnd() {
    if (this.#following) {
      const { element } = this.#strip;
      element.scrollLeft = element.scrollWidth;
    }
  }
}

/**
 * @param {string} tag
 * @param {string} className
 */
function part(tag, className) {
  const element = document.createElement(tag);
  element.className = className;
  return element;
}
