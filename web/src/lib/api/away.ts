/** Retries requests that failed because the server or its database is unavailable. */

import { ApiError } from "./client";

const EVERY_MS = 5000;

/** `$effect(() => retryWhileAway(error, again))`. Returns a function that stops. Refused requests are not retried. */
export function retryWhileAway(error: unknown, again: () => void): (() => void) | undefined {
  if (!(error instanceof ApiError) || (error.status > 0 && error.status < 500)) return undefined;
  const timer = setInterval(() => !document.hidden && again(), EVERY_MS);
  return () => clearInterval(timer);
}
