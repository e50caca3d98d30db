/**
 * All tools of all sources, kept in step with the server.
 *
 * The list is read page by page: the first rows are there before the last are read. When something changes, old rows
 * stay until the new ones are complete. A switch acts at once, and goes back if the server refuses it.
 */

import { get, request, toolPath } from "./api";
import { listen } from "./events";
import { t } from "./i18n.svelte";
import { notices } from "./notices.svelte";
import { line } from "./shown";

export type Health = "ok" | "off" | "down" | "changed";
export type Origin = "bundle" | "built-in" | "pack" | "config" | "server";

/** A row of the list: what the filter and the row need, nothing more. */
export interface ToolRow {
  id: string;
  bundleID: string;
  bundleSlug: string;
  slug: string;
  version: string;
  name: string | null;
  displayName: string;
  description: string;
  tags: string[];
  type: string;
  origin: Origin;
  health: Health;
  isEnabled: boolean;
  isBuiltIn: boolean;
  callCount: number;
  lastCalledAt: string | null;
}

export interface BundleRow {
  id: string;
  slug: string;
  displayName: string;
  description: string;
  isEnabled: boolean;
  isBuiltIn: boolean;
  createdAt: string;
  modifiedAt: string;
  source?: { kind: string; name: string } | null;
}

const FIELDS = [
  "id", "bundleID", "bundleSlug", "slug", "version", "name", "displayName", "description", "tags", "type", "origin",
  "health", "isEnabled", "isBuiltIn", "callCount", "lastCalledAt",
].join(",");
const PER_PAGE = 1000;
const FLASH_MS = 2500;

export const keyOf = (tool: { bundleID: string; slug: string; version: string }): string =>
  `${tool.bundleID}/${tool.slug}/${tool.version}`;

export const nameOf = (tool: { name: string | null; bundleSlug?: string; slug: string }): string =>
  tool.name ?? `${tool.bundleSlug ?? ""}/${tool.slug}`;

/** By name; our own tools, which are about tools, come last. */
function byName(a: ToolRow, b: ToolRow): number {
  const [left, right] = [sortKey(a), sortKey(b)];
  return left < right ? -1 : left > right ? 1 : 0;
}

const sortKey = (row: ToolRow): string => (row.bundleSlug === "ot" ? "\uffff" : "") + nameOf(row).toLowerCase();

class Catalog {
  rows: ToolRow[] = $state.raw([]);
  bundles: BundleRow[] = $state.raw([]);
  state: "empty" | "loading" | "ready" | "failed" = $state("empty");
  error: unknown = $state.raw(null);
  isLive = $state(false);
  /** Rows that somebody else has just changed, by key. */
  flashed: ReadonlySet<string> = $state.raw(new Set());
  /** Counts up with every change of the catalogue: for what is shown beside the list. */
  revision = $state(0);
  #reading: Promise<void> | null = null;
  #again = false;
  #own = new Map<string, boolean>(); // switches of ours that the server may not have told us of yet

  /** Read everything, and follow what changes. Returns what ends it. */
  start(onCall: (call: Record<string, unknown>) => void = () => {}): () => void {
    void this.load();
    return listen({ changed: () => void this.load(), call: onCall, live: (isLive) => (this.isLive = isLive) });
  }

  /** Read everything again. One reading at a time; a change meanwhile asks for one more. */
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
    if (isFirst) this.state = "loading";
    try {
      const bundles = this.#pages<BundleRow>("tools/bundles", "bundles", { includeDisabled: true, pageSize: PER_PAGE });
      const found: ToolRow[] = [];
      const query = { includeDisabled: true, recommendedPageSize: PER_PAGE, fields: FIELDS };
      await this.#pages<ToolRow>("tools/tools", "tools", query, (page) => {
        found.push(...page);
        if (isFirst) this.rows = found.toSorted(byName);
      });
      this.bundles = await bundles;
      this.#show(found, isFirst);
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
    query: Record<string, string | number | boolean>,
    each: (page: T[]) => void = () => {},
  ): Promise<T[]> {
    const all: T[] = [];
    let pageToken: string | undefined;
    do {
      const page: Record<string, unknown> = await get(path, { query: { ...query, pageToken } });
      const rows = page[key] as T[];
      all.push(...rows);
      each(rows);
      pageToken = (page.nextPageToken as string | null) ?? undefined;
    } while (pageToken);
    return all;
  }

  /** Take the new rows. What somebody else has switched is pointed at, and said. */
  #show(found: ToolRow[], isFirst: boolean): void {
    const before = new Map(this.rows.map((row) => [keyOf(row), row]));
    const others = isFirst
      ? []
      : found.filter((row) => {
          const known = before.get(keyOf(row));
          return known !== undefined && known.isEnabled !== row.isEnabled && this.#own.get(keyOf(row)) !== row.isEnabled;
        });
    this.#own.clear();
    this.rows = found.sort(byName);
    if (others.length === 0) return;
    this.flashed = new Set(others.map(keyOf));
    setTimeout(() => (this.flashed = new Set()), FLASH_MS);
    const [one] = others;
    if (others.length === 1 && one) {
      const name = line(nameOf(one));
      notices.done(t(one.isEnabled ? "tools.elsewhere.on" : "tools.elsewhere.off", { name }));
    } else notices.done(t("tools.elsewhere.many", { n: others.length }));
  }

  /** Switch a tool: at once here, then on the server. */
  async switchTool(row: ToolRow, isEnabled: boolean, quiet = false): Promise<void> {
    this.#change(row, isEnabled);
    this.#own.set(keyOf(row), isEnabled);
    try {
      await request(toolPath(row), { method: "PATCH", json: { isEnabled } });
      if (!quiet) {
        const text = t(isEnabled ? "tools.switched.on" : "tools.switched.off", { name: line(nameOf(row)) });
        notices.done(text, () => this.switchTool({ ...row, isEnabled }, !isEnabled, true));
      }
    } catch (error) {
      this.#change(row, !isEnabled);
      this.#own.delete(keyOf(row));
      notices.error(error);
    }
  }

  #change(row: ToolRow, isEnabled: boolean): void {
    const key = keyOf(row);
    this.rows = this.rows.map((one) =>
      keyOf(one) === key ? { ...one, isEnabled, health: isEnabled ? "ok" : "off" } : one,
    );
  }

  find(key: string | undefined): ToolRow | undefined {
    return key === undefined ? undefined : this.rows.find((row) => keyOf(row) === key);
  }
}

export const catalog = new Catalog();
