import { describe, expect, test } from "vitest";
import { generated, open, paint, play, press, type } from "./helpers.js";

/** @typedef {import("./helpers.js").Opened} Opened */

const ABOUT = { model: "m", chat: true, context: null };
const rows = [{ text: "p" }, { text: "q" }, ...generated(["a", "b", "c"])];

/** @param {Opened} opened */
const sent = ({ model }) => model.sent.filter(({ kind }) => kind === "reply" || kind === "branch");

/**
 * A run that is over.
 * @param {Record<string, any>} [traits]
 */
async function over(traits) {
  const opened = await open({ about: ABOUT, ...traits });
  const fake = play(opened, rows, { promptTokens: 2 });
  opened.model.receive(fake.end({ state: "finished", why: "length", generated: 3 }));
  paint();
  return opened;
}

describe("reply", () => {
  const prompt = [{ role: "user", content: "Hi" }];
  const area = (/** @type {Opened} */ opened) => /** @type {HTMLTextAreaElement} */ (opened.find(".gs-reply textarea"));

  test("is there for a conversation with a model that has a chat template", async () => {
    expect((await over()).all(".gs-reply")).toEqual([]);
    expect((await over({ prompt })).all(".gs-reply")).toHaveLength(1);
    expect((await over({ prompt, about: { ...ABOUT, chat: false } })).all(".gs-reply")).toEqual([]);
  });

  test("Enter sends what was typed, Shift and Enter is a new line; then the box is empty", async () => {
    const opened = await over({ prompt });
    press(area(opened), "Enter");
    expect(sent(opened)).toEqual([]);
    type(area(opened), "And then?\nPlease. ");
    press(area(opened), "Enter", { shiftKey: true });
    press(area(opened), "Enter", { isComposing: true });
    expect(sent(opened)).toEqual([]);
    press(area(opened), "Enter");
    const [message, ...more] = sent(opened);
    expect(message).toEqual({
      kind: "reply",
      run: "r1",
      lane: 0,
      text: "And then?\nPlease. ",
      settings: expect.anything(),
    });
    expect(message.settings).toMatchObject({ strategy: "sample" });
    expect(more).toEqual([]);
    expect(area(opened).value).toBe("And then?\nPlease. ");
    opened.model.receive({ kind: "problems", problems: [] });
    play(opened, rows, { run: "r2" });
    expect(area(opened).value).toBe("");
  });

  test("can be typed while the run lives, and is said when it is over", async () => {
    const opened = await open({ prompt, about: ABOUT });
    const fake = play(opened, rows, { promptTokens: 2 });
    type(area(opened), "More");
    const button = /** @type {HTMLButtonElement} */ (opened.find("[data-command=reply]"));
    press(area(opened), "Enter");
    expect([button.disabled, button.title, sent(opened)]).toEqual([true, "The run is still going", []]);
    opened.model.receive(fake.end({ state: "finished" }));
    paint();
    button.click();
    expect(sent(opened)[0]).toMatchObject({ kind: "reply", text: "More" });
  });

  test("what was wrong stands below it", async () => {
    const opened = await over({ prompt });
    type(area(opened), "x");
    opened.find("[data-command=reply]").click();
    opened.model.receive({ kind: "problems", problems: [{ field: "text", value: "", message: "no", way_out: "" }] });
    paint();
    expect(opened.find(".gs-reply [role=alert]").textContent?.trim()).toBe("no");
    expect(opened.all("[role=alert]")).toHaveLength(1);
  });

  test("another run that is shown leaves what is being typed alone", async () => {
    const opened = await over({ prompt });
    type(area(opened), "half a thou");
    play(opened, rows, { run: "r0" });
    expect(area(opened).value).toBe("half a thou");
  });
});
