/**
 * What is being edited, kept in this browser until it is saved or discarded.
 *
 * A draft is the whole content: what a form does not draw stays as it was. Texts that are no JSON yet are kept beside
 * it, by their place. A draft belongs to an address: whoever opens that again goes on where they were.
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
  /** What goes into the address: slug, version, the bundle's id. */
  place: Record<string, string>;
  etag: string | null;
  isNew: boolean;
}

const KEEP_AFTER_MS = 200;
const CHECK_AFTER_MS = 350;
const INDEX = "drafts";

/** The addresses that have a draft. Other tabs of this browser write it, too: it is read again before each change. */
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

/** A draft is kept as text: so large integers stay what they are. */
function read(key: string): StoredDraft | null {
  const text = stored<string | null>(`draft.${key}`, null);
  return text === null ? null : (parseJson(text) as unknown as StoredDraft);
}

function write(key: string, kept: StoredDraft | null): void {
  store(`draft.${key}`, kept === null ? null : writeJson(kept));
  drafts.mark(key, kept !== null);
}

/** The draft of a tool that is called otherwise now. */
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
  /** The arguments of the preview, as text; null: made of the schema. */
  args: string | null = $state.raw(null);
  /** What the draft began with. */
  base: Content = $state.raw({});
  etag: string | null = $state.raw(null);
  problems: readonly Problem[] = $state.raw([]);
  warnings: readonly Problem[] = $state.raw([]);
  /** Problems of a new thing show where one has been, or when one has tried to save. */
  touched: ReadonlySet<string> = $state.raw(new Set());
  isTried = $state(false);
  /** The name of a bundle that saving creates for a new tool. null: the tool goes into an existing bundle. */
  newBundle: string | null = $state(null);
  /** Counts what was allowed or set for this draft: it is checked again each time. */
  granted = $state(0);
  /** The part that somebody wants to see: its tab opens. */
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

  /** Change a part. undefined takes it away. `isTyped`: a person has written it, and is told what is wrong with it. */
  set(pointer: string, part: unknown, isTyped = true): void {
    this.content = withValueAt(this.content, pointer, part) as Content;
    if (isTyped) this.touched = new Set([...this.touched, pointer]);
    this.keepSoon();
  }

  /** A text that should be JSON: what it says, or, as long as it says nothing, the text itself. */
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

  /** What is wrong with a part, or below it, if it is time to say so. */
  wrong(pointer: string): string {
    if (this.isNew && !this.isTried && ![...this.touched].some((one) => isWithin(pointer, one))) return "";
    return this.problems.find((one) => isWithin(one.pointer, pointer))?.message ?? "";
  }

  /** Put it where it survives a reload; take it away if nothing is changed. */
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

  /** What was to be kept soon is kept now. */
  flush(): void {
    if (this.#timer !== undefined) this.keep();
  }

  keepSoon(): void {
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => this.keep(), KEEP_AFTER_MS);
  }

  /** Forget all changes. Returns what brings them back. */
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

  /** Go on from another base: the changes stay, and are changes to that. */
  rebase(base: Content, etag: string | null): void {
    [this.base, this.etag] = [base, etag];
    this.keepSoon();
  }

  /** Ask the server what is wrong, a moment after the last change. Returns what stops it. */
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
          // It is asked again with the next change, and saving tells what is wrong in any case.
        });
    }, CHECK_AFTER_MS);
    return () => {
      clearTimeout(timer);
      stop.abort();
    };
  }
}
