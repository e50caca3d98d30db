/** The first requests of the page, sent while its code is still loading. `send` returns their responses. */

import { sendAhead } from "./client";
import type { Tool } from "./tool";

/** What the filter and the rows need, nothing more. */
export const ROW = [
  "id",
  "bundleID",
  "bundleSlug",
  "slug",
  "version",
  "name",
  "displayName",
  "description",
  "tags",
  "type",
  "origin",
  "health",
  "isEnabled",
  "isBuiltIn",
  "callCount",
  "lastCalledAt",
  "inherited",
  "effect",
] as const satisfies readonly (keyof Tool)[];

export const FIRST_PAGE = 100; // rows that are there at once

/** The query of a page of the list of tools. */
export const toolsQuery = (pageSize: number) => ({
  includeDisabled: true,
  recommendedPageSize: pageSize,
  fields: ROW.join(","),
});

/** Ask for the user and, unless a sign-in is needed, for the first tools. */
export async function askAhead(): Promise<void> {
  try {
    const { needed, signedIn } = (await (await sendAhead("login")).json()) as { needed: boolean; signedIn?: boolean };
    if (!needed || signedIn) await sendAhead("tools/tools", toolsQuery(FIRST_PAGE));
  } catch {
    // The same requests fail when their responses are needed, and the page says so.
  }
}
