// All steps of a beam search at a glance, which is also the slider in time: a lane a beam, a line a hypothesis.
// Lines that were drawn stay: each step appends its own. What lives at the shown step is drawn over them.

/** @typedef {import("../beamtree.js").BeamNode} BeamNode */
/** @typedef {import("../beamtree.js").BeamTree} BeamTree */

const SVG = "http://www.w3.org/2000/svg";
/** Steps of one path element: a new step lengthens a short path only. */
const CHUNK = 16;
const LAYERS = /** @type {const} */ (["live", "settled", "chosen", "picked"]);

export class BeamOverview {
  element = document.createElement("div");
  slider = document.createElement("input");

  #svg = document.createElementNS(SVG, "svg");
  #past = document.createElementNS(SVG, "g");
  #veil = document.createElementNS(SVG, "rect");
  #layers = Object.fromEntries(LAYERS.map((name) => [name, line(name)]));
  #dots = line("dots");
  #point = line("point");
  /** @type {SVGPathElement | null} */
  #chunk = null;
  #path = "";
  #ended = "";
  #n = 0;

  constructor() {
    this.element.className = "gs-bover";
    this.slider.type = "range";
    this.slider.min = "0";
    this.slider.step = "1";
    this.slider.className = "gs-btime";
    this.slider.dataset.lmSuppressShortcuts = "true";
    this.slider.setAttribute("aria-label", "Step of the search");
    this.#svg.setAttribute("preserveAspectRatio", "none");
    this.#svg.setAttribute("aria-hidden", "true");
    this.#veil.setAttribute("class", "gs-bveil");
    const { live, settled, chosen, picked } = this.#layers;
    this.#svg.append(this.#past, live, settled, chosen, picked, this.#dots, this.#veil, this.#point);
    this.element.append(this.#svg, this.slider);
  }

  clear() {
    this.#past.replaceChildren();
    this.#chunk = null;
    this.#ended = "";
    this.#n = 0;
  }

  /**
   * @param {BeamTree} tree
   * @param {object} shown
   * @param {number} shown.step
   * @param {number} shown.horizon Steps that there may be.
   * @param {Iterable<BeamNode>} shown.live What lives, back to the first token.
   * @param {Iterable<BeamNode>} shown.chosen
   * @param {Iterable<BeamNode>} shown.picked
   * @param {BeamNode | null} shown.point
   */
  draw(tree, { step, horizon, live, chosen, picked, point }) {
    const width = Math.max(1, horizon - 1);
    for (; this.#n < tree.n; this.#n += 1) {
      this.#append(tree, this.#n);
    }
    set(this.#svg, "viewBox", `0 0 ${width} ${tree.beams}`);
    const settled = tree.settled[step] ?? [];
    const paths = { live: "", settled: "", chosen: "", picked: "" };
    for (const node of live) {
      paths[node.step <= (settled[node.group]?.step ?? -1) ? "settled" : "live"] += edge(node);
    }
    for (const node of chosen) {
      paths.chosen += edge(node);
    }
    for (const node of picked) {
      paths.picked += edge(node);
    }
    for (const name of LAYERS) {
      set(this.#layers[name], "d", paths[name]);
    }
    set(this.#dots, "d", this.#ended);
    set(this.#point, "d", point === null ? "" : dot(point));
    set(this.#veil, "x", String(step));
    set(this.#veil, "width", String(Math.max(0, width - step)));
    set(this.#veil, "height", String(tree.beams));
    this.slider.max = String(width);
    this.slider.value = String(step);
    this.slider.setAttribute("aria-valuetext", `step ${step + 1} of ${tree.n}`);
  }

  /**
   * @param {BeamTree} tree
   * @param {number} step
   */
  #append(tree, step) {
    if (step % CHUNK === 0 || this.#chunk === null) {
      this.#chunk = line("past");
      this.#past.append(this.#chunk);
      this.#path = "";
    }
    for (const node of tree.made(step)) {
      this.#path += edge(node);
      if (node.finished) {
        this.#ended += dot(node);
      }
    }
    set(this.#chunk, "d", this.#path);
  }
}

/** @param {string} name */
function line(name) {
  const path = document.createElementNS(SVG, "path");
  path.setAttribute("class", `gs-bl gs-bl-${name}`);
  return path;
}

/** @param {BeamNode} node */
function edge(node) {
  const { step: x, lane, parent } = node;
  const y = lane + 0.5;
  if (parent === null) {
    return `M${x} ${y}h.001`;
  }
  const from = parent.lane + 0.5;
  return from === y ? `M${x - 1} ${y}H${x}` : `M${x - 1} ${from}C${x - 0.5} ${from} ${x - 0.5} ${y} ${x} ${y}`;
}

/** A line without length: its round ends make a dot, whatever the scale. @param {BeamNode} node */
const dot = ({ step, lane }) => `M${step} ${lane + 0.5}h.001`;

/**
 * @param {Element} element
 * @param {string} name
 * @param {string} value
 */
function set(element, name, value) {
  if (element.getAttribute(name) !== value) {
    element.setAttribute(name, value);
  }
}
