/** All conversations, and the models that can answer. */

import { get, refusal, request, send } from "./api";
import { Conversation, type ModelChoice } from "./chat.svelte";
import { t } from "./i18n.svelte";
import { notices } from "./notices.svelte";
import { route } from "./route.svelte";
import { session } from "./session.svelte";
import { line } from "./shown";
import { store, stored } from "./storage";

export interface SessionRow {
  id: string;
  title: string;
  createdAt: string;
  modifiedAt: string;
  turns: number;
  model: string;
  provider: string;
}

export interface Provider {
  id: string;
  models: string[];
  isConfigured: boolean;
  missing?: string;
}

export interface Models {
  provider: string | null;
  model: string | null;
  providers: Provider[];
  toolTokens: number;
}

const UNDO_MS = 8000; // as long as the notice stays

class Chats {
  list: SessionRow[] = $state.raw([]);
  state: "loading" | "ready" | "failed" = $state("loading");
  error: unknown = $state.raw(null);
  next: string | null = $state(null);
  models: Models | null = $state.raw(null);
  choice: ModelChoice = $state(stored("chat.model", { provider: "", model: "" }));
  withTools = $state(true);
  /** Where the next conversation begins. */
  #fresh: Conversation = $state.raw(new Conversation(null, (one) => this.#changed(one)));
  readonly #open = new Map<string, Conversation>();
  readonly #leaving = new Map<string, ReturnType<typeof setTimeout>>();

  constructor() {
    addEventListener("pagehide", () => {
      for (const id of this.#leaving.keys()) void this.#forget(id, true);
    });
  }

  /** What one person said is not shown to the next. A deletion that still waited is not sent: nobody is signed in. */
  forget(): void {
    for (const one of [this.#fresh, ...this.#open.values()]) one.stop();
    for (const timer of this.#leaving.values()) clearTimeout(timer);
    this.#leaving.clear();
    this.#open.clear();
    this.#fresh = new Conversation(null, (one) => this.#changed(one));
    [this.list, this.next, this.models, this.state] = [[], null, null, "loading"];
  }

  /** The conversation of an id; without one, the one that begins. */
  of(id: string | undefined): Conversation {
    if (!id) return this.#fresh;
    let found = this.#open.get(id);
    if (!found) {
      found = new Conversation(id, (one) => this.#changed(one));
      this.#open.set(id, found);
    }
    return found;
  }

  get hasModel(): boolean {
    return this.models?.providers.some((one) => one.isConfigured) ?? true;
  }

  /** Who answers: the one that was chosen, the server's own, or any that can. */
  get provider(): string {
    return this.choice.provider || this.models?.provider || (this.models?.providers.find((one) => one.isConfigured)?.id ?? "");
  }

  /** What a question has to name: nothing where the server would choose the same. */
  get asked(): ModelChoice {
    return { provider: this.provider === this.models?.provider ? "" : this.provider, model: this.choice.model };
  }

  choose(choice: ModelChoice): void {
    this.choice = choice;
    store("chat.model", choice);
  }

  async load(isMore = false): Promise<void> {
    try {
      const query = { pageToken: (isMore && this.next) || undefined };
      const found = await get<{ sessions: SessionRow[]; nextPageToken?: string | null }>("ask/sessions", { query });
      const rows = found.sessions.filter((one) => !this.#leaving.has(one.id));
      this.list = isMore ? [...this.list, ...rows.filter((one) => !this.list.some((known) => known.id === one.id))] : rows;
      [this.next, this.state] = [found.nextPageToken ?? null, "ready"];
    } catch (error) {
      [this.error, this.state] = [error, "failed"];
    }
  }

  async loadModels(): Promise<void> {
    this.models = await get<Models>("ask/models").catch(() => this.models);
    const { provider } = this.choice;
    const isThere = this.models?.providers.some((one) => one.id === provider && one.isConfigured) ?? true;
    if (provider && !isThere) this.choose({ provider: "", model: "" }); // its key is gone
  }

  async rename(row: SessionRow, title: string, quiet = false): Promise<void> {
    const put = (now: string): void => void (this.list = this.list.map((one) => (one.id === row.id ? { ...one, title: now } : one)));
    put(title);
    try {
      await this.#open.get(row.id)?.free;
      await request(path(row.id), { method: "PATCH", json: { title } });
      if (!quiet) notices.done(t("chat.renamed"), () => this.rename({ ...row, title }, row.title, true));
    } catch (error) {
      put(row.title);
      notices.error(error);
    }
  }

  /** Gone here at once; on the server when nobody can undo it any more, or when the page is closed. */
  remove(row: SessionRow): void {
    const at = this.list.indexOf(row);
    this.list = this.list.filter((one) => one.id !== row.id);
    this.#open.get(row.id)?.stop();
    if (route.params.session === row.id) route.go("chat");
    this.#leaving.set(row.id, setTimeout(() => void this.#forget(row.id), UNDO_MS));
    notices.done(t("chat.deleted", { name: line(row.title) || row.id }), () => {
      clearTimeout(this.#leaving.get(row.id));
      if (this.#leaving.delete(row.id)) this.list = this.list.toSpliced(at, 0, row);
    });
  }

  async #forget(id: string, keepalive = false): Promise<void> {
    clearTimeout(this.#leaving.get(id));
    try {
      await request(path(id), { method: "DELETE", keepalive });
      this.#open.delete(id);
    } catch (error) {
      notices.error(error);
    } finally {
      this.#leaving.delete(id);
    }
  }

  async exported(id: string, format: "markdown" | "json"): Promise<void> {
    try {
      const response = await send(`${path(id)}/export`, { query: { format }, accept: "*/*" });
      if (!response.ok) throw refusal(response.status, await response.text());
      const url = URL.createObjectURL(await response.blob());
      const link = document.createElement("a");
      [link.href, link.download] = [url, `${id}.${format === "json" ? "json" : "md"}`];
      link.click();
      setTimeout(() => URL.revokeObjectURL(url), 60_000);
    } catch (error) {
      notices.error(error);
    }
  }

  /** A conversation got its id, or an answer. */
  #changed(one: Conversation): void {
    if (one.id !== null && one === this.#fresh) {
      this.#open.set(one.id, one);
      if (route.screen === "chat" && !route.params.session) route.set({ session: one.id }, true);
      this.#fresh = new Conversation(null, (other) => this.#changed(other));
    }
    if (one.running === null) void this.load();
  }
}

const path = (id: string): string => `ask/sessions/${encodeURIComponent(id)}`;

export const chats = new Chats();
session.onLeave(() => chats.forget());
