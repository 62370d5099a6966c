// Colours of the 16 buckets, for light and dark pages, and the style rules that follow from them. Runs at build time
// (build.js) and in tests only: the bundle holds the rules, not d3.
//
// Each ramp starts at the page's own colour, so that expected tokens look like plain text, and changes steadily in
// lightness, so that it reads without colour vision. Inks are chosen for a contrast of 4.5:1 or more.
import { interpolateBuGn, interpolateOrRd, interpolatePurples, interpolateYlOrBr } from "d3-scale-chromatic";
import { BUCKETS, SCALES } from "./measures.js";

/** @typedef {[number, number, number]} Rgb Each 0 to 255. */
/** @typedef {"light" | "dark"} Theme */
/** @typedef {"doubt" | "spread" | "time"} PaletteName */
/** @typedef {{ fill: string, ink: string }} Colour */

/** Colour of the page behind tokens, and of text on it. @type {Record<Theme, { paper: string, ink: string }>} */
export const PAGE = {
  light: { paper: "#ffffff", ink: "#1d2026" },
  dark: { paper: "#14161b", ink: "#dfe2e8" },
};

export const MIN_CONTRAST = 4.5;

/** Where a ramp starts and stops on d3's 0 to 1. @type {Record<PaletteName, Record<Theme, [(t: number) => string, number, number]>>} */
const RAMPS = {
  doubt: { light: [interpolateOrRd, 0.08, 0.86], dark: [interpolateYlOrBr, 0.98, 0.22] },
  spread: { light: [interpolatePurples, 0.1, 0.95], dark: [interpolatePurples, 0.98, 0.18] },
  time: { light: [interpolateBuGn, 0.1, 0.92], dark: [interpolateBuGn, 0.98, 0.2] },
};

/**
 * Grounds of categories by bucket: computed, hit. Amber and blue, one much darker than the other: told apart without
 * colour vision too.
 * @type {Record<Theme, string[]>}
 */
const CACHE = { light: ["#f2b04b", "#cfe2fb"], dark: ["#c47a12", "#1c4673"] };

/**
 * @param {string} colour `#rrggbb` or `rgb(r, g, b)`.
 * @returns {Rgb}
 */
export function parse(colour) {
  if (colour.startsWith("#")) {
    const value = Number.parseInt(colour.slice(1), 16);
    return [value >> 16, (value >> 8) & 255, value & 255];
  }
  const [r, g, b] = (colour.match(/\d+/g) ?? []).map(Number);
  return [r, g, b];
}

/** @param {Rgb} rgb */
const hex = (rgb) => `#${rgb.map((channel) => Math.round(channel).toString(16).padStart(2, "0")).join("")}`;

/**
 * @param {string} colour
 * @returns {number} Relative luminance as WCAG 2 defines it.
 */
export function luminance(colour) {
  const [r, g, b] = parse(colour).map((channel) => {
    const c = channel / 255;
    return c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4;
  });
  return 0.2126 * r + 0.7152 * g + 0.0722 * b;
}

/**
 * @param {string} one
 * @param {string} other
 * @returns {number} 1 to 21.
 */
export function contrast(one, other) {
  const [dark, light] = [luminance(one), luminance(other)].sort((a, b) => a - b);
  return (light + 0.05) / (dark + 0.05);
}

/**
 * @param {PaletteName} name
 * @param {Theme} theme
 * @returns {Colour[]} One for each bucket.
 */
export function ramp(name, theme) {
  const { paper, ink } = PAGE[theme];
  const [interpolate, from, to] = RAMPS[name][theme];
  return Array.from({ length: BUCKETS }, (_, bucket) => {
    const t = bucket / (BUCKETS - 1);
    const full = parse(interpolate(from + (to - from) * t));
    // The first steps are mixed with the page: the ramp leaves it without a jump.
    const share = Math.min(1, t * 2.6);
    const fill = hex(/** @type {Rgb} */ (parse(paper).map((base, i) => base + (full[i] - base) * share)));
    return { fill, ink: inkOn(fill, ink) };
  });
}

/**
 * @param {string} fill
 * @param {string} ink Of the page.
 * @returns {string} An ink that reads on it, the page's own where that does.
 */
function inkOn(fill, ink) {
  const inks = [ink, "#ffffff", "#000000", PAGE.light.ink];
  return inks.find((candidate) => contrast(candidate, fill) >= MIN_CONTRAST) ?? ink;
}

/**
 * @param {Theme} theme
 * @returns {Colour[]} One for each category of the cache.
 */
export function categories(theme) {
  return CACHE[theme].map((fill) => ({ fill, ink: inkOn(fill, PAGE[theme].ink) }));
}

/**
 * @returns {string} CSS: the colours as variables for each theme, and which of them each bucket of each scale takes.
 */
export function paletteCss() {
  const rules = [];
  for (const theme of /** @type {Theme[]} */ (["light", "dark"])) {
    const { paper, ink } = PAGE[theme];
    const variables = Object.keys(RAMPS).flatMap((name) =>
      variablesOf(name, ramp(/** @type {PaletteName} */ (name), theme)),
    );
    variables.push(...variablesOf("cache", categories(theme)));
    rules.push(`.genscope[data-theme=${theme}]{--gs-paper:${paper};--gs-ink:${ink};${variables.join(";")}}`);
  }
  for (const { key, palette, buckets } of SCALES) {
    for (let bucket = 0; bucket < buckets; bucket += 1) {
      const colours = `background-color:var(--gs-${palette}-${bucket});color:var(--gs-${palette}-ink-${bucket})`;
      rules.push(`.genscope [data-scale=${key}] .gs-${key}${bucket}{${colours}}`);
    }
    rules.push(`.genscope [data-scale=${key}] .gs-${key}x{background-image:var(--gs-hatch)}`);
  }
  return rules.join("\n");
}

/**
 * @param {string} name
 * @param {Colour[]} colours
 */
function variablesOf(name, colours) {
  return colours.map(({ fill, ink }, bucket) => `--gs-${name}-${bucket}:${fill};--gs-${name}-ink-${bucket}:${ink}`);
}
