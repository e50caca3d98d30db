/** The rows of the list beside the editor: drafts of what is not kept, then each bundle with its tools below it. */

import { keyOf, type BundleRow, type ToolRow } from "../api/catalog.svelte";

export interface SideRow {
  /** The key that a draft of it has. */
  key: string;
  kind: "new" | "gone" | "bundle" | "tool";
  /** Of something new: what it will be. */
  name: string;
  /** The parameters of its address. */
  place: Record<string, string>;
  version?: string;
  /** How many tools a bundle has. */
  count?: number;
  isOff: boolean;
  /** What the filter looks into. */
  text: string;
}

const BUNDLE = "new/bundle";

/** Made once for a catalogue, not for each key that is typed. */
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

/** The rows that have these words, and the bundles of those. */
export function filterSide(rows: SideRow[], words: string): SideRow[] {
  const wanted = words.trim().toLowerCase();
  if (wanted === "") return rows;
  const left: SideRow[] = [];
  let bundle: SideRow | null = null; // the last one, as long as it is not among what is left
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

/** Drafts of what is new, and of tools that somebody has deleted. */
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
