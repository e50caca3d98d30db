/** Completions for a position in code: packs, tools, and arguments of the current call. Pure functions. */

import { line } from "../text/shown";

export interface NamedParameter {
  name: string;
  type?: string;
  required?: boolean;
  default?: unknown;
  description?: string;
}

/** `name` is the name in code; `tool` is the tool's name. */
export interface NamedTool {
  name: string;
  tool?: string;
  signature?: string;
  summary?: string;
  parameters?: NamedParameter[];
}

/** The answer of `GET /run/names`. */
export interface CodeNames {
  packs: { name: string; description?: string; tools: NamedTool[] }[];
  functions?: NamedTool[]; // tools without a pack
  builtins: string[];
  modules?: string[];
  snippets?: NamedSnippet[];
  aliases?: Record<string, string>; // other names of tools
}

/** A snippet, which must be the whole code: `$name key=value`. */
export interface NamedSnippet {
  name: string;
  description?: string;
  usage?: string;
  parameters?: NamedParameter[];
}

/** A completion. After inserting it, the cursor moves back by `back` characters. */
export interface Offer {
  text: string;
  detail?: string;
  info?: string;
  insert?: string;
  back?: number;
}

export interface Offers {
  word: string; // the typed prefix
  offers: Offer[];
}

const BEFORE = 2000; // characters searched for the current call
const MAX_NAMES = 50;
const NAME = "[\\p{L}_][\\p{L}\\p{N}_]*";
const LAST_WORD = new RegExp(`${NAME}$`, "u");
const PACK = new RegExp(`(${NAME})\\.$`, "u");
const CALLED = new RegExp(`(?:(${NAME})\\.)?(${NAME})\\s*$`, "u");
const SNIPPET = /^\s*\$([\w-]*)$/;
const IN_SNIPPET = /^\s*\$([\w-]+)\s(?:[^]*\s)?([\w-]*)$/;
const ASSIGNED = new RegExp(`^\\s*(${NAME})\\s*=[^=]`, "gmu");

/** Completions after this code. None within strings and comments, nor without a typed prefix, unless `isAsked`. */
export function offersAt(code: string, names: CodeNames, isAsked = false): Offers | null {
  if (/^\s*\$/.test(code)) return snippetOffers(code, names.snippets ?? []);
  if (isInText(code)) return null;
  const before = code.slice(-BEFORE);
  const word = LAST_WORD.exec(before)?.[0] ?? "";
  const ahead = before.slice(0, before.length - word.length);
  const offers = candidates(code, ahead, word, names, isAsked);
  const low = word.toLowerCase();
  const begun = offers.filter((one) => one.text.toLowerCase().startsWith(low));
  const others = offers.filter((one) => !begun.includes(one) && low.length > 1 && one.text.toLowerCase().includes(low));
  const found = [...begun, ...others].slice(0, MAX_NAMES);
  return found.length === 0 || (found.length === 1 && found[0]?.text === word && !found[0].insert)
    ? null
    : { word, offers: found };
}

/** The snippets with this prefix, or the remaining parameters of the current one. */
function snippetOffers(code: string, snippets: NamedSnippet[]): Offers | null {
  const name = SNIPPET.exec(code)?.[1];
  const [, called, begun = ""] = IN_SNIPPET.exec(code) ?? [];
  const given = new Set([...code.matchAll(/([\w-]+)\s*[=:]/g)].map((one) => one[1]));
  const parameters = snippets.find((one) => one.name === called)?.parameters ?? [];
  const offers =
    name !== undefined
      ? snippets.map(snippetOffer)
      : parameters.filter((one) => !given.has(one.name)).map(parameterOffer);
  const word = name !== undefined ? `$${name}` : begun;
  const found = offers.filter((one) => one.text.toLowerCase().startsWith(word.toLowerCase()));
  return found.length === 0 ? null : { word, offers: found };
}

