import { beforeEach, describe, expect, test } from "vitest";
import { beamSession, groups, search } from "../dev/beam_scene.js";
import { BeamsView } from "../src/views/beams.js";
import { scoreText } from "../src/views/beamtext.js";
import { controller, press } from "./helpers.js";

/**
 * The view on a search of which some steps came.
 * @param {typeof search | typeof groups} found
 * @param {number} [n]
 */
function show(found, n = found.steps.length) {
  const session = beamSession(found);
  const view = new BeamsView(session, controller().signal);
  session.refresh = () => view.update();
  document.body.append(view.element);
  const { tables } = session.state;
  /** @param {number} to Rows. */
  const rows = (to) => {
    tables.beams.push(...found.steps.slice(tables.beams.length, to));
    if (to === found.steps.length) {
      tables.choices.push(...found.choices);
      session.state.over = true;
    }
    view.update();
  };
  rows(n);
  const all = (/** @type {string} */ selector) =>
    /** @type {HTMLElement[]} */ ([...view.element.querySelectorAll(selector)]);
  const find = (/** @type {string} */ selector) => all(selector)[0];
  const text = (/** @type {string} */ selector) =>
    all(selector).map((one) => one.textContent?.replace(/\s+/g, " ").trim());
  const cell = (/** @type {string} */ key) => find(`.gs-bcell[data-key="${key}"]`);
  const go = (/** @type {number} */ step) => {
    const slider = /** @type {HTMLInputElement} */ (find(".gs-btime"));
    slider.value = String(step);
    slider.dispatchEvent(new Event("input"));
  };
  return { session, view, rows, all, find, text, cell, go, strip: find(".gs-btree") };
}

/** @type {ReturnType<typeof show>} */
let shown;

describe("while the search goes on", () => {
  beforeEach(() => {
    shown = show(search, 60);
  });

  test("says where it is and what happened", () => {
    expect(shown.text(".gs-bwhen")).toEqual(["step 60 of 601 forked, 1 died"]);
    expect(shown.text(".gs-blabel")).toEqual(["21 tokens that all 8 live hypotheses share"]);
    expect(shown.find(".gs-blines").textContent).toBe(
      "The sky appears blue because of a process called Rayleigh scattering, which is a natural phenomenon that occurs when",
    );
  });

  test("ends every row with its rank and score, or with its death", () => {
    const ends = shown.text(".gs-bend");
    expect(
      ends
        .toSorted()
        .slice(0, 8)
        .map((end) => end?.slice(0, 2)),
    ).toEqual(["#1", "#2", "#3", "#4", "#5", "#6", "#7", "#8"]);
    expect(ends).toContain("#1 −26.36");
    expect(ends).toContain("✕ died −27.57");
  });

  test("tells lines apart by what became of them", () => {
    const lines = (/** @type {string} */ key) => shown.cell(key)?.dataset.line;
    const last = search.steps[59];
    expect(lines(`59:${last.live[0]}`)).toBe("best");
    expect(lines(`59:${last.live[7]}`)).toBe("live");
    expect(shown.all('.gs-bcell[data-line="settled"]')).toHaveLength(8);
    expect(shown.text('.gs-bcell[data-line="dead"] .gs-btok')).toEqual(["·especially"]);
  });

  test("lists the live with the text behind what all share, their own part apart", () => {
    const [first] = shown.all(".gs-brows tbody tr");
    expect(first.textContent?.replace(/\s+/g, " ")).toContain("1 −26.36");
    expect(first.querySelector("bdi i")?.textContent).toMatch(/^ light encounters molecules .* but some of them,$/);
    expect(first.querySelector("bdi")?.textContent).toMatch(/ including blue light,$/);
    expect(shown.text(".gs-bhyps h4")).toEqual(["Live 8", "Finished none"]);
  });

  test("another step touches only what it changes", () => {
    const before = new Map(shown.all(".gs-bcell").map((one) => [one.dataset.key, one]));
    shown.rows(61);
    const after = shown.all(".gs-bcell");
    expect(after.filter((one) => !before.has(one.dataset.key)).map((one) => one.dataset.key?.split(":")[0])).toEqual(
      Array(8).fill("60"),
    );
    expect(after.every((one) => [undefined, one].includes(before.get(one.dataset.key)))).toBe(true);
  });

  test("the slider goes back in time; new steps do not move it; the button goes to the newest", () => {
    shown.go(9);
    expect(shown.text(".gs-bwhen b")).toEqual(["step 10"]);
    expect(shown.text(".gs-blines")).toEqual(["The sky"]);
    expect(shown.text(".gs-bend").filter((end) => end?.startsWith("✕"))).toEqual([
      "✕ died −6.07",
      "✕ died −5.51",
      "✕ died −6.02",
    ]);
    shown.rows(61);
    expect(shown.text(".gs-bwhen b")).toEqual(["step 10"]);
    shown.find(".gs-bnewest").click();
    expect(shown.text(".gs-bwhen b")).toEqual(["step 61"]);
    expect(shown.find(".gs-bnewest").hasAttribute("disabled")).toBe(true);
    shown.rows(62);
    expect(shown.text(".gs-bwhen b")).toEqual(["step 62"]);
  });

  test("sliding past what came follows the newest", () => {
    shown.go(9);
    shown.go(100);
    shown.rows(61);
    expect(shown.text(".gs-bwhen b")).toEqual(["step 61"]);
    expect(/** @type {HTMLInputElement} */ (shown.find(".gs-btime")).max).toBe("127");
    shown.go(60);
    shown.rows(62);
    expect(shown.text(".gs-bwhen b")).toEqual(["step 62"]);
  });

  test("settled steps fold as they become many", () => {
    shown.rows(110);
    expect(shown.all('.gs-bcell[data-line="settled"]')).toHaveLength(8);
    expect(shown.all('.gs-bcell[data-from="folded"]')).toHaveLength(1);
    expect(shown.all(".gs-btick:not([hidden])").map((tick) => tick.textContent)[0]).not.toBe("1");
  });

  test("another run starts over", () => {
    shown.session.state.run = "another";
    shown.session.state.tables = { beams: search.steps.slice(0, 1), choices: [] };
    shown.view.update();
    expect(shown.text(".gs-bwhen b")).toEqual(["step 1"]);
    expect(shown.all(".gs-bcell")).toHaveLength(8);
    expect(shown.text(".gs-blines")).toEqual([""]);
    Object.assign(shown.session.state, { run: "diverse", beams: { beams: 4, groups: 2 } });
    shown.session.state.tables = { beams: groups.steps.slice(0, 20), choices: [] };
    shown.view.update();
    expect(shown.all(".gs-blines p").map((line) => line.dataset.group)).toEqual(["A", "B"]);
  });
});

