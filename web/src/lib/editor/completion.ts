/**
 * A completion list under the cursor. CodeMirror's own is four times as large.
 *
 * Arrows choose, Enter and Tab take, Escape closes, Ctrl-Space asks for it.
 */

import { Prec, StateEffect, StateField, type EditorState, type Extension } from "@codemirror/state";
import { EditorView, keymap, showTooltip, type Command } from "@codemirror/view";

import { offersAt, type CodeNames, type Offer } from "./code-names";
import { line, shown } from "../text/shown";

interface Open {
  from: number;
  offers: readonly Offer[];
  at: number;
}

const setOpen = StateEffect.define<Open | null>();
const LIST = "offers"; // ids of the shadow root's own

const LOOK = EditorView.theme({
  ".offers": {
    listStyle: "none",
    margin: 0,
    padding: "4px",
    maxHeight: "220px",
    overflowY: "auto",
    fontFamily: "var(--mono)",
    minWidth: "180px",
  },
  ".offers li": {
    padding: "2px 8px",
    borderRadius: "4px",
    cursor: "pointer",
    whiteSpace: "nowrap",
    overflow: "hidden",
    textOverflow: "ellipsis",
  },
  ".offers li[aria-selected=true]": { backgroundColor: "var(--accent-soft)" },
  ".offers span": { color: "var(--soft)", marginInlineStart: "8px" },
  ".offer-info": {
    padding: "6px 12px",
    borderTop: "1px solid var(--line)",
    whiteSpace: "pre-wrap",
    fontFamily: "var(--sans)",
    maxHeight: "120px",
    overflow: "hidden",
  },
});

export function completed(names: () => CodeNames | null): Extension {
  const open = StateField.define<Open | null>({
    create: () => null,
    update(now, change) {
      for (const effect of change.effects) if (effect.is(setOpen)) return effect.value;
      const isTyped = change.isUserEvent("input.type") || (now !== null && change.isUserEvent("delete"));
      if (change.docChanged) return isTyped ? found(change.state, names(), false) : null;
      return change.selection ? null : now;
    },
    provide: (field) => [
      showTooltip.from(
        field,
        (now) => now && { pos: now.from, create: (view) => ({ dom: drawn(view, now), mount: () => scrolled(view) }) },
      ),
      EditorView.contentAttributes.from(field, (now) => ({
        "aria-autocomplete": "list",
        ...(now ? { "aria-controls": LIST, "aria-activedescendant": `${LIST}-${now.at}` } : {}),
      })),
    ],
  });
  const at =
    (act: (view: EditorView, now: Open) => void): Command =>
    (view) => {
      const now = view.state.field(open);
      if (now) act(view, now);
      return now !== null;
    };
  const moved = (by: number): Command =>
    at((view, now) =>
      view.dispatch({ effects: setOpen.of({ ...now, at: (now.at + by + now.offers.length) % now.offers.length }) }),
    );
  const taken = at((view, now) => take(view, now, now.at));
  const keys = [
    { key: "ArrowDown", run: moved(1) },
    { key: "ArrowUp", run: moved(-1) },
    { key: "Enter", run: taken },
    { key: "Tab", run: taken },
    { key: "Escape", run: at((view) => view.dispatch({ effects: setOpen.of(null) })) },
    {
      key: "Ctrl-Space",
      run: (view: EditorView) => (view.dispatch({ effects: setOpen.of(found(view.state, names(), true)) }), true),
    },
  ];
  const left = EditorView.domEventHandlers({
    blur: (_, view) => void (view.state.field(open) && view.dispatch({ effects: setOpen.of(null) })),
  });
  return [open, LOOK, left, Prec.highest(keymap.of(keys))];

  function take(view: EditorView, now: Open, index: number): void {
    const offer = now.offers[index];
    if (!offer) return;
    const insert = offer.insert ?? offer.text;
    const anchor = now.from + insert.length - (offer.back ?? 0);
    view.dispatch({ changes: { from: now.from, to: view.state.selection.main.head, insert }, selection: { anchor } });
    if (offer.back) view.dispatch({ effects: setOpen.of(found(view.state, names(), false)) });
  }

  function drawn(view: EditorView, now: Open): HTMLElement {
    const [box, list] = [document.createElement("div"), document.createElement("ul")];
    [list.id, list.className, list.role] = [LIST, "offers", "listbox"];
    list.append(...now.offers.map((offer, index) => row(view, now, offer, index)));
    const info = shown(now.offers[now.at]?.info);
    box.append(list);
    if (info) box.append(Object.assign(document.createElement("div"), { className: "offer-info", textContent: info }));
    return box;
  }

  function row(view: EditorView, now: Open, offer: Offer, index: number): HTMLElement {
    const item = Object.assign(document.createElement("li"), {
      id: `${LIST}-${index}`,
      role: "option",
      textContent: line(offer.text),
    });
    item.setAttribute("aria-selected", String(index === now.at));
    if (offer.detail)
      item.append(Object.assign(document.createElement("span"), { textContent: offer.detail.slice(0, 80) }));
    item.onmousedown = (event) => {
      event.preventDefault(); // the editor keeps the focus
      take(view, now, index);
    };
    return item;
  }
}

function found(state: EditorState, names: CodeNames | null, isAsked: boolean): Open | null {
  const { head, empty } = state.selection.main;
  const offered = names && empty && offersAt(state.sliceDoc(0, head), names, isAsked);
  return offered ? { from: head - offered.word.length, offers: offered.offers, at: 0 } : null;
}

function scrolled(view: EditorView): void {
  view.dom.querySelector(".offers [aria-selected=true]")?.scrollIntoView({ block: "nearest" });
}
