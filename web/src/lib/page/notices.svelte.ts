/** Short messages at the edge of the page: completed actions, with undo where possible, and errors. */

import { ApiError } from "../api/client";
import { i18n, t } from "./i18n.svelte";
import type { Key } from "../locales/en";
import { session } from "../api/session.svelte";
import { shown } from "../text/shown";

export interface Notice {
  id: number;
  text: string;
  kind: "done" | "error";
  undo?: () => void | Promise<void>;
  gone?: () => void;
}

const STAYS_MS = 8000;
const UNDO_STAYS_MS = 30_000;
const MAX_NOTICES = 4;

class Notices {
  list: Notice[] = $state([]);
  /** The text for screen readers. A repeated text is announced again. */
  announced = $state("");
  #next = 0;
  #timers = new Map<number, ReturnType<typeof setTimeout>>();

  /** Show a completed action. `gone` is called when the notice closes without undo. Return its id. */
  done(text: string, undo?: Notice["undo"], gone?: Notice["gone"]): number {
    this.succeeded();
    return this.#add({ id: this.#next++, text, kind: "done", undo, gone });
  }

  /** Forget earlier errors: an action has succeeded. */
  succeeded(): void {
    this.list = this.list.filter((one) => one.kind !== "error");
  }

  undo(notice: Notice): void {
    this.list = this.list.filter((one) => one.id !== notice.id);
    void notice.undo?.();
  }

  /** Remove all notices: the next user can't undo them. */
  forget(): void {
    this.list = [];
  }

  error(error: unknown): void {
    this.#add({ id: this.#next++, text: messageOf(error), kind: "error" });
  }

  announce(text: string): void {
    this.announced = this.announced === text ? `${text}\u00a0` : text;
  }

  /** Close it after a while. `stay` keeps it open while it is hovered or focused. */
  leave(notice: Notice): void {
    if (notice.kind !== "done") return;
    this.stay(notice);
    this.#timers.set(
      notice.id,
      setTimeout(() => this.close(notice.id), notice.undo ? UNDO_STAYS_MS : STAYS_MS),
    );
  }

  stay(notice: Notice): void {
    clearTimeout(this.#timers.get(notice.id));
    this.#timers.delete(notice.id);
  }

  close(id: number): void {
    const closed = this.list.find((one) => one.id === id);
    this.list = this.list.filter((one) => one.id !== id);
    closed?.gone?.();
  }

  #add(notice: Notice): number {
    for (const one of this.list.slice(0, 1 - MAX_NOTICES)) this.close(one.id);
    this.list = [...this.list, notice];
    this.announce(notice.text);
    // An error stays until it is closed, or the next action succeeds: it may have to be read twice.
    if (notice.kind === "done") this.leave(notice);
    return notice.id;
  }
}

const OURS: Record<string, Key> = { unreachable: "error.unreachable" };

/** Return an error's text: the page's own, translated, else the API's message. */
export function messageOf(error: unknown): string {
  if (error instanceof ApiError) {
    const key = OURS[error.code];
    return key ? t(key) : [i18n.failure(error.code, error.reason), shown(error.message)].filter(Boolean).join("：");
  }
  return shown(error instanceof Error ? error.message : error);
}

export const notices = new Notices();
session.onLeave(() => notices.forget());
