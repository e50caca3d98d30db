/** Whether one has to sign in, and has. */

import { get, request, setSession, whenSignedOut } from "./api";

interface LoginState {
  needed: boolean;
  signedIn?: boolean;
  expiresAt?: string | null;
}

class Session {
  state: "asking" | "in" | "out" | "away" = $state("asking");
  /** Whether a token is configured: only then can one sign out. */
  needed = $state(false);

  constructor() {
    whenSignedOut(() => {
      if (this.state === "in") this.state = "out";
    });
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
    this.state = "in";
  }

  async signOut(): Promise<void> {
    await request("login", { method: "DELETE" }).catch(() => null);
    setSession(null);
    this.state = "out";
  }
}

export const session = new Session();
