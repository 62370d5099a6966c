// Hides the static copy of the run, which Python publishes as another output for readers without a kernel, while a
// live view is here. Does not write that copy.

/** Views that hide a class now, and the style element that does it. @type {Map<string, { count: number, style: HTMLStyleElement }>} */
const hidden = new Map();

/**
 * @param {string} className
 * @param {AbortSignal} signal Shows it again, unless another view still hides it.
 */
export function hideStaticCopy(className, signal) {
  if (className === "" || signal.aborted) {
    return;
  }
  let entry = hidden.get(className);
  if (!entry) {
    const style = document.createElement("style");
    style.dataset.genscope = className;
    style.textContent = `.jp-OutputArea-child:has(.${CSS.escape(className)}) { display: none; }`;
    document.head.append(style);
    entry = { count: 0, style };
    hidden.set(className, entry);
  }
  entry.count += 1;
  const { style } = entry;
  signal.addEventListener("abort", () => {
    const now = hidden.get(className);
    if (now && --now.count === 0) {
      style.remove();
      hidden.delete(className);
    }
  });
}
