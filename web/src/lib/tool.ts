/** One tool, as the API gives it. */

import type { Health, Origin } from "./catalog.svelte";

export type JsonSchema = Record<string, unknown>;

export interface Tool {
  id: string;
  bundleID: string;
  bundleSlug: string;
  slug: string;
  version: string;
  name: string | null;
  displayName: string;
  description: string;
  tags: string[];
  type: string;
  origin: Origin;
  health: Health;
  isEnabled: boolean;
  isBuiltIn: boolean;
  signature?: string | null;
  argSchema: JsonSchema;
  outputSchema: JsonSchema;
  httpImpl?: Record<string, unknown>;
  scriptImpl?: { code: string };
  pythonImpl?: { func: string };
  limits: Record<string, unknown>;
  examples?: SavedExample[];
  createdAt: string;
  modifiedAt: string;
  callCount: number;
  lastCalledAt: string | null;
}

export interface SavedExample {
  name: string;
  args: Record<string, unknown>;
  description?: string;
}

export interface Usage {
  enabled?: boolean;
  calls: number;
  errors: number;
  lastCalledAt: string | null;
  latency: { p50: number | null; p95: number | null; p99: number | null };
  series: { at: string; calls: number; errors: number; p50: number | null; p95: number | null }[];
  lastErrors: { at: string; code: string; message: string; client?: string | null }[];
  recent: { at: string; ok: boolean; durationMs: number; source: string; client?: string | null }[];
}

export interface VersionRow {
  version: string;
  displayName: string;
  isEnabled: boolean;
  isDefault: boolean;
  createdAt: string;
  modifiedAt: string;
  callCount: number;
  lastCalledAt: string | null;
}
