/**
 * Keyboard shortcuts. Components register the keys that they handle; `?` lists them.
 *
 * A key is written as `mod+k`, `/`, `g t` (one after the other). `mod` is Ctrl, or Cmd on a Mac. Keys without `mod` do
 * nothing while the user types, and none works behind an open dialog. Escape closes the innermost thing: the words of
 * a search, then the focused field, then what its newest handler closes.
 */

import { untrack } from "svelte";

import type { Key } from "../locales/en";

export interface Shortcut {
  keys: string;
  label: Key;
  run: () => void;
  /** For Escape: handle it inside a field, too. Otherwise Escape leaves the field first. */
  whileTyping?: boolean;
}

const SEQUENCE_MS = 1200;
const IS_MAC = /Mac|iPhone|iPad/.test(navigator.platform);

class Keys {
  list: Shortcut[] = $state.raw([]);
  #before = "";
  #at = 0;

  /** Register keys while a component is mounted: `$effect(() => keys.take([…]))`. */
  take(shortcuts: Shortcut[]): () => void {
    // The newest come first: a dialog takes a key away from the screen behind it.
    this.list = [...shortcuts, ...untrack(() => this.list)];
    return () => untrack(() => (this.list = this.list.filter((one) => !shortcuts.includes(one))));
  }

  handle = (event: KeyboardEvent): void => {
    if (event.defaultPrevented || event.isComposing) return;
    if (document.querySelector("dialog:modal")) return; // keys can't reach what is behind a dialog
    const pressed = nameOf(event);
    if (pressed === null) return;
    const isInField = isTyping(event) && !pressed.startsWith("mod+");
    if (isInField && (pressed !== "escape" || hasWords(event))) return;
    const sequence = event.timeStamp - this.#at < SEQUENCE_MS ? `${this.#before} ${pressed}` : "";
    const found = this.list.find((one) => one.keys === sequence) ?? this.list.find((one) => one.keys === pressed);
    [this.#before, this.#at] = [pressed, event.timeStamp];
    if (found) {
      event.preventDefault();
      this.#before = "";
      if (isInField && !found.whileTyping) leaveField(event);
      else found.run();
    }
  };
}

function nameOf(event: KeyboardEvent): string | null {
  if (["Shift", "Control", "Alt", "Meta"].includes(event.key)) return null;
  if (event.altKey || (event.ctrlKey && event.metaKey)) return null;
  const mod = event.ctrlKey || event.metaKey ? "mod+" : "";
  return mod + event.key.toLowerCase();
}

function isTyping(event: KeyboardEvent): boolean {
  const target = event.composedPath()[0];
  if (!(target instanceof HTMLElement)) return false;
  return target.isContentEditable || target.matches("input:not([type=checkbox]):not([type=radio]), textarea, select");
}

/** Whether this is a search field with text, which the browser clears. */
function hasWords(event: KeyboardEvent): boolean {
  const target = event.composedPath()[0];
  return target instanceof HTMLInputElement && target.type === "search" && target.value !== "";
}

function leaveField(event: KeyboardEvent): void {
  const target = event.composedPath()[0];
  if (target instanceof HTMLElement) target.blur();
}

/** The parts of a key combination, as this platform names them. */
export function pieces(combination: string): string[] {
  const names: Record<string, string> = {
    mod: IS_MAC ? "⌘" : "Ctrl",
    enter: "↵",
    escape: "Esc",
    arrowup: "↑",
    arrowdown: "↓",
  };
  return combination
    .split(/(?<=.)[+ ]/)
    .map((piece) => names[piece] ?? (piece.length === 1 ? piece.toUpperCase() : piece));
}

export const keys = new Keys();
