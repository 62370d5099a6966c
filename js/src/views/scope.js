// One view of a session: puts the parts together in an element and draws them when something changed.
import { bucketOf, measureNamed, scaleOf } from "../measures.js";
import { drawForm, showField } from "./form.js";
import { drawHeading } from "./heading.js";
import { drawInspector } from "./inspector.js";
import { drawLegend } from "./legend.js";
import { drawPrompt } from "./prompt.js";
import { drawStatus } from "./status.js";
import { followTheme } from "./theme.js";
import { TokensView } from "./tokens.js";
import { drawToolbar } from "./toolbar.js";
import { hideTwin } from "./twin.js";

/** @typedef {import("../session.js").Session} Session */

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
  const status = part("section", "gs-status");
  const toolbar = part("div", "gs-toolbar");
  const legend = part("div", "gs-legend");
  const beams = part("section", "gs-beams");
  const inspector = part("aside", "gs-inspector");
  const tokens = new TokensView(session, () => inspect(), signal);
  const body = part("div", "gs-body", tokens.element, inspector);
  const screen = part("section", "gs-screen", part("div", "gs-controls", toolbar, legend), beams, body);
  prompt.setAttribute("aria-label", "Prompt");
  form.setAttribute("aria-label", "Settings");
  status.setAttribute("aria-label", "Status");
  beams.setAttribute("aria-label", "Beam search");
  inspector.setAttribute("aria-label", "Chosen token");
  const root = part("div", "genscope", heading, prompt, form, status, screen);
  followTheme(root, signal);
  hideTwin(session.staticClass, signal);

  const measurePrompt = () => showField(form, "prompt_probabilities");
  const inspect = () => {
    const { index, why } = tokens.pick;
    const { settings } = session.state;
    const { record } = tokens.spans;
    const measure = measureNamed(session.measure);
    const scale = scaleOf(measure, session.variant);
    const marked = index === null ? null : bucketOf(scale, record.number(scale.column, index));
    const shown = settings?.alternatives;
    drawInspector(
      inspector,
      index === null ? null : record.token(index),
      why,
      typeof shown === "number" ? shown : 10,
      measurePrompt,
    );
    drawLegend(legend, measure, scale, tokens.spans.tally[scale.key], marked);
  };
  const update = () => {
    drawHeading(heading, session);
    drawPrompt(prompt, session, prefix);
    drawForm(form, session, prefix);
    drawStatus(status, session);
    drawToolbar(toolbar, session);
    beams.hidden = session.state.beams === null;
    tokens.element.dataset.scale = scaleOf(measureNamed(session.measure), session.variant).key;
    tokens.update();
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
  signal.addEventListener("abort", () => root.remove());
  update();
  host.append(root);
}
