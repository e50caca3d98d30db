/** JSON pointers (RFC 6901): parts of a value by their place. */

export function below(pointer: string, key: string | number): string {
  return `${pointer}/${String(key).replaceAll("~", "~0").replaceAll("/", "~1")}`;
}

const stepsOf = (pointer: string): string[] =>
  pointer
    .split("/")
    .slice(1)
    .map((step) => step.replaceAll("~1", "/").replaceAll("~0", "~"));

/** The value at a pointer; undefined if there is none. */
export function valueAt<T>(whole: T, pointer: string): T | undefined {
  let now: unknown = whole;
  for (const step of stepsOf(pointer)) {
    if (typeof now !== "object" || now === null || !Object.hasOwn(now, step)) return undefined;
    now = (now as Record<string, unknown>)[step];
  }
  return now as T;
}

/** A copy with another value at a pointer; undefined removes it. Missing objects on the way are created. */
export function withValueAt(whole: unknown, pointer: string, part: unknown): unknown {
  return changed(whole, stepsOf(pointer), part);
}

function changed(whole: unknown, [step, ...deeper]: string[], part: unknown): unknown {
  if (step === undefined) return part;
  if (Array.isArray(whole)) {
    const list = [...(whole as unknown[])];
    if (deeper.length === 0 && part === undefined) list.splice(Number(step), 1);
    else list[Number(step)] = changed(list[Number(step)], deeper, part);
    return list;
  }
  const object = typeof whole === "object" && whole !== null ? (whole as Record<string, unknown>) : {};
  return withKey(object, step, changed(Object.hasOwn(object, step) ? object[step] : undefined, deeper, part));
}

/** A copy of the object with one key changed, or without it. Keys keep their order. */
export function withKey<T>(object: Record<string, T>, key: string, value: T | undefined): Record<string, T> {
  const entries = Object.entries(object);
  if (value === undefined) return Object.fromEntries(entries.filter(([name]) => name !== key));
  if (!Object.hasOwn(object, key)) return Object.fromEntries([...entries, [key, value]]);
  return Object.fromEntries(entries.map(([name, one]) => [name, name === key ? value : one]));
}
