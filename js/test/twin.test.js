import { describe, expect, test } from "vitest";
import { status } from "../dev/fake_kernel.js";
import { differing, execution, side, twin, unready } from "../dev/twin_scenes.js";
import { generated, open, paint, play } from "./helpers.js";

/** @typedef {import("../src/wire.js").WireTwin} Twin */

/** @param {string | null | undefined} text */
const plain = (text) =>
  text
    ?.replace(/\u202f/g, " ")
    .replace(/\s+/g, " ")
    .trim();

/** @param {Twin | null} state */
async function shown(state) {
  const opened = await open({ twin_state: state });
  const { find, all } = opened;
  const rows = () => all(".gs-numbers tr").map((row) => [...row.children].map((cell) => plain(cell.textContent)));
  const row = (/** @type {string} */ name) =>
    rows()
      .find(([first]) => first === name)
      ?.slice(1);
  const places = (/** @type {string} */ which, /** @type {string} */ place) =>
    all(`[data-side=${which}] [data-place=${place}]`).map((span) => span.textContent);
  return { ...opened, verdict: () => plain(find(".gs-verdict").textContent), row, places };
}

describe("asking for a twin", () => {
  const settings = { strategy: "greedy", execution: "traced" };

  test("sends the prompt and the settings of the form", async () => {
    const { find, model } = await open({ settings });
    const button = find("[data-command=twin]");
    expect(button.hasAttribute("disabled")).toBe(false);
    button.click();
    const message = model.sent.at(-1);
    expect([message.kind, message.prompt, message.settings.execution]).toEqual(["twin", "Hello", "traced"]);
  });

  test("needs an execution, and that nothing goes", async () => {
    const { find } = await open({ settings: { strategy: "greedy" } });
    expect(find("[data-command=twin]").hasAttribute("disabled")).toBe(true);
    expect(find("[data-command=twin]").title).toBe("Choose an execution to compare the default with");
    const opened = await open({ settings });
    play(opened, generated(["a"]));
    expect(opened.find("[data-command=twin]").title).toBe("A run is going");
    expect(opened.find("[data-command=twin]").hasAttribute("disabled")).toBe(true);
    const loading = await open({ settings, status: { phase: "loading", text: "", progress: null } });
    expect(loading.find("[data-command=twin]").title).toBe("The model is loading");
  });
});

