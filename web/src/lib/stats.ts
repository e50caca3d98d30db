/** What was called, by whom and how it went, as the API gives it. */

import type { Usage } from "./tool";

export interface Stats {
  enabled?: boolean;
  calls: number;
  errors: number;
  latency: Usage["latency"];
  tokensSaved: number | null;
  series: Usage["series"];
  tools: { name: string; calls: number; errors: number; p50: number | null; p95: number | null; p99: number | null }[];
  sources: { name: string; calls: number }[];
  clients: { name: string; calls: number }[];
  failures: { name: string; code: string; message: string; count: number; lastAt: string }[];
}
