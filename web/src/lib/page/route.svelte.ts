/** The current screen and its state, kept in the URL fragment. It never contains secrets. */

export type Params = Readonly<Record<string, string>>;

export interface Place {
  screen: string;
  params: Params;
}

/**
 * How URLs name tools and bundles: by their names where these are unique, else by their keys. The catalogue knows
 * the names; `keyOf` returns undefined until it is loaded, and an unknown name unchanged.
 */
export interface Names {
  nameOf: (key: string) => string;
  keyOf: (name: string) => string | undefined;
}
type Named = "tool" | "bundle";
export const naming: Record<Named, Names> = {
  tool: { nameOf: (key) => key, keyOf: () => undefined },
  bundle: { nameOf: (key) => key, keyOf: () => undefined },
};
/** The parameters of each screen that are names. The bundle of `tools` is a filter. A map: a link may name `__proto__`. */
const NAMED = new Map<string, readonly Named[]>([
  ["tools", ["tool"]],
  ["recipe", ["tool"]],
  ["build", ["tool", "bundle"]],
]);

export function parseHash(hash: string): Place {
  const [path = "", query = ""] = hash.replace(/^#\/?/, "").split("?", 2);
  return { screen: path || "tools", params: Object.fromEntries(new URLSearchParams(query)) };
}

export function hashOf(screen: string, params: Record<string, string | null | undefined> = {}): string {
  const named = { ...params };
  for (const one of NAMED.get(screen) ?? []) if (params[one]) named[one] = naming[one].nameOf(params[one]);
  const kept = Object.entries(named).filter((pair): pair is [string, string] => Boolean(pair[1]));
  const query = new URLSearchParams(kept).toString().replaceAll("%2F", "/");
  return `#/${screen}${query ? `?${query}` : ""}`;
}

class Route {
  #place: Place = $state.raw(parseHash(location.hash));
  /** The keys that names in the URL resolved to when it was opened. A newer version doesn't replace them. */
  #opened: { of: Place; keys: Map<string, string> } | null = null;

  constructor() {
    addEventListener("hashchange", () => (this.#place = parseHash(location.hash)));
  }

  get screen(): string {
    return this.#place.screen;
  }

  get params(): Params {
    const params = { ...this.#place.params };
    for (const one of this.#named) {
      const key = this.#keyOf(one);
      if (key === undefined) delete params[one];
      else params[one] = key;
    }
    return params;
  }

  /** Whether the URL names something that is not loaded yet. */
  get isWaiting(): boolean {
    return this.#named.some((one) => this.#keyOf(one) === undefined);
  }

  get #named(): readonly Named[] {
    const { screen, params } = this.#place;
    return (NAMED.get(screen) ?? []).filter((one) => params[one] !== undefined);
  }

  #keyOf(one: Named): string | undefined {
    if (this.#opened?.of !== this.#place) this.#opened = { of: this.#place, keys: new Map() };
    const name = this.#place.params[one] ?? "";
    const key = this.#opened.keys.get(one) ?? naming[one].keyOf(name);
    if (key !== undefined && key !== name) this.#opened.keys.set(one, key);
    return key;
  }

  /** Go to a screen. `replace` adds no history entry; it is for typed filters. */
  go(screen: string, params: Record<string, string | null | undefined> = {}, replace = false): void {
    const hash = hashOf(screen, params);
    const isSame = hash === location.hash;
    const now = this.params;
    if (isSame && this.#named.every((one) => params[one] === now[one])) return; // else the name stands for another version now
    if (replace || isSame) history.replaceState(null, "", hash);
    else history.pushState(null, "", hash);
    this.#place = parseHash(hash);
  }

  /** Change some of the parameters of this screen. */
  set(changes: Record<string, string | null | undefined>, replace = false): void {
    this.go(this.screen, { ...this.params, ...changes }, replace);
  }
}

export const route = new Route();
addEventListener("popstate", () => dispatchEvent(new HashChangeEvent("hashchange")));
