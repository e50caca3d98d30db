/** The arguments of a tool as rows of its JSON Schema. A row changes one property; the rest stays. */

import { renameKey } from "./build";
import { isObject, jsonOrText, parseJson, writeJson } from "../text/json-text";
import type { JsonSchema } from "../api/tool";

export const TYPES = ["string", "integer", "number", "boolean", "array", "object"] as const;

export interface ArgRow {
  name: string;
  /** One of TYPES; "" means any; "…" means that rows can't show it. */
  type: string;
  required: boolean;
  description: string;
  /** As typed: text for a string, else JSON. */
  default: string;
  /** Values separated by commas; null if they can't be shown like that. */
  choices: string | null;
}

const properties = (schema: JsonSchema): Record<string, unknown> =>
  isObject(schema.properties) ? schema.properties : {};
const required = (schema: JsonSchema): string[] =>
  Array.isArray(schema.required) ? (schema.required as string[]) : [];

export function rowsOf(schema: JsonSchema): ArgRow[] {
  return Object.entries(properties(schema)).map(([name, found]) => {
    const one = isObject(found) ? found : {};
    const type = typeOfRow(one);
    return {
      name,
      type,
      required: required(schema).includes(name),
      description: typeof one.description === "string" ? one.description : "",
      default: one.default === undefined ? "" : written(one.default, type),
      choices: choicesOf(one, type),
    };
  });
}

function typeOfRow(one: JsonSchema): string {
  if (one.type === undefined) return ["$ref", "oneOf", "anyOf", "allOf", "const"].some((key) => key in one) ? "…" : "";
  return typeof one.type === "string" && (TYPES as readonly string[]).includes(one.type) ? one.type : "…";
}

function written(value: unknown, type: string): string {
  return type === "string" && typeof value === "string" ? value : writeJson(value);
}

function choicesOf(one: JsonSchema, type: string): string | null {
  if (one.enum === undefined) return "";
  if (!Array.isArray(one.enum)) return null;
  const texts = (one.enum as unknown[]).map((value) => written(value, type));
  return texts.some((text) => text.includes(",") || text.trim() !== text || text === "") ? null : texts.join(", ");
}

/** Parse typed text: strings as they are, other types as JSON. undefined if it is not a value of the type. */
export function valueOf(text: string, type: string): unknown {
  if (type === "string") return text;
  if (type === "") return jsonOrText(text);
  try {
    return parseJson(text);
  } catch {
    return undefined;
  }
}

export function withRow(schema: JsonSchema, name: string): JsonSchema {
  return { type: "object", ...schema, properties: { ...properties(schema), [name]: { type: "string" } } };
}

export function withoutRow(schema: JsonSchema, name: string): JsonSchema {
  const kept = Object.fromEntries(Object.entries(properties(schema)).filter(([key]) => key !== name));
  return { ...schema, properties: kept, required: required(schema).filter((one) => one !== name) };
}

export function renamed(schema: JsonSchema, from: string, to: string): JsonSchema {
  const names = required(schema).map((one) => (one === from ? to : one));
  return {
    ...schema,
    properties: renameKey(properties(schema), from, to),
    ...(schema.required === undefined ? {} : { required: names }),
  };
}

export function withRequired(schema: JsonSchema, name: string, isRequired: boolean): JsonSchema {
  const others = required(schema).filter((one) => one !== name);
  return { ...schema, required: isRequired ? [...others, name] : others };
}

/** Change one key of a property; undefined removes it. */
export function withFact(schema: JsonSchema, name: string, key: string, value: unknown): JsonSchema {
  const found = properties(schema)[name];
  const { [key]: _, ...others } = isObject(found) ? found : {};
  const next = value === undefined ? others : key === "type" ? { type: value, ...others } : { ...others, [key]: value };
  return { ...schema, properties: { ...properties(schema), [name]: next } };
}

export function withChoices(schema: JsonSchema, name: string, type: string, text: string): JsonSchema {
  const values = text
    .split(",")
    .map((one) => one.trim())
    .filter(Boolean)
    .map((one) => valueOf(one, type) ?? one);
  return withFact(schema, name, "enum", values.length > 0 ? values : undefined);
}

/** Sample arguments for a schema: examples and defaults first, then a value of the type. */
export function sampleOf(schema: JsonSchema): Record<string, unknown> {
  const entries = Object.entries(properties(schema)).map(([name, found]): [string, unknown] => {
    const one = isObject(found) ? found : {};
    if (Array.isArray(one.examples) && one.examples.length > 0) return [name, one.examples[0]];
    if (one.default !== undefined) return [name, one.default];
    if (Array.isArray(one.enum) && one.enum.length > 0) return [name, one.enum[0]];
    const samples: Record<string, unknown> = {
      string: name,
      integer: 1,
      number: 1.5,
      boolean: true,
      array: [],
      object: {},
    };
    return [name, samples[String(one.type)] ?? name];
  });
  return Object.fromEntries(entries);
}
