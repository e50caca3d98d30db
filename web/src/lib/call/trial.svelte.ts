/**
 * A tool on Try it: its arguments as a form and as JSON, the running call, and the result.
 *
 * It outlives the component, so that another tool or tab changes nothing. Arguments also survive a
 * reload, without what the schema marks as secret.
 */

import { SvelteSet } from "svelte/reactivity";

import { request, toolPath } from "../api/client";
import { keyOf, nameOf } from "../api/catalog.svelte";
import type { Need } from "../api/failure";
import { initial, valueAt } from "../form/model";
import { t } from "../page/i18n.svelte";
import { invoke, type Fault, type Outcome, type Progress } from "./invoke";
import { JsonTextError, isObject, objectIn, parseJson, writeJson, type JsonObject } from "../text/json-text";
import { notices } from "../page/notices.svelte";
import { past } from "./past.svelte";
import { line } from "../text/shown";
import { session } from "../api/session.svelte";
import { store, stored } from "../page/storage";
import { withoutSecrets } from "../form/secrets";
import type { Tool } from "../api/tool";

const MAX_TRIALS = 20;
const MAX_DRAFTS = 30;
const MAX_DRAFT = 16_000; // characters
const MAX_STREAM = 50_000;

interface Running {
  stop: AbortController;
  since: number;
}

export class Trial {
  args: JsonObject = $state.raw({});
  text = $state("{}");
  textError: { line?: number; message: string } | null = $state.raw(null);
  faults: Fault[] = $state.raw([]);
  /** Hosts to allow and secrets to set before the tool can be called. */
  needs: readonly Need[] = $state.raw([]);
  /** Whether a call was tried: from then on, missing arguments are marked, too. */
  isTried = $state(false);
  running: Running | null = $state.raw(null);
  progress: Progress | null = $state.raw(null);
  streamed = $state("");
  isStopped = $state(false);
  outcome: Outcome | null = $state.raw(null);
  /** The arguments of the last call, until they are changed. */
  sent: JsonObject | null = $state.raw(null);
  /** Increases when the arguments are replaced, so that fields drop typed text. */
  filled = $state(0);
  /** The fields whose text is not valid JSON. */
  readonly broken = new SvelteSet<string>();
  readonly #key: string;
  #checked = "";
  /** The arguments that `faults` refers to. */
  #judged: JsonObject = $state.raw({});

