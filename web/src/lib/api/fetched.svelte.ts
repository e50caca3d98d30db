/** Something that is read from the server, and again when it may have changed. What was read stays until then. */

import { get, type Sent } from "./client";

export class Fetched<T> {
  data: T | null = $state.raw(null);
  error: unknown = $state.raw(null);

  /** Read it: `$effect(() => fetched.read("stats", {days}))`. Gives what ends the reading. */
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
