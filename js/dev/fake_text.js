// Believable tokens with measures and alternatives, the same for the same seed. Not a model of anything.

/**
 * @typedef {object} Row
 * @property {string} text
 * @property {string | null} [bytes]
 * @property {boolean} [special]
 * @property {boolean} [generated]
 * @property {number} [group]
 * @property {number | null} [raw] Probability.
 * @property {number | null} [processed] Probability.
 * @property {number | null} [entropy]
 * @property {number | null} [rank]
 * @property {number | null} [seconds]
 * @property {number | null} [cached] 1 hit, 0 computed.
 * @property {number} [id]
 * @property {{ text: string, raw: number, processed: number | null, id: number }[]} [alternatives]
 */

/**
 * @param {number} seed
 * @returns {() => number} Uniform from 0 to 1, the same for the same seed.
 */
export function random(seed) {
  let state = seed;
  return () => {
    state = (state * 1664525 + 1013904223) % 4294967296;
    return state / 4294967296;
  };
}

/** @param {string} text */
export const hexOf = (text) => [...new TextEncoder().encode(text)].map((b) => b.toString(16).padStart(2, "0")).join("");

/** @param {string} text */
export const idOf = (text) => [...text].reduce((sum, c) => (sum * 31 + (c.codePointAt(0) ?? 0)) % 49152, 7);

const PROMPT = "Write a haiku about the sea, then a small function that counts words.";
const ANSWER = `Salt wind combs the waves,
a gull writes one slow circle 🌊
and the tide erases it.

\`\`\`python
def count_words(text: str) -> dict[str, int]:
    counts = {}
    for word in text.lower().split():
        counts[word] = counts.get(word, 0) + 1
    return counts
\`\`\`

The function lowers the text, splits it at white space and counts every word in one pass. For large files, read it line by line so that memory stays small. <script>alert("no")</script> is only text here & stays so.
`;

/**
 * Split as tokenizers do: a space belongs to the word after it.
 * @param {string} text
 * @returns {string[]}
 */
const pieces = (text) => text.match(/\n+| {2,}(?= )| ?[\p{L}]{1,7}| ?\p{N}| ?[^\s\p{L}\p{N}]+|\s/gu) ?? [];

const OTHERS = [
  " the",
  " a",
  ",",
  ".",
  " and",
  "\n",
  " it",
  " one",
  " slow",
  " of",
  " in",
  " 🌀",
  "ing",
  " =",
  " blue",
];

/**
 * @param {string} text
 * @param {() => number} next
 * @returns {Row}
 */
function measured(text, next) {
  const surprise = next() ** 3;
  const raw = Math.max(1e-5, 1 - surprise * 1.02 - 0.02 * next());
  const candidates = [...new Set(OTHERS)].filter((other) => other !== text).sort(() => next() - 0.5);
  let left = 1 - raw;
  const others = candidates.slice(0, 9).map((other) => {
    const p = left * (0.35 + 0.3 * next());
    left -= p;
    return { text: other, raw: Math.max(p, 1e-9), id: idOf(other) };
  });
  const all = [...others, { text, raw, id: idOf(text) }].sort((a, b) => b.raw - a.raw);
  const rank = all.findIndex((one) => one.text === text) + 1;
  const kept = all.slice(0, Math.max(rank, 4));
  const mass = kept.reduce((sum, one) => sum + one.raw, 0);
  const alternatives = all.map((one) => ({ ...one, processed: kept.includes(one) ? one.raw / mass : null }));
  return {
    text,
    generated: true,
    raw,
    processed: raw / mass,
    entropy: 7 * surprise * (0.6 + 0.4 * next()) + 0.05,
    rank: raw < 0.003 ? Math.round(20 + 900 * next()) : rank,
    seconds: 0.018 + 0.02 * next() ** 6 + (next() > 0.97 ? 0.12 : 0),
    alternatives,
  };
}

/**
 * @param {number} [n] How many generated tokens, at least; the answer is repeated.
 * @param {number} [seed]
 * @returns {{ rows: Row[], promptTokens: number }}
 */
export function believableRun(n = 0, seed = 3) {
  const next = random(seed);
  /** @type {Row[]} */
  const rows = [
    { text: "<|im_start|>", special: true },
    ...pieces(`user\n${PROMPT}`).map((text) => ({ text })),
    { text: "<|im_end|>", special: true },
    { text: "\n" },
    { text: "<|im_start|>", special: true },
    ...pieces("assistant\n").map((text) => ({ text })),
  ];
  const promptTokens = rows.length;
  do {
    for (const piece of pieces(ANSWER)) {
      if (/\p{Extended_Pictographic}/u.test(piece)) {
        const bytes = hexOf(piece).match(/../g) ?? [];
        const parts = [bytes.slice(0, 2).join(""), ...bytes.slice(2)];
        const group = rows.length;
        parts.forEach((hex, at) => {
          const text = at === parts.length - 1 ? piece : "";
          rows.push({ ...measured(text, next), bytes: hex, group, id: 200 + at });
        });
      } else {
        rows.push(measured(piece, next));
      }
    }
  } while (rows.length - promptTokens < n);
  rows.push({ ...measured("<|im_end|>", next), special: true });
  return { rows, promptTokens };
}

/**
 * @param {string} prompt
 * @param {string} answer
 * @param {number} seed
 * @returns {{ rows: Row[], promptTokens: number }}
 */
export function sentence(prompt, answer, seed) {
  const next = random(seed);
  const read = pieces(prompt).map((text) => /** @type {Row} */ ({ text }));
  return { rows: [...read, ...pieces(answer).map((text) => measured(text, next))], promptTokens: read.length };
}
