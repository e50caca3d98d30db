/** What was called, by whom and how it went, as the API gives it. */

import type { Schemas } from "./client";
import type { Usage } from "./tool";

type Given = Schemas["StatsOverview"];
export type Stats = Required<Omit<Given, "latency" | "tokensSaved">> & { latency: Usage["latency"]; tokensSaved: number | null };
