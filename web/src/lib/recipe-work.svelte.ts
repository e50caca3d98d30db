/**
 * A recipe that is being built: its draft, whose code is the recipe, and what its steps gave.
 *
 * An answer is kept with all that led to it. A step that is changed, and those after it, have to run again; that is
 * done when somebody asks for it, and no step whose answer is still good is called a second time.
 */

import { SvelteMap } from "svelte/reactivity";

import { request, toolPath } from "./api";
import { Draft, type Start } from "./build-draft.svelte";
import { catalog, type ToolRow } from "./catalog.svelte";
import { t } from "./i18n.svelte";
import { invoke, type CallFailure, type Outcome } from "./invoke";
import { isObject, parseJson, writeJson, type Json, type JsonObject } from "./json-text";
import { messageOf, notices } from "./notices.svelte";
import { play } from "./play.svelte";
import { ITEM, codeOf, freeName, namesAt, type Recipe, type Step } from "./recipe";
import { recipeOf } from "./recipe-read";
import { strangers } from "./recipe-text";
import { holds, resolved, type Known } from "./recipe-values";
import type { JsonSchema, Tool } from "./tool";
import { objectOf } from "./trial.svelte";

interface Answer {
  key: string;
  outcome: Outcome;
}

const CODE = "/scriptImpl/code";
const LARGEST_KEPT = 500_000; // characters of answers that survive a reload; they end with the tab

export class RecipeWork {
  readonly draft: Draft;
  readonly answers = new SvelteMap<string, Answer>();
  /** The step that runs, and how far a step for each item of a list is. */
  running: { name: string; stop: AbortController; done: number; total: number | null } | null = $state.raw(null);
  readonly schema: JsonSchema = $derived.by(() => (isObject(this.draft.part("/argSchema")) ? (this.draft.part("/argSchema") as JsonSchema) : {}));
  readonly inputs: string[] = $derived.by(() => (isObject(this.schema.properties) ? Object.keys(this.schema.properties) : []));
  readonly code = $derived.by(() => this.draft.text(CODE));
  /** null: the code is something else. */
  readonly recipe: Recipe | null = $derived.by(() => recipeOf(this.code, this.inputs));
  /** Values of the recipe's arguments to build it with. */
  readonly samples: JsonObject = $derived.by(() => objectOf(this.draft.args ?? "{}"));
  #tools = new Map<string, Promise<Tool>>();

