/** What was called, by whom and how it went, as the API gives it. */

import type { Schemas } from "./client";
import type { Usage } from "./tool";

type Given = Schemas["StatsOverview"];
export const SPANS = [1, 7, 30, 90]; // days

/** The shortest span that has all calls of the longest one in it; without any, a month. */
export function spanOf(series: readonly { at: string; calls: number }[], now = Date.now()): number {
  const first = series.find((one) => one.calls > 0);
  if (!first) return 30;
  const days = (now - Date.parse(first.at)) / 86_400_000;
  return SPANS.find((span) => days < span) ?? 90;
}

export type Stats = Required<Omit<Given, "latency" | "tokensSaved">> & {
  latency: Usage["latency"];
  tokensSaved: number | null;
};
