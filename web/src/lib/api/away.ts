/** What failed because the server or its database is away is tried again until it is back. */

import { ApiError } from "./client";

const EVERY_MS = 5000;

/** `$effect(() => retryWhileAway(error, again))`: gives what ends the trying. What is refused is not tried again. */
export function retryWhileAway(error: unknown, again: () => void): (() => void) | undefined {
  if (!(error instanceof ApiError) || (error.status > 0 && error.status < 500)) return undefined;
  const timer = setInterval(() => !document.hidden && again(), EVERY_MS);
  return () => clearInterval(timer);
}