function snippetOffer(one: NamedSnippet): Offer {
  return {
    text: `$${one.name}`,
    detail: line(one.usage?.replace(/^\S*\s*/, "")),
    info: one.description,
    insert: `$${one.name} `,
  };
}

function candidates(code: string, ahead: string, word: string, names: CodeNames, isAsked: boolean): Offer[] {
  const pack = PACK.exec(ahead)?.[1];
  if (pack !== undefined) return toolsOf(names, pack).map(toolOffer);
  if (/[.\d]$/.test(ahead)) return [];
  const parameters = parametersOf(names, ahead);
  if (word === "" && !isAsked) return parameters;
  const packs = names.packs.map((one) => ({ text: one.name, info: one.description }));
  const plain = [...(names.modules ?? []), ...names.builtins].map((text) => ({ text }));
  const own = [
    ...new Set([...code.slice(0, code.length - word.length).matchAll(ASSIGNED)].map((one) => one[1] ?? "")),
  ].map((text) => ({ text }));
  return [...parameters, ...own, ...packs, ...functionsOf(names).map(toolOffer), ...plain];
}

function toolsOf(names: CodeNames, pack: string): NamedTool[] {
  return names.packs.find((one) => one.name === pack)?.tools ?? [];
}

/** Tools without a pack, and aliases. */
function functionsOf(names: CodeNames): NamedTool[] {
  const functions = names.functions ?? [];
  const all = [...functions, ...names.packs.flatMap((one) => one.tools)];
  return [
    ...functions,
    ...Object.entries(names.aliases ?? {}).map(([name, tool]) => ({ ...all.find((one) => one.tool === tool), name })),
  ];
}

/** A tool with its parentheses; the cursor goes between them if it takes arguments. */
function toolOffer(tool: NamedTool): Offer {
  const detail = line(tool.signature?.replace(/^[^(]*/, ""));
  return {
    text: tool.name,
    detail,
    info: tool.summary,
    insert: `${tool.name}()`,
    back: tool.parameters?.length === 0 ? 0 : 1,
  };
}

/** The missing arguments of the innermost open call; none in the middle of a value. */
function parametersOf(names: CodeNames, ahead: string): Offer[] {
  if (!/[(,]\s*$/.test(ahead)) return [];
  let depth = 0;
  for (let at = ahead.length - 1; at >= 0; at--) {
    const sign = ahead[at] ?? "";
    if (")]}".includes(sign)) depth += 1;
    else if ("([{".includes(sign) && depth-- === 0) {
      if (sign !== "(") return [];
      const [, pack, name] = CALLED.exec(ahead.slice(0, at)) ?? [];
      const tool = (pack === undefined ? functionsOf(names) : toolsOf(names, pack)).find((one) => one.name === name);
      const given = new Set([...ahead.slice(at).matchAll(new RegExp(`(${NAME})\\s*=[^=]`, "gu"))].map((one) => one[1]));
      return (tool?.parameters ?? []).filter((one) => !given.has(one.name)).map(parameterOffer);
    }
  }
  return [];
}

function parameterOffer(one: NamedParameter): Offer {
  const otherwise = one.default === undefined ? "" : `= ${JSON.stringify(one.default)}`;
  return { text: `${one.name}=`, detail: line([one.type, otherwise].filter(Boolean).join(" ")), info: one.description };
}

const TEXTS = /("""|''')(?:(?:[^\\]|\\[^])*?\1|([^]*$))|"(?:[^"\\\n]|\\[^])*"|'(?:[^'\\\n]|\\[^])*'|#.*/g;

/** Whether code ends inside a string or comment. */
function isInText(code: string): boolean {
  let isOpen = false;
  const rest = code.replace(TEXTS, (text: string, _quote: string, open: string | undefined, at: number) => {
    isOpen ||= open !== undefined || (text.startsWith("#") && at + text.length === code.length);
    return "";
  });
  return isOpen || /["']/.test(rest.slice(rest.lastIndexOf("\n") + 1));
}
