/** Stored results, as the API gives them. */

import { refusal, send, type Schemas } from "./client";

export type StoredResult = Schemas["ResultEntry"];
export type ResultPage = Schemas["ResultList"];
/** Some lines of one, or of those that match. `next`: it is cut inside of a long line, and goes on there. */
export type ResultPart = Omit<Schemas["ResultLines"], "next"> & { next?: { offset?: number; column?: number } };

export const resultPath = (handle: string): string => `results/${encodeURIComponent(handle)}`;

/** All of a result: the bytes of a picture or file that was stored, else its text. */
export async function readWhole(handle: string, mimeType: string, signal?: AbortSignal): Promise<Blob> {
  const response = await send(resultPath(handle), { accept: "application/octet-stream", signal });
  if (!response.ok) throw refusal(response.status, await response.text());
  return new Blob([await response.arrayBuffer()], { type: mimeType });
}
