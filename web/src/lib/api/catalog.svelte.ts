/**
 * All tools of all sources, kept in step with the server.
 *
 * The list is read page by page: the first rows are there before the last are read. When something changes, old rows
 * stay until the new ones are complete. A switch acts at once, and goes back if the server refuses it.
 */

import { FIRST_PAGE, toolsQuery, type ROW } from "./ahead";
import { get, request, send, versionsPath, type Schemas } from "./client";
import { listen } from "./events";
import { t } from "../page/i18n.svelte";
import type { Key } from "../locales/en";
import { notices } from "../page/notices.svelte";
import { naming } from "../page/route.svelte";
import { may, session } from "./session.svelte";
import { line } from "../text/shown";
import { withInherited, type Tool } from "./tool";

export type ToolRow = Pick<Tool, (typeof ROW)[number]>;
export type BundleRow = Schemas["Bundle"];

const PER_PAGE = 1000;
const AT_MOST_EVERY_MS = 1000; // the list is read again
const FLASH_MS = 2500;

export const keyOf = (tool: { bundleID: string; slug: string; version: string }): string =>
  `${tool.bundleID}/${tool.slug}/${tool.version}`;

export const nameOf = (tool: { name: string | null; bundleSlug?: string; slug: string }): string =>
  tool.name ?? `${tool.bundleSlug ?? ""}/${tool.slug}`;

const toolOf = (row: { bundleID: string; slug: string }): string => `${row.bundleID}/${row.slug}`;

/** The current version of each tool, by tool; if its bundle has no names, the newest enabled version. */
function currentOf(rows: readonly ToolRow[]): Map<string, ToolRow> {
  const isNamed = (row: ToolRow): boolean => row.name !== null && !row.name.endsWith(`@${row.version}`);
  const rank = (row: ToolRow): string => `${Number(isNamed(row))}${Number(row.isEnabled)}${row.id}`;
  const found = new Map<string, ToolRow>();
  for (const row of rows) {
    const known = found.get(toolOf(row));
    if (known === undefined || rank(row) > rank(known)) found.set(toolOf(row), row);
  }
  return found;
}

/** By name; the built-in `ot` tools come last. */
function byName(a: ToolRow, b: ToolRow): number {
  const [left, right] = [sortKey(a), sortKey(b)];
  return left < right ? -1 : left > right ? 1 : 0;
}

/** Whether it is a built-in `ot` tool. */
export const isOwn = (row: ToolRow): boolean => row.isBuiltIn && row.bundleSlug === "ot";

const sortKey = (row: ToolRow): string => (isOwn(row) ? "\uffff" : "") + nameOf(row).toLowerCase();

interface Switched {
  isEnabled: boolean;
  done: number; // when the server had it
}

