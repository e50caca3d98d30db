/** Removes arguments that their schema marks as secret, before they are stored in this browser. */

import { isObject, parseJson, writeJson, type Json, type JsonObject } from "../text/json-text";
import { resolved } from "./schema-rows";
import type { JsonSchema } from "../api/tool";

const DEEPEST = 12;
const MARKS = /"writeOnly":true|"format":"password"/;

export function withoutSecrets(args: JsonObject, schema: unknown): JsonObject {
  const root = (isObject(schema) ? schema : {}) as JsonSchema;
  return (strip(args, [root], root, 0) ?? {}) as JsonObject;
}

/** The same for text. Unreadable text is dropped if it may contain a secret. */
export function textWithoutSecrets(text: string, schema: unknown): string | null {
  if (!MARKS.test(writeJson(schema))) return text;
  try {
    const found = parseJson(text);
    return isObject(found) ? writeJson(withoutSecrets(found, schema), 2) : null;
  } catch {
    return null;
  }
}

function strip(value: Json, schemas: JsonSchema[], root: JsonSchema, depth: number): Json | undefined {
  const seen = new Set<unknown>();
  const all = schemas.flatMap((one) => parts(one, root, seen));
  if (all.some(isSecret)) return undefined;
  if (depth > DEEPEST) return undefined; // too deep to check
  if (Array.isArray(value)) {
    const inner = all
      .flatMap((one) => [one.items, ...(Array.isArray(one.prefixItems) ? one.prefixItems : [])])
      .filter(isObject) as JsonSchema[];
    return value.map((one) => strip(one, inner, root, depth + 1)).filter((one) => one !== undefined);
  }
  if (!isObject(value)) return value;
  const pairs = Object.entries(value).map(
    ([name, one]) => [name, strip(one, below(all, name), root, depth + 1)] as const,
  );
  return Object.fromEntries(pairs.filter((pair): pair is [string, Json] => pair[1] !== undefined));
}

/** All schemas that may apply, each once. */
function parts(schema: JsonSchema, root: JsonSchema, seen: Set<unknown>): JsonSchema[] {
  if (seen.has(schema)) return [];
  seen.add(schema);
  const found = resolved(schema, root);
  const others = ["oneOf", "anyOf", "allOf"].flatMap((key) =>
    Array.isArray(found[key]) ? (found[key] as JsonSchema[]) : [],
  );
  const dependent = isObject(found.dependentSchemas) ? Object.values(found.dependentSchemas) : [];
  const more = [...others, ...dependent, ...["then", "else"].map((key) => found[key])].filter(isObject) as JsonSchema[];
  return [found, ...more.flatMap((one) => parts(one, root, seen))];
}

function below(schemas: JsonSchema[], name: string): JsonSchema[] {
  const found = schemas.flatMap((one) => {
    const own =
      isObject(one.properties) && Object.hasOwn(one.properties, name) ? one.properties[name] : one.additionalProperties;
    const patterns = isObject(one.patternProperties) ? Object.values(one.patternProperties) : [];
    return [own, ...patterns];
  });
  return found.filter(isObject) as JsonSchema[];
}

export function isSecret(schema: JsonSchema): boolean {
  return schema.writeOnly === true || schema.format === "password";
}
