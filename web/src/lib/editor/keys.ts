/**
 * The keys of an editor: moving and deleting by CodeMirror's commands, lines and brackets by our own.
 *
 * CodeMirror's keymaps would bring its package for languages along, 15 KB. Mod-Enter belongs to the page: it sends.
 */

import {
  copyLineDown,
  copyLineUp,
  cursorCharLeft,
  cursorCharRight,
  cursorDocEnd,
  cursorDocStart,
  cursorGroupLeft,
  cursorGroupRight,
  cursorLineBoundaryBackward,
  cursorLineBoundaryForward,
  cursorLineBoundaryLeft,
  cursorLineBoundaryRight,
  cursorLineDown,
  cursorLineUp,
  cursorPageDown,
  cursorPageUp,
  deleteGroupBackward,
  deleteGroupForward,
  deleteLine,
  deleteLineBoundaryBackward,
  deleteLineBoundaryForward,
  history,
  historyKeymap,
  moveLineDown,
  moveLineUp,
  selectAll,
  selectCharLeft,
  selectCharRight,
  selectDocEnd,
  selectDocStart,
  selectGroupLeft,
  selectGroupRight,
  selectLine,
  selectLineBoundaryBackward,
  selectLineBoundaryForward,
  selectLineBoundaryLeft,
  selectLineBoundaryRight,
  selectLineDown,
  selectLineUp,
  selectPageDown,
  selectPageUp,
  simplifySelection,
  toggleLineComment,
  toggleTabFocusMode,
} from "@codemirror/commands";
import { MapMode, StateEffect, StateField, findClusterBreak, type ChangeSpec, type Extension } from "@codemirror/state";
import { EditorView, keymap, type Command, type KeyBinding } from "@codemirror/view";

/** Indentation: the step, and what increases it. */
export interface Indent {
  step: string;
  deeper: RegExp;
}

const PAIRS: Readonly<Record<string, string>> = { "(": ")", "[": "]", "{": "}", '"': '"', "'": "'" };
const ENDS = /^$|[\s)\]}:;,>]/; // characters before which brackets are closed automatically

const MOVES: readonly KeyBinding[] = [
  { key: "ArrowLeft", run: cursorCharLeft, shift: selectCharLeft, preventDefault: true },
  { key: "Mod-ArrowLeft", mac: "Alt-ArrowLeft", run: cursorGroupLeft, shift: selectGroupLeft, preventDefault: true },
  { mac: "Cmd-ArrowLeft", run: cursorLineBoundaryLeft, shift: selectLineBoundaryLeft, preventDefault: true },
  { key: "ArrowRight", run: cursorCharRight, shift: selectCharRight, preventDefault: true },
  {
    key: "Mod-ArrowRight",
    mac: "Alt-ArrowRight",
    run: cursorGroupRight,
    shift: selectGroupRight,
    preventDefault: true,
  },
  { mac: "Cmd-ArrowRight", run: cursorLineBoundaryRight, shift: selectLineBoundaryRight, preventDefault: true },
  { key: "ArrowUp", run: cursorLineUp, shift: selectLineUp, preventDefault: true },
  { mac: "Cmd-ArrowUp", run: cursorDocStart, shift: selectDocStart },
  { mac: "Ctrl-ArrowUp", run: cursorPageUp, shift: selectPageUp },
  { key: "ArrowDown", run: cursorLineDown, shift: selectLineDown, preventDefault: true },
  { mac: "Cmd-ArrowDown", run: cursorDocEnd, shift: selectDocEnd },
  { mac: "Ctrl-ArrowDown", run: cursorPageDown, shift: selectPageDown },
  { key: "PageUp", run: cursorPageUp, shift: selectPageUp },
  { key: "PageDown", run: cursorPageDown, shift: selectPageDown },
  { key: "Home", run: cursorLineBoundaryBackward, shift: selectLineBoundaryBackward, preventDefault: true },
  { key: "Mod-Home", run: cursorDocStart, shift: selectDocStart },
  { key: "End", run: cursorLineBoundaryForward, shift: selectLineBoundaryForward, preventDefault: true },
  { key: "Mod-End", run: cursorDocEnd, shift: selectDocEnd },
  { key: "Mod-a", run: selectAll },
  { key: "Alt-l", mac: "Ctrl-l", run: selectLine },
  { key: "Escape", run: simplifySelection },
  { key: "Ctrl-m", mac: "Shift-Alt-m", run: toggleTabFocusMode },
];
const EDITS: readonly KeyBinding[] = [
  { key: "Mod-Backspace", mac: "Alt-Backspace", run: deleteGroupBackward, preventDefault: true },
  { key: "Mod-Delete", mac: "Alt-Delete", run: deleteGroupForward, preventDefault: true },
  { mac: "Mod-Backspace", run: deleteLineBoundaryBackward, preventDefault: true },
  { mac: "Mod-Delete", run: deleteLineBoundaryForward, preventDefault: true },
  { key: "Shift-Mod-k", run: deleteLine },
  { key: "Alt-ArrowUp", run: moveLineUp, shift: copyLineUp },
  { key: "Alt-ArrowDown", run: moveLineDown, shift: copyLineDown },
  { key: "Mod-/", run: toggleLineComment },
];

