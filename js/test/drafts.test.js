import { describe, expect, test, vi } from "vitest";
import { believableRun, FakeRun, random } from "../dev/fake_kernel.js";
import { roundsOf } from "../dev/strategy_scenes.js";
import { originOf } from "../src/drafts.js";
import { copyText } from "../src/views/tokens.js";
import { generated, open, paint, play } from "./helpers.js";

/** @typedef {import("../src/wire.js").WireRound} Round */

/**
 * @param {number} position
 * @param {string[]} text
 * @param {number} accepted
 * @param {number} [bonus]
 * @returns {Round}
 */
const round = (position, text, accepted, bonus = 1) => ({
  step: position,
  position,
  id: text.map((_, i) => i),
  text,
  draft_logprob: text.map((_, i) => (i === 0 ? Math.log(0.45) : null)),
  target_logprob: text.map((_, i) => (i < accepted ? Math.log(0.9) : null)),
  accepted,
  bonus,
  seconds: 0.1,
});

/** A prompt of one token; two drafts kept and two rejected; none kept; all kept, to the end. */
const TEXTS = ["P", "a", "b", "c", "d", "e", "f"];
const ROUNDS = [round(1, ["a", "b", "x\n", "<y>"], 2), round(4, ["z"], 0), round(5, ["e", "f"], 2, 0)];
const ROWS = generated(TEXTS).map((row, i) => ({ ...row, generated: i > 0 }));
const fake = new FakeRun("r1", ROWS, { rounds: ROUNDS });

test("each token has the origin that its round tells", () => {
  const kinds = Array.from({ length: 8 }, (_, index) => originOf(ROUNDS, index)?.kind ?? null);
  expect(kinds).toEqual([null, "accepted", "accepted", "own", "own", "accepted", "accepted", null]);
  expect(originOf(ROUNDS, 1)?.logprob).toBe(Math.log(0.45));
  expect(originOf(ROUNDS, 2)?.logprob).toBeNull();
  expect(originOf([], 3)).toBeNull();
});

test("in any run every generated token has one origin, as often accepted as the rounds say", () => {
  const { rows, promptTokens } = believableRun();
  const rounds = roundsOf(rows, promptTokens);
  const kinds = rows.map((_, index) => originOf(rounds, index)?.kind ?? null);
  expect(kinds.slice(0, promptTokens).every((kind) => kind === null)).toBe(true);
  const count = (/** @type {string} */ which) => kinds.filter((kind) => kind === which).length;
  expect(count("accepted")).toBe(rounds.reduce((sum, { accepted }) => sum + accepted, 0));
  expect(count("own")).toBe(rounds.reduce((sum, { bonus }) => sum + bonus, 0));
});

/** @param {import("./helpers.js").Opened} opened */
function shown({ all }) {
  return all(".gs-t, .gs-rejected").map((e) =>
    e.classList.contains("gs-rejected")
      ? `(${e.dataset.text})`
      : `${e.classList.contains("gs-round") ? "|" : ""}${e.textContent}${e.classList.contains("gs-accepted") ? "+" : ""}`,
  );
}

const EXPECTED = ["P", "|a+", "b+", "(x⏎)", "(<y>)", "c", "(z)", "|d", "|e+", "f+"];

