/** Lists that are loaded page by page; their first page is reloaded after changes. */

export interface Listed<T> {
  rows: T[];
  next: string | null;
}

/** Return `first`, followed by the older known rows. `at` returns a row's time: lists begin with the newest. */
export function withFirst<T>(
  known: Listed<T>,
  first: Listed<T>,
  id: (one: T) => string,
  at: (one: T) => string,
): Listed<T> {
  const end = first.rows.at(-1);
  if (first.next === null || !end) return first; // that is all there is
  const fresh = new Set(first.rows.map(id));
  const older = known.rows.filter((one) => at(one) <= at(end) && !fresh.has(id(one)));
  return older.length > 0 ? { rows: [...first.rows, ...older], next: known.next } : first;
}

/** Return `known` with the next page appended. */
export function withNext<T>(known: Listed<T>, page: Listed<T>, id: (one: T) => string): Listed<T> {
  const had = new Set(known.rows.map(id));
  return { rows: [...known.rows, ...page.rows.filter((one) => !had.has(id(one)))], next: page.next };
}
