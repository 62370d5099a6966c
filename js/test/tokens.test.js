import { describe, expect, test, vi } from "vitest";
import { believableRun, FakeRun } from "../dev/fake_kernel.js";
import { copyText } from "../src/views/tokens.js";
import { generated, open, paint, play, press } from "./helpers.js";

/** @param {import("./helpers.js").Opened} opened */
const text = ({ all }) => all(".gs-t").map((span) => span.textContent);

describe("text is data", () => {
  const wild = [
    "<script>alert(1)</script>",
    '"quoted"',
    "a & b",
    "<s>",
    "<b>bold</b>",
    "👩‍👩‍👧",
    "\ufffd",
    "&lt;",
    " two  spaces\n\t",
  ];

  test.each(wild)("%j is shown as it is", async (piece) => {
    const opened = await open();
    play(opened, generated(["x", piece]));
    expect(text(opened)).toEqual(["x", piece]);
    expect(opened.host.querySelector(".gs-text script, .gs-text b, .gs-text s")).toBeNull();
  });

  test("in the inspector, too", async () => {
    const opened = await open();
    const [row] = generated(["<img src=x onerror=alert(1)>"]);
    play(opened, [{ ...row, alternatives: [{ text: "<b>no</b>", raw: 0.3, processed: 0.4, id: 5 }] }]);
    expect(opened.find(".gs-literal").textContent).toBe('"<img src=x onerror=alert(1)>"');
    expect(opened.find(".gs-alternatives code").textContent).toBe('"<b>no</b>"');
    expect(opened.host.querySelector("img, .gs-alternatives b")).toBeNull();
  });

  test("the text of all spans is the text, once: prompt, spaces, code, special tokens, an emoji in four tokens", async () => {
    const opened = await open({ whitespace: true });
    const { rows, promptTokens } = believableRun();
    play(opened, rows, { promptTokens });
    expect(opened.find(".gs-text").textContent).toBe(rows.map((row) => row.text).join(""));
    expect(opened.find(".gs-text").textContent?.match(/🌊/gu)).toHaveLength(1);
  });

  test("copying gives that text, without the line breaks of chunks", async () => {
    const opened = await open();
    const rows = generated(Array.from({ length: 600 }, (_, i) => ` w${i}`));
    play(opened, rows);
    expect(opened.all(".gs-chunk")).toHaveLength(2);
    const range = document.createRange();
    range.selectNodeContents(opened.find(".gs-text"));
    vi.spyOn(window, "getSelection").mockReturnValue(
      /** @type {any} */ ({ isCollapsed: false, getRangeAt: () => range }),
    );
    const setData = vi.fn();
    const event = { clipboardData: { setData }, preventDefault: vi.fn(), stopPropagation: vi.fn() };
    copyText(/** @type {any} */ (event), opened.find(".gs-text"));
    expect(setData).toHaveBeenCalledWith("text/plain", rows.map((row) => row.text).join(""));
    expect(event.preventDefault).toHaveBeenCalled();
    vi.restoreAllMocks();
  });
});

describe("characters of several tokens", () => {
  const bytes = [
    { text: "", bytes: "f09f", group: 1 },
    { text: "", bytes: null, group: 1 },
    { text: "🌊", bytes: "8a", group: 1 },
  ].map((row) => ({ generated: true, ...row }));

  test("are one unit; a token without text shows its bytes, or that they are not known", async () => {
    const opened = await open();
    play(opened, [...generated(["a"]), ...bytes, ...generated(["b"])]);
    const spans = opened.all(".gs-t");
    const has = (/** @type {string} */ name) => spans.map((span) => span.classList.contains(name));
    expect(has("gs-group")).toEqual([false, true, true, true, false]);
    expect(has("gs-group-start")).toEqual([false, true, false, false, false]);
    expect(has("gs-group-end")).toEqual([false, false, false, true, false]);
    expect(has("gs-chip")).toEqual([false, true, true, false, false]);
    expect(spans.map((span) => span.dataset.hex)).toEqual([undefined, "F09F", "∅", undefined, undefined]);
  });

  test("that never end show what the end decodes to", async () => {
    const opened = await open();
    const fake = play(opened, [...generated(["a"]), ...bytes.slice(0, 2)]);
    expect(opened.all(".gs-tail")).toEqual([]);
    opened.model.receive(fake.end({ state: "stopped" }, "\ufffd"));
    paint();
    expect(opened.find(".gs-tail").textContent).toBe("\ufffd");
    expect(opened.find(".gs-text").textContent).toBe("a\ufffd");
  });
});

