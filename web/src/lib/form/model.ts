/**
 * JSON Schemas as forms: pure functions over schemas and values.
 *
 * `shapeOf` says how one value is drawn. What a form can't draw has the kind `json`: it is a field for JSON text. The
 * server checks everything: a form needs no rules of its own.
 */

import { isObject, type Json, type JsonObject } from "../text/json-text";
import { resolved } from "./schema-rows";
import type { JsonSchema } from "../api/tool";

export type Kind =
  "string" | "number" | "integer" | "boolean" | "null" | "choice" | "object" | "array" | "union" | "json";

export interface Choice {
  value: Json;
  label: string;
}

export interface Shape {
  kind: Kind;
  schema: JsonSchema;
  isNullable: boolean;
  choices: Choice[]; // for a choice: an enum or a const
  branches: JsonSchema[]; // for a union
}

const HARD = [
  "if",
  "then",
  "else",
  "patternProperties",
  "dependentSchemas",
  "dependencies",
  "prefixItems",
  "$dynamicRef",
  "unevaluatedProperties",
];
const DRAWN = [
  "type",
  "properties",
  "items",
  "enum",
  "const",
  "oneOf",
  "anyOf",
  "allOf",
  "$ref",
  "additionalProperties",
];
const KINDS: readonly string[] = ["string", "number", "integer", "boolean", "null", "object", "array"];
const DEEPEST = 6; // limit for recursive schemas
const MAX_INITIAL = 500; // values searched for defaults

export function shapeOf(given: unknown, root: JsonSchema, depth = 0): Shape {
  const schema = merged(given, root);
  if (schema === null || depth > 20 || HARD.some((key) => key in schema)) return shape("json", schemaOf(given, root));
  if ("const" in schema) return shape("choice", schema, { choices: choicesOf([schema]) });
  if (Array.isArray(schema.enum)) {
    return shape("choice", schema, {
      choices: schema.enum.map((value) => ({ value: value as Json, label: labelOf(value) })),
    });
  }
  const branches = branchesOf(schema, root);
  if (branches) return unionOf(schema, branches, root, depth);
  const types = typesOf(schema);
  const left = types.filter((type) => type !== "null");
  if (types.length > left.length && left.length > 0) {
    return { ...shapeOf({ ...schema, type: left.length === 1 ? left[0] : left }, root, depth + 1), isNullable: true };
  }
  if (left.length > 1)
    return shape("union", schema, { branches: left.map((type) => ({ ...schema, type, title: type })) });
  return plain((left[0] ?? types[0]) as Kind | undefined, schema);
}

function shape(kind: Kind, schema: JsonSchema, more: Partial<Shape> = {}): Shape {
  return { kind, schema, isNullable: false, choices: [], branches: [], ...more };
}

function plain(kind: Kind | undefined, schema: JsonSchema): Shape {
  if (kind === undefined || !KINDS.includes(kind)) return shape("json", schema);
  if (kind === "array" && !isSchema(schema.items)) return shape("json", schema);
  if (kind === "object" && propertiesOf(schema).length === 0 && extraOf(schema) === null) return shape("json", schema);
  return shape(kind, schema);
}

function unionOf(schema: JsonSchema, branches: JsonSchema[], root: JsonSchema, depth: number): Shape {
  const left = branches.filter((one) => resolved(one, root).type !== "null");
  const isNullable = left.length < branches.length;
  const { title, description } = schema;
  const words = Object.fromEntries(
    Object.entries({ title, description, default: schema.default }).filter(([, one]) => one !== undefined),
  );
  if (left.length === 1) {
    const inner = shapeOf(left[0], root, depth + 1);
    return { ...inner, schema: { ...inner.schema, ...words }, isNullable: isNullable || inner.isNullable };
  }
  if (left.length > 0 && left.every((one) => "const" in one))
    return shape("choice", schema, { choices: choicesOf(left), isNullable });
  return shape("union", schema, { branches: left, isNullable });
}

/** The branches of oneOf or anyOf, merged with the schema around them; null if they only add constraints. */
function branchesOf(schema: JsonSchema, root: JsonSchema): JsonSchema[] | null {
  const { oneOf, anyOf, ...base } = schema;
  const found = [oneOf, anyOf].find((one) => Array.isArray(one) && one.length > 0) as JsonSchema[] | undefined;
  if (!found || !found.every(isSchema)) return null;
  if (!found.some((one) => DRAWN.some((key) => key in one))) return null;
  if (!("properties" in base)) return found;
  return found.map((one) => {
    const branch = resolved(one, root);
    return { ...joined([base, branch]), title: branch.title ?? one.title };
  });
}

