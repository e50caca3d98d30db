/**
 * One conversation: its items, and the question that is being answered.
 *
 * It outlives the screen: the answer is there when the user comes back.
 */

import { ApiError, get, refusal, request, send } from "../api/client";
import {
  approvalOf,
  callOf,
  endOf,
  itemsOf,
  keptCalls,
  outcomeOf,
  type Attached,
  type CallItem,
  type Item,
} from "./items";
import { texts } from "../api/events";
import { failureOf } from "../api/failure";
import { t } from "../page/i18n.svelte";
import { isObject, parseJson, writeJson, type JsonObject } from "../text/json-text";
import { messageOf, notices } from "../page/notices.svelte";
import { exactName, line } from "../text/shown";
import { start } from "../page/start.svelte";
import { working } from "./working.svelte";

const DRAW_EVERY_MS = 40;
const STOP_WITHIN_MS = 3000;

export interface ModelChoice {
  provider: string;
  model: string;
}

export class Conversation {
  id: string | null = $state(null);
  items: Item[] = $state.raw([]);
  /** Whether a question is being answered, or the user's own call runs. */
  running: AbortController | null = $state.raw(null);
  state: "ready" | "loading" | "failed" = $state("ready");
  error: unknown = $state.raw(null);
  draft = $state("");
  files: Attached[] = $state.raw([]);
  #last: { text: string; files: Attached[] } | null = null;
  #pending: { kind: "text" | "thinking"; text: string } | null = null;
  #timer: ReturnType<typeof setTimeout> | undefined;
  #step = 0;
  #isRead = false;
  #stream: Promise<void> = Promise.resolve();
  #question = ""; // the id of the one that is being answered

  constructor(
    id: string | null,
    readonly changed: (one: Conversation) => void,
  ) {
    this.id = id;
  }

  /** Resolves when no answer is being written: until then, the server accepts no other change. */
  get free(): Promise<void> {
    return this.#stream;
  }

  /** Whether a call waits for an approval. */
  get waits(): boolean {
    return (
      this.running !== null &&
      this.items.some((one) => one.kind === "call" && one.approval?.decided === null && one.outcome === null)
    );
  }

  /** Whether all of it can be loaded again. */
  get isKeptElsewhere(): boolean {
    return this.id !== null && this.running === null && this.draft === "" && this.files.length === 0;
  }

  /** Load the earlier items, once. */
  async open(): Promise<void> {
    if (this.#isRead || this.id === null) return;
    [this.state, this.#isRead] = ["loading", true];
    try {
      const found = await get<JsonObject>(`ask/sessions/${encodeURIComponent(this.id)}`);
      [this.items, this.state] = [itemsOf(found), "ready"];
      const asked = this.items.findLast((one) => one.kind === "user");
      if (asked?.files.length === 0) this.#last = { text: asked.text, files: [] }; // of files only the names are kept
    } catch (error) {
      [this.error, this.state, this.#isRead] = [error, "failed", false];
    }
  }

  /** Whether the last question can be asked again: it has no answer. */
  get mayAskAgain(): boolean {
    return this.running === null && this.#last !== null && this.items.at(-1)?.kind === "failed";
  }

  async ask(choice: ModelChoice, withTools: boolean): Promise<void> {
    const asked = { text: this.draft.trim(), files: this.files };
    if (this.running || asked.text === "") return;
    [this.draft, this.files, this.#last] = ["", [], asked];
    start.mark("ask");
    await this.#answer(choice, withTools);
  }

  async askAgain(choice: ModelChoice, withTools: boolean): Promise<void> {
    if (this.mayAskAgain) await this.#answer(choice, withTools);
  }

  /** Tell the server to stop, so that the conversation is free when the stream ends. Don't wait for one that doesn't answer. */
  stop(): void {
    const running = this.running;
    if (this.#question === "") return running?.abort();
    setTimeout(() => running?.abort(), STOP_WITHIN_MS);
    request(`ask/${encodeURIComponent(this.#question)}`, { method: "DELETE" }).catch(() => running?.abort());
    this.#question = "";
  }

  /** Approve or deny a call. It is shown as decided at once, and as open again if the request fails. */
  async decide(item: CallItem, approve: boolean): Promise<void> {
    const { approval } = item;
    if (!approval) return;
    const set = (decided: "yes" | "no" | null): void =>
      this.#change(item.call, (one) => ({ ...one, approval: { ...approval, decided } }));
    set(approve ? "yes" : "no");
    try {
      const path = `ask/${encodeURIComponent(approval.question)}/approvals/${encodeURIComponent(approval.call)}`;
      await request(path, { json: { approve } });
    } catch (error) {
      notices.error(error);
      const isOver = error instanceof ApiError && (error.status === 404 || error.status === 409);
      set(isOver ? "no" : null); // over: the server no longer waits
    }
  }

  /** Call a tool as the user. The model reads the result with the next question. */
  async call(name: string, args: JsonObject): Promise<void> {
    if (this.running) return;
    const [stop, since] = [new AbortController(), performance.now()];
    this.#begin(stop);
    const item = callOf({ id: `own-${this.items.length}`, name, args }, true);
    this.#put(item);
    await this.#stream;
    try {
      const path = this.id === null ? "ask/calls" : `ask/sessions/${encodeURIComponent(this.id)}/calls`;
      const response = await send(path, {
        body: `{"name":${JSON.stringify(name)},"args":${writeJson(args)}}`,
        signal: stop.signal,
      });
      const text = await response.text();
      if (!response.ok) throw refusal(response.status, text);
      const body = parseJson(text) as JsonObject;
      this.#take(body.sessionId);
      this.#change(item.call, (one) => ({
        ...one,
        outcome: outcomeOf({ ...body, durationMs: performance.now() - since }),
      }));
      notices.announce(t("try.done"));
    } catch (error) {
      const outcome = outcomeOf({
        ok: false,
        error: {
          code: error instanceof ApiError ? error.code : "",
          message: stop.signal.aborted ? t("try.stopped") : messageOf(error),
        },
      });
      this.#change(item.call, (one) => ({ ...one, outcome }));
    } finally {
      this.#end();
      this.changed(this);
    }
  }

  #begin(stop: AbortController): void {
    this.running = stop;
    working.begin(this);
  }

  #end(): void {
    this.running = null;
    working.end(this);
  }

