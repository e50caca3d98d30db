/** What the page keeps in this browser, or in this tab alone (`sessionStorage`). Storage may be closed or full: then the page works without it. */

const PREFIX = "onetool.";

export function stored<T>(key: string, otherwise: T, place = () => localStorage): T {
  try {
    const text = place().getItem(PREFIX + key);
    return text === null ? otherwise : (JSON.parse(text) as T);
  } catch {
    return otherwise;
  }
}

export function store(key: string, value: unknown, place = () => localStorage): boolean {
  try {
    if (value === null || value === undefined) place().removeItem(PREFIX + key);
    else place().setItem(PREFIX + key, JSON.stringify(value));
    return true;
  } catch {
    return false;
  }
}
