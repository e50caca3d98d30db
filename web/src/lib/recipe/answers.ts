/**
 * The results of a recipe's steps, and whether they are still valid.
 *
 * The key of an answer is made of the step and the values that it uses. An answer records its calls: the same call
 * is not made twice, even if others failed.
 */

import type { Outcome } from "../call/invoke";
import { writeJson, type Json } from "../text/json-text";
import { ITEM, type Step } from "./recipe";
import { usedNames, type Names } from "./text";
import type { Known } from "./values";

export interface Answer {
  key: string; // empty: incomplete
  outcome: Outcome | null; // null: it was stopped
  calls: readonly string[]; // a digest of each successful call
  values?: Json[]; // their values, unless these are in the outcome
  isEach: boolean; // whether the outcome is a list of their values
  /** For a loop: the item where it ended. */
  left?: { at: number; total: number; item: Json };
}

const digests = new WeakMap<object, string>();

/** A digest of a value: FNV-1a, and its length as JSON. */
export function digest(value: unknown): string {
  const isKnown = typeof value === "object" && value !== null;
  const known = isKnown ? digests.get(value) : undefined;
  if (known !== undefined) return known;
  const text = writeJson(value);
  let hash = 0x811c9dc5;
  for (let at = 0; at < text.length; at++) hash = Math.imul(hash ^ text.charCodeAt(at), 0x01000193);
  const found = `${hash}.${text.length}`;
  if (isKnown) digests.set(value, found);
  return found;
}

/** The arguments and steps that a step uses. */
export function usedBy(step: Step, names: Names): string[] {
  const parts = [step.args, step.each ?? null, step.when ? [step.when.left, step.when.right] : null];
  return [...new Set(usedNames(parts, names))].filter((one) => one !== ITEM);
}

export function keyOf(step: Step, names: Names, known: Known): string {
  const { tool, args, each, when } = step;
  return digest([
    tool,
    args,
    [each],
    when,
    usedBy(step, names).map((name) => digest(Object.hasOwn(known, name) ? known[name] : undefined)),
  ]);
}

export interface Made {
  call: string;
  value: Json;
}

/** The calls of an answer. A call that is reused is taken out. */
export function madeIn(answer: Answer | undefined): Made[] {
  const value = answer?.outcome?.ok ? answer.outcome.value : null;
  const values = answer?.values ?? (answer?.isEach ? (value as Json[]) : [value]);
  return (answer?.calls ?? []).map((call, at) => ({ call, value: values[at] ?? null }));
}

export function taken(made: Made[], call: string): Made | undefined {
  const at = made.findIndex((one) => one.call === call);
  return at < 0 ? undefined : made.splice(at, 1)[0];
}

/** The answers that fit, smallest first, as text, and the names of the others. */
export function written(answers: Iterable<[string, Answer]>, most: number): { text: string; without: string[] } {
  const all = [...answers]
    .map((one) => ({ name: one[0], text: writeJson(one) }))
    .sort((a, b) => a.text.length - b.text.length);
  let size = 2;
  const kept = all.filter((one) => (size += one.text.length + 1) <= most);
  return { text: `[${kept.map((one) => one.text).join(",")}]`, without: all.slice(kept.length).map((one) => one.name) };
}
