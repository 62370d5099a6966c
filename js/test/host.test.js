import { describe, expect, test, vi } from "vitest";
import { followTheme, themeOf } from "../src/views/theme.js";
import { controller, open } from "./helpers.js";

describe("the static copy", () => {
  const rules = () => [...document.head.querySelectorAll("style[data-genscope]")].map((style) => style.textContent);

  test("is hidden while any view is there", async () => {
    const opened = await open({ static_class: "gs-static-1.a" });
    const rule = ".jp-OutputArea-child:has(.gs-static-1\\.a) { display: none; }";
    expect(rules()).toEqual([rule]);
    const second = controller();
    await opened.show(document.createElement("div"), second.signal);
    expect(rules()).toEqual([rule]);
    opened.view.abort();
    expect(rules()).toEqual([rule]);
    second.abort();
    expect(rules()).toEqual([]);
  });

  test("without a class nothing is hidden", async () => {
    await open();
    expect(rules()).toEqual([]);
  });
});

describe("theme", () => {
  /**
   * @param {string} attributes Of the body.
   * @param {string} [root]
   */
  const page = (attributes, root = "") =>
    new DOMParser().parseFromString(`<html ${root}><body ${attributes}></body></html>`, "text/html");

  test.each([
    ['data-jp-theme-light="true"', "", true, "light"],
    ['data-jp-theme-light="false"', "", false, "dark"],
    ['class="vscode-dark"', "", false, "dark"],
    ['class="vscode-light"', "", true, "light"],
    ['class="vscode-high-contrast vscode-high-contrast-light"', "", true, "light"],
    ["", 'class="dark"', false, "dark"],
    ["", "", true, "dark"],
    ["", "", false, "light"],
  ])("%s %s, system dark: %s is %s", (attributes, root, dark, theme) => {
    expect(themeOf(page(attributes, root), dark)).toBe(theme);
  });

  test("follows the host while it changes", async () => {
    document.body.dataset.jpThemeLight = "true";
    const { find } = await open();
    expect(find(".genscope").dataset.theme).toBe("light");
    document.body.dataset.jpThemeLight = "false";
    await vi.waitFor(() => expect(find(".genscope").dataset.theme).toBe("dark"));
    delete document.body.dataset.jpThemeLight;
  });

  test("a change is told, so that what is painted on a canvas is painted again", async () => {
    document.body.dataset.jpThemeLight = "true";
    const element = document.createElement("div");
    const changed = vi.fn();
    followTheme(element, controller().signal, changed);
    expect(changed).not.toHaveBeenCalled();
    document.body.classList.add("of-no-meaning");
    document.body.dataset.jpThemeLight = "false";
    await vi.waitFor(() => expect(element.dataset.theme).toBe("dark"));
    expect(changed).toHaveBeenCalledTimes(1);
    document.body.classList.remove("of-no-meaning");
    delete document.body.dataset.jpThemeLight;
  });
});