describe("in the text", () => {
  const end = fake.end({ state: "finished", why: "length" });

  test("tokens and rounds may come in either order", async () => {
    const orders = {
      tokensFirst: [fake.data(0, 7), fake.table("rounds", 0, 3), end],
      roundsFirst: [fake.table("rounds", 0, 3), fake.data(0, 7), end],
      mixed: [
        fake.data(0, 2),
        fake.table("rounds", 0, 2),
        fake.data(2, 4),
        fake.data(4, 7),
        fake.table("rounds", 2, 3),
      ],
    };
    for (const messages of Object.values(orders)) {
      const opened = await open();
      opened.model.receive(fake.begin(1));
      for (const message of messages) {
        opened.model.receive(message);
        paint();
      }
      expect(shown(opened)).toEqual(EXPECTED);
      opened.view.abort();
    }
  });

  test.each(Array.from({ length: 20 }, (_, seed) => seed))(
    "a long run looks the same however it came: %i",
    async (seed) => {
      const { rows, promptTokens } = believableRun();
      const rounds = roundsOf(rows, promptTokens);
      const long = new FakeRun("r1", rows, { rounds });
      const next = random(seed * 31 + 5);
      const opened = await open();
      opened.model.receive(long.begin(promptTokens));
      for (let at = 0, row = 0; at < rows.length || row < rounds.length; ) {
        const to = Math.min(rows.length, at + Math.floor(9 * next()));
        const upTo = Math.min(rounds.length, row + Math.floor(3 * next()));
        opened.model.receive(long.data(at, to));
        opened.model.receive(long.table("rounds", row, upTo));
        paint();
        [at, row] = [to, upTo];
      }
      const rejected = rounds.flatMap(({ text, accepted }) => text.slice(accepted));
      expect(opened.all(".gs-rejected").map((e) => e.dataset.text)).toEqual(
        rejected.map((text) => text.replace("\n", "⏎")),
      );
      expect(opened.all(".gs-round")).toHaveLength(rounds.length);
      expect(opened.find(".gs-text").textContent).toBe(rows.map(({ text }) => text).join(""));
    },
  );

  test("a round that was cut by the end of the run is shown as far as it came", async () => {
    const opened = await open();
    const cut = new FakeRun("r1", ROWS.slice(0, 3), { rounds: [round(1, ["a", "b", "c"], 3)] });
    opened.model.receive(cut.begin(1));
    opened.model.receive(cut.table("rounds", 0, 1));
    opened.model.receive(cut.data(0, 3));
    paint();
    expect(opened.all(".gs-accepted")).toEqual([]);
    opened.model.receive(cut.end({ state: "stopped" }));
    paint();
    expect(shown(opened)).toEqual(["P", "|a+", "b+"]);
  });

  test("a rejected draft of white space alone is marks, not a bare line", async () => {
    const opened = await open();
    const texts = [" ", " \u00a0", "\t", " a "];
    const run = new FakeRun("r1", generated(["P", "b"]), { rounds: [round(1, texts, 0)] });
    for (const message of [run.begin(1), run.data(0, 2), run.table("rounds", 0, 1)]) {
      opened.model.receive(message);
    }
    paint();
    expect(opened.all(".gs-rejected").map((e) => e.dataset.text)).toEqual(["·", "·⍽", "→", " a "]);
  });

  test("rejected drafts are no text: not copied, not read aloud, and say what they are", async () => {
    const opened = await open();
    play(opened, ROWS, { promptTokens: 1 });
    opened.model.receive(fake.table("rounds", 0, 3));
    paint();
    expect(opened.find(".gs-text").textContent).toBe("Pabcdef");
    const [rejected] = opened.all(".gs-rejected");
    expect(rejected.getAttribute("aria-hidden")).toBe("true");
    expect(rejected.title).toBe("drafted, rejected\ndrafted with –\nthe model gives it 0");
    const range = document.createRange();
    range.selectNodeContents(opened.find(".gs-text"));
    vi.spyOn(window, "getSelection").mockReturnValue(
      /** @type {any} */ ({ isCollapsed: false, getRangeAt: () => range }),
    );
    const setData = vi.fn();
    const event = { clipboardData: { setData }, preventDefault: vi.fn(), stopPropagation: vi.fn() };
    copyText(/** @type {any} */ (event), opened.find(".gs-text"));
    expect(setData).toHaveBeenCalledWith("text/plain", "Pabcdef");
    vi.restoreAllMocks();
  });

  test("a toggle hides them; without rounds there is none", async () => {
    const opened = await open();
    play(opened, ROWS, { promptTokens: 1 });
    expect(opened.all("[data-toggle=drafts]")).toEqual([]);
    opened.model.receive(fake.table("rounds", 0, 3));
    paint();
    expect(opened.find(".gs-pane").hasAttribute("data-drafts")).toBe(true);
    expect(opened.all(".gs-key-accepted")).toHaveLength(1);
    opened.find("[data-toggle=drafts]").click();
    paint();
    expect(opened.find("[data-toggle=drafts]").getAttribute("aria-pressed")).toBe("false");
    expect(opened.find(".gs-pane").hasAttribute("data-drafts")).toBe(false);
    expect(opened.all(".gs-key-accepted")).toEqual([]);
  });

  test("the inspector says where a token is from", async () => {
    const opened = await open();
    play(opened, ROWS, { promptTokens: 1 });
    opened.model.receive(fake.table("rounds", 0, 3));
    paint();
    const origin = (/** @type {number} */ index) => {
      opened.all(".gs-t")[index].dispatchEvent(new Event("pointerover", { bubbles: true }));
      return opened.all(".gs-origin").map((e) => e.textContent?.replace("\u202f", " "));
    };
    expect(origin(1)).toEqual(["accepted draft, drafted with 45.0 %"]);
    expect(origin(2)).toEqual(["accepted draft"]);
    expect(origin(3)).toEqual(["the model’s own"]);
    expect(origin(0)).toEqual([]);
  });
});
