// The same request in two executions, side by side: tokens with the first difference marked, what each chose between
// there, and a table of what both cost. Draws only; all of it comes from the trait `twin_state`.
import { html, nothing, render } from "lit-html";
import { guard } from "lit-html/directives/guard.js";
import { ref } from "lit-html/directives/ref.js";
import { duration, literal, percent, small, UNKNOWN, whole } from "../format.js";
import { costText, fallbackLines, preparingText } from "./execution.js";
import { WORDS } from "./status.js";

/** @typedef {import("../session.js").Session} Session */
/** @typedef {import("../wire.js").WireTwin} Twin */
/** @typedef {import("../wire.js").WireTwinSide} Side */
/** @typedef {import("../wire.js").WireTwinChoice} Choice */

/** The two sides, in the order in which they run and stand. */
const SIDES = /** @type {const} */ (["eager", "other"]);

/**
 * @param {HTMLElement} element
 * @param {Session} session
 */
export function drawTwin(element, session) {
  const twin = session.twins.shown;
  element.hidden = twin === null;
  // Two texts, and a frame a token while they grow: they are made when they are others.
  render(twin === null ? nothing : guard([twin], () => drawn(twin, session)), element);
}

/**
 * @param {Twin} twin
 * @param {Session} session
 */
function drawn(twin, session) {
  return html`<div class="gs-twin-head">
      <h3>Twin <span>eager beside ${twin.execution}</span></h3>
      <p class="gs-verdict" aria-live=${twin.over ? "polite" : "off"} data-verdict=${verdictOf(twin)}>${verdictText(twin)}</p>
      <button type="button" class="gs-icon" data-lm-suppress-shortcuts="true" aria-label="Close the twin view"
        title="Close; the runs stay in the tree" @click=${() => session.twins.close()}>×</button>
    </div>
    <div class="gs-sides">${SIDES.map((name) => side(twin, name))}</div>
    <div class="gs-findings">
      ${twin.difference === null ? nothing : distributions(twin, twin.difference)}
      ${numbers(twin)}
    </div>`;
}

/** @param {Twin} twin */
function verdictOf({ difference, over, compared }) {
  return difference !== null ? "differ" : over && compared > 0 ? "agree" : "open";
}

/** @param {Twin} twin */
function verdictText(twin) {
  const { compared, agreeing, difference } = twin;
  if (compared === 0) {
    return twin.over ? "nothing to compare" : "nothing to compare yet";
  }
  const agree = `${whole(agreeing)} of ${whole(compared)} tokens agree`;
  if (difference === null) {
    return twin.over ? agree : `${agree} so far`;
  }
  return `${agree}, first difference at token ${whole(difference.position)}${laneText(twin)}`;
}

/** @param {Twin} twin */
const laneText = ({ lane, lanes }) => (lanes > 1 ? ` of sequence ${lane + 1}` : "");

/**
 * @param {Twin} twin
 * @param {typeof SIDES[number]} which
 */
const nameOf = ({ execution }, which) => (which === "eager" ? "eager" : execution);

/**
 * @param {Twin} twin
 * @param {typeof SIDES[number]} which
 */
function side(twin, which) {
  const { status, generated } = twin[which];
  const name = nameOf(twin, which);
  return html`<section class="gs-side" data-side=${which} data-state=${status.state} aria-label=${`${name}${laneText(twin)}`}>
    <h4><i class="gs-lamp"></i>${name} <span>${standing(status)}</span></h4>
    <div class="gs-twin-text" tabindex="0" role="group" aria-label=${`Tokens, ${name}`} data-lm-suppress-shortcuts="true"
      dir="auto" ${ref((text) => bringIntoSight(text, twin))}>${tokens(twin, twin[which])}</div>
    ${
      status.error === null
        ? html`<p class="gs-note">${cutText(twin, generated, twin[which].id.length)}</p>`
        : html`<p class="gs-problem" role="alert">${status.error}</p>`
    }
  </section>`;
}

/** @param {import("../wire.js").Status} status */
function standing(status) {
  const preparing = preparingText(status.execution);
  if (preparing !== "") {
    return `preparing: ${preparing}, ${duration(status.execution?.preparing?.seconds)}`;
  }
  if (status.state === "queued") {
    return "waits for its turn";
  }
  return WORDS[status.state] ?? status.state;
}