  constructor(tool: Tool) {
    this.#key = keyOf(tool);
    const draft = stored<Record<string, string>>("try.drafts", {})[this.#key];
    const first = initial(tool.argSchema, tool.argSchema ?? {});
    this.#show(draft === undefined ? (isObject(first) ? first : {}) : objectOf(draft));
  }

  /** From the form. */
  change(args: JsonObject, tool: Tool): void {
    this.sent = null;
    this.#show(args);
    this.#keep(tool);
  }

  /** From an example or a recent call. */
  fill(args: JsonObject, tool: Tool): void {
    this.show(args);
    this.#keep(tool);
  }

  /** Show arguments from the URL, which anybody may have made: the stored draft stays until the user types. */
  show(args: JsonObject): void {
    this.filled += 1;
    this.isTried = false;
    this.sent = null;
    this.#show(args);
  }

  /** From the JSON tab. A text that is not an object leaves the form unchanged. */
  type(text: string, tool: Tool): void {
    this.text = text;
    this.sent = null;
    try {
      const found = parseJson(text.trim() === "" ? "{}" : text);
      this.textError = isObject(found) ? null : { message: t("try.json.object") };
      if (isObject(found)) {
        this.args = found;
        this.#keep(tool);
      }
    } catch (error) {
      this.textError = textErrorOf(error);
    }
  }

  /** Have the server check the arguments. Without an answer, the form has no marks. */
  async check(tool: Tool, signal: AbortSignal): Promise<void> {
    const [args, judged] = [writeJson(this.args), this.args];
    if (args === this.#checked) return;
    try {
      const sent = { body: `{"args": ${args}}`, method: "POST", signal };
      const { data } = await request<{ errors?: Fault[]; needs?: Need[] }>(`${toolPath(tool)}/validate`, sent);
      if (signal.aborted) return;
      this.faults = (data.errors ?? []).map((one) => ({ ...one, pointer: one.pointer.replace(/^\/args(?=\/|$)/, "") }));
      [this.#checked, this.#judged, this.needs] = [args, judged, data.needs ?? []];
    } catch {
      // The call itself says what is wrong.
    }
  }

  /** Ask again: something was allowed or set. */
  async checkAgain(tool: Tool): Promise<void> {
    this.#checked = "";
    await this.check(tool, new AbortController().signal);
  }

  /** The faults to show: missing arguments only after a first try. */
  get shownFaults(): Fault[] {
    return this.faults.filter(({ pointer }) => {
      if (pointer === "") return this.isTried;
      const [was, is] = [valueAt(this.#judged, pointer), valueAt(this.args, pointer)];
      return was === undefined ? this.isTried && is === undefined : is !== undefined;
    });
  }

  async run(tool: Tool): Promise<void> {
    if (this.running) return;
    if (this.textError || this.broken.size > 0) {
      notices.announce(this.textError?.message ?? t("try.broken"));
      return;
    }
    const [args, stop] = [writeJson(this.args), new AbortController()];
    this.running = { stop, since: performance.now() };
    [this.progress, this.streamed, this.isStopped] = [null, "", false];
    try {
      const told = { progress: (now: Progress) => (this.progress = now), piece: (text: string) => this.#hear(text) };
      this.#take(await invoke(tool, args, told, stop.signal), args, tool);
    } catch (error) {
      this.isStopped = stop.signal.aborted;
      if (this.isStopped) notices.announce(t("try.stopped"));
      else notices.error(error);
    } finally {
      this.running = null;
      this.progress = null;
    }
  }

  stop(): void {
    this.running?.stop.abort();
  }

  #take(outcome: Outcome, args: string, tool: Tool): void {
    this.outcome = outcome;
    this.sent = objectOf(args);
    this.isTried = true;
    this.faults = outcome.ok ? [] : outcome.failure.faults;
    [this.#checked, this.#judged] = [args, objectOf(args)];
    past.add({ of: this.#key, name: nameOf(tool), args: this.sent, outcome }, tool.argSchema ?? {});
    notices.announce(outcome.ok ? t("try.done") : line(outcome.failure.message));
  }

  #hear(text: string): void {
    this.streamed = (this.streamed + text).slice(-MAX_STREAM);
  }

  #show(args: JsonObject): void {
    this.args = args;
    this.text = writeJson(args, 2);
    this.textError = null;
  }

  #keep(tool: Tool): void {
    const { [this.#key]: _, ...others } = stored<Record<string, string>>("try.drafts", {});
    const text = writeJson(withoutSecrets(this.args, tool.argSchema));
    const kept = Object.entries(others).slice(1 - MAX_DRAFTS);
    store("try.drafts", Object.fromEntries(text.length > MAX_DRAFT ? kept : [...kept, [this.#key, text]]));
  }
}

/** The arguments in a text; null if it has none. */
export function argumentsIn(text: string): JsonObject | null {
  try {
    const found = parseJson(text);
    return isObject(found) ? found : null;
  } catch {
    return null;
  }
}

export const objectOf = objectIn;

export function textErrorOf(error: unknown): { line?: number; message: string } {
  if (!(error instanceof JsonTextError)) return { message: String(error) };
  const place = { line: error.line, column: error.column };
  const message = error.sign
    ? t("try.json.sign", { ...place, sign: line(error.sign) || "␠" })
    : t("try.json.end", place);
  return { line: error.line, message };
}

const trials = new Map<string, Trial>();
session.onLeave(() => {
  for (const trial of trials.values()) trial.stop();
  trials.clear();
  store("try.drafts", null);
});

export function trialOf(tool: Tool): Trial {
  const key = keyOf(tool);
  const found = trials.get(key) ?? new Trial(tool);
  trials.delete(key);
  trials.set(key, found); // the newest is the last
  for (const old of [...trials.keys()].slice(0, -MAX_TRIALS)) {
    trials.get(old)?.stop();
    trials.delete(old);
  }
  return found;
}
