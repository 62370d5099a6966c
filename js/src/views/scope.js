// One view of a session: puts the parts together in an element and draws them when something changed.
import { originOf } from "../drafts.js";
import { bucketOf, measureNamed, scaleOf } from "../measures.js";
import { BeamsView } from "./beams.js";
import { branchingAt } from "./branching.js";
import { drawCompareForm, drawComparison } from "./comparing.js";
import { drawForm, showField } from "./form.js";
import { drawHeading } from "./heading.js";
import { drawInspector } from "./inspector.js";
import { LanesView } from "./lanes.js";
import { drawLegend } from "./legend.js";
import { isChosen, lookInto } from "./looking.js";
import { MatrixView } from "./matrix.js";
import { drawOnward } from "./onward.js";
import { drawPrompt } from "./prompt.js";
import { drawRuns } from "./runs.js";
import { hideStaticCopy } from "./staticcopy.js";
import { drawStatus } from "./status.js";
import { followTheme } from "./theme.js";
import { drawToolbar } from "./toolbar.js";
import { drawTwin } from "./twin.js";

/** @typedef {import("../session.js").Session} Session */

/** What a switch of the form makes observable. @type {Record<string, import("../wire.js").Begin["observed"]>} */
const OBSERVED = { attention: ["attention", "cross", "encoder"], logit_lens: ["lens"] };

/**
 * @param {import("../schema.js").Field[]} fields
 * @param {string} name
 */
const has = (fields, name) => fields.find((field) => field.name === name);

/**
 * @param {string} tag
 * @param {string} className
 * @param {Node[]} children
 */
function part(tag, className, ...children) {
  const element = document.createElement(tag);
  element.className = className;
  element.append(...children);
  return element;
}

/**
 * @param {Session} session
 * @param {HTMLElement} host
 * @param {AbortSignal} signal
 */
export function mountScope(session, host, signal) {
  // Not a counter: each widget on a page may have its own copy of this module. Not randomUUID: it needs a secure page.
  const prefix = `gs-${Math.random().toString(36).slice(2)}`;
  const heading = part("header", "gs-heading");
  const prompt = part("section", "gs-prompt");
  const form = part("section", "gs-settings");
  const asked = part("section", "gs-compare-asked");
  const compare = part("section", "gs-comparison");
  const status = part("section", "gs-status");
  const onward = part("section", "gs-onward");
  const runs = part("section", "gs-runs");
  const twin = part("section", "gs-twin");
  const toolbar = part("div", "gs-toolbar");
  const legend = part("div", "gs-legend");
  const beams = new BeamsView(session, signal);
  const inspector = part("aside", "gs-inspector");
  const lanes = new LanesView(session, () => inspect(), signal);
  const matrix = new MatrixView(session, () => inspect());
  const body = part("div", "gs-body", lanes.element, inspector);
  const screen = part(
    "section",
    "gs-screen",
    part("div", "gs-controls", toolbar, legend),
    beams.element,
    compare,
    body,
    matrix.element,
  );
  prompt.setAttribute("aria-label", "Prompt");
  form.setAttribute("aria-label", "Settings");
  status.setAttribute("aria-label", "Status");
  onward.setAttribute("aria-label", "What was reused, and going on");
  runs.setAttribute("aria-label", "Runs");
  twin.setAttribute("aria-label", "Twin");
  asked.setAttribute("aria-label", "Ask for a comparison");
  compare.setAttribute("aria-label", "Comparison");
  inspector.setAttribute("aria-label", "Chosen token");
  const root = part("div", "genscope", heading, prompt, form, asked, status, onward, twin, runs, screen);
  followTheme(root, signal, () => session.refresh());
  hideStaticCopy(session.staticClass, signal);

  const measurePrompt = () => showField(form, "prompt_probabilities");
  /** What could be observed as well, where this strategy's form has a switch for it. */
  const offers = () => {
    const { run, observed } = session.state;
    const fields = session.draft.strategy?.fields ?? [];
    return Object.entries(OBSERVED)
      .filter(([name, kinds]) => run !== null && !kinds.some((kind) => observed.includes(kind)) && has(fields, name))
      .map(([name]) => ({ title: has(fields, name)?.title.toLowerCase() ?? name, go: () => showField(form, name) }));
  };
  const inspect = () => {
    const { pick } = lanes;
    const { track, index, why } = pick;
    const { settings, tables, lanes: sequences } = session.state;
    const measure = measureNamed(session.measure);
    const scale = scaleOf(measure, session.variant);
    const record = lanes.view(track)?.spans.record;
    const marked = index === null || !record ? null : bucketOf(scale, record.number(scale.column, index));
    const shown = settings?.alternatives;
    drawInspector(inspector, index === null ? null : (record?.token(index) ?? null), {
      ...lookInto(session, lanes),
      why,
      where: lanes.row(track)?.label ?? "",
      source: sequences.length > 0 && sequences[track] === undefined,
      origin: index === null || track !== 0 ? null : originOf(tables.rounds, index),
      shown: typeof shown === "number" ? shown : 10,
      choose: (part) => session.setPart(part),
      offers: offers(),
      branching: branchingAt(session, pick),
      measurePrompt,
    });
    const lane = sequences[track] === undefined ? 0 : track;
    drawOnward(onward, session, { lane, label: sequences.length > 1 ? (lanes.row(lane)?.label ?? "") : "" });
    matrix.update(pick, isChosen(session, pick));
    drawLegend(legend, measure, scale, lanes.tally[scale.key], marked, {
      drafted: session.drafting && session.drafts,
      reused: (session.state.status?.reuse ?? null) !== null,
    });
  };
  const update = () => {
    drawHeading(heading, session);
    drawPrompt(prompt, session, prefix);
    drawForm(form, session, prefix);
    drawCompareForm(asked, session, prefix);
    drawComparison(compare, session);
    drawStatus(status, session);
    drawRuns(runs, session);
    drawTwin(twin, session);
    drawToolbar(toolbar, session);
    beams.update();
    lanes.element.dataset.scale = scaleOf(measureNamed(session.measure), session.variant).key;
    body.toggleAttribute(
      "data-parts",
      session.state.observed.some((kind) => kind !== "encoder"),
    );
    body.toggleAttribute("data-drafted", session.drafting);
    lanes.update();
    inspect();
  };
  root.addEventListener(
    "keydown",
    (event) => {
      if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) {
        session.generate();
      } else if (event.key === "Escape" && session.living) {
        session.stop();
      } else {
        return;
      }
      event.preventDefault();
      event.stopPropagation();
    },
    { signal },
  );
  session.subscribe(update, signal);
  signal.addEventListener("abort", () => {
    root.remove();
    session.looks.close(lanes);
    session.looks.close(matrix);
  });
  update();
  host.append(root);
}
