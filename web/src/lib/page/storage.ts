/** What the page keeps in this browser, or in this tab alone (`sessionStorage`). Storage may be closed or full: then the page works without it. */

const PREFIX = "onetool.";

/** Whether a value is of the kind that is kept: another program may have been at this address before. Null stands for a text, and lists and objects hold texts. */
function isLike(value: unknown, otherwise: unknown): boolean {
  if (otherwise === null) return typeof value === "string";
  if (typeof otherwise !== "object") return typeof value === typeof otherwise;
  if (typeof value !== "object" || value === null || Array.isArray(value) !== Array.isArray(otherwise)) return false;
  return Object.values(value).every((one) => typeof one === "string");
}

export function stored<T>(key: string, otherwise: T, place = () => localStorage): T {
  try {
    const text = place().getItem(PREFIX + key);
    const value: unknown = text === null ? null : JSON.parse(text);
    return isLike(value, otherwise) ? (value as T) : otherwise;
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
