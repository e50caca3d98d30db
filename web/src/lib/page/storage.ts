/** Values kept in this browser, or only in this tab (`sessionStorage`). If storage is blocked or full, the page works without it. */

const PREFIX = "onetool.";

/** Whether a stored value has the expected type: another program may have used this origin before. Null stands for a string; lists and objects contain strings. */
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
