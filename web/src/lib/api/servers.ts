/** MCP servers in the API. */

import type { Schemas } from "./client";
import type { Key } from "../locales/en";

export type ServerRow = Schemas["ServerEntry"];
export type ServerChange = Schemas["ServerChange"]; // a diff: lines begin with -, + or a space
export type Server = ServerRow;

/** The badge of a server's state: its text and colour. */
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

export interface SideBySide {
  before: string | null;
  now: string | null;
  isSame: boolean;
}

/** The changes side by side, with surrounding lines. */
export function sideBySide(lines: readonly string[]): SideBySide[] {
  const rows: SideBySide[] = [];
  let open: SideBySide[] = []; // removed lines without an added line beside them
  for (const line of lines) {
    const text = line.slice(1);
    const other = line.startsWith("+") ? open.shift() : undefined;
    if (other) other.now = text;
    else if (line.startsWith("+")) rows.push({ before: null, now: text, isSame: false });
    else if (line.startsWith("-"))
      open.push(rows[rows.push({ before: text, now: null, isSame: false }) - 1] as SideBySide);
    else {
      open = [];
      if (!line.startsWith("@")) rows.push({ before: text, now: text, isSame: true });
      else if (rows.length > 0) rows.push({ before: "…", now: "…", isSame: true });
    }
  }
  return rows;
}
