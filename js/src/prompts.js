// The three kinds of a prompt: a text, a conversation, and several of them (a batch). How one becomes another. No DOM.

/** @typedef {import("./wire.js").WireChatMessage} ChatMessage */
/** @typedef {string | ChatMessage[]} One */
/** @typedef {One | One[]} Prompt */
/** @typedef {"text" | "chat" | "several"} PromptKind */

/**
 * @param {Prompt} prompt
 * @returns {prompt is One[]}
 */
export function isBatch(prompt) {
  return Array.isArray(prompt) && prompt.some((entry) => typeof entry === "string" || Array.isArray(entry));
}

/**
 * @param {Prompt} prompt
 * @returns {PromptKind}
 */
export function kindOf(prompt) {
  if (typeof prompt === "string") {
    return "text";
  }
  return isBatch(prompt) ? "several" : "chat";
}

/**
 * @param {Prompt} prompt
 * @returns {string}
 */
function asText(prompt) {
  if (typeof prompt === "string") {
    return prompt;
  }
  return (isBatch(prompt) ? prompt.map(asText) : prompt.map(({ content }) => content)).join("\n\n");
}

/**
 * @param {Prompt} prompt
 * @param {PromptKind} kind
 * @returns {Prompt}
 */
export function convert(prompt, kind) {
  if (kind === kindOf(prompt)) {
    return prompt;
  }
  if (kind === "text") {
    return asText(prompt);
  }
  if (kind === "several") {
    return [/** @type {One} */ (prompt)];
  }
  const only = isBatch(prompt) && prompt.length === 1 ? prompt[0] : null;
  return Array.isArray(only) ? only : [{ role: "user", content: asText(prompt) }];
}

/** Remembers what each kind was turned into, so that a way back that finds it unedited loses nothing. */
export class PromptKinds {
  /** @type {Map<PromptKind, { was: Prompt, became: string }>} */
  #kept = new Map();

  /**
   * @param {Prompt} prompt
   * @param {PromptKind} kind
   * @returns {Prompt}
   */
  turn(prompt, kind) {
    const kept = this.#kept.get(kind);
    const next = kept?.became === JSON.stringify(prompt) ? kept.was : convert(prompt, kind);
    this.#kept.set(kindOf(prompt), { was: prompt, became: JSON.stringify(next) });
    return next;
  }
}
