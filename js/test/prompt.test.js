import { beforeEach, describe, expect, test, vi } from "vitest";
import { open, paint, type } from "./helpers.js";

beforeEach(() => {
  vi.useFakeTimers({ toFake: ["setTimeout", "clearTimeout", "setInterval", "clearInterval", "Date"] });
});

describe("prompt", () => {
  test("is saved a moment after typing, and follows Python otherwise", async () => {
    const opened = await open();
    const area = /** @type {HTMLTextAreaElement} */ (opened.find(".gs-prompt textarea"));
    type(area, "Hi");
    opened.model.set("prompt", "older");
    paint();
    expect(area.value).toBe("Hi");
    vi.advanceTimersByTime(400);
    expect(opened.model.get("prompt")).toBe("Hi");
    opened.model.set("prompt", "from Python");
    paint();
    expect(area.value).toBe("from Python");
  });

  test("as chat: messages can be added, edited and removed", async () => {
    const opened = await open({ about: { model: "m", chat: true, context: null } });
    opened.find('[data-value="chat"]').click();
    paint();
    opened.find(".gs-chat > .gs-add").click();
    paint();
    type(opened.all(".gs-message textarea")[1], "Yes?");
    vi.advanceTimersByTime(400);
    expect(opened.model.get("prompt")).toEqual([
      { role: "user", content: "Hello" },
      { role: "assistant", content: "Yes?" },
    ]);
    opened.all(".gs-message .gs-icon")[0].click();
    vi.advanceTimersByTime(400);
    expect(opened.model.get("prompt")).toEqual([{ role: "assistant", content: "Yes?" }]);
  });

  test("a conversation comes back from text, unless the text was edited", async () => {
    const talk = [
      { role: "system", content: "Be brief." },
      { role: "user", content: "Hi" },
    ];
    const opened = await open({ prompt: talk, about: { model: "m", chat: true, context: null } });
    const choose = (/** @type {string} */ kind) => {
      opened.find(`[data-value="${kind}"]`).click();
      paint();
      vi.advanceTimersByTime(400);
      return opened.model.get("prompt");
    };
    expect(choose("text")).toBe("Be brief.\n\nHi");
    expect(choose("chat")).toEqual(talk);
    choose("text");
    type(opened.find(".gs-prompt textarea"), "Other");
    expect(choose("chat")).toEqual([{ role: "user", content: "Other" }]);
  });

  test("a new message has the keyboard; text may run from right to left", async () => {
    const opened = await open({ prompt: [{ role: "user", content: "Hi" }] });
    opened.find(".gs-chat > .gs-add").click();
    paint();
    const areas = opened.all(".gs-message textarea");
    expect(document.activeElement).toBe(areas[1]);
    expect(areas.map((area) => area.getAttribute("dir"))).toEqual(["auto", "auto"]);
  });

  test("there is no chat where the model has no chat template", async () => {
    const opened = await open();
    const kinds = opened.all(".gs-commands [role=radio]").map((button) => button.textContent);
    expect(kinds).toEqual(["Text", "Several"]);
  });

  describe("of several", () => {
    const about = { model: "m", chat: true, context: null };
    const choose = (/** @type {import("./helpers.js").Opened} */ opened, /** @type {string} */ kind) => {
      opened.find(`.gs-commands [data-value="${kind}"]`).click();
      paint();
      vi.advanceTimersByTime(400);
      return opened.model.get("prompt");
    };

    test("has a box each, to add and to remove, and generates all", async () => {
      const opened = await open({ about });
      expect(choose(opened, "several")).toEqual(["Hello"]);
      opened.find(".gs-batch > .gs-add").click();
      paint();
      expect(document.activeElement).toBe(opened.all(".gs-one textarea")[1]);
      type(opened.all(".gs-one textarea")[1], "World");
      opened.find("[data-command=generate]").click();
      expect(opened.model.sent.at(-1)).toMatchObject({ kind: "generate", prompt: ["Hello", "World"] });
      opened.all(".gs-one .gs-icon")[0].click();
      paint();
      vi.advanceTimersByTime(400);
      expect(opened.model.get("prompt")).toEqual(["World"]);
      expect(/** @type {HTMLButtonElement} */ (opened.find(".gs-one .gs-icon")).disabled).toBe(true);
    });

    test("keeps a conversation as it is", async () => {
      const talk = [{ role: "user", content: "Hi <b>" }];
      const opened = await open({ about, prompt: ["Text", talk] });
      expect(opened.find(".gs-talk").textContent?.replace(/\s+/g, " ").trim()).toBe("user Hi <b>");
      type(opened.find(".gs-one textarea"), "Edited");
      vi.advanceTimersByTime(400);
      expect(opened.model.get("prompt")).toEqual(["Edited", talk]);
    });

    test("comes back from text and from chat, unless that was edited", async () => {
      const opened = await open({ about, prompt: ["one", "two"] });
      expect(choose(opened, "text")).toBe("one\n\ntwo");
      expect(choose(opened, "several")).toEqual(["one", "two"]);
      expect(choose(opened, "chat")).toEqual([{ role: "user", content: "one\n\ntwo" }]);
      type(opened.find(".gs-message textarea"), "three");
      expect(choose(opened, "several")).toEqual([[{ role: "user", content: "three" }]]);
      expect(choose(opened, "chat")).toEqual([{ role: "user", content: "three" }]);
    });
  });
});
