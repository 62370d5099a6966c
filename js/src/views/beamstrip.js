// The tree of a beam search as a strip: a column a step, a row a hypothesis, edges from left to right. Draws what
// beamtree.js lays out, and touches only what changed since the last time. No listeners.
//
// The grid sizes its own columns, and edges are borders of pseudo-elements, so nothing is measured here.
import { looseBytes } from "../format.js";
import { bucketClass, bucketOf, MEASURES } from "../measures.js";
import { groupName, keyOf, tokenText } from "./beamtext.js";

/** @typedef {import("../beamtree.js").BeamNode} BeamNode */
/** @typedef {import("../beamscene.js").Cell} Cell */
/** @typedef {import("../beamscene.js").Scene} Scene */

/**
 * @typedef {object} Marks
 * @property {number} step
 * @property {number} first Steps before it are folded: their text is settled, and stands above.
 * @property {(BeamNode | null)[]} settled By group.
 * @property {ReadonlySet<BeamNode>} held What a live or just finished hypothesis descends from.
 * @property {ReadonlySet<BeamNode>} best What the best live hypothesis descends from.
 * @property {ReadonlySet<BeamNode>} chosen What the chosen sequences descend from.
 * @property {ReadonlyMap<BeamNode, string>} ends What is said at the end of a row.
 * @property {BeamNode | null} pointed
 * @property {ReadonlySet<BeamNode>} path What the pointed one descends from.
 * @property {boolean} pinned
 */

const SCALE = MEASURES.probability.scales.processed ?? MEASURES.probability.scales.raw;
const TICK = 5;
/** Rows above the tree: the numbers of steps. Columns before it: the groups. */
const TOP = 2;
const LEFT = 2;

export class BeamStrip {
  element = document.createElement("div");

  #grid = document.createElement("div");
  #edge = document.createElement("div");
  /** @type {Map<BeamNode, HTMLElement>} */
  #cells = new Map();
  /** @type {Map<BeamNode, string>} */
  #drawn = new Map();
  /** @type {HTMLElement[]} */
  #ends = [];
  /** @type {HTMLElement[]} */
  #ticks = [];
  /** @type {HTMLElement[]} */
  #groups = [];

  constructor() {
    this.element.className = "gs-btree";
    this.element.dataset.scale = SCALE.key;
    this.#grid.className = "gs-bgrid";
    this.#edge.className = "gs-bnow";
    this.element.append(this.#grid);
  }

  /** @param {BeamNode} node */
  cell(node) {
    return this.#cells.get(node);
  }

  clear() {
    this.#cells.clear();
    this.#drawn.clear();
    this.#ends = [];
    this.#ticks = [];
    this.#groups = [];
    this.#grid.replaceChildren(this.#edge);
  }

  /**
   * @param {Scene} scene
   * @param {Marks} marks
   * @param {number} groups
   */
  draw(scene, marks, groups) {
    for (const [node, cell] of this.#cells) {
      if (node.step < marks.first || !scene.cells.has(node)) {
        cell.remove();
        this.#cells.delete(node);
        this.#drawn.delete(node);
      }
    }
    for (const cell of scene.cells.values()) {
      if (cell.node.step >= marks.first) {
        this.#place(cell, marks);
      }
    }
    this.#edge.style.gridArea = `${TOP} / ${marks.step + LEFT} / ${TOP + scene.leaves.length} / auto`;
    this.#drawTicks(marks);
    this.#drawEnds(scene, marks);
    this.#drawGroups(scene, groups, marks.step);
  }

  /**
   * @param {Cell} cell
   * @param {Marks} marks
   */
  #place(cell, marks) {
    const { node, row, up } = cell;
    const line = lineOf(node, marks);
    const point = node === marks.pointed ? (marks.pinned ? "pinned" : "pointed") : marks.path.has(node) ? "path" : "";
    const from = node.parent === null ? "start" : node.step === marks.first ? "folded" : up > 0 ? "above" : "left";
    const signature = `${row} ${up} ${line} ${point} ${from} ${cell.goesOn} ${cell.fallen} ${cell.pooled}`;
    if (this.#drawn.get(node) === signature) {
      return;
    }
    this.#drawn.set(node, signature);
    let element = this.#cells.get(node);
    if (!element) {
      element = makeCell(node);
      this.#cells.set(node, element);
      this.#grid.append(element);
    }
    const area = `${row + TOP} / ${node.step + LEFT}`;
    if (element.dataset.area !== area) {
      element.dataset.area = area;
      element.style.gridArea = area;
    }
    if (element.dataset.up !== String(up)) {
      element.dataset.up = String(up);
      element.style.setProperty("--up", String(up));
    }
    put(element, "line", line);
    put(element, "point", point);
    put(element, "from", from);
    element.toggleAttribute("data-on", cell.goesOn);
    showStub(element, cell);
  }

