/** A JSON Schema as table rows: name, type, description and constraints. */

import type { JsonSchema } from "../api/tool";

export interface SchemaRow {
  path: string;
  name: string;
  depth: number;
  type: string;
  required: boolean;
  description: string;
  facts: string[];
}

const DEEPEST = 5;
const MAX_ROWS = 300; // a schema may contain itself, many times over
const BOUNDS: [string, string][] = [
  ["minimum", "≥"],
  ["exclusiveMinimum", ">"],
  ["maximum", "≤"],
  ["exclusiveMaximum", "<"],
  ["minLength", "# ≥"],
  ["maxLength", "# ≤"],
  ["minItems", "# ≥"],
  ["maxItems", "# ≤"],
  ["pattern", "~"],
  ["format", ""],
];

export function describe(schema: JsonSchema | null | undefined): SchemaRow[] {
  const rows: SchemaRow[] = [];
  if (schema) walk(schema, schema, "", 0, rows);
  return rows;
}

function walk(schema: JsonSchema, root: JsonSchema, path: string, depth: number, rows: SchemaRow[]): void {
  const found = resolved(schema, root);
  const properties = (found.properties ?? {}) as Record<string, JsonSchema>;
  const required = Array.isArray(found.required) ? (found.required as string[]) : [];
  for (const [name, raw] of Object.entries(properties)) {
    if (rows.length >= MAX_ROWS) return;
    const one = resolved(raw, root);
    rows.push({
      path: `${path}/${name}`,
      name,
      depth,
      type: typeOf(one, root),
      required: required.includes(name),
      description: String(raw.description ?? one.description ?? ""),
      facts: factsOf(one),
    });
    if (depth < DEEPEST) {
      const inner = one.type === "array" && one.items ? resolved(one.items as JsonSchema, root) : one;
      walk(inner, root, `${path}/${name}`, depth + 1, rows);
    }
  }
}

/** Resolve a `$ref` within the schema; an unresolvable one is an empty schema. */
export function resolved(schema: JsonSchema, root: JsonSchema): JsonSchema {
  let now: JsonSchema = typeof schema === "object" && schema !== null ? schema : {}; // `true` is a schema, too
  for (let hops = 0; typeof now.$ref === "string" && hops < 20; hops++) {
    const { $ref, ...beside } = now;
    now = { ...targetOf($ref as string, root), ...beside };
  }
  return now;
}

function targetOf(ref: string, root: JsonSchema): JsonSchema {
  const path = ref.replace(/^#/, "");
  if (path !== "" && !path.startsWith("/")) return anchored(path, root);
  const steps = path
    .split("/")
    .slice(1)
    .map((step) => decoded(step).replaceAll("~1", "/").replaceAll("~0", "~"));
  const found = steps.reduce<unknown>((at, step) => (at as Record<string, unknown> | undefined)?.[step], root);
  return typeof found === "object" && found !== null ? (found as JsonSchema) : {};
}

function decoded(step: string): string {
  try {
    return decodeURIComponent(step);
  } catch {
    return step;
  }
}

/** The definition that has this `$anchor`. */
function anchored(name: string, root: JsonSchema): JsonSchema {
  const defined = [root.$defs, root.definitions].flatMap((one) =>
    Object.values((one ?? {}) as Record<string, JsonSchema>),
  );
  return defined.find((one) => one?.$anchor === name) ?? {};
}

export function typeOf(schema: JsonSchema, root: JsonSchema, depth = 0): string {
  if (depth > DEEPEST) return "…"; // a schema may contain itself
  const one = resolved(schema, root);
  if (Array.isArray(one.enum)) return one.enum.map((value) => JSON.stringify(value)).join(" | ");
  if ("const" in one) return JSON.stringify(one.const);
  for (const key of ["oneOf", "anyOf"]) {
    if (Array.isArray(one[key]))
      return (one[key] as JsonSchema[]).map((each) => typeOf(each, root, depth + 1)).join(" | ");
  }
  if (one.type === "array") return one.items ? `${typeOf(one.items as JsonSchema, root, depth + 1)}[]` : "array";
  return Array.isArray(one.type) ? one.type.join(" | ") : String(one.type ?? (one.properties ? "object" : "any"));
}

export function factsOf(schema: JsonSchema): string[] {
  const facts = BOUNDS.filter(([key]) => schema[key] !== undefined).map(([key, sign]) =>
    `${sign} ${String(schema[key])}`.trim(),
  );
  if (schema.default !== undefined) facts.push(`= ${JSON.stringify(schema.default)}`);
  return facts;
}
