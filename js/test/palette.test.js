import { readFileSync } from "node:fs";
import { describe, expect, test } from "vitest";
import { BUCKETS, bucketOf, MEASURES, SCALES } from "../src/measures.js";
import { categories, contrast, luminance, MIN_CONTRAST, PAGE, paletteCss, ramp } from "../src/palette.js";

const PALETTES = /** @type {const} */ (["doubt", "spread", "time"]);
const THEMES = /** @type {const} */ (["light", "dark"]);

describe.each(THEMES)("%s", (theme) => {
  describe.each(PALETTES)("%s", (name) => {
    const colours = ramp(name, theme);

    test.each(colours.map((colour, bucket) => ({ bucket, ...colour })))("text reads on bucket $bucket", (colour) => {
      expect(contrast(colour.fill, colour.ink)).toBeGreaterThanOrEqual(MIN_CONTRAST);
    });

    test("starts at the page and gets steadily further from it, so that it reads without colour vision", () => {
      expect(colours[0].fill).toBe(PAGE[theme].paper);
      const light = colours.map(({ fill }) => luminance(fill));
      const sorted = [...light].sort((a, b) => (theme === "light" ? b - a : a - b));
      expect(light).toEqual(sorted);
      expect(new Set(light).size).toBe(BUCKETS);
      expect(contrast(colours[BUCKETS - 1].fill, PAGE[theme].paper)).toBeGreaterThan(4.5);
    });
  });
});

test.each(THEMES)("hit and computed differ in lightness, from each other and from the %s page, and read", (theme) => {
  const [computed, hit] = categories(theme);
  expect(contrast(computed.fill, hit.fill)).toBeGreaterThan(1.3);
  for (const { fill, ink } of [computed, hit]) {
    expect(contrast(fill, ink)).toBeGreaterThanOrEqual(MIN_CONTRAST);
    expect(contrast(fill, PAGE[theme].paper)).toBeGreaterThan(1.25);
  }
});

test("the cache is a category: 0 is computed, 1 is a hit", () => {
  const { raw } = MEASURES.cache.scales;
  expect([0, 1, null].map((value) => bucketOf(raw, value))).toEqual([0, 1, null]);
  expect(MEASURES.cache.categories).toEqual(["computed", "hit"]);
  expect(Object.keys(MEASURES).at(-1)).toBe("cache");
});

test("contrast is WCAG's", () => {
  expect(contrast("#000000", "#ffffff")).toBeCloseTo(21);
  expect(contrast("#767676", "rgb(255, 255, 255)")).toBeCloseTo(4.54, 2);
});

test("every bucket of every scale, and its unknown, has a rule", () => {
  const css = paletteCss();
  for (const { key, buckets } of SCALES) {
    for (let bucket = 0; bucket < buckets; bucket += 1) {
      expect(css).toContain(`.genscope [data-scale=${key}] .gs-${key}${bucket}{`);
    }
    expect(css).toContain(`.gs-${key}x{`);
  }
});

describe("colours of text in base.css", () => {
  const css = readFileSync(`${import.meta.dirname}/../src/style/base.css`, "utf8");
  const [light, dark] = css.split('&[data-theme="dark"]');
  const colour = (/** @type {string} */ part, /** @type {string} */ name) =>
    new RegExp(`--gs-${name}: (#[0-9a-f]{6})`).exec(part)?.[1] ?? "";
  const parts = { light, dark };

  test.each(
    THEMES.flatMap((theme) => ["soft", "faint", "accent", "danger", "warn", "good"].map((name) => ({ theme, name }))),
  )("$name reads on both grounds of the $theme page", ({ theme, name }) => {
    for (const ground of [PAGE[theme].paper, colour(parts[theme], "panel")]) {
      expect(contrast(colour(parts[theme], name), ground)).toBeGreaterThanOrEqual(MIN_CONTRAST);
    }
  });
});

describe("buckets", () => {
  const p = (/** @type {number} */ value) => bucketOf(MEASURES.probability.scales.raw, Math.log(value));

  test.each([
    [1, 0],
    [0.99, 0],
    [0.985, 1],
    [0.95, 1],
    [0.5, 6],
    [0.1, 10],
    [0.001, 14],
    [0.0009, 15],
  ])("probability %d is in bucket %d", (value, bucket) => expect(p(value)).toBe(bucket));

  test("unknown is no bucket, zero is one", () => {
    for (const scale of SCALES) {
      expect(bucketOf(scale, null)).toBeNull();
      expect(bucketOf(scale, 0)).toBe(0);
    }
  });

  test.each([
    ["rank", 1, 0],
    ["rank", 2, 1],
    ["rank", 5, 4],
    ["rank", 20_000, 15],
    ["entropy", 0.1, 0],
    ["entropy", 9, 15],
    ["latency", 0.0205, 8],
    ["latency", 3, 15],
    ["surprisal", -Math.LN2 * 3.5, 6],
  ])("%s %d is in bucket %d", (name, value, bucket) => {
    expect(bucketOf(MEASURES[/** @type {"rank"} */ (name)].scales.raw, value)).toBe(bucket);
  });

  test("limits ascend and labels say them", () => {
    for (const { scales, ticks, categories } of Object.values(MEASURES)) {
      expect([...scales.raw.upper]).toEqual([...scales.raw.upper].sort((a, b) => a - b));
      expect(scales.raw.upper).toHaveLength(categories?.length ?? BUCKETS - 1);
      for (const [bucket, label] of Object.entries(ticks)) {
        const limit = scales.raw.upper[Number(bucket)];
        const shown = scales.raw.key === "p" ? 100 * Math.exp(-limit) : limit;
        expect(shown).toBeCloseTo(Number(label), 5);
      }
    }
  });
});
