/** Where one is: the screen and its state, behind `#` in the address. Never a secret. */

export type Params = Readonly<Record<string, string>>;

export interface Place {
  screen: string;
  params: Params;
}

/**
 * How a tool stands in an address: by its name, where that is unique, else by bundle, slug and version. The catalogue
 * knows the names; `keyOf` gives undefined until it can tell, and a name that nothing has as it is.
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
  /** What the name in an address stood for when it was opened: a newer version does not take its place meanwhile. */
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

  /** Whether the address names a tool that is not known yet. */
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

  /** Go to a screen. `replace` makes no new entry in the history: for what is typed. */
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
