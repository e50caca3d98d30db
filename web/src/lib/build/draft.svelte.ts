/**
 * Unsaved edits, kept in this browser until they are saved or discarded.
 *
 * A draft is the whole content, including fields that no form shows. Texts that are not JSON yet are kept
 * separately, by pointer. A draft belongs to a URL, and continues when that is opened again.
 */

import { request } from "../api/client";
import { isSame, type Content, type Problem } from "./build";
import { parseJson, writeJson } from "../text/json-text";
import { valueAt, withValueAt } from "../text/pointer";
import { textWithoutSecrets } from "../form/secrets";
import { may } from "../api/session.svelte";
import { store, stored } from "../page/storage";

interface StoredDraft {
  content: Content;
  place: Record<string, string>;
  texts: Record<string, string>;
  args: string | null;
  base: Content;
  etag: string | null;
  at: string;
}

export interface Start {
  content: Content;
  /** The parts of the address: slug, version and the bundle's id. */
  place: Record<string, string>;
  etag: string | null;
  isNew: boolean;
}

const KEEP_AFTER_MS = 200;
const CHECK_AFTER_MS = 350;
const INDEX = "drafts";

/** The keys that have a draft. Other tabs write it, too, so it is read again before each change. */
class DraftIndex {
  keys: readonly string[] = $state.raw(stored<string[]>(INDEX, []));

  constructor() {
    addEventListener("storage", () => this.#show(stored<string[]>(INDEX, []))); // another tab has written
  }

  mark(key: string, isThere: boolean): void {
    const now = stored<string[]>(INDEX, []);
    const keys = now.includes(key) === isThere ? now : isThere ? [...now, key] : now.filter((one) => one !== key);
    if (keys !== now) store(INDEX, keys.length > 0 ? keys : null);
    this.#show(keys);
  }

  #show(keys: string[]): void {
    if (keys.join("\n") !== this.keys.join("\n")) this.keys = keys;
  }
}

export const drafts = new DraftIndex();

const isWithin = (pointer: string, whole: string): boolean => pointer === whole || pointer.startsWith(`${whole}/`);

/** Drafts are stored as text, to preserve large integers. */
function read(key: string): StoredDraft | null {
  const text = stored<string | null>(`draft.${key}`, null);
  return text === null ? null : (parseJson(text) as unknown as StoredDraft);
}

function write(key: string, kept: StoredDraft | null): void {
  store(`draft.${key}`, kept === null ? null : writeJson(kept));
  drafts.mark(key, kept !== null);
}

/** Move the draft of a renamed tool. */
export function moveDraft(from: string, to: string, place: Record<string, string>): void {
  const kept = read(from);
  if (kept === null) return;
  write(to, { ...kept, place: { ...kept.place, ...place } });
  write(from, null);
}

export const hasDraft = (key: string): boolean => read(key) !== null;

export class Draft {
  content: Content = $state.raw({});
  place: Record<string, string> = $state.raw({});
  texts: Record<string, string> = $state.raw({});
  /** The arguments of the preview, as text; null: samples from the schema. */
  args: string | null = $state.raw(null);
  /** The content that the draft started from. */
  base: Content = $state.raw({});
  etag: string | null = $state.raw(null);
  problems: readonly Problem[] = $state.raw([]);
  warnings: readonly Problem[] = $state.raw([]);
  /** Fields that were edited. A new thing shows problems only there, until the first try to save. */
  touched: ReadonlySet<string> = $state.raw(new Set());
  isTried = $state(false);
  /** The name of a bundle that saving creates for a new tool. null: the tool goes into an existing bundle. */
  newBundle: string | null = $state(null);
  /** Counts what was allowed or set for this draft: it is checked again each time. */
  granted = $state(0);
  /** The part to show: its tab opens. */
  revealed: { at: string } | null = $state.raw(null);
  readonly isNew: boolean;
  /** Whether it was found in the browser's storage. */
  readonly isFound: boolean;
  #start: Start;
  #timer: ReturnType<typeof setTimeout> | undefined;

  constructor(
    readonly key: string,
    start: Start,
  ) {
    this.#start = start;
    this.isNew = start.isNew;
    const kept = read(key);
    this.isFound = kept !== null;
    this.#restore(kept ?? { ...start, texts: {}, args: null, base: start.content, at: "" });
  }

