// Scenes of the harness for executions: preparing, what one did in the end, and twins that go on, agree and differ.
import { FakeRun, status } from "./fake_kernel.js";
import { believableRun } from "./fake_text.js";

/** @typedef {import("./fake_model.js").FakeModel} FakeModel */
/** @typedef {import("../src/wire.js").WireExecution} Execution */
/** @typedef {import("../src/wire.js").WireTwin} Twin */
/** @typedef {import("../src/wire.js").WireTwinSide} Side */
/** @typedef {Partial<import("../src/wire.js").Status>} Change */

/**
 * @param {Partial<Execution>} [change]
 * @returns {Execution}
 */
export function execution(change) {
  return {
    name: "traced",
    passes: 27,
    compared: 3,
    fallbacks: [],
    prepared: 1.2,
    graphs: 2,
    recompilations: 0,
    largest_difference: 0,
    preparing: null,
    ...change,
  };
}

/**
 * @param {FakeModel} model
 * @param {Change} change
 * @param {number} [tokens]
 */
function run(model, change, tokens) {
  const { rows, promptTokens } = believableRun();
  const made = new FakeRun("executed", rows.slice(0, tokens === undefined ? undefined : promptTokens + tokens));
  const n = made.rows.length;
  const now = { generated: n - promptTokens, elapsed: 0.4, first_token: 0.031, observation_share: 0.02, ...change };
  model.receive(made.begin(promptTokens, { max_new_tokens: 160, prefix_cache: true }));
  model.receive(made.data(0, n, now));
  model.receive(now.state === "finished" ? made.end(now) : made.beat(made.counts, now));
  model.set("settings", { ...model.get("settings"), execution: now.execution?.name ?? "eager" });
}

/** @param {FakeModel} model */
export function preparing(model) {
  const now = { what: "one token on a cache", stage: "tracing", seconds: 3.07 };
  const change = { passes: 1, prepared: 1.41, graphs: 1, compared: 1, preparing: now };
  run(model, { state: "preparing", execution: execution(change) }, 1);
}

/** @param {FakeModel} model */
export function executed(model) {
  const fallbacks = [{ reason: "attentions are asked for", passes: 2 }];
  const change = { fallbacks, recompilations: 3, largest_difference: 2.3e-5 };
  run(model, { state: "finished", why: "eos", tokens_per_second: 64.1, execution: execution(change) });
}

/**
 * @param {string} name
 * @param {Partial<Side>} [change]
 * @param {Change} [standing]
 * @returns {Side}
 */
export function side(name, change, standing) {
  const text = believableRun()
    .rows.filter(({ generated }) => generated)
    .map((row) => row.text);
  const told = { state: /** @type {const} */ ("finished"), why: "eos", generated: text.length, first_token: 0.118 };
  return {
    run: name,
    status: status({ ...told, ...standing }),
    generated: text.length,
    id: text.map((_, i) => 100 + i),
    text,
    per_token: 0.0213,
    ...change,
  };
}

/**
 * @param {Partial<Twin>} [change]
 * @returns {Twin}
 */
export function twin(change) {
  const eager = side("t1");
  const n = eager.generated;
  return {
    execution: "traced",
    eager,
    other: side("t2", { per_token: 0.0152 }, { first_token: 0.104, execution: execution({ passes: n }) }),
    lane: 0,
    lanes: 1,
    start: 0,
    compared: n,
    agreeing: n,
    difference: null,
    largest_gap: 0,
    gap_over: `over all ${n} choices`,
    pays_off_after: 197,
    over: true,
    ...change,
  };
}

/** A twin whose other side says something else from a token on. */
export function differing() {
  const base = twin();
  const at = 21;
  const text = [...base.other.text.slice(0, at), " nets", " a", " little", " while", ",", " then", " sleeps", "."];
  const id = text.map((_, i) => (i < at ? 100 + i : 900 + i));
  const choice = (/** @type {number} */ chosen, /** @type {string} */ said, /** @type {number[]} */ shares) => ({
    id: chosen,
    text: said,
    alt_id: [base.eager.id[at], id[at], 7, 8, 9].slice(0, shares.length),
    alt_text: [base.eager.text[at], " nets", " the", " slow", "\n"].slice(0, shares.length),
    alt_logprob: shares.map(Math.log),
  });
  return twin({
    execution: "compiled",
    other: {
      ...base.other,
      text,
      id,
      generated: text.length,
      per_token: 0.0231,
      status: status({
        ...base.other.status,
        generated: text.length,
        execution: execution({
          name: "compiled",
          passes: 28,
          prepared: 41.2,
          fallbacks: [{ reason: "attentions are asked for", passes: 2 }],
        }),
      }),
    },
    compared: text.length,
    agreeing: at,
    difference: {
      lane: 0,
      position: at + 31,
      generated: at,
      eager: choice(base.eager.id[at], base.eager.text[at], [0.341202, 0.341201, 0.112, 0.03, 0.0007]),
      other: choice(id[at], " nets", [0.3412, 0.341203, 0.112, 0.03]),
    },
    largest_gap: 1.9e-5,
    gap_over: `over the ${at + 1} choices up to the first difference`,
    pays_off_after: null,
  });
}

/** A twin whose other run is still being prepared for. */
export function unready() {
  const now = { what: "one token on a cache", stage: "tracing", seconds: 3.07 };
  return twin({
    other: side(
      "t2",
      { generated: 1, id: [100], text: [twin().eager.text[0]], per_token: null },
      { state: "preparing", why: null, generated: 1, execution: execution({ passes: 1, preparing: now, graphs: 1 }) },
    ),
    compared: 1,
    agreeing: 1,
    largest_gap: null,
    gap_over: null,
    pays_off_after: null,
    over: false,
  });
}

/**
 * @param {FakeModel} model
 * @param {Twin} state
 */
function show(model, state) {
  executed(model);
  model.set("twin_state", state);
}

/** @param {FakeModel} model */
export const twin_agrees = (model) => show(model, twin());
/** @param {FakeModel} model */
export const twin_differs = (model) => show(model, differing());
/** @param {FakeModel} model */
export function twin_prepares(model) {
  preparing(model);
  model.set("twin_state", unready());
}
