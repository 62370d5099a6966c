// Reads the settings' JSON Schema into what a form needs. Knows JSON Schema, no strategy and no field by name.

/** @typedef {"slider" | "number" | "text" | "boolean" | "choice" | "choices" | "texts"} FieldKind */

/**
 * @typedef {object} Field
 * @property {string} name
 * @property {FieldKind} kind
 * @property {string} title
 * @property {string} description
 * @property {string} group
 * @property {string} wayOut
 * @property {string | null} when Name of the switch while which is on the field counts.
 * @property {unknown} default
 * @property {boolean} nullable
 * @property {boolean} integer
 * @property {number | null} min Smallest value, or the bound itself if `minExcluded`.
 * @property {boolean} minExcluded
 * @property {number | null} max
 * @property {boolean} maxExcluded
 * @property {number | null} step
 * @property {number | null} most Entries of a list.
 * @property {string[]} options
 * @property {Record<string, string>} choices What an option costs and brings, in a line, where that is told.
 */

/**
 * @typedef {object} Strategy
 * @property {string} name
 * @property {string} title
 * @property {string} description
 * @property {Field[]} fields
 */

/** @typedef {Record<string, any>} Json */

/** A slider's range is at least this many steps, where the bounds allow it. */
const SLIDER_STEPS = 40;

/**
 * @param {Json} schema A union of objects, told apart by a property with a constant; or one object.
 * @returns {{ tag: string, strategies: Strategy[] }} `tag` is the name of that property.
 */
export function readSchema(schema) {
  const tag = schema.discriminator?.propertyName ?? "strategy";
  const variants = schema.oneOf ?? schema.anyOf ?? (schema.properties ? [schema] : []);
  const strategies = variants.map((/** @type {Json} */ reference) => {
    const variant = resolve(schema, reference);
    const { [tag]: name, ...properties } = variant.properties ?? {};
    return {
      name: String(name?.const ?? name?.default ?? variant.title ?? ""),
      title: String(variant.title ?? name?.const ?? ""),
      description: String(variant.description ?? ""),
      fields: Object.entries(properties).map(([key, property]) =>
        readField(key, schema, property, variant.when?.[key]),
      ),
    };
  });
  return { tag, strategies };
}

/**
 * @param {Json} schema
 * @param {Json} part
 * @returns {Json}
 */
function resolve(schema, part) {
  const name = typeof part.$ref === "string" ? part.$ref.replace("#/$defs/", "") : null;
  return name === null ? part : { ...schema.$defs?.[name], ...part };
}

/**
 * @param {string} name
 * @param {Json} schema
 * @param {Json} given
 * @param {unknown} when
 * @returns {Field}
 */
function readField(name, schema, given, when) {
  const property = resolve(schema, given);
  const options = property.anyOf ?? property.oneOf ?? [];
  const nullable = options.some((/** @type {Json} */ option) => option.type === "null");
  const inner = options.find((/** @type {Json} */ option) => option.type !== "null");
  const type = inner ? { ...property, ...resolve(schema, inner) } : property;
  const items = resolve(schema, type.items ?? {});
  return {
    name,
    kind: kindOf(type, items),
    title: String(property.title ?? name),
    description: String(property.description ?? ""),
    group: String(property.group ?? "strategy"),
    wayOut: String(property.wayOut ?? ""),
    when: typeof when === "string" ? when : null,
    default: property.default ?? null,
    nullable,
    integer: type.type === "integer",
    min: type.minimum ?? type.exclusiveMinimum ?? null,
    minExcluded: type.minimum === undefined && type.exclusiveMinimum !== undefined,
    max: type.maximum ?? type.exclusiveMaximum ?? null,
    maxExcluded: type.maximum === undefined && type.exclusiveMaximum !== undefined,
    step: type.step ?? null,
    most: type.maxItems ?? null,
    options: (type.enum ?? items.enum ?? []).map(String),
    choices: property.choices ?? {},
  };
}

/**
 * @param {Json} type
 * @param {Json} items
 * @returns {FieldKind}
 */
function kindOf(type, items) {
  if (type.type === "array") {
    return items.enum ? "choices" : "texts";
  }
  if (type.enum) {
    return "choice";
  }
  if (type.type === "boolean") {
    return "boolean";
  }
  if (type.type === "number" || type.type === "integer") {
    const bounded = (type.minimum ?? type.exclusiveMinimum) !== undefined;
    return bounded && type.step !== undefined && (type.maximum ?? type.exclusiveMaximum) !== undefined
      ? "slider"
      : "number";
  }
  return "text";
}

/**
 * The range of a slider: not all that is allowed but the part where its steps can be aimed at, and the value itself.
 * The number beside the slider takes the rest.
 * @param {Field} field
 * @param {unknown} value
 * @returns {{ min: number, max: number, step: number }}
 */
export function sliderRange(field, value) {
  const step = field.step ?? 1;
  const lowest = field.min ?? 0;
  const min = field.minExcluded ? lowest + step : lowest;
  const usual = typeof field.default === "number" ? lowest + 2 * (field.default - lowest) : lowest;
  const wanted = Math.max(usual, lowest + SLIDER_STEPS * step, typeof value === "number" ? value : lowest);
  const highest = field.max === null ? wanted : field.maxExcluded ? field.max - step : field.max;
  return { min, max: Math.min(wanted, highest), step };
}

/**
 * @param {Strategy} strategy
 * @param {string} tag
 * @param {Json} values Of this strategy or another: what fits by name is kept.
 * @returns {Json} A value for each field.
 */
export function complete(strategy, tag, values) {
  const entries = strategy.fields.map(({ name, default: fallback }) => [
    name,
    name in values ? values[name] : fallback,
  ]);
  return { [tag]: strategy.name, ...Object.fromEntries(entries) };
}

/**
 * What was typed, as what is meant. What is no number stays text: Python says what is wrong with it.
 * @param {Field} field
 * @param {string} text
 * @returns {number | string | null}
 */
export function readNumber(field, text) {
  const trimmed = text.trim();
  if (trimmed === "") {
    return field.nullable ? null : "";
  }
  const value = Number(trimmed);
  // A whole number that JavaScript cannot hold exactly stays text, which Python reads exactly.
  const exact = !field.integer || !Number.isInteger(value) || Number.isSafeInteger(value);
  return Number.isFinite(value) && exact ? value : trimmed;
}
