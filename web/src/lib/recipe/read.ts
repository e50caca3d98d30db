/** Parses the subset of Python that recipes are written in. */

import { isIdentifier } from "../call/copy-as";
import { numberOf } from "../form/model";
import { writeJson, type Json, type JsonObject } from "../text/json-text";
import {
  ITEM,
  codeOf,
  namesAt,
  OPERATORS,
  OWN_NAMES,
  type Condition,
  type Operator,
  type Recipe,
  type Step,
} from "./recipe";
import { templateOf, type Names, type Path, type Piece } from "./text";

type Kind = "text" | "number" | "name" | "sign" | "end";
type Token = readonly [kind: Kind, value: string];

const TOKEN =
  /[ \t]+|(\r?\n)|("(?:[^"\\\n]|\\.)*"|'[^'"\\\x00-\x1f]*')|(\d[\d.]*(?:[eE][+-]?\d+)?)|([A-Za-z_]\w*)|(==|!=|<=|>=|\*\*|[-+()[\]{},:.=<>])/y;

/** The tokens of the code. A line ends where no bracket is open. */
function tokensOf(code: string): Token[] {
  const tokens: Token[] = [];
  const end = (): void => void (tokens.length > 0 && tokens.at(-1)?.[0] !== "end" && tokens.push(["end", ""]));
  let depth = 0;
  TOKEN.lastIndex = 0;
  for (let at = 0; at < code.length; at = TOKEN.lastIndex) {
    const found = TOKEN.exec(code);
    if (!found) throw new SyntaxError();
    const [all, line, text, number, name, sign] = found;
    const isFirst = depth === 0 && (tokens.at(-1)?.[0] ?? "end") === "end";
    if (isFirst && all.trim() !== "" && " \t".includes(code[at - 1] ?? "\n")) throw new SyntaxError();
    if (line !== undefined && depth === 0) end();
    else if (text !== undefined) tokens.push(["text", textOf(text)]);
    else if (number !== undefined) tokens.push(["number", number]);
    else if (name !== undefined) tokens.push(["name", name]);
    else if (sign !== undefined) {
      depth += "([{".includes(sign) ? 1 : ")]}".includes(sign) ? -1 : 0;
      tokens.push(["sign", sign]);
    }
  }
  end();
  return tokens;
}

/** Python and JSON differ in some escapes: accept only those that recipes use. */
function textOf(code: string): string {
  if (code.startsWith("'")) return code.slice(1, -1);
  const text = JSON.parse(code) as string;
  if (JSON.stringify(text) !== code) throw new SyntaxError();
  return text;
}

/** Whether all names are unique and hide no tool. */
function isClear({ steps }: Recipe, inputs: readonly string[]): boolean {
  const names = [...inputs, ...steps.map((one) => one.name)];
  const tools = steps.map((one) => one.tool.split("."));
  const taken = new Set([...OWN_NAMES, ...tools.map(([pack]) => pack)]);
  return (
    new Set(names).size === names.length &&
    !names.some((one) => taken.has(one)) &&
    [...names, ...tools.flat()].every(isIdentifier)
  );
}

/** Parse code as a recipe; null if it is something else. */
export function recipeOf(code: string, inputs: readonly string[]): Recipe | null {
  if (code.trim() === "") return { steps: [], result: null };
  try {
    const recipe = new Reader(tokensOf(code), inputs).recipe();
    const [given, written] = [tokensOf(code), tokensOf(codeOf(recipe, inputs))];
    return writeJson(given) === writeJson(written) && isClear(recipe, inputs) ? recipe : null;
  } catch {
    return null;
  }
}

class Reader {
  #at = 0;
  #recipe: Recipe = { steps: [], result: null };
  #names: Names = new Set();
  constructor(
    readonly tokens: readonly Token[],
    readonly inputs: readonly string[],
  ) {}

