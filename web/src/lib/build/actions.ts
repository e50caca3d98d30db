/** Actions on bundles and tools: save, copy, rename, delete, export. Deleting can be undone. */

import { ApiError, refusal, request, send, toolPath } from "../api/client";
import { contentOf, type Content, type ToolPlace } from "./build";
import { moveDraft } from "./draft.svelte";
import { catalog, keyOf, type BundleRow } from "../api/catalog.svelte";
import { t } from "../page/i18n.svelte";
import { parseJson, writeJson } from "../text/json-text";
import { notices } from "../page/notices.svelte";
import { route } from "../page/route.svelte";
import { saveFile } from "../text/save-file";
import { line } from "../text/shown";
import type { Tool, VersionRow } from "../api/tool";

export interface LoadedTool {
  tool: Tool;
  etag: string | null;
}

const bundlePath = (id: string): string => `tools/bundles/${encodeURIComponent(id)}`;

export async function readTool(place: ToolPlace, signal?: AbortSignal): Promise<LoadedTool> {
  const response = await send(toolPath(place), { signal });
  const text = await response.text();
  if (!response.ok) throw refusal(response.status, text);
  const tool = parseJson(text) as unknown as Tool; // not JSON.parse: large integers stay what they are
  return { tool, etag: response.headers.get("etag") };
}

export async function putTool(place: ToolPlace, content: Content): Promise<void> {
  await request<Tool>(toolPath(place), { method: "PUT", body: writeJson(content) });
  await catalog.load();
}

/** Copy a tool as it is. */
export async function copyTool(from: ToolPlace, to: ToolPlace): Promise<void> {
  await request(`${toolPath(from)}/copy`, { json: to });
  await catalog.load();
}

export async function renameTool(
  place: ToolPlace,
  to: { slug: string; version: string },
  etag: string | null,
): Promise<void> {
  await request(`${toolPath(place)}/rename`, { json: to, ifMatch: etag });
  await catalog.load();
  notices.done(t("build.renamed", { name: line(`${to.slug} ${to.version}`) }), async () => {
    try {
      const renamed = { ...place, ...to };
      await request(`${toolPath(renamed)}/rename`, { json: { slug: place.slug, version: place.version } });
      moveDraft(`tool/${keyOf(renamed)}`, `tool/${keyOf(place)}`, { slug: place.slug });
      if (route.params.tool === keyOf(renamed)) route.set({ tool: keyOf(place) }, true);
      await catalog.load();
    } catch (error) {
      notices.error(error);
    }
  });
}

/** Delete a tool. Undo stores it again, and tells if its name refers to it only now. */
export async function deleteTool({ tool, etag }: LoadedTool): Promise<void> {
  const path = toolPath(tool);
  const { data } = await request<{ versions: VersionRow[] }>(path.replace(/\/version\/[^/]+$/, "/versions"));
  const isDefault = data.versions.find((one) => one.version === tool.version)?.isDefault ?? false;
  await request(path, { method: "DELETE", ifMatch: etag });
  await catalog.load();
  notices.done(t("build.deleted", { name: line(`${tool.slug} ${tool.version}`) }), async () => {
    try {
      await putTool(tool, contentOf(tool));
      if (!isDefault && tool.isEnabled)
        notices.done(t("build.restored.default", { name: line(tool.slug), version: line(tool.version) }));
    } catch (error) {
      notices.error(error);
    }
  });
}

export async function putBundle(id: string, content: Content, etag: string | null): Promise<void> {
  await request(bundlePath(id), { method: "PUT", json: content, ifMatch: etag });
  await catalog.load();
}

export async function readBundle(
  id: string,
  signal?: AbortSignal,
): Promise<{ bundle: BundleRow; etag: string | null }> {
  const { data, etag } = await request<BundleRow>(bundlePath(id), { signal });
  return { bundle: data, etag };
}

export async function switchBundle(id: string, isEnabled: boolean): Promise<void> {
  try {
    await request(bundlePath(id), { method: "PATCH", json: { isEnabled } });
  } catch (error) {
    notices.error(error);
  }
  await catalog.load();
}

async function archiveOf(id: string): Promise<Blob> {
  const response = await send(`${bundlePath(id)}/export`);
  if (response.ok) return response.blob();
  throw refusal(response.status, await response.text());
}

/** Delete what is at a path. A 404 counts as deleted. */
async function deleteAt(path: string): Promise<void> {
  try {
    await request(path, { method: "DELETE" });
  } catch (error) {
    if (!(error instanceof ApiError) || error.status !== 404) throw error;
  }
}

/** Whether a failed deletion may have succeeded: the response was lost, or came from a proxy. */
const isUnsure = (error: unknown): boolean => !(error instanceof ApiError) || error.status === 0 || error.status >= 500;

/** Delete a bundle with its tools. Its archive is fetched first; undo imports it, even if only some tools are gone. */
export async function deleteBundle(bundle: BundleRow): Promise<void> {
  const archive = await archiveOf(bundle.id);
  const paths = catalog.rows.filter((row) => row.bundleID === bundle.id).map(toolPath);
  let deleted = 0;
  try {
    for (const path of [...paths, bundlePath(bundle.id)]) {
      await deleteAt(path);
      deleted += 1;
    }
  } catch (error) {
    if (deleted > 0 || isUnsure(error)) {
      await catalog.load();
      notices.done(t("build.deleted.some", { name: line(bundle.slug) }), () => restoreBundle(archive));
    }
    throw error;
  }
  await catalog.load();
  notices.done(t("build.deleted", { name: line(bundle.slug) }), () => restoreBundle(archive));
}

async function restoreBundle(archive: Blob): Promise<void> {
  try {
    await request("tools/imports/zip", { body: archive, type: "application/zip" });
    await catalog.load();
  } catch (error) {
    notices.error(error);
  }
}

/** Download the archive of a bundle. */
export async function exportBundle(bundle: BundleRow): Promise<void> {
  try {
    saveFile(await archiveOf(bundle.id), `${bundle.slug}.zip`);
  } catch (error) {
    notices.error(error);
  }
}