/**
 * @param {Twin} twin
 * @param {Side} side
 */
function tokens({ difference, start }, { id, text }) {
  const first = difference === null ? null : difference.generated - start;
  return text.map((shown, i) => {
    const place = first === null || i < first ? "same" : i === first ? "first" : "after";
    const title = `${literal(shown)}, id ${id[i]}${place === "first" ? ", the first difference" : ""}`;
    return html`<span data-place=${place} title=${title}>${shown}</span>`;
  });
}

/**
 * @param {Twin} twin
 * @param {number} generated
 * @param {number} listed
 */
function cutText({ start }, generated, listed) {
  const after = generated - start - listed;
  const cut = [start > 0 ? `${whole(start)} before` : "", after > 0 ? `${whole(after)} behind` : ""].filter(Boolean);
  const all = `${whole(generated)} ${generated === 1 ? "token" : "tokens"}`;
  return cut.length === 0 ? all : `${all}, of which ${cut.join(" and ")} are not listed`;
}

/**
 * The first difference, once: a person may scroll elsewhere then.
 * @param {Element | undefined} text
 * @param {Twin} twin
 */
function bringIntoSight(text, { difference }) {
  const key = difference === null ? "" : String(difference.generated);
  if (!(text instanceof HTMLElement) || (text.dataset.seen ?? "") === key) {
    return;
  }
  text.dataset.seen = key;
  // The tokens are drawn after their box. Within the box only: the page stays where it is.
  requestAnimationFrame(() => {
    const mark = text.querySelector("[data-place=first]");
    if (mark instanceof HTMLElement) {
      text.scrollTop = mark.offsetTop - text.clientHeight / 2;
    }
  });
}

/**
 * What both chose between at the first difference: a row a candidate.
 * @param {Twin} twin
 * @param {NonNullable<Twin["difference"]>} difference
 */
function distributions(twin, difference) {
  const { eager, other } = difference;
  /** @type {Map<number, string>} */
  const candidates = new Map();
  for (const choice of [eager, other]) {
    choice?.alt_id.forEach((id, i) => {
      candidates.set(id, candidates.get(id) ?? choice.alt_text[i]);
    });
  }
  const where = `token ${whole(difference.position)}${laneText(twin)}`;
  return html`<div class="gs-distributions">
    <p><b>At the first difference</b>, ${where}: candidates in the model’s own distribution.</p>
    <table>
      <thead><tr><th scope="col">candidate</th>${SIDES.map((which) => html`<th scope="col">${nameOf(twin, which)}</th>`)}</tr></thead>
      <tbody>${[...candidates].map(
        ([id, text]) => html`<tr>
          <th scope="row" title=${`${literal(text)}, id ${id}`}><code>${literal(text)}</code></th>
          ${bar("raw", eager, id)}${bar("processed", other, id)}
        </tr>`,
      )}</tbody>
    </table>
    ${SIDES.map((which) => html`<p>${marginText(nameOf(twin, which), difference[which], difference[which === "eager" ? "other" : "eager"])}</p>`)}
  </div>`;
}

/**
 * How close the choice was: rounded to percents, two candidates between which a last digit decides look the same.
 * @param {string} name
 * @param {Choice | null} mine
 * @param {Choice | null} theirs
 */
function marginText(name, mine, theirs) {
  if (mine === null) {
    return `${name} had ended there`;
  }
  const said = html`${name} chose <code>${literal(mine.text)}</code>`;
  const [own, others] = [mine.id, theirs?.id].map((id) => logprobOf(mine, id));
  if (own === null || others === null) {
    return said;
  }
  const margin = own - others;
  return html`${said}, whose log-probability is ${small(Math.abs(margin))} ${margin < 0 ? "below" : "above"} the other’s`;
}

/**
 * @param {Choice} choice
 * @param {number | undefined} id
 * @returns {number | null} Null where it is not known, or minus infinity.
 */
const logprobOf = ({ alt_id, alt_logprob }, id) =>
  id === undefined ? null : (alt_logprob[alt_id.indexOf(id)] ?? null);