describe("choosing a token", () => {
  beforeEach(() => {
    shown = show(search, 60);
  });
  const literal = () => shown.text(".gs-literal")[0];
  const why = () => shown.text(".gs-why")[0];

  test("the best is shown unless one is pointed at; a click pins, another lets go", () => {
    expect([literal(), why()]).toEqual(['","', "best now"]);
    const at = shown.cell("59:7");
    at.dispatchEvent(new Event("pointerover", { bubbles: true }));
    expect([literal(), why()]).toEqual(['" scattered"', "pointed at"]);
    at.click();
    expect([why(), at.dataset.point]).toEqual(["pinned", "pinned"]);
    at.click();
    expect(why()).toBe("pointed at");
  });

  test("its scores, its rank and what it was up against", () => {
    shown.cell("59:7").click();
    expect(shown.text(".gs-facts dd").slice(2)).toEqual(["−27.886", "#8 of 16", "8", String(search.steps[59].id[7])]);
    expect(shown.text(".gs-brivals tbody tr")).toHaveLength(16);
    expect(shown.text(".gs-brivals tbody tr td:last-child").slice(7, 9)).toEqual(["▸ lives on", "dropped"]);
    const own = (search.steps[59].score[7] ?? 0) - (search.steps[58].live_score[search.steps[59].beam[7]] ?? 0);
    expect(shown.text(".gs-facts dd")[1]).toBe(own.toFixed(3).replace("-", "−"));
  });

  test("by keyboard: along a hypothesis, to the rows beside it, pin and let go", () => {
    press(shown.strip, "ArrowLeft");
    expect([literal(), why()]).toEqual(['" light"', "pointed at"]);
    press(shown.strip, "ArrowRight");
    press(shown.strip, "ArrowDown");
    expect(literal()).toBe('" light"');
    press(shown.strip, "Enter");
    expect(why()).toBe("pinned");
    press(shown.strip, "Home");
    expect([literal(), why()]).toEqual(['"The"', "pinned"]);
    expect(shown.find(".gs-bpick").textContent).toBe("The");
    press(shown.strip, "Escape");
    expect(why()).toBe("best now");
  });

  test("a dead one that was pinned gets its row back", () => {
    shown.go(9);
    const [dead] = shown.all('.gs-bend[data-fate="died"]');
    const key = dead.dataset.key ?? "";
    dead.click();
    shown.find(".gs-bnewest").click();
    expect(shown.all(`.gs-bend[data-fate="picked"]`).map((end) => end.textContent)).toEqual(["✕ at step 10"]);
    expect(shown.text(".gs-kicker")[0]).toContain("died at step 10");
    expect(shown.find(".gs-bend[data-pointed]").dataset.key).toBe(key);
  });
});

