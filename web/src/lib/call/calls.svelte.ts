/** Calls by any client that ended while the page was open, newest first. */

import { session } from "../api/session.svelte";

export interface EndedCall {
  n: number; // counts up: two calls may have ended at the same time
  name: string;
  ok: boolean;
  durationMs: number;
  source: string;
  at: string;
}

const MAX_CALLS = 20;

class Calls {
  list: EndedCall[] = $state.raw([]);
  /** Increases with every call, including calls that were only reported in total. */
  count = $state(0);

  take = (call: Record<string, unknown>): void => {
    this.count += typeof call.dropped === "number" ? call.dropped : 1;
    if (typeof call.name === "string")
      this.list = [{ ...(call as unknown as EndedCall), n: this.count }, ...this.list].slice(0, MAX_CALLS);
  };
}

export const calls = new Calls();
session.onLeave(() => (calls.list = []));
