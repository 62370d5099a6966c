// The control for a list of texts. Its entries are written as in code, so that a line end can be one.
import { html } from "lit-html";
import { ref } from "lit-html/directives/ref.js";
import { focusNewest } from "./focus.js";

/** @typedef {import("./control.js").Parts} Parts */

/**
 * An entry that is still empty is not sent: it is one that a person is about to fill, and goes when she leaves.
 * @param {Parts} parts
 */
export function texts({ field, id, set, begin, now, invalid, describedBy }) {
  /** @returns {string[]} */
  const entries = () => (Array.isArray(now()) ? now().map(String) : []);
  const list = entries();
  const put = (/** @type {string[]} */ next) => (next.includes("") ? begin(next) : set(next));
  const add = (/** @type {Event} */ event) => {
    put([...entries(), ""]);
    focusNewest(event, "input");
  };
  const edit = (/** @type {number} */ at, /** @type {Event} */ event) => {
    const text = fromCode(/** @type {HTMLInputElement} */ (event.target).value);
    put(entries().map((other, i) => (i === at ? text : other)));
  };
  const leave = (/** @type {FocusEvent} */ event) => {
    const group = /** @type {HTMLElement} */ (event.currentTarget);
    const inside = event.relatedTarget instanceof Node && group.contains(event.relatedTarget);
    if (!inside && entries().includes("")) {
      set(entries().filter((text) => text !== ""));
    }
  };
  const full = field.most !== null && list.length >= field.most;
  return html`<div class="gs-texts" id=${id} role="group" aria-label=${field.title} aria-describedby=${describedBy} @focusout=${leave}>
    ${list.map(
      (text, at) => html`<span><input type="text" data-lm-suppress-shortcuts="true" aria-invalid=${invalid}
        aria-label=${`${field.title} ${at + 1}`} title="\\n is a line end, \\t a tab" ${ref((box) => show(box, text))}
        @input=${(/** @type {Event} */ event) => edit(at, event)} />
        <button type="button" class="gs-icon" data-lm-suppress-shortcuts="true" aria-label=${`Remove ${at + 1}`}
          @click=${() => put(entries().filter((_, i) => i !== at))}>×</button></span>`,
    )}
    <button type="button" class="gs-add" data-lm-suppress-shortcuts="true" ?disabled=${full}
      title=${full ? `${field.most} are the most` : ""} @click=${add}>+ add</button>
  </div>`;
}

/**
 * The box's text changes only when it means another value: a backslash that is being typed must stay one.
 * @param {Element | undefined} box
 * @param {string} text
 */
function show(box, text) {
  if (box instanceof HTMLInputElement && fromCode(box.value) !== text) {
    box.value = toCode(text);
  }
}

/** @type {Record<string, string>} */
const ESCAPES = { "\n": "\\n", "\t": "\\t", "\r": "\\r", "\\": "\\\\" };

/** @param {string} text */
const toCode = (text) => text.replace(/[\n\t\r\\]/g, (character) => ESCAPES[character]);

/** @param {string} text */
const fromCode = (text) =>
  text.replace(/\\[ntr\\]/g, (code) => Object.keys(ESCAPES).find((character) => ESCAPES[character] === code) ?? code);
