/**
 * Rows in the lines of a stored result, as OneTool writes lists: `- {name: Oslo, days: [1, 2]}`, or JSON.
 *
 * Only where every line is a whole row there is a table: other lists, and rows of several lines, are text. Values inside of values stay text.
 */

import { isObject, parseJson, type Json, type JsonObject } from "./json-text";

const ROW = /^ *(?:- )?(\{.*\}),?$/;
const PAIR = /^ *('(?:[^']|'')*'|"(?:[^"\\]|\\.)*"|[^:]+):(?: +(.*))?$/s;
const PIECE = /(?<=(?:^|[[{,:]) *)(?:'(?:[^']|'')*'|"(?:[^"\\]|\\.)*")|[^]/g; // quotes count only where a value begins

/** The rows of these lines; null if there are none. A row that began on the page before, or continues on the next, doesn't count. */
export function rowsIn(lines: readonly string[]): JsonObject[] | null {
  const rows = lines.filter((one) => !/^\s*[[\]]?$/.test(one)).map((one) => (ROW.test(one) ? rowIn(one) : null));
  return rows.length > 0 && rows.every((row) => row !== null) ? rows : null;
}

function rowIn(line: string): JsonObject | null {
  const text = ROW.exec(line)?.[1] ?? "";
  try {
    const value = parseJson(text);
    return isObject(value) ? value : null;
  } catch {
    return flow(text.slice(1, -1));
  }
}

/** `name: Oslo, days: [1, 2]`: split at the commas that are outside of quotes and brackets. */
function flow(text: string): JsonObject | null {
  const parts = [""];
  let depth = 0;
  for (const piece of text.match(PIECE) ?? []) {
    if (piece === "[" || piece === "{") depth += 1;
    if (piece === "]" || piece === "}") depth -= 1;
    if (piece === "," && depth === 0) parts.push("");
    else parts.push((parts.pop() ?? "") + piece);
  }
  const pairs = parts.map(pairIn);
  return pairs.every((pair) => pair !== null) ? Object.fromEntries(pairs) : null;
}

function pairIn(text: string): [string, Json] | null {
  const found = PAIR.exec(text);
  return found ? [String(scalar(found[1] ?? "")), scalar(found[2] ?? "")] : null;
}

function scalar(text: string): Json {
  if (text.startsWith("'")) return text.slice(1, -1).replaceAll("''", "'");
  try {
    return parseJson(text);
  } catch {
    return text;
  }
}
