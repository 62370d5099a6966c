// The text that all live hypotheses of a search (or of a group) share: one span a token. It grows at its end, so a step
// costs what it adds; going back in time takes from the end.
import { turnsText } from "../format.js";
import { groupName, keyOf, lineText } from "./beamtext.js";

/** @typedef {import("../beamtree.js").BeamNode} BeamNode */

export class BeamSettled {
  element = document.createElement("div");

  /** By group. @type {{ line: HTMLElement, nodes: BeamNode[] }[]} */
  #groups = [];
  #label = document.createElement("span");
  #lines = document.createElement("div");
  /** @type {HTMLElement | null} */
  #marked = null;

  constructor() {
    this.element.className = "gs-bsettled";
    this.#lines.className = "gs-blines";
    this.#lines.tabIndex = 0;
    this.#lines.dataset.lmSuppressShortcuts = "true";
    this.#lines.setAttribute("role", "group");
    this.#lines.setAttribute("aria-label", "Text that is settled");
    this.#label.className = "gs-blabel";
    this.element.append(this.#label, this.#lines);
  }

  clear() {
    this.#groups = [];
    this.#marked = null;
    this.#lines.replaceChildren();
  }

  /**
   * @param {string} label
   * @param {(BeamNode | null)[]} settled The last node of each line.
   * @param {number} groups
   * @param {BeamNode | null} pick
   */
  draw(label, settled, groups, pick) {
    this.#label.textContent = label;
    settled.forEach((node, group) => {
      this.#groups[group] ??= this.#open(group, groups);
      grow(this.#groups[group], node);
    });
    this.#marked?.classList.remove("gs-bpick");
    this.#marked = pick === null ? null : this.element.querySelector(`[data-key="${keyOf(pick)}"]`);
    this.#marked?.classList.add("gs-bpick");
  }

  /**
   * @param {number} group
   * @param {number} groups
   */
  #open(group, groups) {
    const line = document.createElement("p");
    if (groups > 1) {
      line.dataset.group = groupName(group);
    }
    this.#lines.append(line);
    return { line, nodes: [] };
  }
}

/**
 * @param {{ line: HTMLElement, nodes: BeamNode[] }} shown
 * @param {BeamNode | null} end
 */
function grow({ line, nodes }, end) {
  const missing = [];
  let at = end;
  while (at !== null && nodes[at.step] !== at) {
    missing.push(at);
    at = at.parent;
  }
  const keep = at === null ? 0 : at.step + 1;
  const changed = missing.length > 0 || nodes.length > keep;
  while (nodes.length > keep) {
    nodes.pop();
    line.lastChild?.remove();
  }
  for (const node of missing.reverse()) {
    const span = document.createElement("span");
    span.dataset.key = keyOf(node);
    span.textContent = lineText(node.text);
    span.classList.toggle("gs-turns", turnsText(node.text));
    nodes.push(node);
    line.append(span);
  }
  if (changed) {
    const { parentElement } = line;
    if (parentElement) {
      parentElement.scrollTop = parentElement.scrollHeight;
    }
  }
}