/** Resolve `$ref` and merge `allOf`; null if no form can show the result. */
function merged(given: unknown, root: JsonSchema, depth = 0): JsonSchema | null {
  if (!isSchema(given) || depth > DEEPEST) return null;
  const schema = resolved(given, root);
  if (!Array.isArray(schema.allOf)) return schema;
  const { allOf, ...base } = schema;
  const parts = (allOf as unknown[]).map((one) => merged(one, root, depth + 1));
  const good = parts.filter((one): one is JsonSchema => one !== null && !HARD.some((key) => key in one));
  const unions = [base, ...good].filter((one) => "oneOf" in one || "anyOf" in one || "enum" in one || "const" in one);
  return good.length === parts.length && unions.length < 2 ? joined([...good, base]) : null;
}

function joined(parts: JsonSchema[]): JsonSchema {
  const properties = Object.fromEntries(
    parts.flatMap((one) => Object.entries((one.properties as JsonObject | undefined) ?? {})),
  );
  const required = [
    ...new Set(parts.flatMap((one) => (Array.isArray(one.required) ? (one.required as string[]) : []))),
  ];
  const all = Object.assign({}, ...parts) as JsonSchema;
  if (Object.keys(properties).length > 0) all.properties = properties;
  if (required.length > 0) all.required = required;
  return all;
}

function schemaOf(given: unknown, root: JsonSchema): JsonSchema {
  return isSchema(given) ? resolved(given, root) : {};
}

function isSchema(value: unknown): value is JsonSchema {
  return isObject(value);
}

function typesOf(schema: JsonSchema): string[] {
  if (Array.isArray(schema.type)) return schema.type as string[];
  if (typeof schema.type === "string") return [schema.type];
  if ("properties" in schema) return ["object"];
  return "items" in schema ? ["array"] : [];
}

/** Whether values of a schema that has no form may be text. */
export function takesText({ kind, schema }: Shape): boolean {
  const types = typesOf(schema);
  return kind === "json" && (types.length === 0 || types.includes("string"));
}

function choicesOf(schemas: JsonSchema[]): Choice[] {
  return schemas.map((one) => ({ value: one.const as Json, label: String(one.title ?? labelOf(one.const)) }));
}

function labelOf(value: unknown): string {
  return typeof value === "string" ? value : JSON.stringify(value);
}

export function propertiesOf(schema: JsonSchema): [string, JsonSchema][] {
  return Object.entries((isObject(schema.properties) ? schema.properties : {}) as Record<string, JsonSchema>);
}

export function isRequired(schema: JsonSchema, name: string): boolean {
  return Array.isArray(schema.required) && schema.required.includes(name);
}

/** The schema of additional properties; null if the schema declares none. */
export function extraOf(schema: JsonSchema): JsonSchema | null {
  const extra = schema.additionalProperties;
  if (extra === true) return {};
  return isSchema(extra) ? extra : null;
}

const SAYS_NOTHING = [
  "type",
  "properties",
  "additionalProperties",
  "required",
  "title",
  "description",
  "$schema",
  "$defs",
];

/** Whether the arguments are always an empty object. */
export function takesNothing(schema: JsonSchema): boolean {
  return (
    propertiesOf(schema).length === 0 &&
    extraOf(schema) === null &&
    Object.keys(schema).every((key) => SAYS_NOTHING.includes(key))
  );
}

/** The initial value: a const or default, with its required properties. */
export function initial(given: unknown, root: JsonSchema, depth = 0, budget = { left: MAX_INITIAL }): Json | undefined {
  if (budget.left-- <= 0) return undefined;
  const { kind, schema, choices, isNullable } = shapeOf(given, root);
  if (schema.default !== undefined) return schema.default as Json;
  if (kind === "choice" && choices.length === 1 && !isNullable) return choices[0]?.value;
  if (kind !== "object" || depth > DEEPEST) return undefined;
  const pairs = propertiesOf(schema)
    .filter(([name]) => isRequired(schema, name))
    .map(([name, one]) => [name, initial(one, root, depth + 1, budget)] as const);
  return Object.fromEntries(pairs.filter((pair): pair is [string, Json] => pair[1] !== undefined));
}

