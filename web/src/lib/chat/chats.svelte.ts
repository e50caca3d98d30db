/** All conversations, and the models that can answer. */

import { get, refusal, request, send, type Schemas } from "../api/client";
import { Conversation, type ModelChoice } from "./chat.svelte";
import { deletedLater } from "../api/deleted-later.svelte";
import { t } from "../page/i18n.svelte";
import { notices } from "../page/notices.svelte";
import { withFirst, withNext } from "../api/pages";
import { route } from "../page/route.svelte";
import { saveFile } from "../text/save-file";
import { session } from "../api/session.svelte";
import { line } from "../text/shown";
import { store, stored } from "../page/storage";
import { working } from "./working.svelte";

export type SessionRow = Schemas["SessionSummary"];
export type Models = Schemas["ModelOverview"];

const MAX_OPEN = 20; // conversations that stay in memory

class Chats {
  list: SessionRow[] = $state.raw([]);
  state: "loading" | "ready" | "failed" = $state("loading");
  error: unknown = $state.raw(null);
  next: string | null = $state(null);
  models: Models | null = $state.raw(null);
  /** The model lists by provider. */
  listed: Readonly<Record<string, Models["providers"][number]>> = $state.raw({});
  choice: ModelChoice = $state(stored("chat.model", { provider: "", model: "" }));
  withTools = $state(true);
  /** The next conversation. */
  #fresh: Conversation = $state.raw(new Conversation(null, (one) => this.#changed(one)));
  readonly #open = new Map<string, Conversation>();

  stop(): void {
    for (const one of [this.#fresh, ...this.#open.values()]) one.stop();
  }

  /** Forget this user's conversations. */
  forget(): void {
    this.stop();
    this.#open.clear();
    this.#fresh = new Conversation(null, (one) => this.#changed(one));
    [this.list, this.next, this.models, this.listed, this.state] = [[], null, null, {}, "loading"];
  }

  /** Return the conversation of an id; without an id, the new one. */
  of(id: string | undefined): Conversation {
    if (!id) return this.#fresh;
    const found = this.#open.get(id) ?? new Conversation(id, (one) => this.#changed(one));
    this.#keep(id, found);
    return found;
  }

  /** The id of a conversation that is being answered, if any. */
  get underWay(): string | null {
    return working.list.find((one) => one.waits)?.id ?? working.list.at(-1)?.id ?? null;
  }

  /** Keep the last opened conversations, and all with content that is only here. */
  #keep(id: string, one: Conversation): void {
    this.#open.delete(id);
    this.#open.set(id, one);
    for (const [key, other] of this.#open) {
      if (this.#open.size <= MAX_OPEN) return;
      if (other !== one && other.isKeptElsewhere) this.#open.delete(key);
    }
  }

  get hasModel(): boolean {
    return this.models?.providers.some((one) => one.isConfigured) ?? true;
  }

  /** The provider: the chosen one, the server's default, or any configured one. */
  get provider(): string {
    return (
      this.choice.provider ||
      this.models?.provider ||
      (this.models?.providers.find((one) => one.isConfigured)?.id ?? "")
    );
  }

  /** The provider and model to send; empty if they are the server's default. */
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
      const { sessions, nextPageToken } = await get<Schemas["SessionPage"]>("ask/sessions", { query });
      const page = { rows: sessions.filter((one) => !deletedLater.has(path(one.id))), next: nextPageToken };
      const [known, id] = [{ rows: this.list, next: this.next }, (one: SessionRow): string => one.id];
      const found = isMore ? withNext(known, page, id) : withFirst(known, page, id, (one) => one.modifiedAt ?? "");
      [this.list, this.next, this.state] = [found.rows, found.next, "ready"];
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

  /** Have the server ask a provider for its list. */
  async readList(provider: string): Promise<void> {
    const found = await get<Models["providers"][number]>(`ask/models/${encodeURIComponent(provider)}`).catch(
      () => null,
    );
    if (found) this.listed = { ...this.listed, [provider]: found };
  }

  async rename(row: SessionRow, title: string, quiet = false): Promise<void> {
    const put = (now: string): void =>
      void (this.list = this.list.map((one) => (one.id === row.id ? { ...one, title: now } : one)));
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

  /** Hide it at once; delete it on the server when undo is no longer possible. */
  remove(row: SessionRow): void {
    const at = this.list.indexOf(row);
    this.list = this.list.filter((one) => one.id !== row.id);
    this.#open.get(row.id)?.stop();
    if (route.params.session === row.id) route.go("chat");
    deletedLater.add(path(row.id), t("chat.deleted", { name: line(row.title) || row.id }), () => {
      if (!this.list.some((one) => one.id === row.id)) this.list = this.list.toSpliced(at, 0, row);
    });
  }

  async exported(id: string, format: "markdown" | "json"): Promise<void> {
    try {
      const response = await send(`${path(id)}/export`, { query: { format }, accept: "*/*" });
      if (!response.ok) throw refusal(response.status, await response.text());
      saveFile(await response.blob(), `${id}.${format === "json" ? "json" : "md"}`);
    } catch (error) {
      notices.error(error);
    }
  }

  /** A conversation got its id, or an answer. */
  #changed(one: Conversation): void {
    if (one.id !== null && one === this.#fresh) {
      this.#keep(one.id, one);
      if (route.screen === "chat" && !route.params.session) route.set({ session: one.id }, true);
      this.#fresh = new Conversation(null, (other) => this.#changed(other));
    }
    void this.load();
  }
}

const path = (id: string): string => `ask/sessions/${encodeURIComponent(id)}`;

export const chats = new Chats();
session.beforeSignOut(async () => chats.stop());
session.onLeave(() => chats.forget());
