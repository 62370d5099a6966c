import { beforeEach, describe, expect, test, vi } from "vitest";
import { REST_MS } from "../src/looks.js";
import { pixels, widthOf } from "../src/views/matrix.js";
import { generated, open, paint, play } from "./helpers.js";
import { attention, look, matrix } from "./seen.js";

beforeEach(() => {
  vi.useFakeTimers({ toFake: ["setTimeout", "clearTimeout", "setInterval", "clearInterval", "Date"] });
});

/** @param {import("../src/wire.js").Begin["observed"]} observed */
async function watched(observed) {
  const opened = await open();
  const fake = play(opened, generated(["a", "b", "c", "d"]), { about: { observed } });
  opened.model.receive(fake.end({ state: "finished" }));
  paint();
  const sent = () => opened.model.sent.filter(({ kind }) => kind === "look");
  const rest = () => {
    vi.advanceTimersByTime(REST_MS);
    paint();
  };
  const show = (/** @type {string} */ part) => {
    opened.find(`.gs-part [data-value="${part}"]`).click();
    paint();
    rest();
  };
  const answer = (/** @type {import("../src/connection.js").Seen} */ seen) => {
    opened.model.receive(seen);
    paint();
  };
  const words = (/** @type {string} */ selector) =>
    opened.all(selector).map((e) => e.textContent?.replace(/\s+/g, " ").trim());
  return { ...opened, fake, sent, rest, show, answer, words };
}

describe("what was not observed", () => {
  test("is one quiet line that leads to its switch; no parts are offered", async () => {
    const { all, words, find } = await watched([]);
    expect(words(".gs-offers")).toEqual(["not observed: attention, logit lens"]);
    expect(all(".gs-part .gs-segmented")).toEqual([]);
    expect(find(".gs-matrix-fold").hidden).toBe(true);
    all(".gs-offers button")[1].click();
    expect(document.activeElement).toBe(find("[data-field=logit_lens] input"));
  });

  test("is not offered before there is a run", async () => {
    const opened = await open();
    expect(opened.all(".gs-offers")).toEqual([]);
  });

  test("names only what is missing", async () => {
    const { words } = await watched(["lens"]);
    expect(words(".gs-offers")).toEqual(["not observed: attention"]);
    expect(words(".gs-part .gs-segmented button")).toEqual(["Alternatives", "Logit lens"]);
  });
});

describe("attention", () => {
  test("is asked for when its part is shown, and drawn over the tokens", async () => {
    const { show, sent, answer, all, words, find } = await watched(["attention"]);
    expect(sent()).toEqual([]);
    show("attention");
    expect(sent()).toEqual([look(3)]);
    expect(words(".gs-attention .gs-empty")).toEqual(["asking the kernel…"]);
    answer(attention(3));
    expect(all(".gs-t").map((span) => span.style.getPropertyValue("--a"))).toEqual(["1.000", "0.408", "0.408", ""]);
    expect(all(".gs-attended").map(({ title }) => title.replace("\u202f", " "))).toEqual([
      "75.0 % of the attention",
      "12.5 % of the attention",
      "12.5 % of the attention",
    ]);
    expect(words(".gs-shares tbody tr")).toEqual(['"a" 0 75.0 %', '"b" 1 12.5 %', '"c" 2 12.5 %']);
    expect(words(".gs-heads option")).toEqual(["mean", "0", "1", "2", "mean", "0", "1"]);
    find('.gs-part [data-value="alternatives"]').click();
    paint();
    expect(all(".gs-attended")).toEqual([]);
  });

  test("another layer is another question", async () => {
    const { show, sent, answer, all, rest } = await watched(["attention"]);
    show("attention");
    answer(attention(3));
    const [layer] = /** @type {HTMLSelectElement[]} */ (all(".gs-part .gs-heads select"));
    layer.value = "2";
    layer.dispatchEvent(new Event("change", { bubbles: true }));
    paint();
    expect(all(".gs-attended")).toEqual([]);
    rest();
    expect(sent().at(-1)).toEqual(look(3, { layer: 2 }));
  });

  test("of a run that lives only a chosen token is asked for", async () => {
    const opened = await open();
    const fake = play(opened, generated(["a", "b", "c"]), { about: { observed: ["attention"] } });
    opened.find('.gs-part [data-value="attention"]').click();
    paint();
    vi.advanceTimersByTime(1000);
    expect(opened.model.sent.filter(({ kind }) => kind === "look")).toEqual([]);
    expect(opened.find(".gs-attention .gs-empty").textContent).toBe("Point at a token, or pin one.");
    opened.all(".gs-t")[1].click();
    paint();
    vi.advanceTimersByTime(REST_MS);
    expect(opened.model.sent.at(-1)).toEqual(look(1));
    expect(fake.run).toBe("r1");
  });

  test("the first token was chosen by nobody", async () => {
    const { show, all, sent, words, rest } = await watched(["attention"]);
    all(".gs-t")[0].click();
    show("attention");
    rest();
    expect(sent()).toEqual([]);
    expect(words(".gs-attention .gs-empty")).toEqual(["The first token was not chosen: nothing comes before it."]);
  });

  test("a refusal is shown as it is", async () => {
    const { show, answer, words } = await watched(["attention"]);
    show("attention");
    answer({
      kind: "unseen",
      run: "r1",
      lane: 0,
      position: 3,
      what: "attention",
      message: "It was dropped: <b>keep</b> it.",
    });
    expect(words(".gs-attention .gs-empty")).toEqual(["It was dropped: <b>keep</b> it."]);
  });

  test("of a kernel that is gone what was seen stays, and the rest is not asked for", async () => {
    const { show, answer, all, model, words } = await watched(["attention"]);
    show("attention");
    answer(attention(3));
    model.emit("comm_live_update");
    paint();
    expect(all(".gs-attended")).toHaveLength(3);
    all(".gs-t")[2].click();
    paint();
    expect(words(".gs-attention .gs-empty")).toEqual(["The kernel is gone, and with it what it saw."]);
    expect(vi.getTimerCount()).toBe(0);
  });
});

