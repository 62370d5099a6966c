// The runs of a scope, a row each, in the tree that branches and replies make of them. Arrow keys walk it, Enter or a
// click shows a run. Draws only; the rows: ../runtree.js.
import { html, nothing, render } from "lit-html";
import { guard } from "lit-html/directives/guard.js";
import { ref } from "lit-html/directives/ref.js";
import { oneLine, whole } from "../format.js";
import { rowsOfTree } from "../runtree.js";

/** @typedef {import("../session.js").Session} Session */
/** @typedef {import("../runtree.js").TreeRow} TreeRow */
/** @typedef {import("../runtree.js").TreeRun} TreeRun */

/**
 * @param {HTMLElement} element
 * @param {Session} session
 */
export function drawRuns(element, session) {
  const { tree } = session;
  const shown = session.state.run;
  element.hidden = tree.length < 2;
  // Many rows, and a frame a token while a run lives: they are made when they are others.
  render(tree.length < 2 ? nothing : guard([tree, shown], () => rowsDrawn(session, tree, shown)), element);
}

/**
 * @param {Session} session
 * @param {TreeRun[]} tree
 * @param {string | null} shown
 */
function rowsDrawn(session, tree, shown) {
  const rows = rowsOfTree(tree);
  // One of them can be reached with Tab: the one that is shown.
  const reachable = Math.max(
    0,
    rows.findIndex(({ run }) => run.id === shown),
  );
  return html`<h3>Runs <span>${whole(rows.length)}</span></h3>
    <div class="gs-tree" role="tree" aria-label="Runs" @keydown=${(/** @type {KeyboardEvent} */ event) => walk(event, rows, session)}
      ${ref((list) => bringIntoSight(list, shown))}>
      ${rows.map((row, at) => item(row, at === reachable, row.run.id === shown, session))}
    </div>`;
}

/**
 * @param {TreeRow} row
 * @param {boolean} reachable
 * @param {boolean} shown
 * @param {Session} session
 */
function item({ run, lines, place, siblings }, reachable, shown, session) {
  return html`<div class="gs-run" role="treeitem" data-run=${run.id} data-state=${run.state} data-lm-suppress-shortcuts="true"
    tabindex=${reachable ? 0 : -1} aria-level=${lines.length + 1} aria-posinset=${place} aria-setsize=${siblings}
    aria-current=${shown ? "true" : nothing} aria-label=${nameOf(run)} @click=${() => session.onward.show(run.id)}>
    ${lines.map((on, level) => html`<i class="gs-line" data-line=${level < lines.length - 1 ? (on ? "past" : "none") : on ? "fork" : "last"}></i>`)}
    <i class="gs-lamp" title=${run.state}></i>
    <span class="gs-run-title" title=${oneLine(run.title)}>${whereOf(run) === "" ? nothing : html`<small>${whereOf(run)}</small>`}<bdi>${oneLine(run.title)}</bdi></span>
    <span class="gs-run-what">${whatOf(run)}</span>
    <span class="gs-run-size">${whole(run.tokens)} <small>${run.tokens === 1 ? "token" : "tokens"}</small></span>
  </div>`;
}

/** @param {TreeRun} run */
function whereOf({ kind, parent, position }) {
  if (kind === "branch" && parent !== null) {
    return `at token ${whole(position)}`;
  }
  return kind === "run" || kind === "branch" ? "" : kind;
}

/** @param {TreeRun} run */
const whatOf = ({ strategy, execution }) => (execution ? `${strategy}, ${execution}` : strategy);

/** @param {TreeRun} run */
function nameOf(run) {
  const what = [whereOf(run), oneLine(run.title), whatOf(run), `${run.tokens} tokens`, run.state];
  return what.filter((part) => part !== "").join(", ");
}

/**
 * @param {KeyboardEvent} event
 * @param {TreeRow[]} rows
 * @param {Session} session
 */
function walk(event, rows, session) {
  if (event.ctrlKey || event.metaKey || event.altKey) {
    return;
  }
  const tree = /** @type {HTMLElement} */ (event.currentTarget);
  const items = /** @type {HTMLElement[]} */ ([...tree.querySelectorAll("[role=treeitem]")]);
  const at = items.indexOf(/** @type {HTMLElement} */ (event.target));
  if (at < 0) {
    return;
  }
  const { parent, child } = rows[at];
  const to = {
    ArrowUp: at - 1,
    ArrowDown: at + 1,
    ArrowLeft: parent,
    ArrowRight: child,
    Home: 0,
    End: rows.length - 1,
  }[event.key];
  if (event.key === "Enter" || event.key === " ") {
    session.onward.show(rows[at].run.id);
  } else if (to === undefined) {
    return;
  } else if (to !== null) {
    items[to]?.focus();
  }
  event.preventDefault();
  event.stopPropagation();
}

/**
 * When another run is shown. Within the list only: the page stays where it is.
 * @param {Element | undefined} tree
 * @param {string | null} shown
 */
function bringIntoSight(tree, shown) {
  if (!(tree instanceof HTMLElement) || tree.dataset.shown === shown) {
    return;
  }
  // The rows are drawn after their list.
  requestAnimationFrame(() => {
    const row = tree.querySelector("[aria-current]");
    if (row instanceof HTMLElement && shown !== null) {
      tree.dataset.shown = shown;
      const above = row.offsetTop - tree.scrollTop;
      if (above < 0 || above + row.offsetHeight > tree.clientHeight) {
        tree.scrollTop = row.offsetTop - (tree.clientHeight - row.offsetHeight) / 2;
      }
    }
  });
}
