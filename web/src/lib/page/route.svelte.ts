/** The current screen and its state, kept in the URL fragment. It never contains secrets. */

export type Params = Readonly<Record<string, string>>;

export interface Place {
  screen: string;
  params: Params;
}

/**
 * How a URL names a tool: by its name if that is unique, else by bundle, slug and version. The catalogue
 * knows the names; `keyOf` returns undefined until it is loaded, and an unknown name unchanged.
 */
export const naming: { nameOf: (key: string) => string; keyOf: (name: string) => string | undefined } = {
  nameOf: (key) => key,
  keyOf: () => undefined,
};
const NAMED = ["tools", "recipe", "build"]; // screens

export function parseHash(hash: string): Place {
  const [path = "", query = ""] = hash.replace(/^#\/?/, "").split("?", 2);
  return { screen: path || "tools", params: Object.fromEntries(new URLSearchParams(query)) };
}

export function hashOf(screen: string, params: Record<string, string | null | undefined> = {}): string {
  const tool = params.tool && NAMED.includes(screen) ? naming.nameOf(params.tool) : params.tool;
  const kept = Object.entries({ ...params, tool }).filter((pair): pair is [string, string] => Boolean(pair[1]));
  const query = new URLSearchParams(kept).toString().replaceAll("%2F", "/");
  return `#/${screen}${query ? `?${query}` : ""}`;
}

class Route {
  #place: Place = $state.raw(parseHash(location.hash));
  /** The key that the name in the URL resolved to when it was opened. A newer version doesn't replace it. */
  #opened: { of: Place; key: string } | null = null;

  constructor() {
    addEventListener("hashchange", () => (this.#place = parseHash(location.hash)));
  }

  get screen(): string {
    return this.#place.screen;
  }

  get params(): Params {
    const { tool, ...others } = this.#place.params;
    if (!this.#isNamed) return this.#place.params;
    const key = this.#keyOf(tool ?? "");
    return key === undefined ? others : { ...others, tool: key };
  }

  /** Whether the URL names a tool that is not loaded yet. */
  get isWaiting(): boolean {
    return this.#isNamed && this.#keyOf(this.#place.params.tool ?? "") === undefined;
  }

  get #isNamed(): boolean {
    const { screen, params } = this.#place;
    return NAMED.includes(screen) && params.tool !== undefined && !params.tool.includes("/");
  }

  #keyOf(name: string): string | undefined {
    if (this.#opened?.of === this.#place) return this.#opened.key;
    const key = naming.keyOf(name);
    if (key?.includes("/")) this.#opened = { of: this.#place, key };
    return key;
  }

  /** Go to a screen. `replace` adds no history entry; it is for typed filters. */
  go(screen: string, params: Record<string, string | null | undefined> = {}, replace = false): void {
    const hash = hashOf(screen, params);
    const isSame = hash === location.hash;
    if (isSame && (params.tool ?? undefined) === this.params.tool) return; // else the name stands for another version now
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
