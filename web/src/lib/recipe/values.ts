/** The arguments of a step, with the results of earlier steps filled in, exactly as Python does it. */

import { isObject, type Json, type JsonObject } from "../text/json-text";
import type { Key } from "../locales/en";
import { ITEM, type Condition, type Step } from "./recipe";
import { piecesOf, referenceOf, type Names, type Path } from "./text";
import { contains, isTrue, isSame, order, pythonText } from "./python";

/** An error for a missing or unsuitable value, with its message. */
export class RecipeError extends Error {
  constructor(
    readonly key: Key,
    readonly parts: Record<string, string> = {},
  ) {
    super(key);
  }
}

export type Known = Readonly<Record<string, Json>>;

export function resolved(value: Json, names: Names, known: Known): Json {
  if (Array.isArray(value)) return value.map((one) => resolved(one, names, known));
  if (isObject(value))
    return Object.fromEntries(Object.entries(value).map(([key, one]) => [key, resolved(one, names, known)]));
  if (typeof value !== "string") return value;
  const parts = piecesOf(value, names).map((piece): Json => {
    if (typeof piece === "string") return piece;
    return piece.columns ? tableOf(found(piece.path, known), piece.columns) : found(piece.path, known);
  });
  return parts.length === 1 ? (parts[0] ?? null) : parts.map(pythonText).join("");
}

function found(path: Path, known: Known): Json {
  let now: Json | undefined = known as JsonObject;
  for (const step of path) {
    if (typeof step === "string") now = isObject(now) && Object.hasOwn(now, step) ? now[step] : undefined;
    else now = Array.isArray(now) ? now[step] : typeof now === "string" ? [...now][step] : undefined;
    if (now === undefined) throw new RecipeError("recipe.missing", { path: referenceOf(path).slice(2, -1) });
  }
  return now ?? null;
}

function tableOf(rows: Json, columns: readonly string[]): string {
  if (!Array.isArray(rows) || !rows.every(isObject)) throw new RecipeError("recipe.no.rows");
  const cells = rows.map((row) => columns.map((one) => (Object.hasOwn(row, one) ? pythonText(row[one] ?? null) : "")));
  return [[...columns], columns.map(() => "---"), ...cells].map((row) => `| ${row.join(" | ")} |`).join("\n");
}

export function holds({ left, operator, right }: Condition, names: Names, known: Known): boolean {
  const [one, other] = [resolved(left, names, known), resolved(right, names, known)];
  if (operator === "is" || operator === "not") return isTrue(one) === (operator === "is");
  if (operator === "==" || operator === "!=") return isSame(one, other) === (operator === "==");
  if (operator === "in") return contains(one, other) ?? fail("recipe.no.order");
  const sign = order(one, other) ?? fail("recipe.no.order");
  return operator === ">" ? sign > 0 : operator === "<" ? sign < 0 : operator === ">=" ? sign >= 0 : sign <= 0;
}

function fail(key: Key): never {
  throw new RecipeError(key);
}

/** The arguments of each call of a step, with its item. */
export function callsOf(step: Step, names: Names, known: Known): { args: Json; item: Json | undefined }[] {
  const each = (now: Known, item?: Json): { args: Json; item: Json | undefined }[] =>
    step.when && !holds(step.when, names, now) ? [] : [{ args: resolved(step.args, names, now), item }];
  if (step.each === undefined) return each(known);
  const list = resolved(step.each, new Set([...names].filter((one) => one !== ITEM)), known);
  if (!Array.isArray(list)) throw new RecipeError("recipe.no.list");
  return list.flatMap((item) => each({ ...known, [ITEM]: item }, item));
}
