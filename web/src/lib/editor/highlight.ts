/**
 * Colours for JSON and Python, and the pair of the bracket at the cursor.
 *
 * One expression per language finds its tokens. CodeMirror's packages for languages know more, and cost 25 KB.
 */

import type { EditorState, Extension, Range } from "@codemirror/state";
import { Decoration, EditorView, ViewPlugin, type DecorationSet } from "@codemirror/view";

/** The groups have these kinds, in this order. Text outside of groups, such as a plain name, has no colour. */
const KINDS = ["comment", "string", "number", "keyword", "name"] as const;
const [OPENING, CLOSING] = ["([{", ")]}"];
const FAR = 20_000; // characters after the cursor that are searched for a bracket's pair

const word = "[\\p{L}_][\\p{L}\\p{N}_]*";
const keywords =
  "and|as|assert|async|await|break|class|continue|def|del|elif|else|except|finally|for|from|global|if|import|in|is|lambda|nonlocal|not|or|pass|raise|return|try|while|with|yield|match|case";
const quoted = (quote: string) =>
  `${quote}{3}(?:[^\\\\${quote}]|\\\\[^]|${quote}(?!${quote}{2}))*(?:${quote}{3}|\\\\?$)|${quote}(?:[^\\\\\\n${quote}]|\\\\[^])*(?:${quote}|)`;

export const PYTHON = new RegExp(
  [
    "(#.*)",
    `([rbfuRBFU]{0,2}(?:${quoted('"')}|${quoted("'")}))`,
    "(0[xX][\\da-fA-F_]+|0[oO][0-7_]+|0[bB][01_]+|\\d[\\d_]*(?:\\.[\\d_]*)?(?:[eE][+-]?\\d+)?j?|(?:True|False|None)(?![\\p{L}\\p{N}_]))",
    `((?:${keywords})(?![\\p{L}\\p{N}_]))`,
    `(${word}(?=\\s*\\())`,
    word,
  ].join("|"),
  "gu",
);
export const JSON_TEXT =
  /(?!)()|("(?:[^"\\\n]|\\.)*(?:"(?!\s*:)|\\?(?=\n|$)))|(-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?|(?:true|false|null)\b)|(?!)()|("(?:[^"\\\n]|\\.)*")/gu;

const LOOK = EditorView.theme({
  ".cm-comment": { color: "var(--soft)", fontStyle: "italic" },
  ".cm-string": { color: "var(--good)" },
  ".cm-number": { color: "var(--warn)" },
  ".cm-keyword, .cm-name": { color: "var(--accent)" },
  "&.cm-focused .cm-pair": { backgroundColor: "var(--accent-soft)" },
});
const MARKS = KINDS.map((kind) => Decoration.mark({ class: `cm-${kind}` }));
const PAIR = Decoration.mark({ class: "cm-pair" });

/** Highlights the tokens of `pattern`, if given, and bracket pairs. */
export function coloured(pattern: RegExp | null): Extension {
  return [LOOK, pattern ? drawn((view) => tokens(view, pattern)) : [], drawn(({ state }) => pair(state, pattern))];
}

function drawn(draw: (view: EditorView) => Range<Decoration>[]): Extension {
  class Drawn {
    decorations: DecorationSet;
    constructor(view: EditorView) {
      this.decorations = Decoration.set(draw(view));
    }
    update(update: { view: EditorView; docChanged: boolean; viewportChanged: boolean; selectionSet: boolean }): void {
      if (update.docChanged || update.viewportChanged || update.selectionSet)
        this.decorations = Decoration.set(draw(update.view));
    }
  }
  return ViewPlugin.fromClass(Drawn, { decorations: (one) => one.decorations });
}

/** The visible tokens, matched from the start because a multi-line string may be open. */
function tokens(view: EditorView, pattern: RegExp): Range<Decoration>[] {
  const found: Range<Decoration>[] = [];
  const seen = view.visibleRanges;
  for (const match of view.state.sliceDoc(0, seen.at(-1)?.to ?? 0).matchAll(pattern)) {
    const [from, to] = [match.index, match.index + match[0].length];
    const mark = MARKS[kindOf(match)];
    if (mark && seen.some((one) => from < one.to && to > one.from)) found.push(mark.range(from, to));
  }
  return found;
}

const kindOf = (groups: readonly (string | undefined)[]): number =>
  groups.findIndex((one, at) => at > 0 && one !== undefined) - 1;

/** The bracket before or after the cursor, and its pair. */
function pair(state: EditorState, pattern: RegExp | null): Range<Decoration>[] {
  const { head } = state.selection.main;
  const isBracket = (one: string): boolean => one !== "" && (OPENING + CLOSING).includes(one);
  const at = isBracket(state.sliceDoc(head - 1, head))
    ? head - 1
    : isBracket(state.sliceDoc(head, head + 1))
      ? head
      : -1;
  const other = at < 0 ? -1 : otherOf(code(state.sliceDoc(0, head + FAR), pattern), at);
  return other < 0 ? [] : [at, other].sort((a, b) => a - b).map((one) => PAIR.range(one, one + 1));
}

/** The text with comments and strings blanked out: brackets in them have no pair. */
function code(text: string, pattern: RegExp | null): string {
  return pattern
    ? text.replace(pattern, (whole: string, ...groups: (string | undefined)[]) =>
        (groups[0] ?? groups[1]) ? " ".repeat(whole.length) : whole,
      )
    : text;
}

function otherOf(text: string, at: number): number {
  const sign = text[at] ?? "";
  const isOpening = OPENING.includes(sign);
  const wanted = isOpening ? CLOSING[OPENING.indexOf(sign)] : OPENING[CLOSING.indexOf(sign)];
  const [step, deeper, back] = isOpening ? [1, OPENING, CLOSING] : [-1, CLOSING, OPENING];
  for (let depth = 0, here = at; here >= 0 && here < text.length; here += step) {
    const one = text[here] ?? "";
    if (deeper.includes(one)) depth += 1;
    else if (back.includes(one) && --depth === 0) return one === wanted ? here : -1;
  }
  return -1;
}