/**
 * @param {"raw" | "processed"} colour
 * @param {Choice | null} choice
 * @param {number} id
 */
function bar(colour, choice, id) {
  const at = choice?.alt_id.indexOf(id) ?? -1;
  if (choice === null || at < 0) {
    return html`<td class="gs-bar gs-${colour}" data-unknown="true" title="Not recorded on this side"><span>${UNKNOWN}</span></td>`;
  }
  const logprob = choice.alt_logprob[at];
  const share = logprob === null ? 0 : Math.exp(logprob);
  const chosen = choice.id === id;
  return html`<td class="gs-bar gs-${colour}" data-chosen=${chosen ? "true" : nothing} style="--p:${share.toFixed(4)}"><span
    ><i class="gs-mark" aria-hidden="true">${chosen ? "▸" : ""}</i>${logprob === null ? "0" : percent(logprob)}${chosen ? html`<span class="gs-sr"> (chosen)</span>` : nothing}</span></td>`;
}

/** @param {Twin} twin */
function numbers(twin) {
  const { eager, other } = twin;
  const first = [eager, other].map(({ status }) => status.first_token);
  const steady = [eager, other].map(({ per_token }) => per_token);
  const execution = other.status.execution;
  return html`<div class="gs-numbers"><table>
    <thead><tr><th scope="col"><span class="gs-sr">what</span></th>
      ${SIDES.map((which) => html`<th scope="col">${nameOf(twin, which)}</th>`)}<th scope="col"><span class="gs-sr">compared</span></th></tr></thead>
    <tbody>
      ${row("time to first token", first.map(duration), ratioText(first), "From leaving the queue to the first generated token; what was prepared meanwhile is left out")}
      ${row("time a token", steady.map(duration), ratioText(steady), "Of each token after the first; what was prepared meanwhile is left out")}
      ${row("preparation", ["none", preparationText(twin)], payText(twin), "Making graphs; once they are there, other runs use them too")}
      ${row(
        "tokens",
        [eager, other].map(({ status }) => whole(status.generated)),
        agreementText(twin),
        "Generated by each, of the longest sequence",
      )}
      ${gapRow(twin)}
    </tbody>
  </table>${execution === null ? nothing : fallbackLines(execution)}</div>`;
}

/** @param {Twin} twin */
function preparationText({ other, over }) {
  const { execution } = other.status;
  if (execution === null) {
    return UNKNOWN;
  }
  return execution.prepared > 0 ? costText(execution) : over ? "none" : UNKNOWN;
}

/**
 * @param {string} name
 * @param {unknown[]} values Of both sides.
 * @param {unknown} compared
 * @param {string} explains
 */
function row(name, values, compared, explains) {
  return html`<tr><th scope="row" title=${explains}>${name}</th>${values.map((value) => html`<td>${value}</td>`)}<td class="gs-compared">${compared}</td></tr>`;
}

/** @param {(number | null)[]} seconds Of both sides. */
function ratioText([eager, other]) {
  if (eager === null || other === null || other === 0) {
    return "";
  }
  const ratio = eager / other;
  return html`<b>${ratio.toFixed(2)}</b> times as fast`;
}

/** @param {Twin} twin */
function agreementText({ agreeing, compared }) {
  return compared === 0 ? "" : html`<b>${whole(agreeing)}</b> of ${whole(compared)} agree`;
}

/** @param {Twin} twin */
function gapRow({ largest_gap: gap, gap_over: over }) {
  return html`<tr><th scope="row" title="Largest difference of a logit between the two, where both came from the same tokens">largest logit gap</th>
    <td colspan="2">${gap === null ? UNKNOWN : small(gap)}</td><td class="gs-compared">${over ?? ""}</td></tr>`;
}

/**
 * When preparing has paid off: known once both are over and both have a speed.
 * @param {Twin} twin
 */
function payText({ eager, other, over, pays_off_after: after }) {
  const execution = other.status.execution;
  if (!over || execution === null || eager.per_token === null || other.per_token === null) {
    return "";
  }
  if (other.per_token >= eager.per_token) {
    return "is not faster here: never pays off";
  }
  return after === null ? "pays off at once" : html`pays off after <b>${whole(after)}</b> tokens`;
}