  constructor(key: string, start: Start) {
    this.draft = new Draft(key, start);
    try {
      const kept = parseJson(sessionStorage.getItem(this.#place) ?? "[]") as unknown as [string, Answer][];
      for (const [name, answer] of kept) this.answers.set(name, answer);
    } catch {
      // Then steps are called again.
    }
  }

  get #place(): string {
    return `onetool.answers.${this.draft.key}`;
  }

  #keep(): void {
    try {
      const text = writeJson([...this.answers]);
      if (text.length <= LARGEST_KEPT) sessionStorage.setItem(this.#place, text);
      else sessionStorage.removeItem(this.#place);
    } catch {
      // Storage is closed or full.
    }
  }

  moveAnswers(place: string): void {
    try {
      const text = sessionStorage.getItem(this.#place);
      if (text !== null) sessionStorage.setItem(place, text);
    } catch {
      // Storage is closed or full.
    }
    this.forgetAnswers();
  }

  forgetAnswers(): void {
    this.answers.clear();
    this.#keep();
  }

  setCode(code: string): void {
    this.draft.set(CODE, code);
  }

  change(steps: Step[], result?: Json): void {
    const last = steps.at(-1)?.name;
    const before = this.recipe?.result ?? null;
    const isGone = strangers(before, new Set([...this.inputs, ...steps.map((one) => one.name)])).length > 0;
    const wasLast = before === null || before === `\${${this.recipe?.steps.at(-1)?.name ?? ""}}`;
    const value = result !== undefined ? result : last !== undefined && (wasLast || isGone) ? `\${${last}}` : before;
    this.setCode(codeOf({ steps, result: value }, this.inputs));
  }

  add(row: ToolRow): string {
    const recipe = this.recipe ?? { steps: [], result: null };
    const name = freeName(recipe, this.inputs);
    this.change([...recipe.steps, { name, tool: codeName(row), args: {}, each: undefined, when: null }]);
    return name;
  }

  put(index: number, changed: Partial<Step>): void {
    this.change((this.recipe?.steps ?? []).map((one, at) => (at === index ? { ...one, ...changed } : one)));
  }

  move(index: number, by: number): void {
    const steps = [...(this.recipe?.steps ?? [])];
    steps.splice(index + by, 0, ...steps.splice(index, 1));
    this.change(steps);
  }

  remove(index: number): void {
    const [before, name] = [this.code, this.recipe?.steps[index]?.name ?? ""];
    this.change((this.recipe?.steps ?? []).filter((_, at) => at !== index));
    notices.done(t("recipe.removed", { name }), () => this.setCode(before));
  }

  /** A tool with its schema, read once. */
  tool(name: string): Promise<Tool> {
    const row = rowOf(name);
    if (!row) return Promise.reject(new Error(t("recipe.no.tool", { name })));
    const path = toolPath(row);
    const found = this.#tools.get(path) ?? request<Tool>(path).then(({ data }) => data);
    this.#tools.set(path, found);
    found.catch(() => this.#tools.delete(path));
    return found;
  }

  // Running

  isFresh(index: number): boolean {
    const name = this.recipe?.steps[index]?.name ?? "";
    const answer = this.answers.get(name);
    return answer !== undefined && answer.key === this.#key(index);
  }

  /** What can be picked from: the values of what is known before a step, its item included. */
  knownAt(index: number): Known {
    const recipe = this.recipe;
    if (!recipe) return {};
    const known: Record<string, Json> = { ...this.samples };
    for (const one of recipe.steps.slice(0, index)) {
      const outcome = this.answers.get(one.name)?.outcome;
      if (outcome?.ok) known[one.name] = outcome.value;
    }
    const each = recipe.steps[index]?.each;
    if (each === undefined) return known;
    try {
      const list = resolved(each, namesAt(recipe, index, this.inputs), known);
      return Array.isArray(list) && list.length > 0 ? { ...known, [ITEM]: list[0] as Json } : known;
    } catch {
      return known;
    }
  }

  /** Run a step, and those before it that have to. With `isAgain` it is called although its answer is good. */
  async runTo(index: number, isAgain = false): Promise<void> {
    for (let at = 0; at <= index && !this.running; at++) {
      if (this.isFresh(at) && !(isAgain && at === index)) continue;
      if (!(await this.#run(at))) return;
    }
  }

  stop(): void {
    this.running?.stop.abort();
  }

  #key(index: number): string {
    return writeJson([this.recipe?.steps.slice(0, index + 1), this.samples]);
  }

  async #run(index: number): Promise<boolean> {
    const step = this.recipe?.steps[index];
    if (!step) return false;
    const [key, stop, start, at] = [this.#key(index), new AbortController(), performance.now(), new Date().toISOString()];
    this.running = { name: step.name, stop, done: 0, total: null };
    let outcome: Outcome | null = null;
    try {
      const value = await this.#value(step, index, stop.signal);
      outcome = { ok: true, value, size: new Blob([writeJson(value)]).size, durationMs: performance.now() - start, at };
    } catch (error) {
      const failure = error instanceof StepFailure ? error.failure : { code: "", message: messageOf(error), reason: null, hints: [], faults: [], retryAfter: null };
      if (!stop.signal.aborted) outcome = { ok: false, failure, durationMs: performance.now() - start, at };
    }
    this.running = null;
    if (outcome) this.answers.set(step.name, { key: outcome.ok ? key : "", outcome });
    this.#keep();
    notices.announce(outcome === null ? t("try.stopped") : outcome.ok ? t("try.done") : outcome.failure.message);
    return outcome?.ok ?? false;
  }

  async #value(step: Step, index: number, signal: AbortSignal): Promise<Json> {
    const [names, known] = [namesAt(this.recipe as Recipe, index, this.inputs), this.knownAt(index)];
    const tool = await this.tool(step.tool);
    const once = async (now: Known): Promise<Json> => {
      const args = writeJson(resolved(step.args, names, now));
      const outcome = await invoke(tool, args, { progress: () => {}, piece: () => {} }, signal);
      if (!outcome.ok) throw new StepFailure(outcome.failure);
      return outcome.value;
    };
    if (step.each === undefined) return step.when && !holds(step.when, names, known) ? null : once(known);
    const list = resolved(step.each, names, known);
    if (!Array.isArray(list)) throw new Error(t("recipe.no.list"));
    const values: Json[] = [];
    for (const [at, item] of list.entries()) {
      const now = { ...known, [ITEM]: item };
      if (this.running) this.running = { ...this.running, done: at, total: list.length };
      if (!step.when || holds(step.when, names, now)) values.push(await once(now));
    }
    return values;
  }
}

class StepFailure extends Error {
  constructor(readonly failure: CallFailure) {
    super(failure.message);
  }
}

/** How code calls a tool. */
export function codeName(row: ToolRow): string {
  return (row.name === null ? undefined : spellings().get(row.name)) ?? row.name ?? row.slug;
}

function rowOf(name: string): ToolRow | undefined {
  return catalog.rows.find((row) => row.name !== null && row.isEnabled && codeName(row) === name);
}

let spelled: { of: unknown; names: Map<string, string> } = { of: null, names: new Map() };

/** The names of tools in code, by what they are called. */
function spellings(): Map<string, string> {
  const names = play.names;
  if (names && spelled.of !== names) {
    const packs = [...names.packs, { name: "", tools: names.functions ?? [] }];
    spelled = { of: names, names: new Map(packs.flatMap((pack) => pack.tools.map((one): [string, string] => [one.tool ?? "", pack.name ? `${pack.name}.${one.name}` : one.name]))) };
  }
  return spelled.names;
}

const works = new Map<string, RecipeWork>();

/** The work on a recipe, with its answers, as it was left. */
export function workOf(key: string, start: () => Start): RecipeWork {
  const found = works.get(key) ?? new RecipeWork(key, start());
  works.set(key, found);
  return found;
}

/** It was saved: its answers go with it to the tool that it has become. */
export function saved(work: RecipeWork, key: string): void {
  works.delete(work.draft.key);
  work.moveAnswers(`onetool.answers.${key}`);
}
