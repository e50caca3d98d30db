/** The rows beside the editor: drafts of new things, then each bundle with its tools. */

import { keyOf, type BundleRow, type ToolRow } from "../api/catalog.svelte";

export interface SideRow {
  /** The key of its draft. */
  key: string;
  kind: "new" | "gone" | "bundle" | "tool";
  /** For something new: its kind. */
  name: string;
  /** The parameters of its address. */
  place: Record<string, string>;
  version?: string;
  /** The number of tools of a bundle. */
  count?: number;
  isOff: boolean;
  /** The text that the filter searches. */
  text: string;
}

const BUNDLE = "new/bundle";

/** Computed once per catalogue, not on each keystroke. */
export function bundleRows(bundles: readonly BundleRow[], tools: readonly ToolRow[]): SideRow[] {
  const found = new Map<string, ToolRow[]>(bundles.map((one) => [one.id, []]));
  for (const tool of tools) found.get(tool.bundleID)?.push(tool);
  return bundles.flatMap((bundle) => {
    const own = found.get(bundle.id) ?? [];
    return [bundleRow(bundle, own.length), ...own.map((tool) => toolRow(tool, bundle))];
  });
}

function bundleRow({ id, slug, isEnabled }: BundleRow, count: number): SideRow {
  return {
    key: `bundle/${id}`,
    kind: "bundle",
    name: slug,
    place: { bundle: id },
    count,
    isOff: !isEnabled,
    text: slug.toLowerCase(),
  };
}

function toolRow(tool: ToolRow, bundle: BundleRow): SideRow {
  const key = keyOf(tool);
  const text = `${bundle.slug} ${tool.slug} ${tool.displayName}`.toLowerCase();
  return {
    key: `tool/${key}`,
    kind: "tool",
    name: tool.slug,
    place: { tool: key },
    version: tool.version,
    isOff: !tool.isEnabled,
    text,
  };
}

/** The rows that match the words, with their bundles. */
export function filterSide(rows: SideRow[], words: string): SideRow[] {
  const wanted = words.trim().toLowerCase();
  if (wanted === "") return rows;
  const left: SideRow[] = [];
  let bundle: SideRow | null = null; // the last bundle, until it is in `left`
  for (const row of rows) {
    const isHit = row.text.includes(wanted);
    if (row.kind === "bundle") bundle = row;
    if (!isHit) continue;
    if (bundle && row !== bundle) left.push(bundle);
    bundle = null;
    left.push(row);
  }
  return left;
}

/** Drafts of new things, and of tools that were deleted elsewhere. */
export function draftRows(keys: readonly string[], isKept: (tool: string) => boolean): SideRow[] {
  const made = keys.filter((key) => key.startsWith("new/")).sort((a, b) => Number(b === BUNDLE) - Number(a === BUNDLE));
  const gone = keys.filter((key) => key.startsWith("tool/") && !isKept(key.slice("tool/".length)));
  return [...made.map(newRow), ...gone.map(goneRow)];
}

function newRow(key: string): SideRow {
  const [, name = "http", bundle = ""] = key.split("/");
  const place: Record<string, string> = bundle ? { new: name, bundle } : { new: name };
  return { key, kind: "new", name, place, isOff: false, text: "" };
}

function goneRow(key: string): SideRow {
  const [, , slug = "", version = ""] = key.split("/");
  return { key, kind: "gone", name: slug, version, place: { tool: key.slice("tool/".length) }, isOff: true, text: "" };
}
