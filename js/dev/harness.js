// The widget on a page of its own, fed by a fake kernel. Options in the address: theme=light|dark, width=700,
// scene=idle|loading|problems|chat|running|finished|failed|gone|bulk or one of strategy_scenes.js, cache_scenes.js and twin_scenes.js,
// n=50000 (for bulk), measure=..., marks=1.
import widget from "../src/widget.js";
import { mountBeams } from "./beam_scene.js";
import * as cacheScenes from "./cache_scenes.js";
import { believableRun, counts, FakeRun } from "./fake_kernel.js";
import { FakeModel } from "./fake_model.js";
import schema from "./settings.schema.json";
import * as strategyScenes from "./strategy_scenes.js";
import * as twinScenes from "./twin_scenes.js";

const options = new URLSearchParams(location.search);
const scene = options.get("scene") ?? "live";
const theme = options.get("theme") ?? "light";
document.body.dataset.jpThemeLight = String(theme === "light");
document.body.style.background = theme === "light" ? "#fff" : "#111";
const settings = { strategy: "sample", temperature: 0.8, top_k: 40, top_p: 0.95, max_new_tokens: 160, seed: 7 };
const chat = [
  { role: "system", content: "You are brief." },
  { role: "user", content: "Write a haiku about the sea, then a small function that counts words." },
];
const model = new FakeModel({
  schema,
  settings,
  prompt: scene === "chat" ? chat : chat[1].content,
  measure: options.get("measure") ?? "probability",
  whitespace: options.has("marks"),
  about: {
    model: "HuggingFaceTB/SmolLM2-135M-Instruct",
    chat: true,
    context: 8192,
    unavailable: { assisted: "no assistant was given" },
    costs: null,
    prefix_cache: 1_000_000_000,
  },
  status:
    scene === "loading"
      ? { phase: "loading", text: "Reading the weights: 94 of 272 tensors", progress: 0.35 }
      : { phase: "ready", text: "", progress: null },
});
const costs = { attention: "about 1.6 times the time of a step", logit_lens: "about 1.1 times the time of a step" };
model.on("sent", ({ kind }) => {
  if (kind === "costs") {
    setTimeout(() => model.set("about", { ...model.get("about"), costs }), 600);
  }
});
const host = document.createElement("div");
host.style.width = `${options.get("width") ?? 1200}px`;
host.style.margin = "16px";
document.body.style.margin = "0";
document.body.append(host);

const { rows, promptTokens } = believableRun(scene === "bulk" ? Number(options.get("n") ?? 50_000) : 0);
let runs = 0;

/** @param {number} [stopAt] Rows after which the run stays as it is. */
function play(stopAt = rows.length) {
  runs += 1;
  const run = new FakeRun(`run-${runs}`, rows);
  model.receive(run.begin(promptTokens, { ...schema.$defs.Sample, ...settings, alternatives: 10 }));
  return { run, stopAt };
}

/**
 * @param {number} to
 * @param {Partial<import("../src/wire.js").Status>} [change]
 */
const numbers = (to, change) => ({
  generated: Math.max(0, to - promptTokens),
  elapsed: 0.21 + (to - promptTokens) * 0.021,
  first_token: to > promptTokens ? 0.21 : null,
  tokens_per_second: to > promptTokens + 1 ? 47.6 : null,
  observation_share: to > promptTokens ? 0.021 : null,
  ...change,
});

/** Believable speed: thirty frames a second. */
function live() {
  const { run } = play();
  let at = 0;
  const timer = setInterval(() => {
    const to = Math.min(rows.length, at === 0 ? promptTokens : at + 2);
    model.receive(run.data(at, to, numbers(to)));
    at = to;
    if (at === rows.length) {
      clearInterval(timer);
      model.receive(run.end(numbers(at, { state: "finished", why: "eos" })));
    }
  }, 33);
  model.on("sent", (message) => {
    if (message.kind === "stop") {
      clearInterval(timer);
      model.receive(run.end(numbers(at, { state: "stopped" })));
    }
  });
}

/** @type {Record<string, () => void>} */
const scenes = {
  live: () => model.on("sent", (message) => message.kind === "generate" && live()),
  running() {
    const { run } = play();
    const to = promptTokens + 74;
    model.receive(run.data(0, to, numbers(to)));
  },
  finished() {
    const { run } = play();
    model.receive(run.data(0, rows.length, numbers(rows.length)));
    model.receive(run.end(numbers(rows.length, { state: "finished", why: "eos" })));
  },
  failed() {
    const { run } = play();
    const to = promptTokens + 30;
    model.receive(run.data(0, to, numbers(to)));
    const error =
      "OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.\nLower max_new_tokens, or choose a smaller model.";
    model.receive({ ...run.end(numbers(to, { state: "failed", error })), counts: counts([to]) });
  },
  gone() {
    scenes.running();
    model.emit("comm_live_update");
  },
  problems() {
    const problems = [
      {
        field: "temperature",
        value: "0",
        message: "0 is not allowed: input should be greater than 0",
        way_out: "Use a number above 0 and up to 100; for no randomness choose the strategy 'greedy'.",
      },
      {
        field: "min_new_tokens",
        value: "500",
        message: "500 is more than max_new_tokens (160)",
        way_out: "Lower min_new_tokens or raise max_new_tokens.",
      },
      { field: "prompt", value: "''", message: "the prompt is empty", way_out: "Type some text to continue from." },
    ];
    model.receive({ kind: "problems", problems });
  },
  bulk() {
    const { run } = play();
    for (let at = 0; at < rows.length; at += 1000) {
      model.receive(run.data(at, Math.min(rows.length, at + 1000), numbers(at)));
    }
    model.receive(run.end(numbers(rows.length, { state: "finished", why: "length" })));
  },
};

const { initialize, render } = widget();
const props = /** @type {any} */ ({ model, signal: new AbortController().signal });
if (scene.startsWith("beam")) {
  mountBeams(host, options);
} else {
  await initialize?.(props);
  await render?.({ ...props, el: host });
  const played = /** @type {Record<string, any>} */ ({ ...strategyScenes, ...cacheScenes, ...twinScenes })[scene];
  if (typeof played === "function") {
    played(model);
  } else {
    scenes[scene]?.();
  }
}
Object.assign(window, { model, rows, promptTokens });
