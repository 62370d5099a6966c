// What Python tells in traits, with something in place of what is missing: a trait may be older than this page, or not be
// there yet. No DOM.

/** @typedef {import("@anywidget/types").AnyModel} Model */
/** @typedef {{ phase: "loading" | "ready" | "error", text: string, progress: number | null }} LoadStatus */
/**
 * @typedef {object} About
 * @property {string} model
 * @property {boolean} chat Whether there is a chat template.
 * @property {number | null} context
 * @property {Record<string, string>} unavailable Why a strategy cannot be used with this model, by its name.
 * @property {Record<string, string> | null} costs What a setting of observing costs; null until it was measured.
 * @property {number | null} prefix_cache Bytes that the prefix cache may hold; null where there is none.
 */

/** Those that something on the page is drawn from. */
export const TRAITS = [
  "schema",
  "settings",
  "prompt",
  "measure",
  "whitespace",
  "status",
  "about",
  "state",
  "tree",
  "twin_state",
];

/**
 * @param {Model} model
 * @returns {LoadStatus}
 */
export function loadOf(model) {
  return { phase: "ready", text: "", progress: null, ...model.get("status") };
}

/**
 * @param {Model} model
 * @returns {About}
 */
export function aboutOf(model) {
  const empty = { model: "", chat: false, context: null, unavailable: {}, costs: null, prefix_cache: null };
  return { ...empty, ...model.get("about") };
}

/**
 * @param {Model} model
 * @returns {import("./runtree.js").TreeRun[]} Oldest first.
 */
export function treeOf(model) {
  return model.get("tree") ?? [];
}

/**
 * @param {Model} model
 * @returns {import("./wire.js").WireTwin | null} How the last twin stands; null before the first.
 */
export function twinOf(model) {
  return model.get("twin_state") ?? null;
}
