/** Which views fit a result, and what they need: pure functions over values. */

import { isObject, writeJson, type Json, type JsonObject } from "./json-text";

export type View = "table" | "tree" | "text" | "picture" | "file";

const LOOKED_AT = 200; // rows that determine the columns
const MAX_COLUMNS = 40;
const MAX_FILES = 20;
export const PICTURE = /^image\/(png|jpe?g|gif|webp|avif|bmp|svg\+xml)$/;
const DATA_URI = /^data:(image\/[a-z+]+);base64,([A-Za-z0-9+/]+=*)$/;
const STORED: ReadonlySet<string> = new Set(["image", "audio", "blob"]);
const HANDLE = /^[0-9a-f]{32}$/;
const SUFFIXES: Readonly<Record<string, string>> = {
  jpeg: "jpg",
  "svg+xml": "svg",
  plain: "txt",
  mpeg: "mp3",
  "octet-stream": "bin",
};

/** The suitable views, best first. */
export function viewsOf(value: Json): View[] {
  const views: View[] = [];
  const files = filesOf(value);
  if (files.length > 0) views.push(files.some((one) => one.isPicture) ? "picture" : "file");
  const rows = rowsOf(value);
  const isAll = rows?.key === null || (isObject(value) && Object.keys(value).length === 1); // a table would hide the rest
  if (rows !== null && isAll) views.push("table");
  if (typeof value === "object" && value !== null) views.push("tree");
  if (rows !== null && !isAll) views.push("table");
  return [...views, "text"];
}

export interface Rows {
  /** The key of the rows, if the value is an object around them. */
  key: string | null;
  rows: JsonObject[];
}

/** Rows for a table: a list of objects, or an object with one such list. */
export function rowsOf(value: Json): Rows | null {
  if (isRows(value)) return { key: null, rows: value };
  if (!isObject(value)) return null;
  const lists = Object.entries(value).filter(([, one]) => Array.isArray(one) && one.length > 0);
  const [only] = lists;
  return lists.length === 1 && only && isRows(only[1]) ? { key: only[0], rows: only[1] } : null;
}

function isRows(value: Json): value is JsonObject[] {
  return Array.isArray(value) && value.length > 0 && value.every(isObject) && filesOf(value).length === 0;
}

export function columnsOf(rows: JsonObject[]): string[] {
  return [...new Set(rows.slice(0, LOOKED_AT).flatMap(Object.keys))].slice(0, MAX_COLUMNS);
}

/** Sort rows by a column: numbers by size, others as text. Missing values come last in both directions. */
export function sorted(rows: JsonObject[], column: string, isDown: boolean): JsonObject[] {
  const isNone = (one: JsonObject): boolean => one[column] === undefined || one[column] === null;
  const full = rows.filter((one) => !isNone(one)).sort((a, b) => compare(a[column], b[column]));
  return [...(isDown ? full.reverse() : full), ...rows.filter(isNone)];
}

function compare(a: Json | undefined, b: Json | undefined): number {
  const isNumber = (one: unknown): one is number | bigint => typeof one === "number" || typeof one === "bigint";
  if (isNumber(a) && isNumber(b)) return a < b ? -1 : a > b ? 1 : 0;
  return cellOf(a).localeCompare(cellOf(b), undefined, { numeric: true });
}

export function cellOf(value: Json | undefined): string {
  if (value === undefined) return "";
  return typeof value === "string" ? value : writeJson(value);
}

/** A picture or another file in a result. */
export interface ResultFile {
  mimeType: string;
  isPicture: boolean;
  /** The handle of the stored file, or else its content in Base64. */
  handle: string | null;
  data: string;
  size: number;
}

/** The files in a result: data URIs, MCP image blocks, and stored files. */
export function filesOf(value: Json): ResultFile[] {
  if (typeof value === "string") {
    const [, mimeType = "", data = ""] = value.startsWith("data:image/") ? (DATA_URI.exec(value) ?? []) : [];
    return PICTURE.test(mimeType) ? [fileOf(mimeType, data)] : [];
  }
  if (Array.isArray(value)) return value.slice(0, MAX_FILES).flatMap(filesOf);
  if (!isObject(value)) return [];
  const { data, handle, mimeType, type, content, size } = value;
  if (STORED.has(String(type)) && typeof mimeType === "string" && typeof handle === "string" && HANDLE.test(handle)) {
    return [{ ...fileOf(mimeType, ""), handle, size: Number(size) || 0 }];
  }
  if (type === "image" && typeof data === "string" && typeof mimeType === "string")
    return filesOf(`data:${mimeType};base64,${data}`);
  return Array.isArray(content) ? filesOf(content) : [];
}

const fileOf = (mimeType: string, data: string): ResultFile => ({
  mimeType,
  isPicture: PICTURE.test(mimeType),
  handle: null,
  data,
  size: Math.floor((data.length * 3) / 4),
});

/** The file extension of a type. */
export function suffixOf(mimeType: string): string {
  const kind = mimeType.split("/")[1] ?? "";
  return SUFFIXES[kind] ?? (/^[a-z0-9]{1,8}$/.test(kind) ? kind : "bin");
}

/** A path in code syntax: `.items[3]["a b"]`. */
export function pathOf(steps: readonly (string | number)[]): string {
  return steps
    .map((step) =>
      typeof step === "number" ? `[${step}]` : /^[A-Za-z_]\w*$/.test(step) ? `.${step}` : `[${JSON.stringify(step)}]`,
    )
    .join("");
}

/** A short summary of a value, for a closed node. */
export function brief(value: Json): string {
  if (Array.isArray(value)) return `[${value.length}]`;
  return isObject(value) ? `{${Object.keys(value).length}}` : "";
}
