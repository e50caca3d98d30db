/** Whether one has to sign in, and has. */

import { ApiError, get, request, setSession, whenSessionChanged, whenSignedOut } from "./api";

interface LoginState {
  needed: boolean;
  signedIn?: boolean;
  expiresAt?: string | null;
}

class Session {
  state: "asking" | "in" | "out" | "away" = $state("asking");
  /** Whether a token is configured: only then can one sign out. */
  needed = $state(false);
  #forgets: ((isOwnWish: boolean) => void)[] = [];
  #before: (() => Promise<void>)[] = [];

  constructor() {
    whenSignedOut(() => {
      this.needed = true; // the token may be newer than the page
      if (this.state === "in") this.#leave();
    });
    whenSessionChanged((has) => {
      if (has && this.state === "out") this.state = "in";
      else if (!has && this.needed && this.state === "in") this.#leave();
    });
  }

  /** Have something forgotten when somebody signs out, or their session has ended: that they did not wish. */
  onLeave(forget: (isOwnWish: boolean) => void): void {
    this.#forgets.push(forget);
  }

  /** Have something done while the session still stands. */
  beforeSignOut(work: () => Promise<void>): void {
    this.#before.push(work);
  }

  async start(): Promise<void> {
    try {
      const found = await get<LoginState>("login");
      this.needed = found.needed;
      this.state = !found.needed || found.signedIn ? "in" : "out";
    } catch {
      this.state = "away";
    }
  }

  /** Sign in with the server's token. Raises what the server says against it. */
  async signIn(token: string): Promise<void> {
    const { data } = await request<{ session: string | null }>("login", { json: { token } });
    setSession(data.session);
    this.needed = data.session !== null;
    this.state = "in";
  }

  /** End the session, here and on the server. Raises if the server does not answer: then the session lives on. */
  async signOut(): Promise<void> {
    await Promise.all(this.#before.map((work) => work()));
    await request("login", { method: "DELETE" }).catch((error: unknown) => {
      if (!(error instanceof ApiError) || error.status !== 401) throw error;
    });
    setSession(null);
    this.#leave(true);
  }

  /** What was read for one person is not shown to the next. */
  #leave(isOwnWish = false): void {
    this.state = "out";
    for (const forget of this.#forgets) forget(isOwnWish);
  }
}

export const session = new Session();
