/** The playground: its code, problems and last run. It outlives the screen; the code is also stored. */

import { ApiError, request, get } from "../api/client";
import { newTool } from "../build/build";
import { Draft } from "../build/draft.svelte";
import { catalog } from "../api/catalog.svelte";
import type { CodeNames } from "../editor/code-names";
import type { CodeProblem } from "../editor/editor";
import { t } from "../page/i18n.svelte";
import type { Progress } from "./invoke";
import type { JsonObject } from "../text/json-text";
import { notices } from "../page/notices.svelte";
import { route } from "../page/route.svelte";
import { past } from "./past.svelte";
import { problemOf, runCode, type Ran, type RunCall } from "./run";
import { session } from "../api/session.svelte";
import { line } from "../text/shown";
import { Soon } from "../page/soon";
import { store, stored } from "../page/storage";

export const PLAY = "play"; // the source of its runs in the history
const CHECK_AFTER_MS = 300;
const DRAW_EVERY_MS = 40;
const MAX_PRINT = 200_000; // characters of the output that are kept

class Play {
  code = $state(stored("play", ""));
  /** Found by the check while the user types. */
  problems: readonly CodeProblem[] = $state.raw([]);
  names: CodeNames | null = $state.raw(null);
  running: { stop: AbortController; since: number } | null = $state.raw(null);
  calls: readonly RunCall[] = $state.raw([]);
  printed = $state("");
  /** Whether the beginning of the output was dropped. */
  isPrintCut = $state(false);
  progress: Progress | null = $state.raw(null);
  isStopped = $state(false);
  #prints: string[] = []; // not shown yet
  readonly #draws = new Soon(() => this.#draw(), DRAW_EVERY_MS);
  ran: (Ran & { code: string }) | null = $state.raw(null);
  /** The stream ended before the run did. */
  isBroken = $state(false);

  /** The underlined problems: the failure of the last run, while its code is unchanged, and those of the check. */
  get marked(): readonly CodeProblem[] {
    const place = this.ran?.code === this.code ? this.ran.place : null;
    return place && !this.problems.some((one) => one.line === place.line) ? [...this.problems, place] : this.problems;
  }

  type(code: string): void {
    this.code = code;
    store("play", code);
  }

  async load(): Promise<void> {
    try {
      this.names = await get<CodeNames>("run/names");
    } catch {
      // Without names, there is no completion.
    }
  }

  /** Check the code a moment after the last change. Return a function that cancels. */
  check(): () => void {
    const [code, stop] = [this.code, new AbortController()];
    if (code.trim() === "") this.problems = [];
    const timer = setTimeout(async () => {
      if (code.trim() === "") return;
      try {
        const { data } = await request<{ errors: JsonObject[] }>("run/check", { json: { code }, signal: stop.signal });
        if (!stop.signal.aborted) this.problems = data.errors.map((one) => problemOf(one));
      } catch {
        if (!stop.signal.aborted) this.problems = []; // the run says what is wrong
      }
    }, CHECK_AFTER_MS);
    return () => {
      clearTimeout(timer);
      stop.abort();
    };
  }

  async run(): Promise<void> {
    if (this.running || this.code.trim() === "") return;
    const [code, stop] = [this.code, new AbortController()];
    this.running = { stop, since: performance.now() };
    this.#clear();
    try {
      const told = {
        calls: (calls: RunCall[]) => (this.calls = calls),
        print: (text: string) => this.#print(text),
        progress: (progress: Progress) => (this.progress = progress),
      };
      const ran = await runCode(code, {}, told, stop.signal);
      const { outcome } = ran;
      this.ran = { ...ran, code };
      past.add({ of: PLAY, name: "", args: code, outcome });
      notices.announce(outcome.ok ? t("try.done") : line(outcome.failure.message));
    } catch (error) {
      if (this.running?.stop !== stop) return; // another user has signed in
      if (stop.signal.aborted) {
        this.isStopped = true;
        notices.announce(t("try.stopped"));
      } else if (error instanceof ApiError && error.code !== "unreachable") notices.error(error);
      else this.isBroken = true;
    }
    this.calls = this.calls.map((one) =>
      one.isOk === null ? { ...one, isOk: false, preview: t("play.unknown") } : one,
    );
    this.#draw();
    [this.running, this.progress] = [null, null];
  }

  /** Output arrives faster than it can be drawn: draw it in batches. */
  #print(text: string): void {
    this.#prints.push(text);
    this.#draws.want();
  }

  #draw(): void {
    this.#draws.stop();
    const all = this.printed + this.#prints.join("");
    this.#prints = [];
    this.isPrintCut ||= all.length > MAX_PRINT;
    this.printed = all.slice(-MAX_PRINT);
  }

  #clear(): void {
    this.#prints = [];
    [this.calls, this.printed, this.isPrintCut] = [[], "", false];
    [this.ran, this.progress, this.isBroken, this.isStopped] = [null, null, false, false];
  }

  /** Forget this user's run. If the session only expired, keep the code. */
  forget(isOwnWish: boolean): void {
    this.stop();
    this.running = null;
    this.#clear();
    [this.problems, this.names] = [[], null];
    if (isOwnWish) this.type("");
  }

  stop(): void {
    this.running?.stop.abort();
  }

  /** Open the code as a new tool in the first bundle. Without a bundle, the form creates one. */
  async saveAsTool(): Promise<void> {
    if (catalog.state !== "ready") await catalog.load(); // else no bundle is known yet
    const home = catalog.bundles.find((one) => !one.isBuiltIn && one.isEnabled)?.id ?? "";
    const draft = new Draft(`new/script/${home}`, {
      content: newTool("script"),
      place: { bundleID: home, slug: "", version: "1" },
      etag: null,
      isNew: true,
    });
    const bringBack = draft.isFound ? draft.discard() : null; // another unfinished tool is there
    draft.set("/scriptImpl/code", this.code);
    draft.keep();
    const undo = (): void => {
      bringBack?.();
      route.go("play"); // where the code still is
    };
    if (bringBack) notices.done(t("play.replaced"), undo);
    route.go("build", { new: "script", bundle: home || undefined });
  }
}

export const play = new Play();
session.onLeave((isOwnWish) => play.forget(isOwnWish));
