// The line to the kernel: receives `msg:custom`, keeps the state, pulls what is missing, notices silence and death.
// What a message means is the store's part; what a person sees is the views'.
import { openControl } from "./control.js";
import { watchKernel } from "./life.js";
import { PULL_TIMEOUT_MS, Pulls } from "./pulls.js";
import { EVERYTHING, emptyState, gaps, reduce } from "./store.js";

/** @typedef {import("./wire.js").BackMessage} BackMessage */
/** @typedef {import("./wire.js").FrontMessage} FrontMessage */
/** @typedef {import("./wire.js").SeenAttention | import("./wire.js").SeenMatrix | import("./wire.js").SeenLens | import("./wire.js").Unseen} Seen */
/** @typedef {import("./store.js").Change} Change */
/** @typedef {import("./wire.js").Status["state"]} RunState */
/** @typedef {import("@anywidget/types").AnyModel} Model */
/** @typedef {{ comm_live?: boolean, model_id?: string }} HostModel The host's own model, behind anywidget's proxy. */

const SILENCE_MS = 5000;
const KINDS = new Set(["begin", "data", "rows", "beat", "end", "problems"]);
/** Answers to `look`. */
const SEEN = new Set(["attention", "matrix", "lens", "unseen"]);
/** @type {ReadonlySet<string>} */
const LIVING = new Set(["queued", "preparing", "prefilling", "decoding", "paused"]);

/** @param {string | undefined} state */
export function isLiving(state) {
  return state !== undefined && LIVING.has(state);
}

export class Connection {
  state = emptyState();
  /** False once the kernel that this model belongs to is gone. */
  alive = true;
  /** Settles when the control comm is open, or cannot be. @type {Promise<boolean>} */
  controlled = Promise.resolve(false);

