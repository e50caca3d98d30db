/** The items of a conversation: questions, answers and calls. */

import { t } from "../page/i18n.svelte";
import { failureOf, type Need } from "../api/failure";
import type { Outcome } from "../call/invoke";
import { isObject, parseJson, writeJson, type Json, type JsonObject } from "../text/json-text";

export interface Attached {
  name: string;
  kind: string; // its media type
  text?: string;
  data?: string; // a picture, as base64
}

export interface Approval {
  question: string;
  call: string;
  warnings: string[];
  expiresAt: number; // ms
  decided: "yes" | "no" | null;
}

export interface CallItem {
  kind: "call";
  call: string;
  name: string;
  args: JsonObject;
  isMine: boolean;
  isCached: boolean;
  isCut: boolean;
  outcome: Outcome | null; // null while it runs
  isNotRun: boolean; // it was denied, or never began
  approval: Approval | null;
}

export interface EndItem {
  kind: "end";
  input: number;
  output: number;
  cached: number;
  steps: number;
  model: string;
  provider: string;
  durationMs: number | null;
}

export type Item =
  | { kind: "user"; text: string; files: Attached[] }
  | { kind: "text"; text: string }
  | { kind: "thinking"; text: string }
  | { kind: "notice"; text: string }
  | { kind: "failed"; text: string; hints: string[]; needs: Need[]; isCalm: boolean }
  | CallItem
  | EndItem;

const WAIT_MS = 300_000; // as long as the server waits for an approval

const text = (value: unknown): string => (typeof value === "string" ? value : "");
const number = (value: unknown): number => (typeof value === "number" ? value : 0);
const object = (value: unknown): JsonObject => (isObject(value) ? value : {});
const list = (value: unknown): Json[] => (Array.isArray(value) ? value : []);
export const textsOf = (value: unknown): string[] =>
  list(value).map((one) => (typeof one === "string" ? one : writeJson(one)));

export function callOf(found: unknown, isMine = false): CallItem {
  const { id, name, args } = object(found);
  return {
    kind: "call",
    call: text(id),
    name: text(name),
    args: object(args),
    isMine,
    isCached: false,
    isCut: false,
    isNotRun: false,
    outcome: null,
    approval: null,
  };
}

/** The result of a call, in the form that Try it shows. */
export function outcomeOf(found: unknown): Outcome {
  const result = object(found);
  const durationMs = number(object(result.meta).duration_ms ?? result.durationMs);
  if (result.ok !== false) {
    const value = result.data ?? result.value ?? null;
    return {
      ok: true,
      value,
      size: new Blob([typeof value === "string" ? value : writeJson(value)]).size,
      durationMs,
      at: "",
    };
  }
  return { ok: false, failure: failureOf(object(result.error), ""), durationMs, at: "" };
}

/** Computed from the seconds left, because the clocks may differ. */
export function approvalOf(found: JsonObject): Approval {
  const left = number(found.expiresInSeconds) * 1000 || WAIT_MS;
  return {
    question: text(found.question),
    call: text(found.call),
    warnings: textsOf(found.warnings),
    expiresAt: Date.now() + left,
    decided: null,
  };
}

/** The tokens and duration of a turn, from the answer's object. */
export function endOf(found: unknown, durationMs: number | null): EndItem {
  const answer = object(found);
  const { input, output, cached } = object(answer.usage);
  return {
    kind: "end",
    input: number(input),
    output: number(output),
    cached: number(cached),
    steps: number(answer.steps),
    model: text(answer.model),
    provider: text(answer.provider),
    durationMs,
  };
}

/** A conversation as the server keeps it. */
export function itemsOf(found: JsonObject): Item[] {
  const items: Item[] = [];
  for (const one of list(found.messages).map(object)) {
    const isMine = one.role === "user";
    const files = list(one.files).map((file) => ({ name: text(object(file).name), kind: text(object(file).kind) }));
    const said = text(one.text);
    if (said) items.push(isMine ? { kind: "user", text: said, files } : { kind: "text", text: said });
    items.push(...list(one.calls).map((call) => keptCall(object(call), isMine)));
    if (one.end === "stopped" || one.end === "failed") items.push(brokenOf(one));
    else if (one.brokenOff === true) items.push({ kind: "notice", text: t("chat.broken") });
    if (one.end !== "stopped" && one.end !== "failed" && isObject(one.usage)) items.push(endOf(one, null));
  }
  return items;
}

/** Calls of models, by their ids. */
export function keptCalls(found: JsonObject): Map<string, CallItem> {
  const calls = itemsOf(found).filter((one) => one.kind === "call");
  return new Map(calls.map((one) => [one.call, one]));
}

function brokenOf(one: JsonObject): Item {
  const isCalm = one.end === "stopped";
  return {
    kind: "failed",
    text: isCalm ? t("chat.stopped") : text(one.why) || t("chat.broken"),
    hints: [],
    needs: [],
    isCalm,
  };
}

/** The server keeps only the part of a result that the model read. */
function keptCall(call: JsonObject, isMine: boolean): CallItem {
  const args = isObject(call.args) ? call.args : { "…": call.argsText ?? call.args ?? "" };
  const result = text(call.result);
  const outcome =
    call.state === "ok"
      ? { value: call.isCut ? result : valueOf(result) }
      : { ok: false, error: { message: call.state === "running" ? t("chat.call.unknown") : result } };
  return {
    ...callOf({ id: call.id ?? "", name: call.name ?? "", args }, isMine),
    outcome: outcomeOf(outcome),
    isCut: call.isCut === true,
    isNotRun: call.state === "not_run",
  };
}

function valueOf(written: string): Json {
  try {
    return parseJson(written);
  } catch {
    return written;
  }
}