  recipe(): Recipe {
    while (this.tokens[this.#at + 1]?.[1] === "=") {
      this.#recipe.steps.push(this.#step());
      this.#take("end", "");
    }
    this.#names = namesAt(this.#recipe, this.#recipe.steps.length, this.inputs);
    this.#recipe.result = this.#value();
    this.#take("end", "");
    if (this.#at < this.tokens.length) this.#fail();
    return this.#recipe;
  }

  #step(): Step {
    const name = this.#take("name");
    this.#take("sign", "=");
    const before = namesAt(this.#recipe, this.#recipe.steps.length, this.inputs);
    const isEach = this.#is("[");
    this.#names = isEach ? new Set([...before, ITEM]) : before;
    const step: Step = { name, ...this.#call(), each: undefined, when: null };
    if (isEach) {
      for (const word of ["for", ITEM, "in"]) this.#take("name", word);
      this.#names = before;
      step.each = this.#value();
      this.#names = new Set([...before, ITEM]);
    }
    if (this.#is("if")) step.when = this.#condition();
    if (isEach) this.#take("sign", "]");
    else if (step.when) for (const word of ["else", "None"]) this.#take("name", word);
    return step;
  }

  #call(): { tool: string; args: JsonObject } {
    let tool = this.#take("name");
    while (this.#is(".")) tool += `.${this.#take("name")}`;
    const args: [string, Json][] = [];
    this.#take("sign", "(");
    while (!this.#is(")")) {
      if (this.#is("**")) args.push(...Object.entries(this.#object()));
      else {
        const name = this.#take("name");
        this.#take("sign", "=");
        args.push([name, this.#value()]);
      }
      if (this.#now[1] !== ")") this.#take("sign", ",");
    }
    return { tool, args: Object.fromEntries(args) };
  }

  #condition(): Condition {
    if (this.#is("not")) return { left: this.#value(), operator: "not", right: null };
    const left = this.#value();
    const sign = OPERATORS.find((one): one is Operator => one === this.#now[1] && this.#now[0] !== "text");
    if (sign === undefined) return { left, operator: "is", right: null };
    this.#at += 1;
    const right = this.#value();
    return sign === "in" ? { left: right, operator: sign, right: left } : { left, operator: sign, right };
  }

  /** A value, or texts and values joined with plus. */
  #value(): Json {
    const [kind, sign] = this.#now;
    if (kind === "sign" && sign === "[") return this.#list();
    if (kind === "sign" && sign === "{") return this.#object();
    if (kind === "number" || (kind === "sign" && sign === "-")) return this.#number();
    const words: Record<string, Json> = { True: true, False: false, None: null };
    if (kind === "name" && Object.hasOwn(words, sign)) {
      this.#at += 1;
      return words[sign] as Json;
    }
    const pieces = [this.#piece()];
    while (this.#is("+")) pieces.push(this.#piece());
    return templateOf(pieces, this.#names);
  }

  #piece(): Piece {
    const [kind, value] = this.#now;
    if (kind === "text" && this.tokens[this.#at + 1]?.[1] === ".") return this.#table();
    if (kind === "text") {
      this.#at += 1;
      return value;
    }
    if (value !== "str" || this.#names.has("str")) return { path: this.#path() };
    this.#at += 1;
    this.#take("sign", "(");
    const path = this.#path();
    this.#take("sign", ")");
    return { path };
  }

  #path(): Path {
    const name = this.#take("name");
    if (!this.#names.has(name)) this.#fail();
    const steps: (string | number)[] = [];
    while (this.#is("[")) {
      const [kind, value] = this.#now;
      if (kind !== "text" && kind !== "number") this.#fail();
      this.#at += 1;
      steps.push(kind === "text" ? value : Number(value));
      this.#take("sign", "]");
    }
    return [name, ...steps];
  }

  /** Read only columns and rows: the rest is compared afterwards. */
  #table(): Piece {
    this.#skipTo("in");
    this.#take("sign", "[");
    const columns = this.#list().map(String);
    this.#skipTo("in");
    const path = this.#path();
    for (const sign of ["]", ")"]) this.#take("sign", sign);
    return { path, columns };
  }

  #skipTo(name: string): void {
    while (this.#now[0] !== "name" || this.#now[1] !== name) this.#at += 1;
    this.#at += 1;
  }

  #list(): Json[] {
    const items: Json[] = [];
    this.#take("sign", "[");
    while (!this.#is("]")) {
      items.push(this.#value());
      if (this.#now[1] !== "]") this.#take("sign", ",");
    }
    return items;
  }

  #object(): JsonObject {
    const pairs: [string, Json][] = [];
    this.#take("sign", "{");
    while (!this.#is("}")) {
      const key = this.#take("text");
      this.#take("sign", ":");
      pairs.push([key, this.#value()]);
      if (this.#now[1] !== "}") this.#take("sign", ",");
    }
    return Object.fromEntries(pairs);
  }

  #number(): Json {
    const sign = this.#is("-") ? "-" : "";
    const found = numberOf(sign + this.#take("number"));
    return typeof found === "string" ? this.#fail() : found;
  }

  get #now(): Token {
    return this.tokens[this.#at] ?? this.#fail();
  }

  #is(value: string): boolean {
    const [kind, found] = this.#now;
    const isIt = kind !== "text" && found === value;
    if (isIt) this.#at += 1;
    return isIt;
  }

  #take(kind: Kind, value?: string): string {
    const [found, text] = this.#now;
    if (found !== kind || (value !== undefined && text !== value)) this.#fail();
    this.#at += 1;
    return text;
  }

  #fail(): never {
    throw new SyntaxError();
  }
}
