/**
 * Things that are hidden here, and deleted on the server when undo is no longer possible: when the notice
 * closes, when the page is left, and before the session ends.
 */

import { request } from "./client";
import { notices } from "../page/notices.svelte";
import { session } from "./session.svelte";

const FORGET_MS = 10_000; // a list requested before the deletion may still arrive

class DeletedLater {
  #notices: Record<string, number> = $state({}); // by path
  readonly #sent = new Set<Promise<void>>();

  constructor() {
    addEventListener("pagehide", () => this.#closeAll());
    session.beforeSignOut(async () => {
      this.#closeAll();
      await Promise.all(this.#sent);
    });
    session.onLeave(() => (this.#notices = {})); // without a session, the deletion can't be sent
  }

  /** Whether it is deleted or scheduled for deletion. */
  has(path: string): boolean {
    return path in this.#notices;
  }

  /** Schedule a deletion. `back` is called on undo, or if the deletion fails. */
  add(path: string, text: string, back: () => void = () => {}): void {
    const undo = (): void => {
      delete this.#notices[path];
      back();
    };
    this.#notices[path] = notices.done(text, undo, () => this.#send(path, undo));
  }

  #closeAll(): void {
    for (const id of Object.values(this.#notices)) notices.close(id);
  }

  #send(path: string, undo: () => void): void {
    if (!this.has(path)) return;
    const sent = request(path, { method: "DELETE", keepalive: true })
      .then(() => void setTimeout(() => delete this.#notices[path], FORGET_MS))
      .catch((error: unknown) => {
        notices.error(error);
        undo(); // it is still there, and is shown again
      })
      .finally(() => this.#sent.delete(sent));
    this.#sent.add(sent);
  }
}

export const deletedLater = new DeletedLater();