test("marks that turn the direction of text stay within their token; Arabic words are left whole", async () => {
  const opened = await open();
  play(opened, generated(["a", "\u202e", "b\u2067", "مر", "حبا"]));
  expect(opened.all(".gs-t").map((span) => span.classList.contains("gs-turns"))).toEqual([
    false,
    true,
    true,
    false,
    false,
  ]);
});

test("Ctrl+A takes the text of the pane, not of the notebook", async () => {
  const opened = await open();
  play(opened, generated(["a", "b"]));
  press(opened.find(".gs-text"), "a", { ctrlKey: true });
  expect(String(window.getSelection())).toBe("ab");
  window.getSelection()?.removeAllRanges();
});

describe("classes", () => {
  test("hold the bucket of every scale; unknown is no bucket", async () => {
    const opened = await open();
    play(opened, [
      { text: "a", generated: true, raw: 0.995, processed: 0.4, entropy: 0.3, rank: 2, seconds: 0.02 },
      { text: "b", generated: true },
    ]);
    const [a, b] = opened.all(".gs-t");
    for (const name of ["gs-p0", "gs-q7", "gs-s0", "gs-t3", "gs-e2", "gs-r1", "gs-l7"]) {
      expect(a.classList.contains(name), name).toBe(true);
    }
    for (const name of ["gs-px", "gs-qx", "gs-sx", "gs-tx", "gs-ex", "gs-rx", "gs-lx"]) {
      expect(b.classList.contains(name), name).toBe(true);
    }
  });

  test("tell prompt, special tokens and the first generated one apart", async () => {
    const opened = await open();
    play(opened, [{ text: "<s>", special: true }, { text: "Hi" }, ...generated([" there", "!"])], { promptTokens: 2 });
    const which = (/** @type {string} */ name) => opened.all(`.${name}`).map((span) => span.textContent);
    expect(which("gs-in")).toEqual(["<s>", "Hi"]);
    expect(which("gs-special")).toEqual(["<s>"]);
    expect(which("gs-first")).toEqual([" there"]);
  });

  test("a measure is one attribute of the pane; distribution is a choice where there are two", async () => {
    const opened = await open();
    play(opened, generated(["a"]));
    expect(opened.find(".gs-lanes").dataset.scale).toBe("p");
    opened.find('[data-value="processed"]').click();
    paint();
    expect(opened.find(".gs-lanes").dataset.scale).toBe("q");
    opened.find('[data-value="entropy"]').click();
    paint();
    expect(opened.model.get("measure")).toBe("entropy");
    expect(opened.model.saves).toBe(1);
    expect(opened.find(".gs-lanes").dataset.scale).toBe("e");
    expect(opened.all('[data-value="processed"]')).toEqual([]);
  });
});

describe("chunks", () => {
  const lengths = (/** @type {import("./helpers.js").Opened} */ { all }) =>
    all(".gs-chunk").map((chunk) => chunk.querySelectorAll(".gs-t").length);

  test("end at the first newline after 128 tokens", async () => {
    const opened = await open();
    const rows = generated(Array.from({ length: 400 }, (_, i) => (i % 100 === 99 ? ".\n" : " w")));
    play(opened, rows);
    expect(lengths(opened)).toEqual([200, 200]);
    expect(opened.all(".gs-hard")).toEqual([]);
  });

  test("end after 512 at most, and say that no line ends there", async () => {
    const opened = await open();
    play(opened, generated(Array.from({ length: 700 }, () => " w")));
    expect(lengths(opened)).toEqual([512, 188]);
    expect(opened.all(".gs-chunk").map((chunk) => chunk.classList.contains("gs-hard"))).toEqual([true, false]);
  });

  test("do not end inside a character", async () => {
    const opened = await open();
    const rows = generated(Array.from({ length: 520 }, () => "w"));
    for (const at of [510, 511, 512]) {
      rows[at] = { ...rows[at], text: at === 512 ? "🌊" : "", group: 510 };
    }
    play(opened, rows);
    expect(lengths(opened)).toEqual([513, 7]);
  });

  test("grow by appending: spans that are there stay the same", async () => {
    const opened = await open();
    const fake = new FakeRun("r1", generated(["a", "b", "c"]));
    opened.model.receive(fake.begin(0));
    opened.model.receive(fake.data(0, 2));
    paint();
    const before = opened.all(".gs-t");
    opened.model.receive(fake.data(2, 3));
    paint();
    expect(opened.all(".gs-t").slice(0, 2)).toEqual(before);
    expect(opened.all(".gs-t")[0]).toBe(before[0]);
  });
});