test("the logit lens: from the last layer to the first, the chosen token marked where it is on top", async () => {
  const { show, sent, answer, words, all, fake } = await watched(["lens"]);
  show("lens");
  expect(sent()).toEqual([{ kind: "look", run: "r1", lane: 0, position: 3, what: "lens" }]);
  const chosen = fake.tracks[0].data(3, 4).columns.id[0];
  const layer = (/** @type {number} */ n, /** @type {number} */ id, /** @type {string} */ text) => ({
    layer: n,
    id: [id, 99],
    text: [text, "\\xE2"],
    logprob: [Math.log(0.5), null],
    chosen_logprob: n === 0 ? null : Math.log(0.25),
    chosen_rank: 4 - n,
  });
  answer({
    kind: "lens",
    run: "r1",
    lane: 0,
    position: 3,
    layers: [layer(0, 7, "x"), layer(1, 7, "y"), layer(2, chosen, "d")],
  });
  expect(words(".gs-lens tbody tr")).toEqual(['2 ▸"d"(chosen) E2 25.0 % #2', '1 "y" E2 25.0 % #3', '0 "x" E2 0 #4']);
  expect(all(".gs-lens [data-chosen] th").map((cell) => cell.title)).toEqual(["The model's own distribution"]);
  expect(all(".gs-lens .gs-raw").map((cell) => cell.getAttribute("style"))[0]).toBe("--p:0.5000");
});

describe("the matrix", () => {
  test("is asked for while it is open, ends with the chosen token, and tells what is pointed at", async () => {
    const { find, sent, rest, answer, words, host } = await watched(["attention"]);
    rest();
    expect(sent()).toEqual([]);
    /** @type {HTMLDetailsElement} */ (find(".gs-matrix-fold")).open = true;
    find(".gs-matrix-fold").dispatchEvent(new Event("toggle"));
    rest();
    expect(sent()).toEqual([look(3, { what: "matrix" })]);
    answer(matrix(1, 3));
    const canvas = /** @type {HTMLCanvasElement} */ (host.querySelector("canvas"));
    expect([canvas.width, canvas.height]).toEqual([3, 3]);
    expect(words(".gs-rows span")).toEqual(['"b"', '"c"', '"d"']);
    expect(words(".gs-columns span")).toEqual(['"a"', '"b"', '"c"']);
    const move = Object.assign(new Event("pointermove"), { offsetX: 15 * 1 + 3, offsetY: 15 * 2 + 3 });
    canvas.dispatchEvent(move);
    expect(words(".gs-readout")).toEqual(['"d" 3 looks at "b" 1: 33.3 %']);
    canvas.dispatchEvent(new Event("pointerleave"));
    expect(words(".gs-readout")).toEqual(["rows look at columns; stronger is more (square root)"]);
  });

  test("is the ink, as opaque as the square root of the weight; what a row does not have is clear", () => {
    const seen = { ...matrix(1, 2), rows: [[1], [0.25, 0]] };
    expect(widthOf(seen)).toBe(2);
    expect([...pixels(seen, "#3f2b96")]).toEqual([
      0x3f, 0x2b, 0x96, 255, 0, 0, 0, 0, 0x3f, 0x2b, 0x96, 128, 0x3f, 0x2b, 0x96, 0,
    ]);
  });
});
