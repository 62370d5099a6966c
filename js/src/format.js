// Numbers and model text as a person reads them. Unknown is a dash, never a zero. No DOM.
import { bits } from "./measures.js";

export const UNKNOWN = "–";
/** No line break between a number and its unit. */
const THIN = "\u202f";

/** @typedef {number | null | undefined} Maybe */

/**
 * @param {Maybe} logprob Natural logarithm.
 * @returns {string} "92.1 %"; what rounds to nothing or to all is shown as less or more.
 */
export function percent(logprob) {
  if (logprob === null || logprob === undefined) {
    return UNKNOWN;
  }
  const p = 100 * Math.exp(logprob);
  if (logprob === 0 || p >= 100) {
    return `100${THIN}%`;
  }
  if (p > 99.95) {
    return `>${THIN}99.9${THIN}%`;
  }
  if (p >= 1) {
    return `${p.toFixed(1)}${THIN}%`;
  }
  if (p >= 0.0001) {
    return `${p.toFixed(1 - Math.floor(Math.log10(p)))}${THIN}%`;
  }
  return p > 0 ? `${p.toExponential(0).replace("e-", "e−")}${THIN}%` : `<${THIN}1e−300${THIN}%`;
}

/** @param {Maybe} logprob */
export function bitsOf(logprob) {
  return logprob === null || logprob === undefined ? UNKNOWN : `${number(bits(logprob))}${THIN}bits`;
}

/** @param {Maybe} entropy In bits. */
export function entropyText(entropy) {
  return entropy === null || entropy === undefined ? UNKNOWN : `${number(entropy)}${THIN}bits`;
}

/** @param {number} value */
function number(value) {
  return value < 0.005 && value > 0 ? "<0.01" : value.toFixed(2);
}

/** @param {Maybe} value */
export function whole(value) {
  return value === null || value === undefined ? UNKNOWN : value.toLocaleString("en-US");
}

/** @param {Maybe} seconds */
export function duration(seconds) {
  if (seconds === null || seconds === undefined) {
    return UNKNOWN;
  }
  if (seconds < 1) {
    const ms = seconds * 1000;
    return `${ms < 10 ? ms.toFixed(1) : Math.round(ms)}${THIN}ms`;
  }
  if (seconds < 60) {
    return `${seconds.toFixed(seconds < 10 ? 2 : 1)}${THIN}s`;
  }
  return `${Math.floor(seconds / 60)}${THIN}min ${Math.floor(seconds % 60)}${THIN}s`;
}

/** @param {Maybe} rate */
export function perSecond(rate) {
  return rate === null || rate === undefined ? UNKNOWN : rate.toFixed(rate < 10 ? 2 : rate < 100 ? 1 : 0);
}

/** @param {Maybe} share 0 to 1. */
export function shareText(share) {
  return share === null || share === undefined ? UNKNOWN : `${(100 * share).toFixed(1)}${THIN}%`;
}

/**
 * @param {number} value Not negative: how far apart two logits are.
 * @returns {string} "7.4e-6"; zero is exactly zero.
 */
export const small = (value) => (value === 0 ? "0" : value < 0.01 ? value.toExponential(1) : value.toPrecision(2));

const SIZES = ["bytes", "kB", "MB", "GB", "TB"];

/**
 * @param {Maybe} bytes
 * @returns {string} "9.2 MB", of 1000 each.
 */
export function sizeText(bytes) {
  if (bytes === null || bytes === undefined) {
    return UNKNOWN;
  }
  let value = bytes;
  let unit = 0;
  // What would be written as 1000 is one of the next unit.
  while (value >= 999.5 && unit < SIZES.length - 1) {
    value /= 1000;
    unit += 1;
  }
  return `${unit === 0 || value >= 99.95 ? Math.round(value) : value.toFixed(1)}${THIN}${SIZES[unit]}`;
}

/** @type {Record<string, string>} */
const MARKS = { " ": "·", "\n": "⏎", "\t": "→", "\r": "␍", "\u00a0": "⍽" };

/**
 * @param {string} space A run of white space.
 * @returns {string} One visible mark a character.
 */
export function marks(space) {
  return [...space].map((character) => MARKS[character] ?? "·").join("");
}

/** An emoji, whose joiners belong to its look; or what cannot be seen: controls, formats, spaces other than " ". */
const UNSEEN =
  /\p{Extended_Pictographic}(?:[\ufe0f\u{e0020}-\u{e007f}]|\p{Emoji_Modifier}|\u200d\p{Extended_Pictographic})*|[\p{Cc}\p{Cf}\p{Zl}\p{Zp}]|(?! )\p{Zs}/gu;
const EMOJI = /^\p{Extended_Pictographic}/u;

/**
 * @param {string} text
 * @returns {string} The text on one line, as it is written in code; what cannot be seen is written as its code point.
 */
export function literal(text) {
  return JSON.stringify(text).replace(UNSEEN, (part) => {
    if (EMOJI.test(part)) {
      return part;
    }
    const code = /** @type {number} */ (part.codePointAt(0)).toString(16);
    return code.length > 4 ? `\\u{${code}}` : `\\u${code.padStart(4, "0")}`;
  });
}

/**
 * @param {string} text
 * @returns {string} The text on one line, with marks for white space that could be overlooked: at its ends, and line ends.
 */
export function oneLine(text) {
  return text
    .replace(/^ +| +$/g, marks)
    .replace(/[\n\r\t\u00a0]/g, marks)
    .replace(UNSEEN, (part) => (EMOJI.test(part) ? part : "\ufffd"));
}

/**
 * @param {string} text What a candidate would have added.
 * @returns {string | null} "E2 80" if it is bytes inside a character, which the kernel writes as `\xE2\x80`; else null.
 */
export function looseBytes(text) {
  return /^(\\x[0-9A-F]{2})+$/.test(text) ? text.slice(2).replaceAll("\\x", " ") : null;
}

/**
 * @param {string} text
 * @returns {boolean} Whether it changes the direction of the text around it.
 */
export function turnsText(text) {
  return /[\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]/.test(text);
}

/**
 * @param {string | null} hex
 * @returns {string} "f0 9f 98 80".
 */
export function hexBytes(hex) {
  return hex === null ? UNKNOWN : (hex.match(/../g) ?? []).join(" ");
}

/** @type {Record<string, (generated: number) => string>} */
const REASONS = {
  eos: () => "end of sequence",
  length: (generated) => `reached ${whole(generated)} ${generated === 1 ? "token" : "tokens"}`,
};

/**
 * @param {string} why As the kernel says it.
 * @param {number} generated Tokens.
 * @returns {string} Why a sequence ended.
 */
export function reasonText(why, generated) {
  return Object.hasOwn(REASONS, why) ? REASONS[why](generated) : why;
}
