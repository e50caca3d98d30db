/** Failures, as the server describes them. */

import type { Schemas } from "./client";
import { isObject, writeJson, type JsonObject } from "../text/json-text";

/** A host to allow or a secret to set first. */
export type Need = Schemas["Need"];

export interface Fault {
  pointer: string;
  message: string;
}

/** Why a call failed, in the server's words. `hints` say what to do. */
export interface CallFailure {
  code: string;
  message: string;
  reason: string | null;
  hints: string[];
  faults: Fault[]; // of arguments: pointers into them
  needs: Need[];
  retryAfter: number | null; // seconds
}

export const NOTHING: CallFailure = {
  code: "",
  message: "",
  reason: null,
  hints: [],
  faults: [],
  needs: [],
  retryAfter: null,
};

/** Read the envelope of a failed tool, or the problem of a refused call. */
export function failureOf(error: JsonObject, otherwise: string): CallFailure {
  const listed = [error.errors, error.details].find(Array.isArray) ?? [];
  const needs = needsOf(error);
  const hints = Array.isArray(error.hints)
    ? error.hints.map((one) => (typeof one === "string" ? one : writeJson(one)))
    : [];
  return {
    ...NOTHING,
    code: String(error.code ?? error.status ?? ""),
    message: String(error.detail ?? error.message ?? error.title ?? otherwise).slice(0, 20_000),
    reason: typeof error.reason === "string" ? error.reason : null,
    hints: hints.filter((hint) => !needs.some((need) => hint.includes(need.command))), // the page itself offers these
    faults: listed.filter(isObject).map(faultOf),
    needs,
  };
}

/** The missing hosts and secrets of an error. */
export function needsOf(error: unknown): Need[] {
  const listed = isObject(error) && Array.isArray(error.needs) ? error.needs : [];
  return listed.filter((one) => isObject(one) && typeof one.command === "string") as unknown as Need[];
}

function faultOf(found: JsonObject): Fault {
  const words = [found.expected && `≠ ${String(found.expected)}:`, found.got, found.hint && `(${String(found.hint)})`];
  const message = found.message ?? words.filter(Boolean).join(" ");
  return { pointer: String(found.pointer ?? "").replace(/^\/args(?=\/|$)/, ""), message: String(message) };
}
