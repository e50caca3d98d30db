/** Call statistics in the API. */

import type { Schemas } from "./client";
import type { Usage } from "./tool";

type Given = Schemas["StatsOverview"];
export const SPANS = [1, 7, 30, 90]; // days

/** The shortest span that contains all calls; without calls, a month. */
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
