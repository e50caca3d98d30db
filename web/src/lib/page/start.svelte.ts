/** The cards of the first visit: which are done, and which were dismissed. */

import { catalog } from "../api/catalog.svelte";
import { store, stored } from "./storage";

export type Card = "connect" | "make" | "ask" | "give";

class StartCards {
  #marked: readonly string[] = $state.raw(stored<string[]>("start.done", []));
  #dismissed: readonly string[] = $state.raw(stored<string[]>("start.dismissed", []));

  isDone(card: Card): boolean {
    if (card === "connect" && catalog.rows.some((row) => row.origin === "server")) return true;
    if (card === "make" && catalog.rows.some((row) => row.origin === "bundle")) return true;
    return this.#marked.includes(card);
  }

  isDismissed(card: Card): boolean {
    return this.#dismissed.includes(card);
  }

  mark(card: Card): void {
    if (this.#marked.includes(card)) return;
    this.#marked = [...this.#marked, card];
    store("start.done", this.#marked);
  }

  dismiss(...cards: Card[]): void {
    this.#dismissed = [...this.#dismissed, ...cards];
    store("start.dismissed", this.#dismissed);
  }

  showAll(): void {
    this.#dismissed = [];
    store("start.dismissed", null);
  }
}

export const start = new StartCards();
