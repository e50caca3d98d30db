/** Stored results, as the API gives them. */

export interface StoredResult {
  handle: string;
  name?: string;
  createdAt: string;
  expiresAt: string;
  size: number;
  lines: number;
  type: string;
  head: string;
}

export interface ResultPage {
  results: StoredResult[];
  nextPageToken?: string | null;
}

/** Some lines of one, or of those that match. */
export interface ResultPart {
  lines: string[];
  total: number; // of all lines, also of a search
  returned: number;
  hasMore: boolean;
  numbers?: number[]; // of a search: where the lines stand
  next?: { offset?: number; column?: number }; // it is cut inside of a long line: where it goes on
}
