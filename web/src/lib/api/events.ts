/**
 * Server-sent events of `/events`, read with fetch because EventSource can't send the session's header.
 *
 * Lost connections are reopened with increasing delays. `hello` names the server process: if it is
 * another one, everything may have changed.
 */

import { send } from "./client";

export interface Listener {
  changed: () => void;
  /** The connection is back: the server may have been restarted. */
  back: () => void;
  call: (call: Record<string, unknown>) => void;
  /** Whether the connection is open. */
  live: (isLive: boolean) => void;
}

const FIRST_WAIT_MS = 500;
const MAX_WAIT_MS = 15_000;

export function listen(listener: Listener): () => void {
  const stop = new AbortController();
  void follow(listener, stop.signal);
  return () => stop.abort();
}

async function follow(listener: Listener, signal: AbortSignal): Promise<void> {
  let wait = FIRST_WAIT_MS;
  let instance: unknown = null;
  while (!signal.aborted) {
    try {
      const response = await send("events", { signal, accept: "text/event-stream" });
      if (response.ok && response.body) {
        for await (const [name, data] of messages(response.body)) {
          wait = FIRST_WAIT_MS;
          if (name === "hello") {
            listener.live(true);
            if (instance !== null) {
              listener.back();
              listener.changed(); // events in between were lost
            }
            instance = data.instance;
          } else if (name === "changed") listener.changed();
          else if (name === "call") listener.call(data);
        }
      }
    } catch {
      // The server is unavailable, or the page was left.
    }
    if (signal.aborted) return;
    listener.live(false);
    await new Promise((done) => setTimeout(done, wait));
    wait = Math.min(wait * 2, MAX_WAIT_MS);
  }
}

/** Server-sent events in a stream of bytes: [event, data] each. */
export async function* messages(body: ReadableStream<Uint8Array>): AsyncGenerator<[string, Record<string, unknown>]> {
  for await (const [name, data] of texts(body)) {
    try {
      yield [name, JSON.parse(data) as Record<string, unknown>];
    } catch {
      // Ignore data that is not JSON.
    }
  }
}

/** The same with the data as text, for callers that parse large numbers. */
export async function* texts(body: ReadableStream<Uint8Array>): AsyncGenerator<[string, string]> {
  const reader = body.pipeThrough(new TextDecoderStream() as TransformStream<Uint8Array, string>).getReader();
  let pieces: string[] = [];
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    pieces.push(value);
    if (!value.includes("\n")) continue; // the pieces of a long event are joined once
    const blocks = pieces.join("").replaceAll("\r\n", "\n").split("\n\n");
    pieces = [blocks.pop() ?? ""];
    for (const block of blocks) {
      const found = event(block);
      if (found) yield found;
    }
  }
}

function event(block: string): [string, string] | null {
  let name = "message";
  const data: string[] = [];
  for (const row of block.split("\n")) {
    if (row.startsWith("event:")) name = row.slice(6).trim();
    else if (row.startsWith("data:")) data.push(row.slice(5).trim());
  }
  return data.length === 0 ? null : [name, data.join("\n")];
}
