/** Calling a tool: what it tells on the way, and its outcome. */

import { ApiError, send, toolPath } from "./api";
import { texts } from "./events";
import { isObject, parseJson, writeJson, type Json, type JsonObject } from "./json-text";
import type { Tool } from "./tool";

type Place = Pick<Tool, "bundleID" | "slug" | "version">;

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
  retryAfter: number | null; // seconds
}

export type Outcome = { durationMs: number; at: string } & (
  | { ok: true; value: Json; size: number }
  | { ok: false; failure: CallFailure }
);

export interface Progress {
  done: number;
  total: number | null;
  message: string;
}

export interface Told {
  progress: (progress: Progress) => void;
  piece: (text: string) => void;
}

/** Calls the tool with arguments that are JSON text. Raises AbortError where it was stopped. */
export async function invoke(tool: Place, args: string, told: Told, signal: AbortSignal): Promise<Outcome> {
  const [start, at] = [performance.now(), new Date().toISOString()];
  const result = await call(tool, args, told, signal).catch((error: unknown) => {
    if (signal.aborted || !(error instanceof ApiError)) throw error;
    return { ok: false as const, failure: { ...NOTHING, code: error.code, message: error.message } };
  });
  return { ...result, at, durationMs: performance.now() - start };
}

type Result = { ok: true; value: Json; size: number } | { ok: false; failure: CallFailure };
const NOTHING: CallFailure = { code: "", message: "", reason: null, hints: [], faults: [], retryAfter: null };

async function call(tool: Place, args: string, told: Told, signal: AbortSignal): Promise<Result> {
  const sent = { body: `{"args": ${args}}`, accept: "text/event-stream", signal };
  const response = await send(`${toolPath(tool)}/invoke`, sent);
  const isStream = response.headers.get("content-type")?.startsWith("text/event-stream") ?? false;
  if (!isStream || !response.body) return envelope(await response.text(), response);
  for await (const [name, data] of texts(response.body)) {
    if (name === "result") return envelope(data, response);
    const found = parseJson(data) as JsonObject;
    if (name === "chunk") told.piece(String(found.data ?? ""));
    else if (name === "progress") told.progress({ done: Number(found.progress), total: numberOr(found.total, null), message: String(found.message ?? "") });
  }
  throw new ApiError(0, "unreachable", "");
}

function envelope(text: string, response: Response): Result {
  const body = read(text);
  if (response.ok && body.ok === true) return { ok: true, value: body.value ?? null, size: new Blob([text]).size - '{"ok":true,"value":}'.length };
  const failure = failureOf(isObject(body.error) ? body.error : body, text || `HTTP ${response.status}`);
  return { ok: false, failure: { ...failure, retryAfter: numberOr(response.headers.get("retry-after"), null) } };
}

function read(text: string): JsonObject {
  try {
    const found = parseJson(text);
    return isObject(found) ? found : {};
  } catch {
    return {};
  }
}

/** Of the envelope of a tool that failed, or of a problem: the call was refused. */
function failureOf(error: JsonObject, otherwise: string): CallFailure {
  const listed = [error.errors, error.details].find(Array.isArray) ?? [];
  return {
    ...NOTHING,
    code: String(error.code ?? error.status ?? ""),
    message: String(error.detail ?? error.message ?? error.title ?? otherwise).slice(0, 20_000),
    reason: typeof error.reason === "string" ? error.reason : null,
    hints: Array.isArray(error.hints) ? error.hints.map((one) => (typeof one === "string" ? one : writeJson(one))) : [],
    faults: listed.filter(isObject).map(faultOf),
  };
}

function faultOf(found: JsonObject): Fault {
  const words = [found.expected && `≠ ${String(found.expected)}:`, found.got, found.hint && `(${String(found.hint)})`];
  const message = found.message ?? words.filter(Boolean).join(" ");
  return { pointer: String(found.pointer ?? "").replace(/^\/args(?=\/|$)/, ""), message: String(message) };
}

function numberOr<T>(value: unknown, otherwise: T): number | T {
  const found = value === null || value === undefined || value === "" ? Number.NaN : Number(value);
  return Number.isFinite(found) ? found : otherwise;
}
