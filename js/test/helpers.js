// What the tests share: a session with a view on a fake model, and animation frames that come when asked for.
import { afterEach, beforeEach, vi } from "vitest";
import { FakeRun } from "../dev/fake_kernel.js";
import { FakeModel } from "../dev/fake_model.js";
import schema from "../dev/settings.schema.json";
import widget from "../src/widget.js";

export { schema };

/** @type {FrameRequestCallback[]} */
let frames = [];
/** @type {AbortController[]} */
let controllers = [];

beforeEach(() => {
  frames = [];
  vi.stubGlobal("requestAnimationFrame", (/** @type {FrameRequestCallback} */ callback) => frames.push(callback));
});

afterEach(() => {
  for (const controller of controllers) {
    controller.abort();
  }
  controllers = [];
  vi.unstubAllGlobals();
  vi.useRealTimers();
  document.body.replaceChildren();
});

/** Run all animation frames, those that ask for another one too. */
export function paint() {
  while (frames.length > 0) {
    const due = frames;
    frames = [];
    for (const callback of due) {
      callback(performance.now());
    }
  }
}

export function controller() {
  const made = new AbortController();
  controllers.push(made);
  return made;
}

/** @param {Record<string, any>} [traits] */
export function fakeModel(traits) {
  return new FakeModel({ schema, settings: { strategy: "sample", temperature: 0.8 }, prompt: "Hello", ...traits });
}

/**
 * The whole widget on a page.
 * @param {Record<string, any>} [traits]
 * @param {FakeModel} [model]
 */
export async function open(traits, model = fakeModel(traits)) {
  const host = document.createElement("div");
  document.body.append(host);
  const life = controller();
  const view = controller();
  const { initialize, render } = widget();
  await initialize?.(/** @type {any} */ ({ model, signal: life.signal }));
  const show = (/** @type {HTMLElement} */ el, /** @type {AbortSignal} */ signal) =>
    render?.(/** @type {any} */ ({ model, el, signal }));
  await show(host, view.signal);
  paint();
  const find = (/** @type {string} */ selector) => {
    const element = host.querySelector(selector);
    if (!(element instanceof HTMLElement)) {
      throw new Error(`nothing matches ${selector}`);
    }
    return element;
  };
  const all = (/** @type {string} */ selector) => /** @type {HTMLElement[]} */ ([...host.querySelectorAll(selector)]);
  return { model, host, find, all, life, view, show };
}

/** @typedef {Awaited<ReturnType<typeof open>>} Opened */

/**
 * @param {Opened} opened
 * @param {import("../dev/fake_text.js").Row[] | import("../dev/fake_text.js").Row[][]} rows
 * @param {{ promptTokens?: number, run?: string, settings?: Record<string, unknown>, about?: import("../dev/fake_kernel.js").About }} [options]
 */
export function play({ model }, rows, { promptTokens = 0, run = "r1", settings, about } = {}) {
  const fake = new FakeRun(run, rows, about);
  model.receive(fake.begin(promptTokens, settings));
  for (const track of fake.tracks) {
    model.receive(track.data(0, track.rows.length));
  }
  paint();
  return fake;
}

/**
 * @param {string[]} texts
 * @returns {import("../dev/fake_text.js").Row[]}
 */
export const generated = (texts) => texts.map((text) => ({ text, generated: true, raw: 0.5, processed: 0.6 }));

/**
 * @param {HTMLElement} element
 * @param {string} key
 * @param {KeyboardEventInit} [init]
 */
export function press(element, key, init) {
  element.dispatchEvent(new KeyboardEvent("keydown", { key, bubbles: true, cancelable: true, ...init }));
  paint();
}

/**
 * @param {HTMLElement} element
 * @param {string} value
 */
export function type(element, value) {
  /** @type {HTMLInputElement} */ (element).value = value;
  element.dispatchEvent(new Event("input", { bubbles: true }));
  paint();
}
