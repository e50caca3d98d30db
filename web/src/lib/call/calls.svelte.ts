/** Calls that have ended while the page is open, by whoever made them: the newest first. */

import { session } from "../api/session.svelte";

export interface EndedCall {
  n: number; // counts up: two calls may have ended at the same time
  name: string;
  ok: boolean;
  durationMs: number;
  source: string;
  at: string;
}

const MOST = 20;

class Calls {
  list: EndedCall[] = $state.raw([]);
  /** Counts up with every call, also with those that were too many to be told one by one. */
  count = $state(0);

  take = (call: Record<string, unknown>): void => {
    this.count += typeof call.dropped === "number" ? call.dropped : 1;
    if (typeof call.name === "string")
      this.list = [{ ...(call as unknown as EndedCall), n: this.count }, ...this.list].slice(0, MOST);
  };
}

export const calls = new Calls();
session.onLeave(() => (calls.list = []));
