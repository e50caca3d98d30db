/**
 * A recipe in the editor: its draft, and the results of its steps.
 *
 * The steps are edited, and the code is generated from them. Code written elsewhere is parsed, and may
 * be more than a recipe. An answer is kept with all that led to it: a step that is changed, or that uses what has
 * changed, has to run again. The user starts that, and no identical call is made twice.
 */

import { SvelteMap, SvelteSet } from "svelte/reactivity";

import { request, toolPath } from "../api/client";
import { Draft, type Start } from "../build/draft.svelte";
import { catalog, type ToolRow } from "../api/catalog.svelte";
import { isIdentifier } from "../call/copy-as";
import { NOTHING } from "../api/failure";
import { t } from "../page/i18n.svelte";
import { invoke, type CallFailure, type Outcome, type Progress } from "../call/invoke";
import { isObject, parseJson, writeJson, type Json, type JsonObject } from "../text/json-text";
import { messageOf, notices } from "../page/notices.svelte";
import { past } from "../call/past.svelte";
import { play } from "../call/play.svelte";
import { ITEM, OWN_NAMES, codeOf, freeName, namesAt, renamedIn, type Recipe, type Step } from "./recipe";
import { digest, keyOf, madeIn, taken, usedBy, written, type Answer, type Made } from "./answers";
import { recipeOf } from "./read";
import { unknownNames } from "./text";
import { RecipeError, callsOf, resolved, type Known } from "./values";
import { withoutSecrets } from "../form/secrets";
import { session } from "../api/session.svelte";
import { line } from "../text/shown";
import { withInherited, type JsonSchema, type Tool } from "../api/tool";
import { objectOf } from "../call/trial.svelte";

interface Running {
  name: string;
  stop: AbortController;
  done: number; // calls
  total: number | null; // of a step for each item of a list
  progress: Progress | null; // of the running call
}

const CODE = "/scriptImpl/code";
const ARGS = "/argSchema";
const MAX_KEPT = 500_000; // characters of answers that survive a reload, in this tab only
const PLACE = "onetool.answers.";