  #restore(kept: Omit<StoredDraft, "at">): void {
    [this.content, this.place, this.texts] = [kept.content, kept.place, kept.texts];
    [this.args, this.base, this.etag] = [kept.args, kept.base, kept.etag];
  }

  get isChanged(): boolean {
    const isMoved = Object.entries(this.place).some(([name, value]) => this.#start.place[name] !== value);
    return Object.keys(this.texts).length > 0 || !isSame(this.content, this.base) || (this.isNew && isMoved);
  }

  part(pointer: string): unknown {
    return valueAt<unknown>(this.content, pointer);
  }

  text(pointer: string): string {
    const found = this.part(pointer);
    return found === undefined || found === null ? "" : typeof found === "string" ? found : writeJson(found);
  }

  /** Change a part; undefined removes it. `isTyped`: the user typed it, so its problems are shown. */
  set(pointer: string, part: unknown, isTyped = true): void {
    this.content = withValueAt(this.content, pointer, part) as Content;
    if (isTyped) this.touched = new Set([...this.touched, pointer]);
    this.keepSoon();
  }

  /** Set a part from JSON text. Text that is not valid JSON yet is kept as text. */
  setJson(pointer: string, text: string): void {
    try {
      const part: unknown = text.trim() === "" && pointer !== "" ? undefined : parseJson(text);
      if (pointer === "" && (typeof part !== "object" || part === null || Array.isArray(part))) throw new SyntaxError();
      const { [pointer]: _, ...others } = this.texts;
      this.texts = pointer === "" ? {} : others;
      this.set(pointer, part);
    } catch {
      this.texts = { ...this.texts, [pointer]: text };
      this.keepSoon();
    }
  }

  setPlace(name: string, value: string): void {
    this.place = { ...this.place, [name]: value };
    this.touched = new Set([...this.touched, `place/${name}`]);
    this.keepSoon();
  }

  setArgs(text: string): void {
    this.args = text;
    this.keepSoon();
  }

  /** The first problem at or below a part, if it should be shown already. */
  wrong(pointer: string): string {
    if (this.isNew && !this.isTried && ![...this.touched].some((one) => isWithin(pointer, one))) return "";
    return this.problems.find((one) => isWithin(one.pointer, pointer))?.message ?? "";
  }

  /** Store the draft, or remove it if nothing has changed. */
  keep(): void {
    clearTimeout(this.#timer);
    this.#timer = undefined;
    const { content, place, texts, base, etag } = this;
    const args = this.args === null ? null : textWithoutSecrets(this.args, this.part("/argSchema"));
    const kept: StoredDraft | null = this.isChanged
      ? { content, place, texts, args, base, etag, at: new Date().toISOString() }
      : null;
    write(this.key, kept);
  }

  /** Store pending changes now. */
  flush(): void {
    if (this.#timer !== undefined) this.keep();
  }

  keepSoon(): void {
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => this.keep(), KEEP_AFTER_MS);
  }

  /** Discard all changes. Return a function that restores them. */
  discard(): () => void {
    const { content, place, texts, args, base, etag } = this;
    this.#restore({ ...this.#start, texts: {}, args: null, base: this.#start.content });
    [this.touched, this.isTried, this.problems, this.newBundle] = [new Set(), false, [], null];
    this.keep();
    return () => {
      this.#restore({ content, place, texts, args, base, etag });
      this.keep();
    };
  }

  /** Apply the changes to another base. */
  rebase(base: Content, etag: string | null): void {
    [this.base, this.etag] = [base, etag];
    this.keepSoon();
  }

  /** Check the draft a moment after the last change. Return a function that cancels. */
  check(body: Record<string, unknown>): () => void {
    const stop = new AbortController();
    const timer = setTimeout(() => {
      if (!may("edit")) return;
      request<{ errors: Problem[]; warnings: Problem[] }>("tools/validate", {
        body: writeJson(body),
        signal: stop.signal,
      })
        .then(({ data }) => ([this.problems, this.warnings] = [data.errors, data.warnings]))
        .catch(() => {
          // The next change checks again, and so does saving.
        });
    }, CHECK_AFTER_MS);
    return () => {
      clearTimeout(timer);
      stop.abort();
    };
  }
}
