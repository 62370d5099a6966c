// Which measure colours the tokens, from which distribution, and whether drafts and white space are marked. Draws only.
import { html, nothing, render } from "lit-html";
import { MEASURES, measureNamed } from "../measures.js";
import { segmented } from "./segmented.js";

/** @typedef {import("../session.js").Session} Session */

const VARIANTS = [
  { value: "raw", label: "model’s own", title: "The model's own distribution, before any processor" },
  {
    value: "processed",
    label: "as chosen",
    title: "The distribution that tokens were chosen from, after all processors",
  },
];

/**
 * @param {HTMLElement} element
 * @param {Session} session
 */
export function drawToolbar(element, session) {
  const measure = measureNamed(session.measure);
  const hasVariants = measure.scales.processed !== undefined;
  const options = Object.values(MEASURES).map(({ name, title, explains }) => ({
    value: name,
    label: title,
    title: explains,
  }));
  render(
    html`${segmented("Colour by", options, measure.name, (name) => session.setTrait("measure", name))}
      ${
        hasVariants
          ? segmented("Distribution", VARIANTS, session.variant, (variant) =>
              session.setVariant(variant === "processed" ? "processed" : "raw"),
            )
          : nothing
      }
      <span class="gs-toggles">
      ${
        session.drafting
          ? html`<button type="button" class="gs-toggle" data-lm-suppress-shortcuts="true" aria-label="Drafts" aria-pressed=${session.drafts}
            data-toggle="drafts" title="Mark accepted drafts, and show rejected ones struck through; copied text stays as it is"
            @click=${() => session.setDrafts(!session.drafts)}><s aria-hidden="true">ab</s><small>drafts</small></button>`
          : nothing
      }
      <button type="button" class="gs-toggle" data-toggle="whitespace" data-lm-suppress-shortcuts="true" aria-label="White space marks" aria-pressed=${session.whitespace}
        title="Mark spaces, tabs and line ends; copied text stays as it is"
        @click=${() => session.setTrait("whitespace", !session.whitespace)}>
        <span aria-hidden="true">·→⏎</span><small>white space</small>
      </button></span>`,
    element,
  );
}
