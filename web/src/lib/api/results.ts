/** Stored results in the API. */

import { refusal, send, type Schemas } from "./client";

export type StoredResult = Schemas["ResultEntry"];
export type ResultPage = Schemas["ResultList"];
/** Some lines, or matching lines, of a result. `next` is set if a long line was cut: the position to continue at. */
export type ResultPart = Omit<Schemas["ResultLines"], "next"> & { next?: { offset?: number; column?: number } };

export const resultPath = (handle: string): string => `results/${encodeURIComponent(handle)}`;

/** The whole result: the bytes of a stored file, else its text. */
export async function readWhole(handle: string, mimeType: string, signal?: AbortSignal): Promise<Blob> {
  const response = await send(resultPath(handle), { accept: "application/octet-stream", signal });
  if (!response.ok) throw refusal(response.status, await response.text());
  return new Blob([await response.arrayBuffer()], { type: mimeType });
}
