/**
 * What the steps of a recipe gave, and whether that still holds.
 *
 * The key of an answer is made of the step and of all that led to it: values of arguments, and what the steps that it
 * uses gave. An answer knows its calls: one that is the same is not made a second time, also if others failed.
 */

import type { Outcome } from "./invoke";
import { writeJson, type Json, type JsonObject } from "./json-text";
import { ITEM, namesAt, type Recipe } from "./recipe";
import { usedNames } from "./recipe-text";

export interface Answer {
  key: string; // empty: it is not whole
  outcome: Outcome | null; // null: somebody has stopped it
  calls: readonly string[]; // a digest of each call that has given something
  values: Json[]; // what they gave
  /** Of a step for each item of a list: where it ended. */
  left?: { at: number; total: number; item: Json };
}

export type Answers = ReadonlyMap<string, Answer>;

const digests = new WeakMap<object, string>();

/** A short text that differs where values differ (cyrb53, by bryc, in the public domain). */
export function digest(value: unknown): string {
  const known = typeof value === "object" && value !== null ? digests.get(value) : undefined;
  if (known !== undefined) return known;
  let [high, low] = [0xdeadbeef, 0x41c6ce57];
  const text = writeJson(value);
  for (let at = 0; at < text.length; at++) {
    const code = text.charCodeAt(at);
    [high, low] = [Math.imul(high ^ code, 2654435761), Math.imul(low ^ code, 1597334677)];
  }
  high = Math.imul(high ^ (high >>> 16), 2246822507) ^ Math.imul(low ^ (low >>> 13), 3266489909);
  low = Math.imul(low ^ (low >>> 16), 2246822507) ^ Math.imul(high ^ (high >>> 13), 3266489909);
  const found = (4294967296 * (2097151 & low) + (high >>> 0)).toString(36);
  if (typeof value === "object" && value !== null) digests.set(value, found);
  return found;
}

/** The arguments and the steps that a step takes its values from. */
function usedAt(recipe: Recipe, index: number, inputs: readonly string[]): string[] {
  const step = recipe.steps[index];
  if (!step) return [];
  const parts = [step.args, step.each ?? null, step.when ? [step.when.left, step.when.right] : null];
  return [...new Set(usedNames(parts, namesAt(recipe, index, inputs)))].filter((one) => one !== ITEM).sort();
}

const indexOf = (recipe: Recipe, name: string): number => recipe.steps.findIndex((one) => one.name === name);

export function keyAt(recipe: Recipe, index: number, inputs: readonly string[], samples: JsonObject, answers: Answers): string {
  const keys = new Map<number, string>();
  const keyOf = (at: number): string => {
    const known = keys.get(at);
    if (known !== undefined) return known;
    const step = recipe.steps[at];
    const led = usedAt(recipe, at, inputs).map((name) => {
      if (inputs.includes(name)) return [name, samples[name]];
      const outcome = answers.get(name)?.outcome;
      return [name, keyOf(indexOf(recipe, name)), outcome?.ok ? digest(outcome.value) : ""];
    });
    const key = digest([step?.tool, step?.args, step?.each === undefined ? [] : [step.each], step?.when, led]);
    keys.set(at, key);
    return key;
  };
  return keyOf(index);
}

/** Whether one of these arguments has led to what a step gives. */
export function isLedBy(recipe: Recipe, index: number, inputs: readonly string[], some: ReadonlySet<string>): boolean {
  return usedAt(recipe, index, inputs).some((name) => (inputs.includes(name) ? some.has(name) : isLedBy(recipe, indexOf(recipe, name), inputs, some)));
}

export interface Made {
  call: string;
  value: Json;
}

/** The calls of an answer. Whoever uses one takes it out. */
export function madeIn(answer: Answer | undefined): Made[] {
  return (answer?.calls ?? []).map((call, at) => ({ call, value: answer?.values[at] ?? null }));
}

export function taken(made: Made[], call: string): Made | undefined {
  const at = made.findIndex((one) => one.call === call);
  return at < 0 ? undefined : made.splice(at, 1)[0];
}

// As text, for a reload

/** As many answers as there is room for, the smallest ones first, and the names of the others. */
export function written(answers: Iterable<[string, Answer]>, most: number): { text: string; without: string[] } {
  const all = [...answers].map(([name, answer]) => ({ name, text: writeJson([name, lean(answer)]) }));
  const fitting = new Set<string>();
  let size = 2;
  for (const one of all.toSorted((a, b) => a.text.length - b.text.length)) {
    if ((size += one.text.length + 1) > most) break;
    fitting.add(one.name);
  }
  const kept = all.filter((one) => fitting.has(one.name)).map((one) => one.text);
  return { text: `[${kept.join(",")}]`, without: all.filter((one) => !fitting.has(one.name)).map((one) => one.name) };
}

/** What its outcome holds is not written twice. */
function lean(answer: Answer): unknown {
  const { outcome, values } = answer;
  if (!outcome?.ok) return answer;
  return { ...answer, values: values === outcome.value ? "all" : values[0] === outcome.value ? "one" : values };
}

export function read(found: [string, Omit<Answer, "values"> & { values: unknown }][]): [string, Answer][] {
  return found.map(([name, { values, ...answer }]) => {
    const value = answer.outcome?.ok ? answer.outcome.value : null;
    return [name, { ...answer, values: (values === "all" ? value : values === "one" ? [value] : values) as Json[] }];
  });
}
