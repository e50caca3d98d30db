/** Runs code on the server, with its calls, output and result. */

import { ApiError, send } from "../api/client";
import type { CodeProblem } from "../editor/editor";
import { texts } from "../api/events";
import { failureOf } from "../api/failure";
import { progressOf, type Outcome, type Progress } from "./invoke";
import { isObject, objectIn, writeJson, type JsonObject } from "../text/json-text";

export interface RunCall {
  id: string;
  name: string;
  args: string;
  began: number; // by the server's clock
  at: number; // ms since the first call
  isOk: boolean | null; // null: it runs
  durationMs: number | null;
  preview: string;
}

export interface RunTold {
  calls: (calls: RunCall[]) => void;
  print: (text: string) => void;
  /** The progress of the running tool. */
  progress: (progress: Progress) => void;
}

/** `place` is the position of the failure in the code. A large value is stored under `handle`, and `value` is its beginning. */
export interface Ran {
  outcome: Outcome;
  place: CodeProblem | null;
  handle: string | null;
}

/** Throws AbortError if stopped, and ApiError if the server is unavailable or the stream breaks. */
export async function runCode(code: string, variables: JsonObject, told: RunTold, signal: AbortSignal): Promise<Ran> {
  const [start, at] = [performance.now(), new Date().toISOString()];
  const body = writeJson({ code, variables });
  const response = await send("run", { body, accept: "text/event-stream", signal });
  const since = (): number => performance.now() - start;
  if (!response.ok || !response.body)
    return failed(objectIn(await response.text()), { durationMs: since(), at }, response.status);
  let calls: RunCall[] = [];
  for await (const [name, text] of texts(response.body)) {
    const data = objectIn(text);
    if (name === "print") told.print(String(data.text ?? ""));
    else if (name === "progress") told.progress(progressOf(data));
    else if (name === "call") told.calls((calls = [...calls, begun(data, calls[0])]));
    else if (name === "called")
      told.calls((calls = calls.map((one) => (one.id === String(data.id) ? ended(one, data) : one))));
    else if (name === "error") return failed(data, { durationMs: since(), at }, 0);
    else if (name === "result") {
      const size = typeof data.size === "number" ? data.size : text.length;
      const handle = typeof data.stored === "string" ? data.stored : null;
      return { outcome: { ok: true, value: data.value ?? null, size, durationMs: since(), at }, place: null, handle };
    }
  }
  throw new ApiError(0, "unreachable", "");
}

function begun(data: JsonObject, first: RunCall | undefined): RunCall {
  const args = isObject(data.args)
    ? Object.entries(data.args)
        .map(([name, one]) => `${name}=${writeJson(one)}`)
        .join(", ")
    : "";
  const began = Date.parse(String(data.at));
  return {
    id: String(data.id),
    name: String(data.name),
    args,
    began,
    at: Math.max(0, began - (first?.began ?? began)),
    isOk: null,
    durationMs: null,
    preview: "",
  };
}

function ended(call: RunCall, data: JsonObject): RunCall {
  return {
    ...call,
    isOk: data.ok === true,
    durationMs: Number(data.durationMs),
    preview: String(data.error ?? data.preview ?? ""),
  };
}

function failed(data: JsonObject, when: { durationMs: number; at: string }, status: number): Ran {
  const error = isObject(data.error) ? data.error : data;
  const failure = failureOf(error, `HTTP ${status}`);
  return {
    outcome: { ok: false, failure, ...when },
    place: typeof data.line === "number" ? problemOf(data, failure.message) : null,
    handle: null,
  };
}

/** The positions of problems in the code. */
export function problemOf(data: JsonObject, message = String(data.message)): CodeProblem {
  const number = (name: string): number | undefined => (typeof data[name] === "number" ? data[name] : undefined);
  return {
    message,
    line: number("line"),
    column: number("column"),
    endLine: number("endLine"),
    endColumn: number("endColumn"),
  };
}
