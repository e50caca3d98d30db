/**
 * Markdown as a tree, for the part of the language that models write.
 *
 * The text is untrusted. No part of it becomes HTML: components create DOM nodes from the tree. Unsupported
 * syntax stays text. Links lead to http(s) only. Time and depth are bounded for any input.
 */

export type Inline =
  | { kind: "text"; text: string }
  | { kind: "code"; text: string }
  | { kind: "break" }
  | { kind: "strong" | "em" | "del"; inside: Inline[] }
  | { kind: "link"; text: string; url: string };

export type Block =
  | { kind: "paragraph"; inside: Inline[] }
  | { kind: "heading"; level: number; inside: Inline[] }
  | { kind: "code"; language: string; text: string }
  | { kind: "quote"; inside: Block[] }
  | { kind: "list"; start: number | null; items: Block[][] }
  | { kind: "table"; head: Inline[][]; rows: Inline[][][] }
  | { kind: "rule" };

const DEEPEST = 6;
const MAX_COLUMNS = 30;
const FENCE = /^ {0,3}(`{3,}|~{3,})\s*([^\s`]*)/;
const HEADING = /^ {0,3}(#{1,6})(?=\s)/;
const RULE = /^ {0,3}(?:(?:\*\s*){3,}|(?:-\s*){3,}|(?:_\s*){3,})$/;
const ITEM = /^( {0,3})([-*+]|\d{1,9}[.)])(?:( {1,4})(?=\S)|\s*$)/;
const QUOTE = /^ {0,3}> ?/;

export function markdown(text: string): Block[] {
  return blocksOf(text.replaceAll("\t", "    ").split(/\r\n?|[\n\u2028\u2029]/), 0);
}

function blocksOf(lines: string[], depth: number): Block[] {
  const blocks: Block[] = [];
  let words: string[] = [];
  const end = (): void => {
    if (words.length > 0) blocks.push({ kind: "paragraph", inside: inline(words.join("\n")) });
    words = [];
  };
  for (let at = 0; at < lines.length;) {
    const taken = depth < DEEPEST ? blockAt(lines, at, depth, words.length > 0) : null;
    if (taken) {
      end();
      blocks.push(taken[0]);
      at = taken[1];
      continue;
    }
    const line = lines[at++] ?? "";
    if (line.trim() === "") end();
    else words.push(line.trimStart());
  }
  end();
  return blocks;
}

/** The block that begins here, and the next line; null for a paragraph. */
function blockAt(lines: string[], at: number, depth: number, isInside: boolean): [Block, number] | null {
  const line = lines[at] ?? "";
  const fence = FENCE.exec(line);
  if (fence) return codeAt(lines, at, fence[1] ?? "", fence[2] ?? "");
  if (line.length < 1000) {
    const heading = HEADING.exec(line);
    if (heading)
      return [
        { kind: "heading", level: heading[1]?.length ?? 1, inside: inline(titleOf(line.slice(heading[0].length))) },
        at + 1,
      ];
    if (RULE.test(line)) return [{ kind: "rule" }, at + 1];
  }
  if (QUOTE.test(line)) {
    const next = lineFrom(lines, at, (one) => !QUOTE.test(one));
    return [
      {
        kind: "quote",
        inside: blocksOf(
          lines.slice(at, next).map((one) => one.replace(QUOTE, "")),
          depth + 1,
        ),
      },
      next,
    ];
  }
  const item = ITEM.exec(line);
  if (item && !(isInside && /\d/.test(item[2] ?? "") && parseInt(item[2] ?? "", 10) !== 1))
    return listAt(lines, at, depth);
  return line.includes("|") && !isInside ? tableAt(lines, at) : null;
}

/** Without the marks that may close a heading. */
function titleOf(rest: string): string {
  const title = rest.trim();
  const words = withoutEnd(title, "#");
  return words === "" || /\s$/.test(words.slice(-1)) ? words.trimEnd() : title;
}

/** Trim these characters at the end. A regular expression would take quadratic time. */
function withoutEnd(text: string, signs: string): string {
  let end = text.length;
  while (end > 0 && signs.includes(text[end - 1] ?? " ")) end--;
  return text.slice(0, end);
}

/** The first matching line from here on, or the end. */
function lineFrom(lines: string[], from: number, fits: (line: string) => boolean): number {
  let at = from;
  while (at < lines.length && !fits(lines[at] ?? "")) at++;
  return at;
}