class Catalog {
  rows: ToolRow[] = $state.raw([]);
  bundles: BundleRow[] = $state.raw([]);
  state: "empty" | "loading" | "ready" | "failed" = $state("empty");
  error: unknown = $state.raw(null);
  /** The total number of tools while a long list is loaded for the first time; 0 if unknown. */
  total = $state(0);
  /** The number of changed files that wait for a reload. */
  pending = $state(0);
  isLive = $state(false);
  /** Keys of the rows that another client has just changed. */
  flashed: ReadonlySet<string> = $state.raw(new Set());
  /** Increases with every change of the catalogue, for views beside the list. */
  revision = $state(0);
  #reading: Promise<void> | null = null;
  #again = false;
  /** The number of finished calls per tool since the page was opened, for views beside the list. */
  calls: ReadonlyMap<string, number> = $state.raw(new Map());
  #current: { of: ToolRow[]; tools: Map<string, ToolRow> } = { of: [], tools: new Map() };
  #named: { of: ToolRow[]; keys: Map<string, string>; names: Map<string, string> } = {
    of: [],
    keys: new Map(),
    names: new Map(),
  };
  #began = 0; // when loading of the shown list began
  #own = new Map<string, Switched>(); // our switches, until a list that was requested after them has arrived

  /** Load everything and follow changes. Return a function that stops. */
  start(onCall: (call: Record<string, unknown>) => void = () => {}): () => void {
    void this.load();
    let timer: ReturnType<typeof setTimeout> | undefined;
    const soon = (): void => {
      timer ??= setTimeout(
        () => {
          timer = undefined;
          void this.load();
        },
        Math.max(0, this.#began + AT_MOST_EVERY_MS - performance.now()),
      );
    };
    const call = (ended: Record<string, unknown>): void => {
      this.#count(ended);
      onCall(ended);
    };
    const end = listen({
      changed: soon,
      back: () => void session.lookAgain(),
      call,
      live: (isLive) => (this.isLive = isLive),
    });
    return () => {
      clearTimeout(timer);
      end();
    };
  }

  /** Forget everything: another user may sign in. */
  forget(): void {
    [this.rows, this.bundles, this.calls, this.state] = [[], [], new Map(), "empty"];
    this.#own.clear();
  }

  #count(call: Record<string, unknown>): void {
    const key = keyOf({ bundleID: String(call.bundleID), slug: String(call.toolSlug), version: String(call.version) });
    this.calls = new Map(this.calls).set(key, (this.calls.get(key) ?? 0) + 1);
  }

  /** Load everything again, one load at a time. A change during a load causes another one. */
  async load(): Promise<void> {
    if (this.#reading) {
      this.#again = true;
      return this.#reading;
    }
    this.#reading = this.#read();
    await this.#reading;
    this.#reading = null;
    if (this.#again) {
      this.#again = false;
      await this.load();
    }
  }

  async #read(): Promise<void> {
    const isFirst = this.rows.length === 0;
    const began = (this.#began = performance.now());
    if (isFirst) this.state = "loading";
    try {
      const found: ToolRow[] = [];
      const query = (isNext: boolean) => toolsQuery(isFirst && !isNext ? FIRST_PAGE : PER_PAGE);
      const tools = this.#pages<ToolRow>("tools/tools", "tools", query, (page) => {
        found.push(...page.map(withInherited));
        if (isFirst && found.length === FIRST_PAGE) void status.then((counts) => (this.total = counts?.tools ?? 0));
        if (isFirst) this.rows = found.toSorted(byName);
      });
      const status = get<{ pending: number; tools: number }>("status").catch(() => null);
      void status.then((counts) => (this.pending = counts?.pending ?? this.pending));
      const bundles = this.#pages<BundleRow>("tools/bundles", "bundles", () => ({
        includeDisabled: true,
        pageSize: PER_PAGE,
      }));
      await tools;
      this.bundles = (await bundles).filter((one) => !one.softDeletedAt);
      this.#show(found, isFirst, began);
      this.state = "ready";
      this.error = null;
      this.revision += 1;
    } catch (error) {
      this.error = error;
      if (this.rows.length === 0) this.state = "failed";
    }
  }

  async #pages<T>(
    path: string,
    key: string,
    query: (isNext: boolean) => Record<string, string | number | boolean>,
    each: (page: T[]) => void = () => {},
  ): Promise<T[]> {
    const all: T[] = [];
    let pageToken: string | undefined;
    do {
      const page: Record<string, unknown> = await get(path, {
        query: { ...query(pageToken !== undefined), pageToken },
      });
      const rows = page[key] as T[];
      all.push(...rows);
      each(rows);
      pageToken = (page.nextPageToken as string | null) ?? undefined;
    } while (pageToken);
    return all;
  }

  /** Replace the rows. Highlight and announce tools that another client has switched. */
  #show(read: ToolRow[], isFirst: boolean, began: number): void {
    const found = read.map((row) => this.#withOwn(row, began));
    const before = new Map(this.rows.map((row) => [keyOf(row), row]));
    const others = isFirst
      ? []
      : found.filter((row) => {
          const known = before.get(keyOf(row));
          return (
            known !== undefined &&
            known.isEnabled !== row.isEnabled &&
            this.#own.get(keyOf(row))?.isEnabled !== row.isEnabled
          );
        });
    for (const [key, own] of this.#own) if (own.done < began) this.#own.delete(key);
    this.rows = found.sort(byName);
    if (others.length === 0) return;
    this.flashed = new Set(others.map(keyOf));
    setTimeout(() => (this.flashed = new Set()), FLASH_MS);
    const tools = [...currentOf(others).values()];
    const [one] = tools;
    if (tools.length === 1 && one) {
      const name = line(nameOf(one));
      notices.done(t(one.isEnabled ? "tools.elsewhere.on" : "tools.elsewhere.off", { name }));
    } else notices.done(t("tools.elsewhere.many", { n: tools.length }));
  }

  /** One row for each tool, without older versions. */
  get tools(): ToolRow[] {
    return [...this.#tools().values()];
  }

  /** The row of the tool that this version belongs to. */
  current(key: string | undefined): ToolRow | undefined {
    const [bundleID = "", slug = ""] = key?.split("/") ?? [];
    return this.#tools().get(toolOf({ bundleID, slug }));
  }

  #tools(): Map<string, ToolRow> {
    if (this.#current.of !== this.rows) this.#current = { of: this.rows, tools: currentOf(this.rows) };
    return this.#current.tools;
  }

  /** Apply our own switch to a row of a list that was requested before it. */
  #withOwn(row: ToolRow, began: number): ToolRow {
    const own = this.#own.get(keyOf(row));
    if (own === undefined || own.done < began || own.isEnabled === row.isEnabled) return row;
    return { ...row, isEnabled: own.isEnabled, health: own.isEnabled ? "ok" : "off" };
  }

  /** Switch all versions of a tool: here at once, then on the server. Undo restores each version. */
  async switchTool(row: ToolRow, isEnabled: boolean): Promise<void> {
    const versions = this.rows.filter((one) => toolOf(one) === toolOf(row));
    const before = Object.fromEntries(versions.map((one) => [one.version, one.isEnabled]));
    const now = Object.fromEntries(versions.map((one) => [one.version, isEnabled]));
    if (!(await this.#switch(row, before, now, { isEnabled }))) return;
    const words: Key =
      versions.length > 1
        ? isEnabled
          ? "tools.switched.on.all"
          : "tools.switched.off.all"
        : isEnabled
          ? "tools.switched.on"
          : "tools.switched.off";
    const name = line(nameOf(this.current(keyOf(row)) ?? row));
    notices.done(
      t(words, { name, n: versions.length }),
      async () => void (await this.#switch(row, now, before, { versions: before })),
    );
  }

  async #switch(
    row: ToolRow,
    before: Record<string, boolean>,
    now: Record<string, boolean>,
    json: object,
  ): Promise<boolean> {
    this.#change(row, now);
    const own = Object.entries(now).map(([version, isEnabled]): [string, Switched] => [
      keyOf({ ...row, version }),
      { isEnabled, done: Infinity },
    ]);
    for (const [key, one] of own) this.#own.set(key, one);
    try {
      await request(versionsPath(row), { method: "PATCH", json });
      for (const [, one] of own) one.done = performance.now();
      return true;
    } catch (error) {
      this.#change(row, before);
      for (const [key] of own) this.#own.delete(key);
      notices.error(error);
      return false;
    }
  }

  #change(row: ToolRow, versions: Record<string, boolean>): void {
    this.rows = this.rows.map((one) => {
      const isEnabled = toolOf(one) === toolOf(row) ? versions[one.version] : undefined;
      return isEnabled === undefined || isEnabled === one.isEnabled
        ? one
        : { ...one, isEnabled, health: isEnabled ? "ok" : "off" };
    });
  }

  /** Keys by name and names by key, for unique names only. */
  get named(): { keys: ReadonlyMap<string, string>; names: ReadonlyMap<string, string> } {
    if (this.#named.of === this.rows) return this.#named;
    const [keys, names, twice] = [new Map<string, string>(), new Map<string, string>(), new Set<string>()];
    for (const row of this.rows) {
      if (row.name === null || row.name.includes("/")) continue;
      if (keys.has(row.name)) twice.add(row.name);
      keys.set(row.name, keyOf(row));
    }
    for (const name of twice) keys.delete(name);
    for (const [name, key] of keys) names.set(key, name);
    this.#named = { of: this.rows, keys, names };
    return this.#named;
  }

  find(key: string | undefined): ToolRow | undefined {
    return key === undefined ? undefined : this.rows.find((row) => keyOf(row) === key);
  }
}

export const catalog = new Catalog();
const isRead = (): boolean => catalog.state === "ready" || catalog.state === "failed";
naming.tool = {
  nameOf: (key) => catalog.named.names.get(key) ?? key,
  keyOf: (name) => (name.includes("/") ? name : (catalog.named.keys.get(name) ?? (isRead() ? name : undefined))),
};
const bundleBy = (field: "id" | "slug", text: string): BundleRow | undefined => {
  const [one, ...others] = catalog.bundles.filter((bundle) => bundle[field] === text);
  return others.length === 0 ? one : undefined;
};
naming.bundle = {
  nameOf: (id) => {
    const slug = bundleBy("id", id)?.slug;
    return slug !== undefined && bundleBy("slug", slug) && !bundleBy("id", slug) ? slug : id;
  },
  keyOf: (name) => bundleBy("id", name)?.id ?? bundleBy("slug", name)?.id ?? (isRead() ? name : undefined),
};

/** Have the server reload its config, packs and secrets, for admins. If that fails, Health says why. */
export async function readAgain(): Promise<void> {
  if (may("admin")) await send("call/ot.reload", { json: {} }).catch(() => {});
}
session.onLeave(() => catalog.forget());
