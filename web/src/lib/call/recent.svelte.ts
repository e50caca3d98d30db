/** The calls that were made here lately. They stay in this browser, without values that a schema marks as secret. */

import { parseJson, writeJson, type JsonObject } from "../text/json-text";
import { withoutSecrets } from "../form/secrets";
import { session } from "../api/session.svelte";
import { store, stored } from "../page/storage";

export interface RecentCall {
  tool: string; // its key: bundle/slug/version
  name: string;
  args: string; // as JSON: large integers stay what they are
  at: string;
  ok: boolean;
  durationMs: number;
}

const MOST = 50;
const LARGEST = 8_000; // characters of arguments that are worth keeping

class Recent {
  list: RecentCall[] = $state.raw(stored<RecentCall[]>("recent", []));

  add(call: RecentCall, schema: unknown): void {
    const args = writeJson(withoutSecrets(parseJson(call.args) as JsonObject, schema));
    if (args.length > LARGEST) return;
    this.list = [{ ...call, args }, ...this.list].slice(0, MOST);
    store("recent", this.list);
  }

  of(tool: string): RecentCall[] {
    return this.list.filter((call) => call.tool === tool);
  }

  clear(): void {
    this.list = [];
    store("recent", null);
  }
}

export const recent = new Recent();
session.onLeave(() => recent.clear());