describe("at the end", () => {
  beforeEach(() => {
    shown = show(search);
  });

  test("what was chosen is marked in the strip, in the tables and above", () => {
    expect(shown.text('.gs-bend[data-fate="chosen"]')).toEqual([
      "★ sequence 1 ■ pool 1 −0.432",
      "★ sequence 2 ■ pool 2 −0.434",
      "★ sequence 3 ■ pool 3 −0.435",
    ]);
    expect(shown.text(".gs-bseq")).toEqual(["★ 1", "★ 2", "★ 3"]);
    const last = shown.all('.gs-bcell[data-key^="127:"]').map((one) => one.dataset.line);
    expect(last.toSorted()).toEqual(["chosen", "chosen", ...Array(5).fill("live")]);
    expect(shown.text(".gs-blabel")).toEqual(["★ chosen: sequence 1"]);
    expect(shown.find(".gs-blines").textContent).toMatch(/19th century\.<\|im_end\|>$/);
    expect([shown.text(".gs-why"), shown.text(".gs-bhyps h4")]).toEqual([["chosen"], ["Live none", "Finished 8"]]);
  });

  test("and before: it shows that the winner did not always lead", () => {
    shown.go(70);
    const stars = shown.all('.gs-brows tr[data-chosen="true"] th').map((rank) => rank.textContent);
    expect(stars.length).toBeGreaterThan(0);
    expect(shown.all('.gs-bcell[data-line="chosen"]').length).toBeGreaterThan(8);
  });
});

describe("a batch of a diverse search", () => {
  test("shows one prompt at a time, groups apart", () => {
    shown = show(groups, 28);
    expect(shown.text(".gs-bhead button[role=radio]")).toEqual(["prompt 1", "prompt 2"]);
    expect(shown.text(".gs-bband")).toEqual(["A", "B"]);
    expect(shown.text(".gs-brows tbody th")).toEqual(["A1", "A2", "B1", "B2"]);
    expect(shown.all(".gs-blines p").map((line) => line.dataset.group)).toEqual(["A", "B"]);
    const before = shown.find(".gs-blines").textContent;
    shown.all(".gs-bhead button[role=radio]")[1].click();
    expect(shown.find(".gs-blines").textContent).not.toBe(before);
    expect(shown.text(".gs-bwhen b")).toEqual(["step 14"]);
  });
});

test("without a beam search there is nothing", () => {
  shown = show(search, 1);
  shown.session.state.beams = null;
  shown.view.update();
  expect(shown.view.element.hidden).toBe(true);
});

test("almost certain is not written as certain, nor unknown as zero", () => {
  expect([0, -0.0004, -0.0006, null].map((score) => scoreText(score, 3))).toEqual([
    "0.000",
    ">\u202f−0.001",
    "−0.001",
    "–",
  ]);
});

test("text of the model is text, with its white space to be seen", () => {
  const found = structuredClone(search);
  found.steps[0].text[0] = "<img src=x>";
  found.steps[0].text[1] = " a\n";
  found.steps[0].text[2] = "\\xE2\\x80";
  shown = show(found, 1);
  expect(shown.text(".gs-btok").slice(0, 3)).toEqual(["<img src=x>", "·a⏎", "E2 80"]);
  expect(shown.all("img")).toEqual([]);
  expect(shown.text(".gs-literal")).toEqual(['"<img src=x>"']);
});