/** The initial value where one is needed: a list item, or a picked branch. */
export function blank(given: unknown, root: JsonSchema, depth = 0): Json {
  const found = initial(given, root);
  if (found !== undefined) return found;
  const { kind, schema, choices, branches } = shapeOf(given, root);
  if (kind === "union") return depth > DEEPEST ? null : blank(branches[0], root, depth + 1);
  if (kind === "choice") return choices[0]?.value ?? null;
  if (kind === "number" || kind === "integer") return typeof schema.minimum === "number" ? schema.minimum : 0;
  const blanks: Partial<Record<Kind, Json>> = { string: "", boolean: false, array: [], object: {} };
  return blanks[kind] ?? null;
}

/** Whether a control of this shape can show the value as it is. */
export function fits(
  value: Json | undefined,
  { kind, choices, branches, isNullable }: Shape,
  root: JsonSchema,
  depth = 0,
): boolean {
  if (value === undefined || kind === "json") return true;
  if (value === null) return isNullable || kind === "null" || choices.some((one) => one.value === null);
  if (kind === "choice") return choices.some((one) => same(one.value, value));
  if (kind === "union") return depth <= DEEPEST && branchOf(value, branches, root, depth + 1) >= 0;
  if (kind === "number" || kind === "integer") return ["number", "bigint", "string"].includes(typeof value); // text that is not a number yet
  if (kind === "object") return isObject(value);
  if (kind === "array") return Array.isArray(value);
  return typeof value === kind;
}

/** The branch of a value: one that it matches, else one that it may become; -1 if none. */
export function branchOf(value: Json | undefined, branches: JsonSchema[], root: JsonSchema, depth = 0): number {
  const whole = branches.findIndex((one) => matches(value, one, root, true, depth));
  return whole >= 0 ? whole : branches.findIndex((one) => matches(value, one, root, false, depth));
}

/** Whether a value looks like one of this branch. Not a validator: keys and constants decide. */
function matches(value: Json | undefined, given: unknown, root: JsonSchema, isWhole: boolean, depth: number): boolean {
  if (value === undefined) return false;
  const found = shapeOf(given, root);
  const { kind, schema } = found;
  if (value !== null && (kind === "number" || kind === "integer")) return isNumber(value, kind);
  if (!fits(value, found, root, depth)) return false;
  if (kind !== "object" || !isObject(value)) return true;
  const known = propertiesOf(schema);
  const fixed = known.map(([name, one]) => [name, resolved(one, root)] as const).filter(([, one]) => "const" in one);
  if (!fixed.every(([name, one]) => (name in value ? same(one.const as Json, value[name]) : !isWhole))) return false;
  if (!isWhole) return true;
  if (Array.isArray(schema.required) && !(schema.required as string[]).every((name) => name in value)) return false;
  return extraOf(schema) !== null || Object.keys(value).every((name) => known.some(([one]) => one === name));
}

function isNumber(value: Json, kind: Kind): boolean {
  return typeof value === "bigint" || (typeof value === "number" && (kind === "number" || Number.isInteger(value)));
}

export function same(one: Json | undefined, other: Json | undefined): boolean {
  if (one === other) return true;
  if (typeof one !== "object" || typeof other !== "object" || one === null || other === null) return false;
  const [keys, others] = [Object.keys(one), Object.keys(other)];
  const [a, b] = [one as JsonObject, other as JsonObject];
  return (
    Array.isArray(one) === Array.isArray(other) &&
    keys.length === others.length &&
    keys.every((key) => key in b && same(a[key], b[key]))
  );
}

/** Parse text of a number field exactly. Other text is returned as it is, and the server refuses it. */
export function numberOf(text: string): Json {
  const trimmed = text.trim();
  if (/^[+-]?\d+$/.test(trimmed)) {
    const value = Number(trimmed);
    return Number.isSafeInteger(value) ? value : BigInt(trimmed.replace(/^\+/, ""));
  }
  const isFraction = /^[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?$/i.test(trimmed);
  return isFraction && Number.isFinite(Number(trimmed)) ? Number(trimmed) : text;
}

export { below, valueAt, withKey } from "../text/pointer"; // form fields need both