/** With `hasTab`, Tab indents; else it moves the focus. */
export function editorKeys(indent: Indent, hasTab: boolean): Extension {
  const [more, less] = [shifted(indent.step, 1), shifted(indent.step, -1)];
  const lines: KeyBinding[] = [
    { key: "Enter", run: newLine(indent), shift: newLine(indent) },
    {
      key: "Backspace",
      run: erased(-1, indent.step.length),
      shift: erased(-1, indent.step.length),
      preventDefault: true,
    },
    { key: "Delete", run: erased(1, indent.step.length), preventDefault: true },
    { key: "Mod-]", run: more },
    { key: "Mod-[", run: less },
    ...(hasTab ? [{ key: "Tab", run: more, shift: less }] : []),
  ];
  return [
    history(),
    closers,
    EditorView.inputHandler.of(typed),
    keymap.of([...lines, ...MOVES, ...EDITS, ...historyKeymap]),
  ];
}

/** A new line keeps the indentation, one step deeper inside a bracket. Between two brackets, insert two lines. */
const newLine =
  ({ step, deeper }: Indent): Command =>
  (view) => {
    const { state } = view;
    if (state.readOnly) return false;
    const { from, to } = state.selection.main;
    const row = state.doc.lineAt(from);
    const before = row.text.slice(0, from - row.from);
    const indent = /^\s*/.exec(before)?.[0] ?? "";
    const behind = /^[ \t]*/.exec(state.sliceDoc(to, state.doc.lineAt(to).to))?.[0].length ?? 0;
    const isBetween =
      "([{".includes(before.at(-1) ?? "?") &&
      PAIRS[before.at(-1) ?? ""] === state.sliceDoc(to + behind, to + behind + 1);
    const insert = `\n${indent}${deeper.test(before) ? step : ""}`;
    view.dispatch({
      changes: {
        from: before === indent ? row.from : from,
        to: to + behind,
        insert: state.toText(isBetween ? `${insert}\n${indent}` : insert),
      },
      selection: { anchor: (before === indent ? row.from : from) + insert.length },
      scrollIntoView: true,
      userEvent: "input",
    });
    return true;
  };

/** Indent or unindent the selected lines by one step. */
const shifted =
  (step: string, by: 1 | -1): Command =>
  (view) => {
    const { state } = view;
    if (state.readOnly) return false;
    const { main } = state.selection;
    const specs: ChangeSpec[] = [];
    for (let row = state.doc.lineAt(main.from); ; row = state.doc.line(row.number + 1)) {
      const blank = /^[ \t]*/.exec(row.text.slice(0, step.length))?.[0].length ?? 0;
      if (by < 0) specs.push({ from: row.from, to: row.from + blank });
      else if (main.empty || row.from < main.to) specs.push({ from: row.from, insert: step });
      if (row.to >= main.to) break;
    }
    const changes = state.changes(specs);
    view.dispatch({
      changes,
      selection: { anchor: changes.mapPos(main.anchor, 1), head: changes.mapPos(main.head, 1) },
      userEvent: by < 0 ? "delete.dedent" : "input.indent",
    });
    return true;
  };

/** Delete the selection or a character. Backspace deletes an empty bracket pair, or a whole indentation step. */
const erased =
  (by: 1 | -1, step: number): Command =>
  (view) => {
    const { state } = view;
    if (state.readOnly) return false;
    let { from, to } = state.selection.main;
    if (from === to) {
      const row = state.doc.lineAt(from);
      const at = from - row.from;
      const before = row.text.slice(0, at);
      if (by > 0) to = at < row.length ? row.from + findClusterBreak(row.text, at) : Math.min(to + 1, state.doc.length);
      else if (at === 0) from = Math.max(0, from - 1);
      else if (PAIRS[before.at(-1) ?? ""] === (row.text[at] ?? "?")) [from, to] = [from - 1, to + 1];
      else if (/^ +$/.test(before)) from -= ((at - 1) % step) + 1;
      else from = row.from + findClusterBreak(row.text, at, false, false);
    }
    if (from === to) return false;
    view.dispatch({
      changes: { from, to },
      scrollIntoView: true,
      userEvent: by < 0 ? "delete.backward" : "delete.forward",
    });
    return true;
  };

// Automatically closed brackets: typing one moves over it. Those on other lines are forgotten.
const close = StateEffect.define<number>();
const closers = StateField.define<readonly number[]>({
  create: () => [],
  update(now, { changes, effects, newSelection, state }) {
    const row = state.doc.lineAt(newSelection.main.head);
    const moved = now
      .map((one) => changes.mapPos(one, 1, MapMode.TrackDel))
      .filter((one) => one !== null && one >= row.from && one <= row.to) as number[];
    return [...moved, ...effects.flatMap((one) => (one.is(close) ? [one.value] : []))];
  },
});

/** A bracket or quote: close it, wrap the selection, or move over the closing one. */
function typed(view: EditorView, from: number, to: number, text: string): boolean {
  const { state } = view;
  const { main } = state.selection;
  const closing = PAIRS[text];
  if (view.composing || state.readOnly || from !== main.from || to !== main.to) return false;
  const next = state.sliceDoc(to, to + 1);
  const userEvent = "input.type";
  if (main.empty && next === text && state.field(closers).includes(to)) {
    view.dispatch({ selection: { anchor: to + 1 }, changes: { from: to, to: to + 1, insert: text }, userEvent });
    return true;
  }
  if (
    !closing ||
    (main.empty && (!ENDS.test(next) || (closing === text && /[\p{L}\p{N}_'"]/u.test(state.sliceDoc(from - 1, from)))))
  )
    return false;
  view.dispatch({
    changes: [
      { from, insert: text },
      { from: to, insert: closing },
    ],
    selection: { anchor: main.anchor + 1, head: main.head + 1 },
    effects: main.empty ? close.of(to + 1) : [],
    userEvent,
  });
  return true;
}
