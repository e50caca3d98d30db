/** Data loaded from the server, and reloaded when it may have changed. The old data stays until then. */

import { get, type Sent } from "./client";

export class Fetched<T> {
  data: T | null = $state.raw(null);
  error: unknown = $state.raw(null);

  /** Load it: `$effect(() => fetched.read("stats", {days}))`. Returns a function that aborts. */
  read(path: string, query: Sent["query"] = {}): () => void {
    const stop = new AbortController();
    get<T>(path, { query, signal: stop.signal })
      .then((found) => ([this.data, this.error] = [found, null]))
      .catch((reason: unknown) => {
        if (!stop.signal.aborted) this.error = reason;
      });
    return () => stop.abort();
  }
}