  #answer(choice: ModelChoice, withTools: boolean): Promise<void> {
    this.#stream = this.#run(choice, withTools, this.#stream);
    return this.#stream;
  }

  /** `before` is the stream of the last answer. The conversation is busy until it ends. */
  async #run(choice: ModelChoice, withTools: boolean, before: Promise<void>): Promise<void> {
    const [stop, since] = [new AbortController(), performance.now()];
    this.#begin(stop);
    const at = this.items.length;
    if (this.#last) this.#put({ kind: "user", ...this.#last }); // also if it is asked again: that is another turn
    await before;
    try {
      if (!(await this.#listen(choice, withTools, stop.signal, since))) this.#fail(t("chat.broken"));
    } catch (error) {
      if (stop.signal.aborted) this.#fail(t("chat.stopped"), [], true);
      else if (error instanceof ApiError) this.#refused(error, at);
      else this.#fail(t("chat.broken"));
    } finally {
      this.#draw();
      this.#question = "";
      if (this.running === stop) this.#end(); // else the next question waits for this end
      await this.#endCalls();
      this.changed(this);
    }
  }

  /** Read the answer. Return whether it is complete. */
  async #listen(choice: ModelChoice, withTools: boolean, signal: AbortSignal, since: number): Promise<boolean> {
    const { text, files } = this.#last ?? { text: "", files: [] };
    const json = {
      prompt: text,
      approve: "ask",
      withTools,
      session: this.id ?? undefined,
      provider: choice.provider || undefined,
      model: choice.model || undefined,
      files: files.length > 0 ? files : undefined,
    };
    const response = await send("ask", { json, signal, accept: "text/event-stream" });
    const isStream = response.headers.get("content-type")?.startsWith("text/event-stream") ?? false;
    if (!isStream || !response.body) throw refusal(response.status, await response.text());
    this.#step = 0;
    let isComplete = false;
    try {
      // Read to the end, even after the answer: only then is the conversation free for the next question.
      for await (const [name, data] of texts(response.body))
        isComplete = this.#hear(name, parseJson(data) as JsonObject, since) || isComplete;
    } catch (error) {
      if (!isComplete) throw error;
    }
    return isComplete;
  }

  /** One event. Whether it was the last. */
  #hear(name: string, found: JsonObject, since: number): boolean {
    if (name === "text" || name === "thinking") this.#say(name, String(found.text ?? ""), Number(found.step));
    else this.#draw();
    if (name === "started") {
      this.#question = String(found.question ?? "");
      this.#take(found.sessionId);
    } else if (name === "call") this.#put(callOf(found.call));
    else if (name === "result") this.#ended(found);
    else if (name === "approval") this.#asked(found);
    else if (name === "notice") this.#put({ kind: "notice", text: String(found.text ?? "") });
    else if (name === "answer") {
      this.#finish(found.answer as JsonObject, since);
      return true;
    } else if (name === "error") {
      if (found.reason === "interrupted") this.#fail(t("chat.stopped"), {}, true);
      else this.#fail(String(found.message ?? ""), found);
      return true;
    }
    return false;
  }

  /** Pieces arrive faster than they can be drawn: draw them in batches. */
  #say(kind: "text" | "thinking", text: string, step: number): void {
    if (this.#pending && this.#pending.kind !== kind) this.#draw();
    const last = this.items.at(-1);
    if (step !== this.#step && last?.kind === kind) this.#draw();
    this.#step = step;
    this.#pending = { kind, text: (this.#pending?.text ?? "") + text };
    this.#timer ??= setTimeout(() => this.#draw(), DRAW_EVERY_MS);
  }

  #draw(): void {
    clearTimeout(this.#timer);
    this.#timer = undefined;
    const pending = this.#pending;
    this.#pending = null;
    if (!pending) return;
    const last = this.items.at(-1);
    if (last?.kind === pending.kind)
      this.items = [...this.items.slice(0, -1), { kind: pending.kind, text: last.text + pending.text }];
    else this.#put(pending);
  }

  #ended(found: JsonObject): void {
    const { call: id } = callOf(found.call);
    if (!this.items.some((one) => one.kind === "call" && one.call === id)) this.#put(callOf(found.call));
    this.#change(id, (one) => ({ ...one, outcome: outcomeOf(found.result), isCached: found.isCached === true }));
  }

  /** A call that waits for approval: a known one, or one made by code. Show the arguments of this event. */
  #asked(found: JsonObject): void {
    const approval = approvalOf(found);
    const told = callOf({ id: approval.call, name: found.name ?? "", args: found.args ?? {} });
    if (!this.items.some((one) => one.kind === "call" && one.call === approval.call)) this.#put(told);
    this.#change(approval.call, (one) => ({ ...one, name: told.name, args: told.args, approval }));
    notices.announce(t("chat.approve.wanted", { name: exactName(told.name) }));
  }

  #finish(answer: JsonObject, since: number): void {
    const said = typeof answer.answer === "string" ? answer.answer : "";
    if (said && !this.items.slice(this.#lastQuestion()).some((one) => one.kind === "text"))
      this.#put({ kind: "text", text: said });
    this.#put(endOf(answer, performance.now() - since));
    this.#last = null;
    this.#end();
    notices.announce(t("chat.answered"));
  }

  #lastQuestion(): number {
    return Math.max(
      0,
      this.items.findLastIndex((one) => one.kind === "user"),
    );
  }

  /** `error` has the hints, and what is missing. */
  #fail(text: string, error: unknown = {}, isCalm = false): void {
    const { hints, needs } = failureOf(isObject(error) ? error : {}, text);
    this.#draw();
    this.#put({ kind: "failed", text, hints, needs, isCalm });
    notices.announce(line(text));
  }

  /** Put a refused question back into the composer, to be corrected. */
  #refused(error: ApiError, at: number): void {
    if (error.status >= 400 && error.status < 500 && this.#last) {
      this.items = this.items.toSpliced(at, 1);
      if (this.draft === "") this.draft = this.#last.text;
      if (this.files.length === 0) this.files = this.#last.files;
      this.#last = null;
    }
    this.#fail(messageOf(error), error.body);
  }

  /** Mark calls that still ran when the stream ended: their outcome is unknown. */
  async #endCalls(): Promise<void> {
    const open = this.items.filter((one) => one.kind === "call" && one.outcome === null);
    if (open.length === 0) return;
    const path = `ask/sessions/${encodeURIComponent(this.id ?? "last")}`;
    const kept = keptCalls(
      (await get<JsonObject | null>(path, { signal: AbortSignal.timeout(STOP_WITHIN_MS) }).catch(() => null)) ?? {},
    );
    for (const { call } of open.filter((one) => one.kind === "call")) {
      const found = kept.get(call);
      if (found) this.#change(call, (one) => ({ ...one, outcome: found.outcome, isNotRun: found.isNotRun }));
    }
    const outcome = outcomeOf({ ok: false, error: { code: "", message: t("chat.call.unknown") } });
    this.items = this.items.map((one) => (one.kind === "call" && one.outcome === null ? { ...one, outcome } : one));
  }

  #take(id: unknown): void {
    if (typeof id !== "string" || id === this.id) return;
    [this.id, this.#isRead] = [id, true];
    this.changed(this);
  }

  #put(item: Item): void {
    this.items = [...this.items, item];
  }

  #change(call: string, change: (one: CallItem) => CallItem): void {
    const at = this.items.findLastIndex((one) => one.kind === "call" && one.call === call);
    this.items = this.items.map((one, index) => (index === at && one.kind === "call" ? change(one) : one));
  }
}
