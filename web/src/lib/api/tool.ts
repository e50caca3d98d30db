/** Tools, their usage and their versions, as the API describes them: types that differ from its document don't compile. */

import type { Schemas } from "./client";

export type JsonSchema = Record<string, unknown>;
export type SavedExample = Omit<Schemas["ToolExample"], "args"> & { args: Record<string, unknown> };

type ApiTool = Schemas["Tool"];
/** The fields that GET returns in addition to those of PUT. */
type Added = "name" | "origin" | "health" | "callCount" | "lastCalledAt";
/** Fields that the document only describes as objects. */
type Loose = "argSchema" | "outputSchema" | "limits" | "httpImpl" | "examples" | "bundleSlug" | "inherited";

export type Tool = Omit<ApiTool, Added | Loose> &
  Required<Pick<ApiTool, Added>> & {
    bundleSlug: string;
    argSchema: JsonSchema;
    outputSchema: JsonSchema;
    httpImpl?: Record<string, unknown>;
    limits: Record<string, unknown>;
    examples?: SavedExample[];
    inherited?: Partial<Pick<Tool, "argSchema" | "outputSchema" | "description">>;
  };

/** The tool as callers see it, with the fields inherited from its function. Editors show the stored tool. */
export const withInherited = <T extends Pick<Tool, "inherited">>(tool: T): T => ({ ...tool, ...tool.inherited });

export type Health = Tool["health"];
export type Origin = Tool["origin"];
export type Usage = Required<Omit<Schemas["ToolUsage"], "latency">> & { latency: Required<Schemas["UsageLatency"]> };
export type VersionRow = Schemas["VersionList"]["versions"][number];
