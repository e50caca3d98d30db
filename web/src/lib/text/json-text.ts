/**
 * JSON as text and back, without changing a number: an integer that a JavaScript number can't hold becomes a bigint.
 *
 * Errors in invalid JSON give the position, in the same words in every browser.
 */

export type Json = null | boolean | number | bigint | string | Json[] | { [key: string]: Json };
export type JsonObject = { [key: string]: Json };

/** A JSON syntax error. `sign` is the character there; empty at the end of the text. */
export class JsonTextError extends Error {
  constructor(
    readonly line: number,
    readonly column: number,
    readonly sign: string,
  ) {
    super(`line ${line}, column ${column}`);
  }
}

const SPACE = /[ \t\n\r]*/y;
const NUMBER = /-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?/y;
const STRING = /"[^"\\\u0000-\u001f]*(?:\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4})[^"\\\u0000-\u001f]*)*"/y;
const WORDS: [string, Json][] = [
  ["true", true],
  ["false", false],
  ["null", null],
];
const LONG_NUMBER = /\d{16}/;
const DEEPEST = 500;

/** Raises JsonTextError. */
export function parseJson(text: string): Json {
  if (!LONG_NUMBER.test(text)) {
    try {
      return JSON.parse(text) as Json;
    } catch {
      // The parser below finds the position.
    }
  }
  return new Reader(text).whole();
}

/** Parse JSON; other text is returned as it is, as the command line does for arguments without a type. */
export function jsonOrText(text: string): Json {
  try {
    return parseJson(text);
  } catch {
    return text;
  }
}

/** Write a value so that `jsonOrText` reads it. */
export function writeJsonOrText(value: Json, indent = 0): string {
  return typeof value === "string" && jsonOrText(value) === value ? value : writeJson(value, indent);
}

export function writeJson(value: unknown, indent = 0): string {
  try {
    return JSON.stringify(value, null, indent) ?? "null";
  } catch {
    return write(value, " ".repeat(indent), "\n");
  }
}

export function isObject(value: unknown): value is JsonObject {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

function write(value: unknown, indent: string, line: string): string {
  if (typeof value === "bigint") return String(value);
  if (typeof value !== "object" || value === null) return JSON.stringify(value) ?? "null";
  const inner = indent ? line + indent : "";
  const colon = indent ? ": " : ":";
  const isArray = Array.isArray(value);
  const pieces = isArray
    ? value.map((one) => inner + write(one, indent, inner))
    : Object.entries(value)
        .filter(([, one]) => one !== undefined)
        .map(([key, one]) => inner + JSON.stringify(key) + colon + write(one, indent, inner));
  const end = indent && pieces.length > 0 ? line : "";
  return (isArray ? "[" : "{") + pieces.join(",") + end + (isArray ? "]" : "}");
}

class Reader {
  #at = 0;
  constructor(readonly text: string) {}

  whole(): Json {
    const value = this.#value(0);
    this.#take(SPACE);
    if (this.#at < this.text.length) this.#fail();
    return value;
  }

  #value(depth: number): Json {
    if (depth > DEEPEST) this.#fail();
    this.#take(SPACE);
    const sign = this.text[this.#at];
    if (sign === "{") return this.#object(depth);
    if (sign === "[") return this.#array(depth);
    if (sign === '"') return this.#string();
    for (const [word, value] of WORDS) {
      if (this.text.startsWith(word, this.#at)) {
        this.#at += word.length;
        return value;
      }
    }
    return this.#number();
  }

  #number(): Json {
    const start = this.#at;
    const found = this.#take(NUMBER);
    if (!found) this.#fail();
    const value = Number(found);
    if (!Number.isFinite(value)) this.#fail(start);
    return /^-?\d+$/.test(found) && !Number.isSafeInteger(value) ? BigInt(found) : value;
  }

  #string(): string {
    const found = this.#take(STRING);
    if (!found) this.#fail(this.#endOfString());
    return JSON.parse(found) as string;
  }

  /** The first character that a string can't contain. */
  #endOfString(): number {
    const good = /(?:[^"\\\u0000-\u001f]|\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4}))*/y;
    good.lastIndex = this.#at + 1;
    good.test(this.text);
    return good.lastIndex;
  }

  #array(depth: number): Json[] {
    const items: Json[] = [];
    this.#at += 1;
    if (this.#next("]")) return items;
    for (;;) {
      items.push(this.#value(depth + 1));
      if (this.#next("]")) return items;
      if (!this.#next(",")) this.#fail();
    }
  }

  #object(depth: number): JsonObject {
    const pairs: [string, Json][] = [];
    this.#at += 1;
    if (this.#next("}")) return {};
    for (;;) {
      this.#take(SPACE);
      if (this.text[this.#at] !== '"') this.#fail();
      const key = this.#string();
      if (!this.#next(":")) this.#fail();
      pairs.push([key, this.#value(depth + 1)]);
      if (this.#next("}")) return Object.fromEntries(pairs);
      if (!this.#next(",")) this.#fail();
    }
  }

  #next(sign: string): boolean {
    this.#take(SPACE);
    if (this.text[this.#at] !== sign) return false;
    this.#at += 1;
    return true;
  }

  #take(pattern: RegExp): string {
    pattern.lastIndex = this.#at;
    const found = pattern.exec(this.text)?.[0] ?? "";
    this.#at += found.length;
    return found;
  }

  #fail(at = this.#at): never {
    const before = this.text.slice(0, at).split("\n");
    const sign = String.fromCodePoint(...[this.text.codePointAt(at)].filter((one) => one !== undefined));
    throw new JsonTextError(before.length, (before.at(-1)?.length ?? 0) + 1, sign);
  }
}

/** The object in a text; an empty one if it is invalid. */
export function objectIn(text: string): JsonObject {
  try {
    const found = parseJson(text);
    return isObject(found) ? found : {};
  } catch {
    return {};
  }
}
