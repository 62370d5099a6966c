import { beforeEach, expect, test, vi } from "vitest";
import { open, paint, type } from "./helpers.js";

// A list of texts: the stop strings.

beforeEach(() => {
  vi.useFakeTimers({ toFake: ["setTimeout", "clearTimeout", "setInterval", "clearInterval"] });
});

/** @param {import("./helpers.js").Opened} opened */
const sent = ({ model }) => model.sent.filter(({ kind }) => kind === "settings").map(({ settings }) => settings);

test("stop strings may hold line ends", async () => {
  const opened = await open();
  opened.find("[data-field=stop_strings] .gs-add").click();
  paint();
  const box = /** @type {HTMLInputElement} */ (opened.find("[data-field=stop_strings] input"));
  // A backslash alone is the begin of something: it stays one while more is typed.
  type(box, "\\");
  expect(box.value).toBe("\\");
  box.value = "\\n\\nUser:\\\\";
  box.dispatchEvent(new Event("input", { bubbles: true }));
  vi.advanceTimersByTime(300);
  expect(sent(opened).at(-1).stop_strings).toEqual(["\n\nUser:\\"]);
});

test("a new stop string has the keyboard, and is not sent before it is typed; left empty, it goes", async () => {
  const opened = await open();
  const field = "[data-field=stop_strings]";
  opened.find(`${field} .gs-add`).click();
  paint();
  expect(document.activeElement).toBe(opened.find(`${field} input`));
  vi.advanceTimersByTime(2000);
  opened.model.set("settings", { strategy: "sample", temperature: 0.3 });
  paint();
  expect(opened.all(`${field} input`)).toHaveLength(1);
  expect(sent(opened)).toEqual([]);
  type(opened.find(`${field} input`), "a");
  opened.find(`${field} .gs-add`).click();
  paint();
  vi.advanceTimersByTime(2000);
  expect(sent(opened).map(({ stop_strings }) => stop_strings)).toEqual([["a"]]);
  opened.find(`${field} input`).dispatchEvent(new FocusEvent("focusout", { bubbles: true }));
  paint();
  expect(opened.all(`${field} input`)).toHaveLength(1);
  vi.advanceTimersByTime(2000);
  expect(sent(opened).at(-1).stop_strings).toEqual(["a"]);
});

test("no more entries can be added than are allowed", async () => {
  const opened = await open({
    settings: { strategy: "sample", stop_strings: Array.from({ length: 16 }, () => "x") },
  });
  const add = /** @type {HTMLButtonElement} */ (opened.find("[data-field=stop_strings] .gs-add"));
  expect(add.disabled).toBe(true);
  opened.find("[data-field=stop_strings] span .gs-icon").click();
  paint();
  expect(add.disabled).toBe(false);
});
