/** Python semantics of values: `str`, equality, order and membership. */

import { isObject, type Json } from "../text/json-text";

const UNPRINTABLE = /^[\p{C}\p{Z}]$/u;
const ESCAPES: Record<string, string> = { "\\": "\\\\", "\n": "\\n", "\r": "\\r", "\t": "\\t" };

/** Python's `str`. */
export function pythonText(value: Json): string {
  return typeof value === "string" ? value : repr(value);
}

function repr(value: Json): string {
  if (value === null) return "None";
  if (typeof value === "boolean") return value ? "True" : "False";
  if (typeof value === "number") return numberText(value);
  if (typeof value === "bigint") return String(value);
  if (typeof value === "string") return quoted(value);
  if (Array.isArray(value)) return `[${value.map(repr).join(", ")}]`;
  return `{${Object.entries(value)
    .map(([key, one]) => `${quoted(key)}: ${repr(one)}`)
    .join(", ")}}`;
}

/** Large and small numbers have an exponent of at least two digits. An unsafe integer was written as a float. */
function numberText(value: number): string {
  if (Number.isSafeInteger(value)) return String(value);
  const [digits = "", exponent = ""] = value.toExponential().split("e");
  if (Number(exponent) > -5 && Number(exponent) < 16) return Number.isInteger(value) ? `${value}.0` : String(value);
  return `${digits}e${exponent.slice(0, 1)}${exponent.slice(1).padStart(2, "0")}`;
}

function quoted(text: string): string {
  const quote = text.includes("'") && !text.includes('"') ? '"' : "'";
  const signs = [...text].map((sign) => {
    if (sign === quote) return `\\${sign}`;
    return ESCAPES[sign] ?? (sign !== " " && UNPRINTABLE.test(sign) ? numbered(sign.codePointAt(0) ?? 0) : sign);
  });
  return quote + signs.join("") + quote;
}

function numbered(code: number): string {
  const [letter, length] = code < 0x100 ? ["x", 2] : code < 0x10000 ? ["u", 4] : ["U", 8];
  return `\\${letter}${code.toString(16).padStart(Number(length), "0")}`;
}

export function isTrue(value: Json): boolean {
  return typeof value === "object" && value !== null ? Object.keys(value).length > 0 : Boolean(value);
}

/** `True` is 1, and `False` is 0. */
function numberIn(value: Json): number | bigint | null {
  return typeof value === "boolean"
    ? Number(value)
    : typeof value === "number" || typeof value === "bigint"
      ? value
      : null;
}

export function isSame(one: Json, other: Json): boolean {
  const [a, b] = [numberIn(one), numberIn(other)];
  if (a !== null && b !== null) return a == b; // a bigint and a number may be equal
  if (Array.isArray(one))
    return (
      Array.isArray(other) && one.length === other.length && one.every((each, at) => isSame(each, other[at] ?? null))
    );
  if (!isObject(one)) return one === other;
  const keys = Object.keys(one);
  return (
    isObject(other) &&
    keys.length === Object.keys(other).length &&
    keys.every((key) => Object.hasOwn(other, key) && isSame(one[key] ?? null, other[key] ?? null))
  );
}

/** Negative if the first is smaller; null if Python can't order them. */
export function order(one: Json, other: Json): number | null {
  const [a, b] = [numberIn(one), numberIn(other)];
  if (a !== null && b !== null) return a < b ? -1 : a > b ? 1 : 0;
  if (typeof one === "string" && typeof other === "string") return order(codesOf(one), codesOf(other));
  if (!Array.isArray(one) || !Array.isArray(other)) return null;
  const at = one.findIndex((each, index) => index >= other.length || !isSame(each, other[index] ?? null));
  if (at < 0 || at >= other.length) return one.length - other.length;
  return order(one[at] ?? null, other[at] ?? null);
}

const codesOf = (text: string): number[] => [...text].map((sign) => sign.codePointAt(0) ?? 0);

/** Python's `in`; null if Python raises an error. */
export function contains(whole: Json, part: Json): boolean | null {
  if (Array.isArray(whole)) return whole.some((each) => isSame(each, part));
  if (typeof whole === "string") return typeof part === "string" ? whole.includes(part) : null;
  if (!isObject(whole) || (typeof part === "object" && part !== null)) return null;
  return typeof part === "string" && Object.hasOwn(whole, part);
}