export class RecipeWork {
  readonly draft: Draft;
  readonly answers = new SvelteMap<string, Answer>();
  /** Steps whose answers do not survive a reload. */
  readonly unkept = new SvelteSet<string>();
  running: Running | null = $state.raw(null);
  readonly schema: JsonSchema = $derived.by(() =>
    isObject(this.draft.part(ARGS)) ? (this.draft.part(ARGS) as JsonSchema) : {},
  );
  readonly inputs: string[] = $derived.by(() =>
    isObject(this.schema.properties) ? Object.keys(this.schema.properties) : [],
  );
  readonly code = $derived.by(() => this.draft.text(CODE));
  /** null: the code is something else. */
  readonly recipe: Recipe | null = $derived.by(() => this.#read(this.code, this.inputs));
  /** Sample values of the recipe's arguments. */
  readonly samples: JsonObject = $derived.by(() => objectOf(this.draft.args ?? "{}"));
  /** The recipe that the code was parsed into or generated from, while the code is unchanged. */
  #held: { code: string; recipe: Recipe } | null = null;
  #tools = new Map<string, Promise<Tool>>();
  #isOver = false;
  #isSecret = false;

  constructor(key: string, start: Start) {
    this.draft = new Draft(key, start);
    try {
      const kept = parseJson(sessionStorage.getItem(this.#place) ?? "[]") as unknown as [string, Answer][];
      for (const [name, answer] of kept) this.answers.set(name, answer);
    } catch {
      // The steps have to run again.
    }
  }

  #read(code: string, inputs: readonly string[]): Recipe | null {
    if (this.#held?.code === code) return this.#held.recipe;
    const recipe = recipeOf(code, inputs);
    this.#held = recipe && { code, recipe };
    return recipe;
  }

  // What survives a reload

  get #place(): string {
    return PLACE + this.draft.key;
  }

  /** Results that may depend on a secret are not kept. */
  #keep(): void {
    if (this.#isOver) return;
    this.#isSecret ||= writeJson(withoutSecrets(this.samples, this.schema)) !== writeJson(this.samples);
    const { text, without } = written(this.answers, this.#isSecret ? 0 : MAX_KEPT);
    this.unkept.clear();
    for (const name of without) this.unkept.add(name);
    try {
      sessionStorage.setItem(this.#place, text);
    } catch {
      for (const name of this.answers.keys()) this.unkept.add(name); // storage is closed or full
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

  /** Forget all results, including those of a running step. */
  end(): void {
    this.forgetAnswers();
    this.#isOver = true;
    this.stop();
  }

  // Changing

  setCode(code: string): void {
    this.draft.set(CODE, code);
  }

  #write(recipe: Recipe): void {
    const code = codeOf(recipe, this.inputs);
    if (code.trim() !== "") this.#held = { code, recipe };
    if (code !== this.code) this.setCode(code);
  }

  change(steps: Step[], result?: Json): void {
    const last = steps.at(-1)?.name;
    const before = this.recipe?.result ?? null;
    const isGone = unknownNames(before, new Set([...this.inputs, ...steps.map((one) => one.name)])).length > 0;
    const wasLast = before === null || before === `\${${this.recipe?.steps.at(-1)?.name ?? ""}}`;
    const value = result !== undefined ? result : last !== undefined && (wasLast || isGone) ? `\${${last}}` : before;
    this.#write({ steps, result: value });
  }

  /** Change the arguments, and generate the code again. */
  follow(): void {
    const { recipe, code, inputs } = this;
    if (recipe && writeJson(recipeOf(code, inputs)) !== writeJson(recipe)) this.#write(recipe);
  }

  /** Rename an argument everywhere. */
  rename(from: string, to: string, schema: JsonSchema): void {
    const next = this.recipe && renamedIn(this.recipe, from, to, this.inputs);
    const args = Object.entries(this.samples).map(([name, value]) => [name === from ? to : name, value] as const);
    this.draft.set(ARGS, schema);
    if (args.some(([name]) => name === to)) this.draft.setArgs(writeJson(Object.fromEntries(args)));
    if (next) this.#write(next);
  }

  /** Why an argument can't have this name; empty if it can. */
  refusal(name: string): string {
    const { packs = [], functions = [], aliases = {} } = play.names ?? {};
    const isTaken =
      [...packs, ...functions, ...(this.recipe?.steps ?? [])].some((one) => one.name === name) ||
      Object.hasOwn(aliases, name) ||
      OWN_NAMES.has(name);
    return isTaken || !isIdentifier(name) ? t("recipe.name", { name: line(name) }) : "";
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
    const found = this.#tools.get(path) ?? request<Tool>(path).then(({ data }) => withInherited(data));
    this.#tools.set(path, found);
    found.catch(() => this.#tools.delete(path));
    return found;
  }

  // Running

  /** Whether a step and everything that it uses are unchanged since it ran. */
  isFresh(index: number): boolean {
    const step = this.recipe?.steps[index];
    const answer = this.answers.get(step?.name ?? "");
    if (!step || !answer?.key || answer.key !== this.#key(index)) return false;
    return usedBy(step, this.#names(index)).every(
      (name) =>
        this.inputs.includes(name) || this.isFresh(this.recipe?.steps.findIndex((one) => one.name === name) ?? -1),
    );
  }

  #names(index: number): Set<string> {
    return this.recipe ? namesAt(this.recipe, index, this.inputs) : new Set();
  }

  #key(index: number): string {
    const step = this.recipe?.steps[index];
    return step ? keyOf(step, this.#names(index), this.knownAt(index)) : "";
  }

  /** The values that a step can pick from, including its item. */
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
      const list = resolved(each, this.#names(index), known);
      return Array.isArray(list) && list.length > 0 ? { ...known, [ITEM]: list[0] as Json } : known;
    } catch {
      return known;
    }
  }

  /** Run a step, and earlier ones if needed. The last step, or all, can be forced to run again. */
  async runTo(index: number, anew: "last" | "all" | null = null): Promise<void> {
    let hasRun = false;
    for (let at = 0; at <= index && !this.running; at++) {
      const isFresh = this.isFresh(at);
      if (isFresh && anew !== "all" && !(anew && at === index)) continue;
      hasRun = true;
      if (!(await this.#run(at, isFresh || anew === "all"))) break;
    }
    if (hasRun) this.#note(index);
  }

  /** Add a run with its results to the history, unless they may depend on a secret. */
  #note(index: number): void {
    const steps = (this.recipe?.steps ?? []).slice(0, index + 1).flatMap(({ name }) => {
      const outcome = this.answers.get(name)?.outcome;
      return outcome ? [{ name, outcome }] : [];
    });
    const last = steps.find((one) => !one.outcome.ok) ?? steps.at(-1);
    if (last && !this.#isSecret && !this.#isOver)
      past.add({ of: this.draft.key, name: "", args: this.samples, outcome: last.outcome, steps });
  }

  stop(): void {
    this.running?.stop.abort();
  }

  /** With `isAnew`, repeat earlier calls. */
  async #run(index: number, isAnew: boolean): Promise<boolean> {
    const step = this.recipe?.steps[index];
    if (!step) return false;
    const before = this.answers.get(step.name);
    const [key, stop, start, at] = [
      this.#key(index),
      new AbortController(),
      performance.now(),
      new Date().toISOString(),
    ];
    const answer: Answer = { key: "", outcome: null, calls: [], isEach: step.each !== undefined };
    const made: Made[] = [];
    const kept = isAnew ? [] : madeIn(before);
    this.running = { name: step.name, stop, done: 0, total: null, progress: null };
    try {
      await this.#call(step, index, { made, kept, answer }, stop.signal);
      const value = answer.isEach ? made.map((one) => one.value) : (made[0]?.value ?? null);
      [answer.key, answer.left] = [key, undefined];
      answer.outcome = {
        ok: true,
        value,
        size: new Blob([writeJson(value)]).size,
        durationMs: performance.now() - start,
        at,
      };
    } catch (error) {
      if (!stop.signal.aborted)
        answer.outcome = { ok: false, failure: failureOf(error), durationMs: performance.now() - start, at };
      else if (before?.outcome?.ok) answer.outcome = before.outcome; // stale, but still shown
      made.push(...kept); // calls that were not reached stay valid
      answer.values = made.map((one) => one.value);
    }
    answer.calls = made.map((one) => one.call);
    this.running = null;
    const { outcome } = answer;
    if (outcome || answer.calls.length > 0) this.answers.set(step.name, answer);
    this.#keep();
    notices.announce(answer.key ? t("try.done") : outcome?.ok === false ? outcome.failure.message : t("try.stopped"));
    return answer.key !== "";
  }

  /** Make the calls of a step, and record each result, so that a failure loses nothing. */
  async #call(
    step: Step,
    index: number,
    { made, kept, answer }: { made: Made[]; kept: Made[]; answer: Answer },
    signal: AbortSignal,
  ): Promise<void> {
    const calls = callsOf(step, this.#names(index), this.knownAt(index));
    const tool = await this.tool(step.tool);
    const total = step.each === undefined ? null : calls.length;
    const show = (done: number, progress: Progress | null): void =>
      void (this.running &&= { ...this.running, done, total, progress });
    for (const [at, { args, item }] of calls.entries()) {
      const call = digest([step.tool, args]);
      if (total !== null) answer.left = { at, total, item: item ?? null };
      show(at, null);
      const before = taken(kept, call);
      const outcome: Outcome | undefined = before
        ? undefined
        : await invoke(tool, writeJson(args), { progress: (now) => show(at, now), piece: () => {} }, signal);
      if (outcome && !outcome.ok) throw new StepFailure(outcome.failure);
      made.push({ call, value: before ? before.value : (outcome?.value ?? null) });
    }
  }
}

class StepFailure extends Error {
  constructor(readonly failure: CallFailure) {
    super(failure.message);
  }
}

function failureOf(error: unknown): CallFailure {
  if (error instanceof StepFailure) return error.failure;
  const parts =
    error instanceof RecipeError
      ? Object.fromEntries(Object.entries(error.parts).map(([name, text]) => [name, line(text)]))
      : {};
  const message = error instanceof RecipeError ? t(error.key, parts) : messageOf(error);
  return { ...NOTHING, message };
}

/** The name of a tool in code. */
export function codeName(row: ToolRow): string {
  return (row.name === null ? undefined : spellings().get(row.name)) ?? row.name ?? row.slug;
}

function rowOf(name: string): ToolRow | undefined {
  return catalog.rows.find((row) => row.name !== null && row.isEnabled && codeName(row) === name);
}

let spelled: { of: unknown; names: Map<string, string> } = { of: null, names: new Map() };

/** The names in code by tool name. */
function spellings(): Map<string, string> {
  const names = play.names;
  if (names && spelled.of !== names) {
    const packs = [...names.packs, { name: "", tools: names.functions ?? [] }];
    spelled = {
      of: names,
      names: new Map(
        packs.flatMap((pack) =>
          pack.tools.map((one): [string, string] => [
            one.tool ?? "",
            pack.name ? `${pack.name}.${one.name}` : one.name,
          ]),
        ),
      ),
    };
  }
  return spelled.names;
}

const works = new Map<string, RecipeWork>();

/** Return the work on a recipe, with its answers. */
export function workOf(key: string, start: () => Start): RecipeWork {
  // It outlives the screen, so its derived state needs a root of its own.
  if (!works.has(key)) $effect.root(() => void works.set(key, new RecipeWork(key, start())));
  return works.get(key) as RecipeWork;
}

/** Move the answers of a saved recipe to its tool. */
export function saved(work: RecipeWork, key: string): void {
  works.delete(work.draft.key);
  work.moveAnswers(PLACE + key);
}

session.onLeave(() => {
  for (const work of works.values()) work.end();
  works.clear();
  try {
    for (const place of Object.keys(sessionStorage)) if (place.startsWith(PLACE)) sessionStorage.removeItem(place);
  } catch {
    // Storage is unavailable: nothing was stored.
  }
});
