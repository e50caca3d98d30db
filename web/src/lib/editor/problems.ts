/**
 * Problems in an editor's text: underlined, with a dot beside the line and the message at the pointer.
 *
 * F8 goes to the next one, shows its message and reads it out. CodeMirror's own package for this costs 7 KB.
 */

import {
  Prec,
  RangeSet,
  StateEffect,
  StateField,
  type ChangeDesc,
  type EditorState,
  type Extension,
  type Text,
} from "@codemirror/state";
import {
  Decoration,
  EditorView,
  GutterMarker,
  ViewPlugin,
  gutter,
  keymap,
  showTooltip,
  type DecorationSet,
  type Tooltip,
} from "@codemirror/view";

export interface Problem {
  from: number;
  to: number;
  message: string;
}

interface Problems {
  given: readonly Problem[]; // from outside
  found: readonly Problem[]; // by the editor's own check
  open: number | null; // where messages are shown
}

const DELAY = 750; // milliseconds: don't report errors in the middle of a word
const change = StateEffect.define<Partial<Problems>>();

const LOOK = EditorView.theme({
  ".cm-lintRange-error": {
    textDecoration: "underline wavy var(--bad)",
    textDecorationSkipInk: "none",
    textUnderlineOffset: "3px",
  },
  ".cm-gutter-problems": { width: "14px", textAlign: "center", cursor: "default" },
  ".cm-gutter-problems span": { color: "var(--bad)" },
  ".cm-problems": {
    padding: "4px 10px",
    whiteSpace: "pre-wrap",
    overflowWrap: "anywhere",
    borderInlineStart: "4px solid var(--bad)",
    fontFamily: "var(--sans)",
  },
});

class Dot extends GutterMarker {
  override toDOM(): Node {
    return Object.assign(document.createElement("span"), { textContent: "●" });
  }
}
const DOT = new Dot();

const field = StateField.define<Problems>({
  create: () => ({ given: [], found: [], open: null }),
  update(now, transaction) {
    if (transaction.docChanged) {
      const moved = (one: Problem): Problem[] => move(one, transaction.changes);
      now = { given: now.given.flatMap(moved), found: now.found.flatMap(moved), open: null };
    } else if (transaction.selection && now.open !== null) now = { ...now, open: null };
    for (const effect of transaction.effects) if (effect.is(change)) now = { ...now, ...effect.value };
    return now;
  },
  provide: (self) => [
    EditorView.decorations.from(self, underlined),
    EditorView.contentAttributes.from(self, (now): Record<string, string> =>
      all(now).length > 0 ? { "aria-invalid": "true" } : {},
    ),
    showTooltip.compute([self], (state) => tooltip(state)),
  ],
});

/** Shows the problems given to `give`. With a `check`, the text is checked after a pause in typing. */
export function problems(check?: (text: Text) => Problem[]): Extension {
  return [
    field,
    LOOK,
    gutter({
      class: "cm-gutter-problems",
      markers: dots,
      domEventHandlers: { mouseover: (view, row) => show(view, row.from), mouseout: hide },
    }),
    EditorView.domEventHandlers({
      mouseover: (event, view) => isUnderlined(event.target) && show(view, view.posAtDOM(event.target as Node)),
      mouseout: (_, view) => hide(view),
    }),
    Prec.high(keymap.of([...["F8", "Mod-Shift-m"].map((key) => ({ key, run: next })), { key: "Escape", run: hide }])),
    check ? checked(check) : [],
  ];
}

export function give(view: EditorView, given: readonly Problem[]): void {
  view.dispatch({ effects: change.of({ given }) });
}

function checked(check: (text: Text) => Problem[]): Extension {
  return ViewPlugin.define((view) => {
    let timer = 0;
    const later = (): void => {
      clearTimeout(timer);
      timer = window.setTimeout(() => view.dispatch({ effects: change.of({ found: check(view.state.doc) }) }), DELAY);
    };
    later();
    return { update: (update) => update.docChanged && later(), destroy: () => clearTimeout(timer) };
  });
}

/** Map a problem to its current position; drop it if its text is gone. */
function move(one: Problem, changes: ChangeDesc): Problem[] {
  const from = changes.mapPos(one.from, 1);
  const to = Math.max(from, changes.mapPos(one.to, -1));
  return from < to || one.from === one.to ? [{ ...one, from, to }] : [];
}

const all = (now: Problems): Problem[] => [...now.given, ...now.found].sort((one, other) => one.from - other.from);

function underlined(now: Problems): DecorationSet {
  const mark = Decoration.mark({ class: "cm-lintRange-error" });
  return Decoration.set(all(now).flatMap(({ from, to }) => (from < to ? [mark.range(from, to)] : [])));
}

function dots({ state }: EditorView): RangeSet<GutterMarker> {
  const rows = new Set(all(state.field(field)).map((one) => state.doc.lineAt(one.from).from));
  return RangeSet.of([...rows].map((from) => DOT.range(from)));
}

const isUnderlined = (target: EventTarget | null): boolean =>
  target instanceof Element && target.closest(".cm-lintRange-error") !== null;

/** The messages at the open position, or else of its line. */
function tooltip(state: EditorState): Tooltip | null {
  const now = state.field(field);
  const at = now.open;
  if (at === null) return null;
  const row = state.doc.lineAt(at);
  const there = all(now).filter((one) => one.from <= row.to && one.to >= row.from);
  const exact = there.filter((one) => one.from <= at && at < Math.max(one.to, one.from + 1));
  const text = [...new Set((exact.length > 0 ? exact : there).map((one) => one.message))].join("\n");
  return text
    ? {
        pos: at,
        create: () => ({
          dom: Object.assign(document.createElement("div"), {
            className: "cm-problems",
            role: "tooltip",
            textContent: text,
          }),
        }),
      }
    : null;
}

function show(view: EditorView, at: number): boolean {
  if (view.state.field(field).open !== at) view.dispatch({ effects: change.of({ open: at }) });
  return false;
}

/** Hide the messages. Return whether any were open. */
function hide(view: EditorView): boolean {
  const isOpen = view.state.field(field).open !== null;
  if (isOpen) view.dispatch({ effects: change.of({ open: null }) });
  return isOpen;
}

/** Go to the next problem, or wrap around to the first. */
function next(view: EditorView): boolean {
  const list = all(view.state.field(field));
  const one = list.find(({ from }) => from > view.state.selection.main.head) ?? list[0];
  if (!one) return false;
  view.dispatch({
    selection: { anchor: one.from },
    effects: [change.of({ open: one.from }), EditorView.announce.of(one.message)],
    scrollIntoView: true,
  });
  return true;
}
