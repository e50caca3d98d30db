/** Stored results, as the API gives them; and how one is deleted with a way back. */

import { request } from "./api";
import { t } from "./i18n.svelte";
import { notices } from "./notices.svelte";

export interface StoredResult {
  handle: string;
  name?: string;
  createdAt: string;
  expiresAt: string;
  size: number;
  lines: number;
  type: string;
  head: string;
}

export interface ResultPage {
  results: StoredResult[];
  nextPageToken?: string | null;
}

/** Some lines of one, or of those that match. */
export interface ResultPart {
  lines: string[];
  total: number; // of all lines, also of a search
  returned: number;
  hasMore: boolean;
  numbers?: number[]; // of a search: where the lines stand
  next?: { offset?: number; column?: number }; // it is cut inside of a long line: where it goes on
}

const UNDO_MS = 8000; // as long as the notice stays

/** Results that are out of sight. They are deleted when nobody can take that back any more, or the page is left. */
class Leaving {
  #timers: Record<string, ReturnType<typeof setTimeout>> = $state({});

  constructor() {
    addEventListener("pagehide", () => Object.keys(this.#timers).forEach((handle) => void this.#end(handle)));
  }

  has(handle: string): boolean {
    return handle in this.#timers;
  }

  add(handle: string): void {
    this.#timers[handle] = setTimeout(() => this.#end(handle), UNDO_MS);
    notices.done(t("results.deleted"), () => this.#forget(handle));
  }

  #forget(handle: string): void {
    clearTimeout(this.#timers[handle]);
    delete this.#timers[handle];
  }

  async #end(handle: string): Promise<void> {
    clearTimeout(this.#timers[handle]);
    try {
      await request(`results/${encodeURIComponent(handle)}`, { method: "DELETE" });
    } catch (error) {
      notices.error(error);
      this.#forget(handle); // it is still there, and is shown again
    }
  }
}

export const leaving = new Leaving();
