/** Tools and bundles in the editor: their content, addresses and differences. */

import { isObject, writeJson } from "../text/json-text";
import { below } from "../text/pointer";
import type { JsonSchema, Tool } from "../api/tool";

export type Content = Record<string, unknown>;

/** The address of a tool. */
export interface ToolPlace {
  bundleID: string;
  slug: string;
  version: string;
}

export interface Problem {
  pointer: string;
  message: string;
}

/** Fields that the API computes and PUT ignores. */
const NOT_CONTENT = new Set([
  "id",
  "bundleID",
  "bundleSlug",
  "slug",
  "version",
  "name",
  "origin",
  "source",
  "health",
  "isBuiltIn",
  "createdAt",
  "modifiedAt",
  "schemaVersion",
  "callCount",
  "lastCalledAt",
  "disabledReason",
  "signature",
  "effect",
  "inherited",
  "warnings",
  "digest",
  "softDeletedAt",
]);

/** The editable part of a tool or bundle. */
export function contentOf(thing: object): Content {
  return Object.fromEntries(Object.entries(thing).filter(([key]) => !NOT_CONTENT.has(key)));
}

export function bundleContent(bundle: { slug: string; displayName: string; description: string }): Content {
  return { slug: bundle.slug, displayName: bundle.displayName, description: bundle.description };
}

const COMMON = { displayName: "", description: "", tags: [], isEnabled: true };

export function newTool(type: string): Content {
  const argSchema: JsonSchema = { type: "object", properties: {}, required: [] };
  if (type === "script") return { type, ...COMMON, argSchema, scriptImpl: { code: "" } };
  return {
    type: "http",
    ...COMMON,
    argSchema,
    httpImpl: { request: { method: "GET", urlTemplate: "https://" }, response: {} },
  };
}

export function newBundle(): Content {
  return { slug: "", displayName: "", description: "" };
}

/** The next free version label: its last number plus one. Versions have no order, so it is a suggestion. */
export function nextVersion(version: string, taken: ReadonlySet<string>): string {
  let next = version;
  do {
    const found = /^(.*?)(\d+)(\D*)$/.exec(next);
    next = found ? `${found[1] ?? ""}${BigInt(found[2] ?? "0") + 1n}${found[3] ?? ""}` : `${next}-2`;
  } while (taken.has(next));
  return next;
}

/** Return a UUIDv7: the time, then random bits. */
export function newId(): string {
  const bytes = crypto.getRandomValues(new Uint8Array(16));
  const now = BigInt(Date.now());
  for (let at = 0; at < 6; at++) bytes[at] = Number((now >> BigInt(8 * (5 - at))) & 255n);
  bytes[6] = ((bytes[6] ?? 0) & 0x0f) | 0x70;
  bytes[8] = ((bytes[8] ?? 0) & 0x3f) | 0x80;
  const hex = [...bytes].map((one) => one.toString(16).padStart(2, "0")).join("");
  return [hex.slice(0, 8), hex.slice(8, 12), hex.slice(12, 16), hex.slice(16, 20), hex.slice(20)].join("-");
}

/** Turn any text into a valid slug. */
export function slugOf(text: string): string {
  return text
    .normalize("NFC")
    .toLowerCase()
    .replace(/[^\p{L}\p{Nd}]+/gu, "-")
    .replace(/^-+|-+$/g, "")
    .slice(0, 64);
}

/** The name in code of a tool in a bundle. */
export function calledAt(bundle: string | undefined, slug: string): string {
  return `${bundle || "…"}.${slug || "…"}`.replaceAll("-", "_");
}

export function placeOf(address: string): ToolPlace {
  const [bundleID = "", slug = "", version = ""] = address.split("/");
  return { bundleID, slug, version };
}

/** Rename a key of an object, keeping the order. */
export function renameKey(object: Record<string, unknown>, from: string, to: string): Record<string, unknown> {
  return Object.fromEntries(Object.entries(object).map(([key, value]) => [key === from ? to : key, value]));
}

export function isSame(one: unknown, other: unknown): boolean {
  return writeJson(sorted(one)) === writeJson(sorted(other));
}

function sorted(value: unknown): unknown {
  if (Array.isArray(value)) return value.map(sorted);
  if (typeof value !== "object" || value === null) return value;
  return Object.fromEntries(
    Object.entries(value)
      .sort(([a], [b]) => (a < b ? -1 : 1))
      .map(([key, one]) => [key, sorted(one)]),
  );
}

/** The differences between two values: objects are compared by key, everything else as a whole. */
export interface Difference {
  pointer: string;
  theirs: unknown;
  mine: unknown;
}

export function differences(theirs: unknown, mine: unknown, pointer = ""): Difference[] {
  if (isSame(theirs, mine)) return [];
  if (!isObject(theirs) || !isObject(mine)) return [{ pointer, theirs, mine }];
  const keys = [...new Set([...Object.keys(theirs), ...Object.keys(mine)])];
  return keys.flatMap((key) => differences(theirs[key], mine[key], below(pointer, key)));
}

export type { Tool };
