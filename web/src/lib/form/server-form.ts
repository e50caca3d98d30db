/** A server as a form: its block in the config, in fields, and back. */

import type { Schemas } from "../api/client";

export type Draft = Schemas["ServerDraft"];
export type Drafts = Schemas["ServerDrafts"];
export type Definition = Schemas["ServerDefinition"];

export interface Pair {
  name: string;
  value: string;
  isSecret: boolean;
}
export interface Fields {
  isUrl: boolean;
  command: string;
  args: string; // a line each
  cwd: string;
  url: string;
  env: Pair[];
  headers: Pair[];
}

const TEXTS = ["command", "cwd", "url"] as const;
const PAIRS = ["env", "headers"] as const;

/** The form fields of a block. Other keys stay in the block: see `toDefinition`. */
export function fieldsOf(block: Record<string, unknown> = {}): Fields {
  const text = (key: string): string => (typeof block[key] === "string" ? block[key] : "");
  const pairs = (key: string): Pair[] =>
    Object.entries((block[key] ?? {}) as Record<string, string>).map(([name, value]) => ({
      name,
      value,
      isSecret: false,
    }));
  const args = Array.isArray(block["args"]) ? block["args"] : [];
  return {
    isUrl: "url" in block,
    command: text("command"),
    args: args.join("\n"),
    cwd: text("cwd"),
    url: text("url"),
    env: pairs("env"),
    headers: pairs("headers"),
  };
}

/** The block of these fields, with the other keys of `old`, except `env` for a URL and `headers` for a command. A line break in an argument can't be typed: then `old` keeps its arguments. */
export function toDefinition(fields: Fields, old: Record<string, unknown> = {}): Record<string, unknown> {
  const block: Record<string, unknown> = { ...old };
  for (const key of [...TEXTS, ...PAIRS]) delete block[key];
  const args = fields.args === "" ? [] : fields.args.split("\n");
  const isSame = fields.args === fieldsOf(old).args;
  if (fields.isUrl) {
    delete block["args"];
    block["url"] = fields.url.trim();
  } else {
    block["command"] = fields.command.trim();
    if (fields.cwd.trim() !== "") block["cwd"] = fields.cwd.trim();
    if (!isSame) block["args"] = args;
  }
  const key = fields.isUrl ? "headers" : "env";
  const pairs = fields[key].filter((one) => one.name.trim() !== "");
  if (pairs.length > 0) block[key] = Object.fromEntries(pairs.map((one) => [one.name.trim(), one.value]));
  return block;
}

/** The names of the variables and headers that the user marked as secrets. */
export const secretKeys = (fields: Fields): string[] =>
  fields[fields.isUrl ? "headers" : "env"]
    .filter((one) => one.isSecret && one.name.trim() !== "")
    .map((one) => one.name.trim());

/** Whether this browser can reach the login callback, which listens on the server's machine. */
export const isOnServersMachine = (): boolean => ["localhost", "127.0.0.1", "[::1]"].includes(location.hostname);
