/**
 * The client of the REST API.
 *
 * The session is sent in a header that only this page sets, so other sites' requests have none. URLs are relative
 * to the page, which may be mounted below a path of another web app.
 */

import type { components } from "./types";
import { store, stored } from "../page/storage";

export type Schemas = components["schemas"];

/** An error response of the API. `pointer` names the invalid field, if any. */
export class ApiError extends Error {
  constructor(
    readonly status: number,
    readonly code: string,
    message: string,
    readonly pointer: string | null = null,
    readonly body: unknown = null,
    readonly reason: string | null = null,
  ) {
    super(message);
  }
}

export interface Sent {
  method?: string;
  json?: unknown;
  body?: BodyInit;
  type?: string;
  accept?: string;
  query?: Record<string, string | number | boolean | readonly string[] | undefined>;
  ifMatch?: string | null;
  signal?: AbortSignal;
  keepalive?: boolean; // send it even if the page is closed
}

export interface Reply<T> {
  data: T;
  etag: string | null;
  status: number;
  headers: Headers;
}

const BASE = new URL(".", document.baseURI);
const REFUSED: readonly string[] = ["role_needed", "token_needed", "read_only"]; // because of the user's role

const inTab = (): Storage => sessionStorage;

let tabSession: string | null = stored<string | null>("session", null, inTab); // started with a link, for this tab only
let session: string | null = tabSession ?? stored<string | null>("session", null);
let onSignedOut: () => void = () => {};
let onRefused: () => void = () => {};

const ahead = new Map<string, Promise<Response>>(); // responses that nobody has taken yet, by URL

export function setSession(value: string | null): void {
  ahead.clear();
  session = value;
  if (tabSession === null) store("session", value);
  else setTabSession(null); // the browser may have another session, started with a token
}

/** Use the session of a link in this tab; null: use the browser's session again, if any. */
export function setTabSession(value: string | null): void {
  ahead.clear();
  tabSession = value;
  store("session", value, inTab);
  session = value ?? stored<string | null>("session", null);
}

/** Call `told` when another tab of this browser has signed in or out. */
export function whenSessionChanged(told: (has: boolean) => void): void {
  addEventListener("storage", (event) => {
    if (tabSession !== null || (event.key !== null && event.key !== "onetool.session")) return;
    ahead.clear();
    session = stored<string | null>("session", null);
    told(session !== null);
  });
}

/** Call `told` whenever the server reports that no session is valid. */
export function whenSignedOut(told: () => void): void {
  onSignedOut = told;
}

/** Call `told` whenever the server refuses a request: because of the role, a missing token, or a server that only accepts calls. */
export function whenRefused(told: () => void): void {
  onRefused = told;
}

export function address(path: string, query: Sent["query"] = {}): URL {
  const url = new URL(path.replace(/^\//, ""), BASE);
  for (const [name, value] of Object.entries(query)) {
    if (value !== undefined && value !== "") url.searchParams.set(name, String(value));
  }
  return url;
}

function fetchWith(url: URL, headers: Headers, sent: RequestInit): Promise<Response> {
  if (session !== null) headers.set("authorization", `Bearer ${session}`);
  return fetch(url, { ...sent, headers, credentials: "omit", redirect: "error" });
}

/** Send a GET request before its response is needed. The first `send` of the same URL gets a copy of the response. */
export function sendAhead(path: string, query: Sent["query"] = {}): Promise<Response> {
  const url = address(path, query);
  const response = fetchWith(url, new Headers({ accept: "application/json" }), { method: "GET" });
  const copy = response.then((one) => one.clone());
  copy.catch(() => {}); // `send` reports it
  ahead.set(url.href, copy);
  return response;
}

/** Fetch with the session. Return the raw response; `request` also reads it. */
export async function send(path: string, sent: Sent = {}): Promise<Response> {
  const headers = new Headers({ accept: sent.accept ?? "application/json" });
  const used = session;
  if (sent.ifMatch) headers.set("if-match", sent.ifMatch);
  let body = sent.body;
  const method = sent.method ?? (sent.json === undefined && body === undefined ? "GET" : "POST");
  if (sent.json !== undefined || (method === "POST" && body === undefined)) body = JSON.stringify(sent.json ?? {});
  if (body !== undefined) headers.set("content-type", sent.type ?? "application/json");
  try {
    const url = address(path, sent.query);
    const early = method === "GET" ? ahead.get(url.href) : undefined;
    ahead.delete(url.href);
    const response = await (early ??
      fetchWith(url, headers, {
        method,
        body,
        signal: sent.signal,
        keepalive: sent.keepalive ?? method === "DELETE", // a deletion goes on if the page is left meanwhile
      }));
    if (response.status === 401 && used === session) onSignedOut(); // an earlier session may have ended meanwhile
    return response;
  } catch (error) {
    if (error instanceof DOMException && error.name === "AbortError") throw error;
    throw new ApiError(0, "unreachable", "The server does not respond.");
  }
}

export async function request<T>(path: string, sent: Sent = {}): Promise<Reply<T>> {
  const response = await send(path, sent);
  const text = await response.text();
  if (!response.ok) throw refusal(response.status, text);
  const data = text === "" ? null : parsed(text);
  return { data: data as T, etag: response.headers.get("etag"), status: response.status, headers: response.headers };
}

export async function get<T>(path: string, sent: Sent = {}): Promise<T> {
  return (await request<T>(path, sent)).data;
}

function parsed(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return null;
  }
}

/** Return the error of a response of the API, or of a proxy, whose HTML page is not shown. */
export function refusal(status: number, text: string): ApiError {
  const data = parsed(text);
  const found = (data ?? {}) as Record<string, unknown>;
  const error = (typeof found.error === "object" && found.error !== null ? found.error : found) as Record<
    string,
    unknown
  >;
  const message = [error.detail, error.message, error.title].find((one) => typeof one === "string");
  const pointer = [error.pointer, error.at].find((one) => typeof one === "string");
  const code = typeof error.code === "string" ? error.code : String(status);
  if (REFUSED.includes(code)) onRefused();
  const plain = /^\s*</.test(text) ? "" : text.slice(0, 300);
  return new ApiError(
    status,
    code,
    (message as string) ?? (plain || `HTTP ${status}`),
    (pointer as string) ?? null,
    data,
    typeof error.reason === "string" ? error.reason : null,
  );
}

export function toolPath(tool: { bundleID: string; slug: string; version: string }): string {
  return `tools/bundles/${encodeURIComponent(tool.bundleID)}/tools/${encodeURIComponent(tool.slug)}/version/${encodeURIComponent(tool.version)}`;
}

export const versionsPath = (tool: { bundleID: string; slug: string; version: string }): string =>
  toolPath(tool).replace(/\/version\/[^/]+$/, "/versions");
