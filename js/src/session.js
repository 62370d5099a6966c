// What the views of one model share: the connection, the form's draft, the prompt, and the commands. No DOM.
//
// However many messages arrive, views are told once an animation frame.
import { Comparing } from "./comparing.js";
import { Connection, isLiving } from "./connection.js";
import { Draft } from "./draft.js";
import { Looks } from "./looks.js";
import { Onward } from "./onward.js";
import { kindOf, PromptKinds } from "./prompts.js";
import { aboutOf, loadOf, TRAITS, treeOf } from "./traits.js";
import { Twins } from "./twins.js";

/** @typedef {import("@anywidget/types").AnyModel} Model */
/** @typedef {import("./store.js").Change} Change */
/** @typedef {import("./prompts.js").Prompt} Prompt */
/** @typedef {import("./measures.js").Variant} Variant */
/** @typedef {"alternatives" | "attention" | "lens"} Part */

const PROMPT_DEBOUNCE_MS = 300;

export class Session {
  /** Which distribution colours come from; a matter of the view, so not synced. @type {Variant} */
  variant = "raw";
  /** Whether drafts are shown in the text; as the variant. */
  drafts = true;
  /** Which part of the inspector is shown below the measures. @type {Part} */
  part = "alternatives";
  /** @type {Prompt} */
  prompt;
  connection;
  draft;
  looks;
  onward = new Onward(this);
  comparing = new Comparing(this);
  twins;
  /** The run that was asked to stop: a long step, or a prefill, goes on for a while. @type {string | null} */
  #stopping = null;
  #kinds = new PromptKinds();
  /** The model whose costs were asked for. @type {string | null} */
  #costsAskedFor = null;

  #model;
  /** @type {Set<() => void>} */
  #views = new Set();
  /** @type {number | null} */
  #frame = null;
  /** @type {ReturnType<typeof setTimeout> | undefined} */
  #promptTimer;

