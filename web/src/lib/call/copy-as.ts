/**
 * A call in other forms: curl, the command line, Python, code for `run`, an MCP message. Pure functions.
 *
 * Arguments come as JSON values. Each text can be pasted as it is: quotes, `$` and line breaks in values mean themselves,
 * and what can't be seen is written by its number.
 */

import { isObject, writeJson, type Json, type JsonObject } from "../text/json-text";
import { UNSEEN_OR_JOINER } from "../text/shown";

export interface CopiedCall {
  name: string | null; // in code; null if it has none
  callUrl: string; // of /call/…
  invokeUrl: string; // of this version
  needsToken: boolean;
  args: JsonObject;
}

export type Style = "curl" | "cli" | "python" | "run" | "mcp";
export const STYLES: readonly Style[] = ["curl", "cli", "python", "run", "mcp"];

const WRITERS: Record<Style, (call: CopiedCall) => string | null> = { curl, cli, python, run, mcp };

/** Null if the tool can't be called that way because it has no name in code. */
export function copyAs(style: Style, call: CopiedCall): string | null {
  return WRITERS[style](call);
}

function curl({ name, callUrl, invokeUrl, needsToken, args }: CopiedCall): string {
  return [
    `curl -X POST ${shell(name === null ? invokeUrl : callUrl)}`,
    "-H 'Content-Type: application/json'",
    ...(needsToken ? ['-H "Authorization: Bearer $ONETOOL_TOKEN"'] : []),
    `--data-raw ${shell(json(name === null ? { args } : args))}`,
  ].join(" \\\n  ");
}

function cli({ name, args }: CopiedCall): string | null {
  if (name === null) return null;
  const given = Object.keys(args).length === 0 ? "" : ` --args ${shell(json(args))}`;
  return `onetool tools invoke ${word(name)}${given}`;
}

function python({ name, args }: CopiedCall): string | null {
  if (name === null) return null;
  return [
    "import asyncio",
    "",
    "from onetool import App, ToolCall",
    "",
    "with App.open() as app:",
    `    call = ToolCall(id="1", name=${literal(name)}, args=${literal(args)})`,
    "    print(asyncio.run(app.call(call)).value())",
  ].join("\n");
}

function run({ name, args }: CopiedCall): string | null {
  if (name === null) return null;
  if (![...name.split("."), ...Object.keys(args)].every(isIdentifier))
    return `ot.call(${literal(name)}, ${literal(args)})`;
  return `${name}(${Object.entries(args)
    .map(([key, value]) => `${key}=${literal(value)}`)
    .join(", ")})`;
}

/** For the menu `direct`, with its name there. A name that may be spelled differently goes through `call` of the menu `search`. */
function mcp({ name, args }: CopiedCall): string | null {
  if (name === null) return null;
  const params = isPlain(name)
    ? { name: name.replaceAll(".", "__"), arguments: args }
    : { name: "call", arguments: { name, args } };
  return json({ jsonrpc: "2.0", id: 1, method: "tools/call", params }, 2);
}

/** The menu of the MCP server that takes the message. */
export function menuOf(name: string | null): "direct" | "search" {
  return name !== null && isPlain(name) ? "direct" : "search";
}

function isPlain(name: string): boolean {
  return /^[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*$/.test(name) && name.replaceAll(".", "__").length <= 64;
}

// Strings in other languages

// Invisible characters that JSON doesn't escape. Terminals act on some of them. Line ends between the parts stay.
const hex = (code: number, digits: number): string => code.toString(16).padStart(digits, "0");
const escaped = (sign: string): string =>
  sign
    .split("")
    .map((unit) => `\\u${hex(unit.charCodeAt(0), 4)}`)
    .join("");
const numbered = (text: string): string => text.replace(UNSEEN_OR_JOINER, escaped);
const json = (value: unknown, indent = 0): string => numbered(writeJson(value, indent));

/** One word for a POSIX shell. */
function shell(text: string): string {
  return `'${text.replaceAll("'", "'\\''")}'`;
}

const word = (text: string): string => (/^[\w.@-]+$/.test(text) ? text : shell(text));

/** A value in Python. */
function literal(value: Json): string {
  if (value === null) return "None";
  if (typeof value === "boolean") return value ? "True" : "False";
  if (Array.isArray(value)) return `[${value.map(literal).join(", ")}]`;
  if (isObject(value))
    return `{${Object.entries(value)
      .map(([key, one]) => `${literal(key)}: ${literal(one)}`)
      .join(", ")}}`;
  // Python reads the numbers and strings of JSON, except surrogate pairs.
  return writeJson(value).replace(UNSEEN_OR_JOINER, (sign) =>
    sign.length === 1 ? escaped(sign) : `\\U${hex(sign.codePointAt(0) ?? 0, 8)}`,
  );
}

const KEYWORDS = new Set(
  (
    "False None True and as assert async await break class continue def del elif else except finally for from global if import in is " +
    "lambda nonlocal not or pass raise return try while with yield"
  ).split(" "),
);
export const isIdentifier = (text: string): boolean => /^[A-Za-z_]\w*$/.test(text) && !KEYWORDS.has(text);
