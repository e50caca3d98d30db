/** The calls that were made here lately. They stay in this browser, without values that a schema marks as secret. */

import { store, stored } from "./storage";

export interface RecentCall {
  tool: string; // its key: bundle/slug/version
  name: string;
  args: Record<string, unknown>;
  at: string;
  ok: boolean;
  durationMs: number;
}

const MOST = 50;
const LARGEST = 8_000; // characters of arguments that are worth keeping

class Recent {
  list: RecentCall[] = $state.raw(stored<RecentCall[]>("recent", []));

  add(call: RecentCall, schema: unknown): void {
    const args = withoutSecrets(call.args, schema);
    if (JSON.stringify(args).length > LARGEST) return;
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

function withoutSecrets(args: Record<string, unknown>, schema: unknown): Record<string, unknown> {
  const properties = ((schema as { properties?: Record<string, { format?: string; writeOnly?: boolean }> } | null)?.properties) ?? {};
  const isSecret = (name: string): boolean => properties[name]?.writeOnly === true || properties[name]?.format === "password";
  return Object.fromEntries(Object.entries(args).filter(([name]) => !isSecret(name)));
}

export const recent = new Recent();
