/**
 * The last calls and runs of this tab, with their results: view, compare and repeat them.
 *
 * They are kept per tab and user, up to 5 MB in all; arguments that a schema marks as secret are
 * left out. The user may choose to keep them in this browser until they sign out.
 */

import { withoutSecrets } from "../form/secrets";
import { session } from "../api/session.svelte";
import { store, stored } from "../page/storage";
import { HISTORY_KEY } from "./history-key";
import { parseJson, writeJson, type Json, type JsonObject } from "../text/json-text";
import type { Outcome } from "./invoke";

export interface PastCall {
  /** The source: the key of a tool, `play`, or the key of a recipe's draft. */
  of: string;
  name: string;
  /** The arguments, or the code. */
  args: Json;
  outcome: Outcome;
  /** For a recipe: the result of each step. */
  steps?: { name: string; outcome: Outcome }[];
}

const MAX_BYTES = 5_000_000;
const IS_KEPT_KEY = "history.kept"; // whether it outlives the tab

const MAX_STORED = MAX_BYTES / 4; // characters: browsers count two bytes each, and allow 5 MB per page

const userName = (): string => session.who.name ?? "";

class Past {
  list: readonly PastCall[] = $state.raw([]);
  isKept = $state(stored(IS_KEPT_KEY, false));
  #sizes = new WeakMap<PastCall, number>();

  constructor() {
    try {
      const text = stored<string | null>(HISTORY_KEY, null, this.#place);
      const found = text === null ? null : (parseJson(text) as unknown as { who: string; calls: PastCall[] });
      this.list = found?.who === userName() ? found.calls : [];
    } catch {
      // Start with an empty history.
    }
  }

  get #place(): () => Storage {
    return this.isKept ? () => localStorage : () => sessionStorage;
  }

  /** Add a call and drop the oldest ones if needed. `schema` is that of the arguments. */
  add(call: PastCall, schema?: unknown): void {
    const args = schema === undefined ? call.args : withoutSecrets(call.args as JsonObject, schema);
    this.list = this.#fitting([{ ...call, args }, ...this.list], MAX_BYTES);
    this.#keep();
  }

  of(key: string): PastCall[] {
    return this.list.filter((one) => one.of === key);
  }

  clear(key?: string): void {
    this.list = key === undefined ? [] : this.list.filter((one) => one.of !== key);
    this.#keep();
  }

  /** Keep the history in this browser, or only in this tab. */
  keepLonger(isKept: boolean): void {
    store(HISTORY_KEY, null, this.#place);
    this.isKept = isKept;
    store(IS_KEPT_KEY, isKept || null);
    this.#keep();
  }

  #keep(): void {
    const kept = this.#fitting(this.list, MAX_STORED);
    const text = kept.length > 0 ? writeJson({ who: userName(), calls: kept }) : null;
    if (!store(HISTORY_KEY, text, this.#place)) store(HISTORY_KEY, null, this.#place); // storage is full: keep it in memory only
  }

  #fitting(list: readonly PastCall[], most: number): PastCall[] {
    let size = 0;
    return list.filter((one) => {
      const own = this.#sizes.get(one) ?? writeJson(one).length;
      this.#sizes.set(one, own);
      if (size + own > most) return false;
      size += own;
      return true;
    });
  }
}

export const past = new Past();
export const argumentsText = (call: PastCall): string => writeJson(call.args);
session.onLeave(() => past.clear());