  /** @param {Marks} marks */
  #drawTicks({ first, step }) {
    const wanted = Math.floor((step + 1) / TICK) + 1;
    while (this.#ticks.length > wanted) {
      this.#ticks.pop()?.remove();
    }
    while (this.#ticks.length < wanted) {
      const number = Math.max(1, this.#ticks.length * TICK);
      const tick = make("span", "gs-btick", String(number));
      tick.style.gridArea = `1 / ${number - 1 + LEFT}`;
      this.#ticks.push(tick);
      this.#grid.append(tick);
    }
    this.#ticks.forEach((tick, i) => {
      tick.hidden = Math.max(1, i * TICK) <= first;
    });
  }

  /**
   * @param {Scene} scene
   * @param {Marks} marks
   */
  #drawEnds({ leaves }, { step, ends, pointed }) {
    while (this.#ends.length > leaves.length) {
      this.#ends.pop()?.remove();
    }
    while (this.#ends.length < leaves.length) {
      const end = make("div", "gs-bend", "");
      this.#ends.push(end);
      this.#grid.append(end);
    }
    leaves.forEach(({ node, fate, row }, at) => {
      const end = this.#ends[at];
      const text = ends.get(node) ?? "";
      const area = `${row + TOP} / ${node.step + LEFT + 1} / auto / ${step + LEFT + 2}`;
      if (end.dataset.area !== area) {
        end.dataset.area = area;
        end.style.gridArea = area;
      }
      end.dataset.fate = fate;
      end.dataset.key = keyOf(node);
      end.toggleAttribute("data-pointed", node === pointed);
      end.toggleAttribute("data-first", text.startsWith("#1 "));
      end.toggleAttribute("data-early", node.step < step - 1);
      if (end.textContent !== text) {
        end.textContent = text;
      }
    });
  }

  /**
   * @param {Scene} scene
   * @param {number} groups
   * @param {number} step
   */
  #drawGroups({ leaves }, groups, step) {
    const bands = groups > 1 ? groups : 0;
    this.#grid.toggleAttribute("data-groups", bands > 0);
    while (this.#groups.length < bands) {
      const band = make("div", "gs-bband", "");
      band.append(make("b", "", groupName(this.#groups.length)));
      band.title = `Group ${groupName(this.#groups.length)}`;
      this.#groups.push(band);
      this.#edge.before(band);
    }
    this.#groups.forEach((band, group) => {
      const rows = leaves.filter(({ node }) => node.group === group).map(({ row }) => row);
      band.hidden = rows.length === 0;
      if (rows.length > 0) {
        band.style.gridArea = `${Math.min(...rows) + TOP} / 1 / ${Math.max(...rows) + TOP + 1} / ${step + LEFT + 2}`;
      }
    });
  }
}

/**
 * @param {BeamNode} node
 * @param {Marks} marks
 */
function lineOf(node, { settled, held, best, chosen }) {
  if (chosen.has(node)) {
    return "chosen";
  }
  if (!held.has(node)) {
    return "dead";
  }
  if (node.step <= (settled[node.group]?.step ?? -1)) {
    return "settled";
  }
  return best.has(node) ? "best" : "live";
}

/** @param {BeamNode} node */
function makeCell(node) {
  const cell = make("div", "gs-bcell", "");
  cell.dataset.key = keyOf(node);
  const token = make("span", `gs-btok ${bucketClass(SCALE, bucketOf(SCALE, node.logprob))}`, tokenText(node.text));
  token.classList.toggle("gs-loose", looseBytes(node.text) !== null);
  cell.append(token);
  return cell;
}

/**
 * @param {HTMLElement} element
 * @param {string} name
 * @param {string} value
 */
function put(element, name, value) {
  if (element.dataset[name] !== value) {
    element.dataset[name] = value;
  }
}

/**
 * What fell off below a token and has no row.
 * @param {HTMLElement} element
 * @param {Cell} cell
 */
function showStub(element, cell) {
  const old = element.children[1];
  if (cell.fallen === 0) {
    old?.remove();
    return;
  }
  const stub = old instanceof HTMLElement ? old : make("small", "gs-bstub", "");
  stub.textContent = stubText(cell);
  stub.title = stubTitle(cell);
  element.append(stub);
}

/** @param {Cell} cell */
function stubText({ fallen, pooled }) {
  const dead = fallen - pooled;
  return `${dead > 0 ? `✕${dead > 1 ? dead : ""}` : ""}${pooled > 0 ? `■${pooled > 1 ? pooled : ""}` : ""}`;
}

/** @param {Cell} cell */
function stubTitle({ fallen, pooled }) {
  const dead = fallen - pooled;
  const parts = [];
  if (dead > 0) {
    parts.push(`${dead} ${dead === 1 ? "branch" : "branches"} died after this token; go back in time to see`);
  }
  if (pooled > 0) {
    parts.push(`${pooled} finished after this token, see the pool`);
  }
  return parts.join("; ");
}

/**
 * @param {string} tag
 * @param {string} className
 * @param {string} text
 */
function make(tag, className, text) {
  const element = document.createElement(tag);
  element.className = className;
  element.textContent = text;
  return element;
}
