/** MCP servers whose tools are used here, as the API gives them. */

import type { Key } from "./locales/en";

export interface ServerRow {
  name: string;
  state: string;
  isEnabled: boolean;
  tools: number;
  error?: string;
  transport: string;
  command?: string;
  url?: string;
  since: string | null;
  changed: number;
  needsLogin: boolean;
  hints?: string[];
}

export interface ServerChange {
  name: string;
  before: string;
  after: string;
}

export interface Server extends ServerRow {
  changes?: ServerChange[];
  digest?: string;
}

/** How a server does, as a badge: what it says, and its colour. */
export function badgeOf(server: ServerRow): [Key, string] {
  if (!server.isEnabled) return ["servers.disabled", ""];
  if (server.needsLogin) return ["servers.login.needed", "warn"];
  if (server.changed > 0) return ["health.changed", "warn"];
  const known: Record<string, [Key, string]> = {
    connected: ["servers.connected", "good"],
    connecting: ["servers.connecting", "warn"],
    idle: ["servers.idle", ""],
    disabled: ["servers.disabled", ""],
  };
  return known[server.state] ?? ["servers.down", "bad"];
}
