/** Stored results, as the API gives them. */

import type { Schemas } from "./api";

export type StoredResult = Schemas["ResultEntry"];
export type ResultPage = Schemas["ResultList"];
/** Some lines of one, or of those that match. `next`: it is cut inside of a long line, and goes on there. */
export type ResultPart = Omit<Schemas["ResultLines"], "next"> & { next?: { offset?: number; column?: number } };

export const resultPath = (handle: string): string => `results/${encodeURIComponent(handle)}`;
