// Whether the host's page is light or dark, now and whenever it changes. No colours here.

/**
 * @param {Document} page
 * @param {boolean} prefersDark What the operating system says.
 * @returns {"light" | "dark"}
 */
export function themeOf(page, prefersDark) {
  const { body, documentElement: root } = page;
  const jupyter = body.dataset.jpThemeLight;
  if (jupyter !== undefined) {
    return jupyter === "false" ? "dark" : "light";
  }
  const has = (/** @type {string} */ name) => body.classList.contains(name) || root.classList.contains(name);
  if (has("vscode-light") || has("vscode-high-contrast-light")) {
    return "light";
  }
  if (has("vscode-dark") || has("vscode-high-contrast")) {
    return "dark";
  }
  // marimo, Colab and others.
  if (has("dark") || root.getAttribute("theme") === "dark" || root.dataset.theme === "dark") {
    return "dark";
  }
  if (has("light") || root.getAttribute("theme") === "light" || root.dataset.theme === "light") {
    return "light";
  }
  return prefersDark ? "dark" : "light";
}

/**
 * @param {HTMLElement} element Gets `data-theme`.
 * @param {AbortSignal} signal
 * @param {() => void} [changed] What no style sheet paints is to be drawn again.
 */
export function followTheme(element, signal, changed) {
  const query = window.matchMedia?.("(prefers-color-scheme: dark)");
  const apply = () => {
    const before = element.dataset.theme;
    element.dataset.theme = themeOf(document, query?.matches ?? false);
    if (before !== undefined && before !== element.dataset.theme) {
      changed?.();
    }
  };
  const observer = new MutationObserver(apply);
  const options = { attributes: true, attributeFilter: ["class", "data-jp-theme-light", "data-theme", "theme"] };
  observer.observe(document.body, options);
  observer.observe(document.documentElement, options);
  query?.addEventListener("change", apply, { signal });
  signal.addEventListener("abort", () => observer.disconnect());
  apply();
}