/** Up to the closing fence, which may be missing while an answer is streamed. */
function codeAt(lines: string[], at: number, fence: string, language: string): [Block, number] {
  const closes = (one: string): boolean =>
    one.trim().length >= fence.length && one.trim() === (fence[0] ?? "").repeat(one.trim().length);
  const last = lineFrom(lines, at + 1, closes);
  return [{ kind: "code", language, text: lines.slice(at + 1, last).join("\n") }, last + 1];
}

function listAt(lines: string[], from: number, depth: number): [Block, number] {
  const marker = markerOf(lines[from] ?? "");
  const items: string[][] = [];
  let [at, indent] = [from, 0];
  for (; at < lines.length; at++) {
    const line = lines[at] ?? "";
    const found = ITEM.exec(line);
    if (found && markerOf(line) === marker && (items.length === 0 || (found[1] ?? "").length < indent)) {
      indent = (found[1] ?? "").length + (found[2] ?? "").length + (found[3]?.length ?? 1);
      items.push([line.slice(indent)]);
    } else if (line.trim() === "") items.at(-1)?.push("");
    else if (line.search(/\S/) >= Math.min(indent, 2))
      items.at(-1)?.push(line.slice(Math.min(indent, line.search(/\S/))));
    else if (found || lines[at - 1]?.trim() === "" || blockAt([line], 0, DEEPEST - 1, true)) break;
    else items.at(-1)?.push(line); // a paragraph that goes on without its indent
  }
  const first = parseInt(lines[from] ?? "", 10);
  return [
    { kind: "list", start: Number.isNaN(first) ? null : first, items: items.map((one) => blocksOf(one, depth + 1)) },
    at,
  ];
}

/** The properties shared by all items of a list. */
const markerOf = (line: string): string | undefined => ITEM.exec(line)?.[2]?.at(-1);

function tableAt(lines: string[], at: number): [Block, number] | null {
  const ruler = lines[at + 1]?.trim() ?? "";
  const head = cellsOf(lines[at] ?? "");
  if (!/^[-|: ]+$/.test(ruler) || !ruler.includes("-") || cellsOf(ruler).length !== head.length) return null;
  const next = lineFrom(lines, at + 2, (one) => !one.includes("|"));
  const rows = lines.slice(at + 2, next).map((one) => cellsOf(one).slice(0, head.length).map(inline));
  return [{ kind: "table", head: head.map(inline), rows }, next];
}

function cellsOf(line: string): string[] {
  const cells = line
    .trim()
    .replace(/^\|/, "")
    .replace(/\|$/, "")
    .split(/(?<!\\)\|/);
  return cells.slice(0, MAX_COLUMNS).map((one) => one.trim().replaceAll("\\|", "|"));
}

// Inside of a line