  #model;
  #onChange;
  #onSeen;
  #signal;
  /** @type {import("./control.js").openControl extends (...args: any) => infer R ? R | null : never} */
  #control = null;
  /** @type {HostModel | null} */
  #host = null;
  /** @type {ReturnType<typeof setInterval> | undefined} */
  #clock;
  #pulls = new Pulls(
    (gap, run) => this.send(run === null ? { kind: "pull", ...gap } : { kind: "pull", run, ...gap }),
    () => this.#pullAgain(),
  );
  /** @type {ReturnType<typeof setTimeout> | undefined} */
  #expecting;
  #heard = Date.now();

  /**
   * @param {Model} model
   * @param {object} listeners
   * @param {(change: Readonly<Change> | null) => void} listeners.onChange Null: whether the kernel lives has changed.
   * @param {(seen: Seen) => void} listeners.onSeen
   * @param {AbortSignal} signal
   */
  constructor(model, { onChange, onSeen }, signal) {
    this.#model = model;
    this.#onChange = onChange;
    this.#onSeen = onSeen;
    this.#signal = signal;
    model.on("msg:custom", this.#receive);
    // The host's event, not in anywidget's types: the comm died with its kernel, or is back.
    model.on("comm_live_update", this.#live);
    model.on("change", this.#meet);
    model.on("change:state", this.#expect);
    signal.addEventListener("abort", () => {
      model.off("change:state", this.#expect);
      model.off("msg:custom", this.#receive);
      model.off("comm_live_update", this.#live);
      model.off("change", this.#meet);
      this.#stopTimers();
    });
    this.#startClock();
    watchKernel(model.widget_manager, this.lost, signal);
    this.#findHost();
    this.#pull(EVERYTHING, null);
  }

  /** Seconds since the kernel was heard of, once that is long for a run that lives; else 0. */
  get silence() {
    const since = Date.now() - this.#heard;
    return this.alive && isLiving(this.state.status?.state) && since > SILENCE_MS ? Math.round(since / 1000) : 0;
  }

  /** @param {FrontMessage} message */
  send(message) {
    if (this.alive) {
      try {
        this.#model.send(message);
      } catch (error) {
        // The comm or the kernel connection was disposed: after a shutdown, or with the notebook's tab.
        console.debug("genscope: a message could not be sent.", error);
        this.lost();
      }
    }
  }

  /** The kernel is gone, or this page's line to it: nothing is sent and nothing ticks until the host says otherwise. */
  lost = () => this.#setAlive(false);

  /** Ask for the current run's end, on both ways; a second Stop changes nothing. */
  stop() {
    const { run } = this.state;
    this.#control?.stop(run);
    this.send(run === null ? { kind: "stop" } : { kind: "stop", run });
  }

  /** @param {BackMessage} message */
  #receive = (message) => {
    if (SEEN.has(message?.kind)) {
      this.#heard = Date.now();
      this.#onSeen(/** @type {Seen} */ (message));
      return;
    }
    // Another library may send on the same comm (anywidget's own commands do).
    if (!KINDS.has(message?.kind)) {
      return;
    }
    this.#heard = Date.now();
    const { state, change } = reduce(this.state, message);
    this.state = state;
    if (message.kind === "begin") {
      this.#pulls.begun(change.reset, gaps(state));
    } else if (change.track !== null || change.table !== null) {
      this.#pulls.came(change, gaps(state));
    }
    const run = "run" in message && message.run === state.run ? state.run : null;
    for (const gap of change.pulls) {
      this.#pull(gap, run);
    }
    this.#onChange(change);
  };

  /**
   * @param {Readonly<import("./store.js").Gap>} gap
   * @param {string | null} run
   */
  #pull(gap, run) {
    if (this.alive) {
      this.#pulls.ask(gap, run);
    }
  }

  #startClock() {
    clearInterval(this.#clock);
    this.#clock = setInterval(() => {
      if (this.silence > 0) {
        this.#pullMissing();
        this.#onChange(null);
      }
    }, 1000);
  }

  #stopTimers() {
    clearInterval(this.#clock);
    clearTimeout(this.#expecting);
    this.#pulls.stop();
  }

  /** The kernel is silent: ask for what is missing, or if nothing is known to be, for the next token of a track. */
  #pullMissing() {
    const { run, tracks } = this.state;
    const missing = gaps(this.state);
    for (const gap of missing.length > 0 ? missing : [{ track: 0, start: tracks[0]?.n ?? 0 }]) {
      this.#pull(gap, run);
    }
  }

  #pullAgain() {
    const { run } = this.state;
    if (run === null && this.#model.get("state") !== "idle") {
      this.#pull(EVERYTHING, null);
    }
    for (const gap of gaps(this.state)) {
      this.#pull(gap, run);
    }
  }

  /** Traits and messages go the same way, but one may be lost alone: when they still disagree a while later, ask. */
  #expect = () => {
    clearTimeout(this.#expecting);
    this.#expecting = setTimeout(() => {
      const told = this.#model.get("state");
      if (told !== undefined && told !== (this.state.status?.state ?? "idle")) {
        this.#pull(EVERYTHING, null);
      }
    }, PULL_TIMEOUT_MS);
  };

  /** By Python's `widget_id`; where it is missing the host's model shows itself with the first change of a trait. */
  async #findHost() {
    const id = this.#model.get("widget_id");
    const manager = /** @type {any} */ (this.#model.widget_manager);
    if (typeof id !== "string" || id === "") {
      return;
    }
    this.#openControl(id);
    try {
      this.#meet(await manager?.get_model?.(id));
    } catch (error) {
      console.debug("genscope: this host does not find models by id.", error);
    }
  }

  /**
   * Backbone hands the model itself to listeners of `change`.
   * @param {HostModel} [host]
   */
  #meet = (host) => {
    if (this.#signal.aborted || this.#host || typeof host?.model_id !== "string") {
      return;
    }
    this.#host = host;
    this.#openControl(host.model_id);
    if (host.comm_live === false) {
      this.#live();
    }
  };

  /** @param {string} id */
  #openControl(id) {
    if (this.#control === null) {
      this.#control = openControl(this.#model.widget_manager, id, this.#signal);
      this.controlled = this.#control.opened;
    }
  }

  #live = () => this.#setAlive(this.#host?.comm_live ?? false);

  /** @param {boolean} alive */
  #setAlive(alive) {
    if (alive === this.alive || this.#signal.aborted) {
      return;
    }
    this.alive = alive;
    if (alive) {
      this.#startClock();
      this.#pull(EVERYTHING, null);
    } else {
      this.#stopTimers();
    }
    this.#onChange(null);
  }
}
