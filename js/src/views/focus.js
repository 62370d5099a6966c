// Where the keyboard goes after something was added. Draws nothing.

/**
 * Into the newest field beside the button that made it, once it is drawn: the session's frame was asked for before.
 * @param {Event} event Of the button.
 * @param {string} selector
 */
export function focusNewest(event, selector) {
  const list = event.currentTarget instanceof HTMLElement ? event.currentTarget.parentElement : null;
  requestAnimationFrame(() => {
    const field = [...(list?.querySelectorAll(selector) ?? [])].at(-1);
    if (field instanceof HTMLElement) {
      field.focus();
    }
  });
}