  /**
   * @param {Model} model
   * @param {AbortSignal} signal
   */
  constructor(model, signal) {
    this.#model = model;
    this.prompt = model.get("prompt") ?? "";
    this.connection = new Connection(model, { onChange: this.#changed, onSeen: this.#seen }, signal);
    this.twins = new Twins(this, model);
    this.looks = new Looks(
      (look) => this.connection.send(look),
      () => this.refresh(),
    );
    this.draft = new Draft(model, (settings) => {
      this.onward.asked = null;
      this.connection.send({ kind: "settings", settings });
    });
    for (const name of TRAITS) {
      const listener = () => this.#traitChanged(name);
      model.on(`change:${name}`, listener);
      signal.addEventListener("abort", () => model.off(`change:${name}`, listener));
    }
    signal.addEventListener("abort", () => {
      clearTimeout(this.#promptTimer);
      this.draft.close();
      this.looks.closeAll();
      this.#views.clear();
    });
  }

  get state() {
    return this.connection.state;
  }

  get load() {
    return loadOf(this.#model);
  }

  get about() {
    return aboutOf(this.#model);
  }

  /** @returns {string} */
  get measure() {
    return this.#model.get("measure") ?? "probability";
  }

  /** @returns {boolean} */
  get whitespace() {
    return this.#model.get("whitespace") ?? false;
  }

  /** @returns {string} */
  get staticClass() {
    return this.#model.get("static_class") ?? "";
  }

  get tree() {
    return treeOf(this.#model);
  }

  get living() {
    return isLiving(this.state.status?.state);
  }

  /** Whether the run drafts, which is known before its first round. */
  get drafting() {
    const { status, tables } = this.state;
    return Boolean(status?.drafts) || tables.rounds.length > 0;
  }

  /** Why nothing can be generated now; null if it can. */
  get obstacle() {
    if (!this.connection.alive) {
      return "The kernel is gone";
    }
    const { phase } = this.load;
    if (phase === "loading") {
      return "The model is loading";
    }
    return phase === "error" ? "The model did not load" : null;
  }

  /**
   * @param {() => void} update Called at most once an animation frame.
   * @param {AbortSignal} signal
   */
  subscribe(update, signal) {
    this.#views.add(update);
    signal.addEventListener("abort", () => this.#views.delete(update));
  }

  /** Have all views drawn again. */
  refresh() {
    this.#frame ??= requestAnimationFrame(() => {
      this.#frame = null;
      for (const update of this.#views) {
        update();
      }
    });
  }

  /** @param {Readonly<Change> | null} change */
  #changed = (change) => {
    if (change?.reset) {
      this.onward.begun();
    }
    if (change?.problems) {
      this.draft.answered(this.state.problems.length === 0);
    }
    this.refresh();
  };

  #seen = (/** @type {import("./connection.js").Seen} */ seen) => this.looks.answer(seen);

  /** @param {string} name */
  #traitChanged(name) {
    if (name === "schema") {
      this.draft.readForm();
    }
    if (name === "schema" || name === "settings") {
      this.draft.adopt();
    }
    // An edit that is still to be sent is newer.
    if (name === "prompt" && this.#promptTimer === undefined) {
      this.prompt = this.#model.get("prompt") ?? "";
    }
    this.refresh();
  }

  /**
   * @param {"measure" | "whitespace" | "prompt"} name
   * @param {unknown} value
   */
  setTrait(name, value) {
    this.#model.set(name, value);
    try {
      this.#model.save_changes();
    } catch (error) {
      console.debug(`genscope: ${name} could not be saved.`, error);
      this.connection.lost();
    }
    this.refresh();
  }

  /** @param {Variant} variant */
  setVariant(variant) {
    this.variant = variant;
    this.refresh();
  }

  /** @param {boolean} shown */
  setDrafts(shown) {
    this.drafts = shown;
    this.refresh();
  }

  /** @param {Part} part */
  setPart(part) {
    this.part = part;
    this.refresh();
  }

  /** Someone looks at what observing costs: have it measured, once. */
  askCosts() {
    const { model, costs } = this.about;
    if (costs === null && this.obstacle === null && this.#costsAskedFor !== model) {
      this.#costsAskedFor = model;
      this.connection.send({ kind: "costs" });
    }
  }

  /** @param {Prompt} prompt */
  setPrompt(prompt) {
    this.prompt = prompt;
    clearTimeout(this.#promptTimer);
    this.#promptTimer = setTimeout(() => this.#savePrompt(), PROMPT_DEBOUNCE_MS);
    this.refresh();
  }

  /** @param {import("./prompts.js").PromptKind} kind */
  setPromptKind(kind) {
    if (kind !== kindOf(this.prompt)) {
      this.setPrompt(this.#kinds.turn(this.prompt, kind));
    }
  }

  #savePrompt() {
    clearTimeout(this.#promptTimer);
    this.#promptTimer = undefined;
    this.setTrait("prompt", this.prompt);
  }

  generate() {
    if (this.obstacle === null) {
      const settings = this.settle();
      this.onward.asked = null;
      this.connection.send({ kind: "generate", prompt: this.prompt, settings });
    }
  }

  /**
   * A run is about to be asked for: what was edited a moment ago counts.
   * @returns {Record<string, any>} The settings, which go out with it.
   */
  settle() {
    this.#savePendingPrompt();
    this.draft.flush();
    return this.draft.values;
  }

  /** Start a run that is paused; Python takes its own prompt and settings, so those go first. */
  #generatePaused() {
    if (this.obstacle === null) {
      this.#savePendingPrompt();
      this.draft.sendNow();
      this.connection.send({ kind: "step" });
    }
  }

  #savePendingPrompt() {
    if (this.#promptTimer !== undefined) {
      this.#savePrompt();
    }
  }

  stop() {
    this.#stopping = this.state.run;
    this.connection.stop();
    this.refresh();
  }

  get stopping() {
    return this.living && this.connection.alive && this.#stopping !== null && this.#stopping === this.state.run;
  }

  /** @param {"pause" | "resume" | "step"} kind */
  command(kind) {
    const { run } = this.state;
    if (kind === "step" && !this.living) {
      this.#generatePaused();
      return;
    }
    this.connection.send(run === null ? { kind } : { kind, run });
  }

  /** @param {string} field */
  problem(field) {
    return this.state.problems.find((problem) => problem.field === field);
  }
}
