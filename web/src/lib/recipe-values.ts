/** What a step is called with: its values, with what earlier steps gave put in. As Python would do it. */

import { same } from "./form-model";
import { t } from "./i18n.svelte";
import { isObject, writeJson, type Json, type JsonObject } from "./json-text";
import type { Condition } from "./recipe";
import { piecesOf, placeOf, type Names, type Path } from "./recipe-text";
import { cellOf } from "./result-views";
import { line } from "./shown";

/** A value that is not there, or not of the kind that is needed, in words. */
export class RecipeError extends Error {}

export type Known = Readonly<Record<string, Json>>;

export function resolved(value: Json, names: Names, known: Known): Json {
  if (Array.isArray(value)) return value.map((one) => resolved(one, names, known));
  if (isObject(value)) return Object.fromEntries(Object.entries(value).map(([key, one]) => [key, resolved(one, names, known)]));
  if (typeof value !== "string") return value;
  const parts = piecesOf(value, names).map((piece): Json => {
    if (typeof piece === "string") return piece;
    return piece.columns ? tableOf(found(piece.path, known), piece.columns) : found(piece.path, known);
  });
  return parts.length === 1 ? (parts[0] ?? null) : parts.map(textOf).join("");
}

function found(path: Path, known: Known): Json {
  let now: Json | undefined = known as JsonObject;
  for (const step of path) {
    now = typeof now === "object" && now !== null && Object.hasOwn(now, step) ? (now as JsonObject)[step] : undefined;
    if (now === undefined) throw new RecipeError(t("recipe.missing", { path: line(placeOf(path).slice(2, -1)) }));
  }
  return now ?? null;
}

function textOf(value: Json): string {
  if (typeof value === "string") return value;
  const words: Record<string, string> = { true: "True", false: "False", null: "None" };
  return words[String(value)] ?? writeJson(value);
}

function tableOf(rows: Json, columns: readonly string[]): string {
  if (!Array.isArray(rows) || !rows.every(isObject)) throw new RecipeError(t("recipe.no.rows"));
  const cells = rows.map((row) => columns.map((one) => (Object.hasOwn(row, one) ? textOf(row[one] ?? null) : "")));
  return [[...columns], columns.map(() => "---"), ...cells].map((row) => `| ${row.join(" | ")} |`).join("\n");
}

export function holds({ left, operator, right }: Condition, names: Names, known: Known): boolean {
  const [one, other] = [resolved(left, names, known), resolved(right, names, known)];
  if (operator === "is") return isSomething(one);
  if (operator === "not") return !isSomething(one);
  if (operator === "==" || operator === "!=") return same(one, other) === (operator === "==");
  if (operator === "in") {
    if (Array.isArray(one)) return one.some((each) => same(each, other));
    return isObject(one) ? Object.hasOwn(one, cellOf(other)) : cellOf(one).includes(cellOf(other));
  }
  const isNumber = (value: Json): boolean => typeof value === "number" || typeof value === "bigint";
  if (!(isNumber(one) && isNumber(other)) && !(typeof one === "string" && typeof other === "string")) throw new RecipeError(t("recipe.no.order"));
  const [a, b] = [one as number, other as number];
  return operator === ">" ? a > b : operator === "<" ? a < b : operator === ">=" ? a >= b : a <= b;
}

function isSomething(value: Json): boolean {
  return typeof value === "object" && value !== null ? Object.keys(value).length > 0 : Boolean(value);
}