test("another run empties the pane", async () => {
  const opened = await open();
  play(opened, generated(["old"]));
  opened.all(".gs-t")[0].click();
  play(opened, generated(["new", "er"]), { run: "r2" });
  expect(text(opened)).toEqual(["new", "er"]);
  expect(opened.all(".gs-pinned")).toEqual([]);
});

describe("white space", () => {
  test("marks stand in attributes, one for each character", async () => {
    const opened = await open({ whitespace: true });
    play(opened, generated([" a", "\n\n", "    ", ".\n", "\t"]));
    const marks = opened.all(".gs-w").map((mark) => [mark.dataset.w, mark.textContent]);
    expect(marks).toEqual([
      ["⏎⏎", "\n\n"],
      ["····", "    "],
      ["⏎", "\n"],
      ["→", "\t"],
    ]);
    expect(opened.all(".gs-sp").map((span) => span.textContent)).toEqual([" a"]);
    expect(opened.find(".gs-pane").hasAttribute("data-whitespace")).toBe(true);
  });

  test("the toggle changes the trait", async () => {
    const opened = await open();
    opened.find(".gs-toggle").click();
    paint();
    expect(opened.model.get("whitespace")).toBe(true);
    expect(opened.find(".gs-toggle").getAttribute("aria-pressed")).toBe("true");
  });
});

describe("choosing a token", () => {
  async function three() {
    const opened = await open();
    const fake = play(opened, generated(["a", "b", "c"]));
    const shown = () => opened.find(".gs-literal").textContent;
    const why = () => opened.find(".gs-why").dataset.why;
    const point = (/** @type {number} */ index) => {
      opened.all(".gs-t")[index].dispatchEvent(new Event("pointerover", { bubbles: true }));
    };
    return { ...opened, fake, shown, why, point, pane: opened.find(".gs-text") };
  }

  test("a run that lives shows its newest", async () => {
    const { shown, why } = await three();
    expect([shown(), why()]).toEqual(['"c"', "latest"]);
  });

  test("pointing previews, a click pins, another click lets go", async () => {
    const { shown, why, point, all } = await three();
    point(0);
    expect([shown(), why()]).toEqual(['"a"', "pointed"]);
    all(".gs-t")[1].click();
    expect([shown(), why()]).toEqual(['"b"', "pinned"]);
    point(2);
    expect(shown()).toBe('"b"');
    expect(all(".gs-pinned").map((span) => span.textContent)).toEqual(["b"]);
    all(".gs-t")[1].click();
    expect(why()).toBe("pointed");
  });

  test("arrows, Home and End move; Enter pins; Escape lets go and only then stops the run", async () => {
    const { shown, why, pane, model } = await three();
    press(pane, "Home");
    expect([shown(), why()]).toEqual(['"a"', "pointed"]);
    press(pane, "ArrowLeft");
    expect(shown()).toBe('"a"');
    press(pane, "ArrowRight");
    expect(shown()).toBe('"b"');
    press(pane, "Enter");
    expect(why()).toBe("pinned");
    press(pane, "End");
    expect([shown(), why()]).toEqual(['"c"', "pinned"]);
    press(pane, "Escape");
    expect(why()).toBe("latest");
    expect(model.sent.some(({ kind }) => kind === "stop")).toBe(false);
    press(pane, "Escape");
    expect(model.sent.at(-1)).toEqual({ kind: "stop", run: "r1" });
  });
});
