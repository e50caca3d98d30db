/** Calls a tool, with its progress and result. */

import { ApiError, send, toolPath } from "../api/client";
import { texts } from "../api/events";
import { NOTHING, failureOf, type CallFailure } from "../api/failure";
import { isObject, objectIn, parseJson, writeJson, type Json, type JsonObject } from "../text/json-text";
import type { Tool } from "../api/tool";

export type { CallFailure, Fault } from "../api/failure";
type Place = Pick<Tool, "bundleID" | "slug" | "version">;

/** The text of a call, and a function that changes it. */
export interface Mending {
  text: string;
  change: (text: string) => void;
}

/** For an HTTP tool: the status of the API's response, and its duration. */
export interface Upstream {
  status: number;
  durationMs: number;
}

export type Outcome = { durationMs: number; at: string; upstream?: Upstream | null } & (
  { ok: true; value: Json; size: number } | { ok: false; failure: CallFailure }
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

/** Call the tool with arguments as JSON text. Throws AbortError if stopped. */
export async function invoke(tool: Place, args: string, told: Told, signal: AbortSignal): Promise<Outcome> {
  const [start, at] = [performance.now(), new Date().toISOString()];
  const result = await call(tool, args, told, signal).catch((error: unknown) => {
    if (signal.aborted || !(error instanceof ApiError)) throw error;
    return { ok: false as const, failure: { ...NOTHING, code: error.code, message: error.message } };
  });
  return { ...result, at, durationMs: performance.now() - start };
}

type Result = { upstream?: Upstream | null } & (
  { ok: true; value: Json; size: number } | { ok: false; failure: CallFailure }
);

async function call(tool: Place, args: string, told: Told, signal: AbortSignal): Promise<Result> {
  const sent = { body: `{"args": ${args}}`, accept: "text/event-stream", signal };
  const response = await send(`${toolPath(tool)}/invoke`, sent);
  const isStream = response.headers.get("content-type")?.startsWith("text/event-stream") ?? false;
  if (!isStream || !response.body) return envelope(await response.text(), response);
  for await (const [name, data] of texts(response.body)) {
    if (name === "result") return envelope(data, response);
    const found = parseJson(data) as JsonObject;
    if (name === "chunk") told.piece(String(found.data ?? ""));
    else if (name === "progress") told.progress(progressOf(found));
  }
  throw new ApiError(0, "unreachable", "");
}

function envelope(text: string, response: Response): Result {
  const body = objectIn(text);
  const upstream = upstreamOf(body.meta);
  const around =
    '{"ok":true,"value":}'.length + (body.meta === undefined ? 0 : writeJson(body.meta).length + ',"meta":'.length);
  if (response.ok && body.ok === true)
    return { ok: true, value: body.value ?? null, size: new Blob([text]).size - around, upstream };
  const failure = failureOf(isObject(body.error) ? body.error : body, text || `HTTP ${response.status}`);
  return {
    ok: false,
    upstream,
    failure: { ...failure, retryAfter: numberOr(response.headers.get("retry-after"), null) },
  };
}

function upstreamOf(meta: Json | undefined): Upstream | null {
  const found = isObject(meta) && isObject(meta.upstream) ? meta.upstream : null;
  return found && { status: Number(found.status), durationMs: Number(found.duration_ms) };
}

export function progressOf(found: JsonObject): Progress {
  return { done: Number(found.progress), total: numberOr(found.total, null), message: String(found.message ?? "") };
}

function numberOr<T>(value: unknown, otherwise: T): number | T {
  const found = value === null || value === undefined || value === "" ? Number.NaN : Number(value);
  return Number.isFinite(found) ? found : otherwise;
}
