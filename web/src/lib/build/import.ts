/** Imports: detects the kind of content, including URLs of APIs and of their documents. A dry run reports the result. */

import { request, type Sent } from "../api/client";
import { slugOf } from "./build";
import { catalog } from "../api/catalog.svelte";
import type { Need } from "../api/failure";
import { isObject } from "../text/json-text";

export type ImportKind = "zip" | "openapi" | "curl" | "servers";

export interface Incoming {
  /** The URL of the document, if only that was given. */
  url?: string;
  kind: ImportKind;
  /** The file's name. */
  name: string;
  body: Blob | string;
  isYaml: boolean;
}

export interface ImportOptions {
  as: string;
  baseUrl: string;
  replace: boolean;
  bundle: string;
  tool: string;
  version: string;
  /** Other names for secrets of a curl command. */
  secrets: Record<string, string>;
  /** For a document: the selected tools; null means all. */
  only: readonly string[] | null;
}

export interface ImportReport {
  bundles: { id: string; slug: string; what: string }[];
  tools: { slug: string; version: string; what: string }[];
  servers: { name: string; what: string; block?: Record<string, unknown> }[];
  skipped: { about: string; why: string }[];
  warnings: { about: string; why: string }[];
  secretsKept: string[];
  secretNames: { name: string; as: string; isNew: boolean }[];
  needs: { missing: Need[] };
}

const COMMAND = /^\s*(\$\s+)?curl(\.exe)?\s/;
export const isCommand = (text: string): boolean => COMMAND.test(text);

/** Detect the kind of a file or text; null if it can't be imported. */
export async function recognise(given: Blob | string, name: string): Promise<Incoming | null> {
  if (typeof given !== "string") {
    const start = new Uint8Array(await given.slice(0, 2).arrayBuffer());
    if (start[0] === 0x50 && start[1] === 0x4b) return { kind: "zip", name, body: given, isYaml: false };
    return recognise(await given.text(), name);
  }
  const text = given.replace(/^\ufeff/, "").trim();
  if (isCommand(text)) return { kind: "curl", name, body: text.replace(/^\$\s+/, ""), isYaml: false };
  if (/^https?:\/\/\S+$/i.test(text)) {
    const { pathname } = urlPart(text);
    const isDocument = /\.(json|ya?ml)$|openapi|swagger|api-docs/i.test(pathname);
    return isDocument
      ? { kind: "openapi", name: text, body: "{}", isYaml: false, url: text }
      : { kind: "curl", name, body: `curl '${text.replaceAll("'", "%27")}'`, isYaml: false };
  }
  const data = parsed(text);
  if (isObject(data)) {
    if ("mcpServers" in data || ("servers" in data && !("openapi" in data)))
      return { kind: "servers", name, body: text, isYaml: false };
    return "openapi" in data || "swagger" in data ? { kind: "openapi", name, body: text, isYaml: false } : null;
  }
  return /^["']?(openapi|swagger)["']?\s*:/m.test(text) ? { kind: "openapi", name, body: text, isYaml: true } : null;
}

function parsed(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return null;
  }
}

/** The default options of an import. */
export function optionsFor(incoming: Incoming): ImportOptions {
  const url = incoming.kind === "curl" ? /https?:\/\/[^\s"']+/.exec(String(incoming.body))?.[0] : undefined;
  const { pathname: path, hostname } = urlPart(url ?? "");
  const isAddress = /^[\d.]+$|^\[/.test(hostname);
  const last =
    path
      .split("/")
      .filter((one) => one !== "" && !/[{}$%]/.test(one))
      .pop() ?? "";
  const kept = catalog.bundles.find((one) => !one.isBuiltIn && one.isEnabled);
  return {
    as: "",
    baseUrl: "",
    replace: false,
    bundle: kept?.slug ?? (slugOf(isAddress ? "local" : (hostname.split(".").at(-2) ?? hostname)) || "mine"),
    tool: slugOf(last) || "request",
    version: "1",
    secrets: {},
    only: null,
  };
}

function urlPart(text: string): { pathname: string; hostname: string } {
  try {
    return new URL(text);
  } catch {
    return { pathname: "", hostname: "" };
  }
}

export async function runImport(
  incoming: Incoming,
  options: ImportOptions,
  dryRun: boolean,
  signal?: AbortSignal,
): Promise<ImportReport> {
  const { kind, body, isYaml } = incoming;
  const query: Sent["query"] & object = { dryRun: dryRun || undefined };
  if (kind === "curl") {
    const json = {
      command: body,
      bundle: options.bundle,
      tool: options.tool,
      version: options.version,
      secrets: options.secrets,
    };
    return (await request<ImportReport>("tools/imports/curl", { json, query, signal })).data;
  }
  if (kind === "zip" || kind === "openapi") query.as = options.as;
  if (kind === "openapi") {
    [query.baseUrl, query.url] = [options.baseUrl, incoming.url];
    query.operation = options.only ?? undefined;
  }
  if (kind === "servers") query.replace = options.replace || undefined;
  const type = kind === "zip" ? "application/zip" : isYaml ? "application/yaml" : "application/json";
  return (await request<ImportReport>(`tools/imports/${kind}`, { method: "POST", body, type, query, signal })).data;
}
