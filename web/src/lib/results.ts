/** Stored results, as the API gives them. */

import type { Json } from "./json-text";

export interface StoredResult {
  handle: string;
  name?: string | null;
  createdAt: string;
  expiresAt: string;
  size: number;
  type: string;
  head: string;
}

export interface ResultPage {
  results: StoredResult[];
  nextPageToken?: string | null;
}

/** Some lines, or rows, of one. */
export interface ResultPart {
  total: number;
  lines?: string[];
  rows?: Json[];
  numbers?: number[]; // of a search: where the lines stand
}
