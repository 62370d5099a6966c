// What can be measured about a token, and how a value becomes one of 16 buckets. Knows no colours and no DOM.
//
// Bucket 0 is what a reader may skip (certain, first in rank, quick), bucket 15 what she should look at. Buckets are
// absolute, never relative to the run: a token's bucket is final when it arrives, so that the page is append-only.
// One measure is no scale but a category: its few buckets have a name each, and given tokens have it, not generated ones.

/** @typedef {"probability" | "surprisal" | "entropy" | "rank" | "latency" | "cache"} MeasureName */
/** @typedef {"raw" | "processed"} Variant */
/** @typedef {"raw_logprob" | "logprob" | "entropy" | "rank" | "seconds" | "cached"} NumberColumn */

/**
 * One way to colour: a column of the record, a change of unit and the largest value of each bucket but the last.
 * @typedef {object} Scale
 * @property {string} key One letter, part of the class names of tokens and legend.
 * @property {NumberColumn} column
 * @property {(value: number) => number} unit
 * @property {readonly number[]} upper Ascending: 15 numbers, or of a category a number for each.
 */

/**
 * @typedef {object} Measure
 * @property {MeasureName} name
 * @property {string} title
 * @property {string} explains
 * @property {Partial<Record<Variant, Scale>> & { raw: Scale }} scales By variant; `raw` alone if there is no choice.
 * @property {"doubt" | "spread" | "time" | "cache"} palette
 * @property {readonly string[]} [categories] Name of each bucket, where these are no scale.
 * @property {readonly [string, string]} ends Labels of the two ends of the legend.
 * @property {Record<number, string>} ticks Label at the boundary after a bucket.
 */

export const BUCKETS = 16;

const PERCENT = [99, 95, 90, 80, 70, 60, 50, 40, 30, 20, 10, 5, 2, 1, 0.1];
const PROBABILITY = PERCENT.map((p) => -Math.log(p / 100) + 1e-9);
const BITS = [0.25, 0.5, 1, 1.5, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16];
const ENTROPY = [0.1, 0.25, 0.5, 0.75, 1, 1.5, 2, 2.5, 3, 3.5, 4, 5, 6, 7, 8];
const RANKS = [1, 2, 3, 4, 6, 8, 12, 16, 32, 64, 128, 256, 1024, 4096, 16384];
const MILLISECONDS = [1, 2, 3, 5, 7.5, 10, 15, 20, 30, 50, 75, 100, 200, 500, 1000];

/** @param {number} logprob */
const nats = (logprob) => -logprob;
/** @param {number} logprob */
export const bits = (logprob) => Math.max(0, -logprob / Math.LN2);
/** @param {number} value */
const same = (value) => value;

/** @type {Record<MeasureName, Measure>} */
export const MEASURES = {
  probability: {
    name: "probability",
    title: "Probability",
    explains: "How probable the token was. Strong colour: improbable.",
    scales: {
      raw: { key: "p", column: "raw_logprob", unit: nats, upper: PROBABILITY },
      processed: { key: "q", column: "logprob", unit: nats, upper: PROBABILITY },
    },
    palette: "doubt",
    ends: ["100 %", "0"],
    ticks: { 1: "95", 3: "80", 5: "60", 7: "40", 9: "20", 11: "5", 13: "1" },
  },
  surprisal: {
    name: "surprisal",
    title: "Surprisal",
    explains: "Minus log2 of the probability: 1 bit more is half as probable.",
    scales: {
      raw: { key: "s", column: "raw_logprob", unit: bits, upper: BITS },
      processed: { key: "t", column: "logprob", unit: bits, upper: BITS },
    },
    palette: "doubt",
    ends: ["0 bits", "more"],
    ticks: { 1: "0.5", 3: "1.5", 5: "3", 7: "5", 9: "7", 11: "10", 13: "14" },
  },
  entropy: {
    name: "entropy",
    title: "Entropy",
    explains: "How undecided the model was here, whichever token was chosen.",
    scales: { raw: { key: "e", column: "entropy", unit: same, upper: ENTROPY } },
    palette: "spread",
    ends: ["0 bits", "more"],
    ticks: { 1: "0.25", 3: "0.75", 5: "1.5", 7: "2.5", 9: "3.5", 11: "5", 13: "7" },
  },
  rank: {
    name: "rank",
    title: "Rank",
    explains: "Place of the token among all candidates of the model; 1 is the most probable.",
    scales: { raw: { key: "r", column: "rank", unit: same, upper: RANKS } },
    palette: "doubt",
    ends: ["1st", "more"],
    ticks: { 1: "2", 3: "4", 5: "8", 7: "16", 9: "64", 11: "256", 13: "4096" },
  },
  latency: {
    name: "latency",
    title: "Latency",
    explains: "Time since the token before; of the first, since the run began.",
    scales: { raw: { key: "l", column: "seconds", unit: (seconds) => seconds * 1000, upper: MILLISECONDS } },
    palette: "time",
    ends: ["0 ms", "more"],
    ticks: { 1: "2", 3: "5", 5: "10", 7: "20", 9: "50", 11: "100", 13: "500" },
  },
  cache: {
    name: "cache",
    title: "Cache",
    explains: "Whether the keys and values of a given token came from the prefix cache, or were computed.",
    scales: { raw: { key: "c", column: "cached", unit: same, upper: [0, 1] } },
    palette: "cache",
    categories: ["computed", "hit"],
    ends: ["computed", "hit"],
    ticks: {},
  },
};

/** Every scale, with its palette, how many buckets it has, and whether it is of given tokens. */
export const SCALES = Object.values(MEASURES).flatMap(({ scales, palette, categories }) =>
  Object.values(scales).map((scale) => ({
    ...scale,
    palette,
    buckets: categories?.length ?? BUCKETS,
    given: categories !== undefined,
  })),
);

/**
 * @param {string} name
 * @returns {Measure} Probability where the name is not one of ours.
 */
export function measureNamed(name) {
  return Object.hasOwn(MEASURES, name) ? MEASURES[/** @type {MeasureName} */ (name)] : MEASURES.probability;
}

/**
 * @param {Measure} measure
 * @param {Variant} variant
 * @returns {Scale} The only one where the measure has no variants.
 */
export function scaleOf(measure, variant) {
  return measure.scales[variant] ?? measure.scales.raw;
}

/**
 * @param {Scale} scale
 * @param {number | null | undefined} value As it stands in the record.
 * @returns {number | null} 0 to 15, or of a category its place; null is unknown.
 */
export function bucketOf(scale, value) {
  if (value === null || value === undefined) {
    return null;
  }
  const converted = scale.unit(value);
  const found = scale.upper.findIndex((limit) => converted <= limit);
  return found < 0 ? BUCKETS - 1 : found;
}

/**
 * @param {Scale} scale
 * @param {number | null} bucket
 * @returns {string} Class of tokens and swatches in this bucket.
 */
export function bucketClass(scale, bucket) {
  return `gs-${scale.key}${bucket ?? "x"}`;
}