describe("a twin", () => {
  test("that agrees says so, in a word and in numbers", async () => {
    const { verdict, row, find, all, places } = await shown(twin());
    expect(find(".gs-twin").hidden).toBe(false);
    expect(verdict()).toBe("138 of 138 tokens agree");
    expect(find(".gs-verdict").dataset.verdict).toBe("agree");
    expect(row("time to first token")).toEqual(["118 ms", "104 ms", "1.13 times as fast"]);
    expect(row("time a token")).toEqual(["21 ms", "15 ms", "1.40 times as fast"]);
    expect(row("preparation")).toEqual(["none", "1.20 s, 2 graphs", "pays off after 197 tokens"]);
    expect(row("tokens")).toEqual(["138", "138", "138 of 138 agree"]);
    expect(row("largest logit gap")).toEqual(["0", "over all 138 choices"]);
    expect(places("eager", "same")).toEqual(twin().eager.text);
    expect(all(".gs-distributions, [data-place=first], [data-place=after]")).toEqual([]);
  });

  test("that differs shows where on both sides, and what each chose between", async () => {
    const { verdict, all, find, places, row } = await shown(differing());
    expect(verdict()).toBe("21 of 29 tokens agree, first difference at token 52");
    expect([places("eager", "same").length, places("other", "same").length]).toEqual([21, 21]);
    expect([places("eager", "first"), places("other", "first")]).toEqual([[" erases"], [" nets"]]);
    expect(places("other", "after")).toHaveLength(7);
    // Not in the text, where it could be copied.
    expect(find("[data-side=other] .gs-twin-text").textContent).toBe(differing().other.text.join(""));
    const table = all(".gs-distributions tbody tr").map((one) =>
      [...one.children].map((cell) => plain(cell.textContent)),
    );
    expect(table.slice(0, 2)).toEqual([
      ['" erases"', "▸34.1 % (chosen)", "34.1 %"],
      ['" nets"', "34.1 %", "▸34.1 % (chosen)"],
    ]);
    // Not recorded there is not zero.
    expect(table[4]).toEqual(['"\\n"', "0.070 %", "–"]);
    expect(all(".gs-distributions [data-unknown]")).toHaveLength(1);
    expect(
      all(".gs-distributions p")
        .slice(1)
        .map((line) => plain(line.textContent)),
    ).toEqual([
      'eager chose " erases", whose log-probability is 2.9e-6 above the other’s',
      'compiled chose " nets", whose log-probability is 8.8e-6 above the other’s',
    ]);
    expect(row("preparation")?.at(-1)).toBe("is not faster here: never pays off");
    expect(plain(find(".gs-numbers .gs-fallback").textContent)).toBe("2 passes ran eagerly: attentions are asked for");
  });

  test("one side of which had ended, or which records no candidates", async () => {
    const { difference } = differing();
    const bare = { id: 5, text: "x", alt_id: [5], alt_text: ["x"], alt_logprob: [null] };
    const { all } = await shown({
      ...differing(),
      lanes: 3,
      difference: { .../** @type {any} */ (difference), eager: null, other: bare },
    });
    const cells = all(".gs-distributions tbody tr > *").map((cell) => plain(cell.textContent));
    expect(cells).toEqual(['"x"', "–", "▸0 (chosen)"]);
    expect(all(".gs-distributions p").map((line) => plain(line.textContent))).toEqual([
      "At the first difference, token 52 of sequence 1: candidates in the model’s own distribution.",
      "eager had ended there",
      'compiled chose "x"',
    ]);
  });

  test("whose second run is prepared for says so, and what is not known yet is open", async () => {
    const { verdict, row, find } = await shown(unready());
    expect(verdict()).toBe("1 of 1 tokens agree so far");
    expect(find(".gs-verdict").dataset.verdict).toBe("open");
    expect(plain(find("[data-side=other] h4").textContent)).toBe(
      "traced preparing: one token on a cache, tracing, 3.07 s",
    );
    expect(row("time a token")).toEqual(["21 ms", "–", ""]);
    expect(row("preparation")?.at(-1)).toBe("");
    expect(row("largest logit gap")).toEqual(["–", ""]);
    // Whether it pays off is told when both are over, though both have a speed before.
    const going = await shown({ ...unready(), other: { ...unready().other, per_token: 0.01 } });
    expect(going.row("time a token")).toEqual(["21 ms", "10 ms", "2.13 times as fast"]);
    expect(going.row("preparation")?.at(-1)).toBe("");
  });

  test.each(
    /** @type {[string, Partial<Twin>, string][]} */ ([
      ["queued", { over: false, compared: 0, agreeing: 0 }, "nothing to compare yet"],
      ["stopped", { over: true, compared: 0, agreeing: 0 }, "nothing to compare"],
    ]),
  )("that is %s", async (state, change, text) => {
    const waiting = side(
      "t2",
      { id: [], text: [], generated: 0, per_token: null },
      { state: /** @type {any} */ (state) },
    );
    const { verdict, find, row } = await shown(twin({ ...change, other: waiting, pays_off_after: null }));
    expect(verdict()).toBe(text);
    expect(plain(find("[data-side=other] h4 span").textContent)).toBe(
      state === "queued" ? "waits for its turn" : state,
    );
    expect(row("preparation")?.slice(1)).toEqual(["–", ""]);
  });

  test("for which nothing was prepared pays off at once", async () => {
    const other = twin().other;
    const ready = { ...other, status: status({ ...other.status, execution: execution({ prepared: 0, graphs: 0 }) }) };
    const { row } = await shown(twin({ other: ready, pays_off_after: null }));
    expect(row("preparation")).toEqual(["none", "none", "pays off at once"]);
  });

  test("that failed tells why in place of its count; of a long text it says what is cut", async () => {
    const failed = side("t2", { generated: 0, id: [], text: [] }, { state: "failed", error: "<b>no compiler</b>" });
    const { find, all } = await shown(twin({ other: failed }));
    expect(find("[data-side=other] [role=alert]").textContent).toBe("<b>no compiler</b>");
    expect(all(".gs-twin b b")).toEqual([]);
    const long = await shown(twin({ start: 300, eager: side("t1", { generated: 900 }) }));
    expect(plain(long.find("[data-side=eager] .gs-note").textContent)).toBe(
      "900 tokens, of which 300 before and 462 behind are not listed",
    );
  });

  test("is closed, and the next one is shown again", async () => {
    const { find, model } = await shown(twin());
    find(".gs-twin-head button").click();
    paint();
    expect(find(".gs-twin").hidden).toBe(true);
    model.set("twin_state", twin({ compared: 5 }));
    paint();
    expect(find(".gs-twin").hidden).toBe(true);
    model.set("twin_state", twin({ eager: side("t3") }));
    paint();
    expect(find(".gs-twin").hidden).toBe(false);
  });

  test("before the first there is nothing", async () => {
    const { find } = await shown(null);
    expect(find(".gs-twin").hidden).toBe(true);
    expect(find(".gs-twin").textContent).toBe("");
  });
});
