/**
 * The code editor: CodeMirror, loaded when the first one is shown.
 *
 * It lives in a shadow root: there its styles are adopted sheets, which the page's policy allows. Colours are the page's
 * own variables, which reach into it.
 */

import { Annotation, Compartment, EditorState, type Extension, type Line, type Text } from "@codemirror/state";
import {
  EditorView,
  drawSelection,
  highlightActiveLine,
  highlightActiveLineGutter,
  highlightSpecialChars,
  lineNumbers,
} from "@codemirror/view";

import type { CodeNames } from "./code-names";
import { completed } from "./completion";
import { editorKeys, type Indent } from "./keys";
import { give, problems, type Problem } from "./problems";
import { JSON_TEXT, PYTHON, coloured } from "./highlight";
import { t } from "../page/i18n.svelte";
import { JsonTextError, parseJson } from "../text/json-text";
import { UNSEEN, shown } from "../text/shown";

export type CodeLanguage = "json" | "python" | "text";

/** A problem in the text; without a line, it concerns the whole text. */
export interface CodeProblem {
  line?: number;
  column?: number; // from 1
  endLine?: number;
  endColumn?: number; // the column after the last character
  message: string;
}

export interface EditorSettings {
  parent: HTMLElement;
  root: ShadowRoot;
  value: string;
  language: CodeLanguage;
  label: string;
  hintId: string;
  rows: number;
  isReadOnly: boolean;
  change: (value: string) => void;
  names?: () => CodeNames | null; // what completion offers
}

export interface Editor {
  setValue: (value: string) => void;
  setLabel: (label: string) => void;
  setProblems: (problems: readonly CodeProblem[]) => void;
  focus: () => void;
  close: () => void;
}

const FromOutside = Annotation.define<boolean>();
const INDENTS: Readonly<Record<CodeLanguage, Indent>> = {
  python: { step: "    ", deeper: /[:([{]\s*(#.*)?$/ },
  json: { step: "  ", deeper: /[[{]\s*$/ },
  text: { step: "  ", deeper: /(?!)/ },
};

// Invisible characters are shown by their code points; the text itself keeps them.
const SPECIAL = highlightSpecialChars({
  specialChars: new RegExp(UNSEEN, UNSEEN.flags), // a copy, because it has state
  render: (code) =>
    Object.assign(document.createElement("span"), {
      className: "cm-specialChar",
      textContent: shown(String.fromCodePoint(code)),
    }),
});

const LOOK = EditorView.theme({
  "&": {
    color: "var(--ink)",
    backgroundColor: "var(--paper)",
    border: "1px solid var(--line-strong)",
    borderRadius: "6px",
    fontSize: "13px",
  },
  "&.cm-focused": { outline: "2px solid var(--accent)", outlineOffset: "1px" },
  ".cm-scroller": { fontFamily: "var(--mono)", lineHeight: "1.5", maxHeight: "60vh", overflow: "auto" },
  ".cm-content": { caretColor: "var(--ink)", padding: "8px 0" },
  ".cm-specialChar": { color: "var(--bad)" },
  ".cm-cursor, .cm-dropCursor": { borderLeftColor: "var(--ink)" },
  ".cm-gutters": { backgroundColor: "var(--raised)", color: "var(--soft)", border: "0", borderRadius: "6px 0 0 6px" },
  ".cm-activeLine, .cm-activeLineGutter": { backgroundColor: "transparent" },
  "&.cm-focused .cm-activeLine, &.cm-focused .cm-activeLineGutter": { backgroundColor: "var(--hover)" },
  "& .cm-selectionBackground, &.cm-focused > .cm-scroller > .cm-selectionLayer .cm-selectionBackground": {
    backgroundColor: "var(--accent-soft)",
  },
  ".cm-tooltip": {
    backgroundColor: "var(--raised)",
    color: "var(--ink)",
    border: "1px solid var(--line)",
    borderRadius: "6px",
    maxWidth: "60ch",
  },
});

export function openEditor(settings: EditorSettings): Editor {
  const naming = new Compartment();
  const view = new EditorView({
    root: settings.root,
    parent: settings.parent,
    state: EditorState.create({
      doc: settings.value,
      extensions: [...extensions(settings), naming.of(named(settings.label, settings.hintId))],
    }),
  });
  return {
    setValue: (value) => replace(view, value),
    setLabel: (label) => view.dispatch({ effects: naming.reconfigure(named(label, settings.hintId)) }),
    setProblems: (given) =>
      give(
        view,
        given.map((one) => placed(view.state, one)),
      ),
    focus: () => view.focus(),
    close: () => view.destroy(),
  };
}

function extensions(settings: EditorSettings): Extension[] {
  const isPython = settings.language === "python";
  return [
    lineNumbers(),
    drawSelection(),
    SPECIAL,
    highlightActiveLine(),
    highlightActiveLineGutter(),
    editorKeys(INDENTS[settings.language], isPython),
    coloured(isPython ? PYTHON : settings.language === "json" ? JSON_TEXT : null),
    problems(settings.language === "json" ? jsonProblems : undefined), // behind the colours: an underline goes around them
    isPython ? EditorState.languageData.of(() => [{ commentTokens: { line: "#" } }]) : [],
    EditorView.lineWrapping,
    EditorState.readOnly.of(settings.isReadOnly),
    LOOK,
    EditorView.theme({ ".cm-content, .cm-gutter": { minHeight: `${settings.rows * 19.5 + 16}px` } }),
    settings.names ? completed(settings.names) : [],
    EditorView.updateListener.of((update) => {
      const isOurs = update.transactions.some((one) => one.annotation(FromOutside));
      if (update.docChanged && !isOurs) settings.change(update.state.doc.toString());
    }),
  ];
}

function jsonProblems(doc: Text): Problem[] {
  const text = doc.toString();
  try {
    if (text.trim() !== "") parseJson(text);
    return [];
  } catch (error) {
    if (!(error instanceof JsonTextError)) throw error;
    const row = doc.line(Math.min(error.line, doc.lines));
    const to = Math.min(row.from + error.column, row.to); // at the end of a line, mark the character before it
    return [
      {
        from: Math.max(to - 1, row.from),
        to,
        message: t(error.sign ? "try.json.sign" : "try.json.end", {
          line: error.line,
          column: error.column,
          sign: shown(error.sign),
        }),
      },
    ];
  }
}

function named(label: string, hintId: string): Extension {
  return EditorView.contentAttributes.of({ tabindex: "0", "aria-label": label, "aria-describedby": hintId });
}

function replace(view: EditorView, value: string): void {
  if (value === view.state.doc.toString()) return;
  view.dispatch({ changes: { from: 0, to: view.state.doc.length, insert: value }, annotations: FromOutside.of(true) });
}

function placed(state: EditorState, problem: CodeProblem): Problem {
  const rowAt = (line: number): Line => state.doc.line(Math.min(Math.max(1, line), state.doc.lines));
  // A column counts characters as Python does; an emoji is two of JavaScript's.
  const at = (row: Line, column: number): number => row.from + [...row.text].slice(0, column - 1).join("").length;
  const row = rowAt(problem.line ?? 1);
  const from = at(row, problem.column ?? 1);
  const last = rowAt(problem.endLine ?? problem.line ?? 1);
  const to =
    problem.line === undefined ? row.from : problem.endColumn === undefined ? row.to : at(last, problem.endColumn);
  return { from: Math.min(from, to), to: Math.max(from, to), message: problem.message };
}
