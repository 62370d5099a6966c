// One of a few: a row of buttons that works like a radio group. Draws only.
import { html } from "lit-html";

/**
 * @typedef {object} Option
 * @property {string} value
 * @property {string} label
 * @property {string} [title]
 * @property {boolean} [disabled]
 */

/**
 * @param {string} label For assistive technology.
 * @param {Option[]} options
 * @param {string} value
 * @param {(value: string) => void} choose
 */
export function segmented(label, options, value, choose) {
  /** @param {KeyboardEvent} event */
  const move = (event) => {
    const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
    if (step === undefined) {
      return;
    }
    event.preventDefault();
    const open = options.filter((option) => !option.disabled || option.value === value);
    const at = open.findIndex((option) => option.value === value);
    const next = open[(at + step + open.length) % open.length];
    const group = /** @type {HTMLElement} */ (event.currentTarget);
    /** @type {HTMLElement} */ (group.querySelectorAll("button")[options.indexOf(next)]).focus();
    choose(next.value);
  };
  return html`<div class="gs-segmented" role="radiogroup" aria-label=${label} @keydown=${move}>
    ${options.map(
      (option) => html`<button type="button" role="radio" data-lm-suppress-shortcuts="true" data-value=${option.value}
        aria-checked=${option.value === value} tabindex=${option.value === value ? 0 : -1} title=${option.title ?? ""}
        ?disabled=${option.disabled && option.value !== value}
        @click=${() => choose(option.value)}>${option.label}</button>`,
    )}
  </div>`;
}
