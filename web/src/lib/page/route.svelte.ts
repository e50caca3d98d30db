/** Where one is: the screen and its state, behind `#` in the address. Never a secret. */

export type Params = Readonly<Record<string, string>>;

export interface Place {
  screen: string;
  params: Params;
}

export function parseHash(hash: string): Place {
  const [path = "", query = ""] = hash.replace(/^#\/?/, "").split("?", 2);
  return { screen: path || "tools", params: Object.fromEntries(new URLSearchParams(query)) };
}

export function hashOf(screen: string, params: Record<string, string | null | undefined> = {}): string {
  const kept = Object.entries(params).filter((pair): pair is [string, string] => Boolean(pair[1]));
  const query = new URLSearchParams(kept).toString().replaceAll("%2F", "/");
  return `#/${screen}${query ? `?${query}` : ""}`;
}

class Route {
  #place: Place = $state.raw(parseHash(location.hash));

  constructor() {
    addEventListener("hashchange", () => (this.#place = parseHash(location.hash)));
  }

  get screen(): string {
    return this.#place.screen;
  }

  get params(): Params {
    return this.#place.params;
  }

  /** Go to a screen. `replace` makes no new entry in the history: for what is typed. */
  go(screen: string, params: Record<string, string | null | undefined> = {}, replace = false): void {
    const hash = hashOf(screen, params);
    if (hash === location.hash) return;
    if (replace) history.replaceState(null, "", hash);
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