const LINK =
  /(!?)\[([^\[\]\n]{0,1000})\]\( ?<?((?:[^\s()<>]|\([^\s()<>]{0,500}\)){1,4000})>?(?: +"[^"\n]{0,500}")? ?\)/y;
const ADDRESS = /<(https?:\/\/[^\s<>]{1,4000})>|https?:\/\/[^\s<>"'`*|\\]{1,4000}/y;
const SPECIAL = /[\\`*_~[!<h\n]/g;

interface Frame {
  mark: string;
  inside: Inline[];
}
const KINDS: Record<string, "strong" | "em" | "del"> = {
  "**": "strong",
  __: "strong",
  "*": "em",
  _: "em",
  "~~": "del",
};

export function inline(text: string): Inline[] {
  const frames: Frame[] = [{ mark: "", inside: [] }];
  const ticks = ticksIn(text);
  const put = (one: Inline): void => {
    const inside = frames.at(-1)?.inside;
    const last = inside?.at(-1);
    if (one.kind === "text" && last?.kind === "text") last.text += one.text;
    else inside?.push(one);
  };
  for (let at = 0; at < text.length;) {
    const [found, next] = pieceAt(text, at, ticks);
    if (typeof found === "string") emphasis(found, text[at - 1] ?? " ", text[next] ?? " ", frames, put);
    else put(found);
    at = next;
  }
  close(frames, 1);
  return frames[0]?.inside ?? [];
}

/** The next piece, and its end. A string is a run of emphasis marks. */
function pieceAt(text: string, at: number, ticks: Ticks): [Inline | string, number] {
  const sign = text[at] ?? "";
  if (sign === "\\" && /[!-/:-@[-`{-~]/.test(text[at + 1] ?? ""))
    return [{ kind: "text", text: text[at + 1] ?? "" }, at + 2];
  if (sign === "\n")
    return [
      / {2}$|\\$/.test(text.slice(Math.max(0, at - 2), at)) ? { kind: "break" } : { kind: "text", text: "\n" },
      at + 1,
    ];
  if (sign === "`") return codeSpanAt(text, at, ticks);
  if (sign === "[" || sign === "!") {
    LINK.lastIndex = at;
    const found = LINK.exec(text);
    const url = found && safe(found[3] ?? "");
    if (found && url) return [{ kind: "link", text: found[2] ?? "", url }, LINK.lastIndex];
  }
  if (sign === "<" || (sign === "h" && !/\w/.test(text[at - 1] ?? ""))) {
    ADDRESS.lastIndex = at;
    const found = ADDRESS.exec(text);
    const address = found?.[1] ?? (found && withoutEnd(found[0], ".,;:!?)]"));
    const url = address && safe(address);
    if (found && address && url)
      return [{ kind: "link", text: "", url }, at + (found[1] ? found[0].length : address.length)];
    if (found) return [{ kind: "text", text: found[0] }, ADDRESS.lastIndex]; // skip it as a whole
  }
  if (sign === "*" || sign === "_" || sign === "~") {
    let end = at;
    while (text[end] === sign) end++;
    return [text.slice(at, end), end];
  }
  SPECIAL.lastIndex = at + 1;
  const next = SPECIAL.exec(text)?.index ?? text.length;
  return [{ kind: "text", text: text.slice(at, next) }, next];
}

/** Where runs of backticks are, by their length, the last one first. */
type Ticks = Map<number, number[]>;

function ticksIn(text: string): Ticks {
  const ticks: Ticks = new Map();
  for (const run of text.includes("`") ? text.matchAll(/`+/g) : []) {
    const places = ticks.get(run[0].length);
    if (places) places.push(run.index);
    else ticks.set(run[0].length, [run.index]);
  }
  for (const places of ticks.values()) places.reverse();
  return ticks;
}

function codeSpanAt(text: string, at: number, ticks: Ticks): [Inline, number] {
  const run = /`+/y;
  run.lastIndex = at;
  const length = run.exec(text)?.[0].length ?? 1;
  const places = ticks.get(length) ?? [];
  while (places.length > 0 && (places.at(-1) ?? 0) < at + length) places.pop(); // earlier places are no longer needed
  const end = places.at(-1);
  if (end === undefined) return [{ kind: "text", text: text.slice(at, at + length) }, at + length];
  const code = text.slice(at + length, end).replaceAll("\n", " ");
  const isPadded = code.startsWith(" ") && code.endsWith(" ") && code.trim() !== "";
  return [{ kind: "code", text: isPadded ? code.slice(1, -1) : code }, end + length];
}

/** A run of marks closes open emphasis, then opens; other marks are text. */
function emphasis(run: string, before: string, after: string, frames: Frame[], put: (one: Inline) => void): void {
  const sign = run[0] ?? "";
  const isWord = (one: string): boolean => /[\p{L}\p{N}]/u.test(one);
  const mayOpen = /\S/.test(after) && (sign !== "_" || !isWord(before));
  const mayClose = /\S/.test(before) && (sign !== "_" || !isWord(after));
  let left = run.length;
  while (mayClose && left > 0) {
    const open = frames.findLastIndex((one) => one.mark[0] === sign && one.mark.length <= left);
    const frame = frames[open];
    if (open < 1 || !frame || frame.inside.length === 0) break;
    close(frames, open + 1);
    frames.pop();
    put({ kind: KINDS[frame.mark] ?? "em", inside: frame.inside });
    left -= frame.mark.length;
  }
  for (; left > 0 && mayOpen && frames.length <= DEEPEST;) {
    const mark = sign.repeat(Math.min(2, left));
    if (!KINDS[mark] || run.length > 3) break;
    frames.push({ mark, inside: [] });
    left -= mark.length;
  }
  if (left > 0) put({ kind: "text", text: sign.repeat(left) });
}

/** Turn unclosed marks from here on back into text. */
function close(frames: Frame[], from: number): void {
  const base = frames[from - 1];
  for (const { mark, inside } of frames.splice(from)) {
    base?.inside.push({ kind: "text", text: mark });
    for (const one of inside) base?.inside.push(one); // one by one: there may be more than a call accepts as arguments
  }
}

/** The full URL as a browser resolves it; null if it is not http(s), or hides its target. */
function safe(address: string): string | null {
  try {
    const url = new URL(address);
    const isWeb = (url.protocol === "https:" || url.protocol === "http:") && url.username === "" && url.password === "";
    return isWeb ? url.href : null;
  } catch {
    return null;
  }
}
