/** Tools, their usage and their versions, as the API describes them: types that differ from its document don't compile. */

import type { Schemas } from "./client";

export type JsonSchema = Record<string, unknown>;
export type SavedExample = Omit<Schemas["ToolExample"], "args"> & { args: Record<string, unknown> };

type ApiTool = Schemas["Tool"];
/** What GET adds to what PUT takes. */
type Added = "name" | "origin" | "health" | "callCount" | "lastCalledAt";
/** What the document can only say to be an object. */
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

/** The tool as callers see it: with what it leaves to its function. Editors show what is stored instead. */
export const withInherited = <T extends Pick<Tool, "inherited">>(tool: T): T => ({ ...tool, ...tool.inherited });

export type Health = Tool["health"];
export type Origin = Tool["origin"];
export type Usage = Required<Omit<Schemas["ToolUsage"], "latency">> & { latency: Required<Schemas["UsageLatency"]> };
export type VersionRow = Schemas["VersionList"]["versions"][number];
