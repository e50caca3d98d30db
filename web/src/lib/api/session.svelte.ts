/** The sign-in: whether it is needed and done, the user, and the user's role. */

import {
  ApiError,
  get,
  request,
  setSession,
  setTabSession,
  whenRefused,
  whenSessionChanged,
  whenSignedOut,
} from "./client";
import { t } from "../page/i18n.svelte";
import { line } from "../text/shown";

export type Role = "call" | "edit" | "admin";

/** The user, as reported by the server. Each role includes the roles before it. */
export interface Who {
  name?: string;
  role: Role;
  tools?: readonly string[] | null; // names and patterns; null: all
  expiresAt?: string;
  isCapped?: boolean; // the server only accepts calls, for every role
}

interface LoginState extends Partial<Who> {
  needed: boolean;
  signedIn?: boolean;
}

const ROLES: readonly Role[] = ["call", "edit", "admin"];
const NOBODY: Who = { role: "call" };
const OWNER = "(owner)"; // signed in with a link of `onetool page`

class Session {
  state: "asking" | "in" | "out" | "away" = $state("asking");
  /** Whether a token is configured: otherwise there is no sign-out. */
  needed = $state(false);
  who: Who = $state.raw({ role: "edit" }); // the usual role, so that the first frame doesn't change later
  #forgets: ((isOwnWish: boolean) => void)[] = [];
  #before: (() => Promise<void>)[] = [];

  constructor() {
    whenSignedOut(() => {
      this.needed = true; // the token may be newer than the page
      if (this.state !== "in") return;
      this.#leave();
      void this.lookAgain();
    });
    whenSessionChanged((has) => {
      if (has && this.state === "in") this.#leave(); // it may be another user now
      if (has) void this.start();
      else if (this.needed && this.state === "in") this.#leave();
    });
    whenRefused(() => void this.lookAgain()); // a reload may have brought another role
  }

  /** Call `forget` on sign-out, and when a session has expired (`isOwnWish` is false). */
  onLeave(forget: (isOwnWish: boolean) => void): void {
    this.#forgets.push(forget);
  }

  /** Run `work` before the sign-out, while the session is still valid. */
  beforeSignOut(work: () => Promise<void>): void {
    this.#before.push(work);
  }

  async start(): Promise<void> {
    try {
      this.state = (await this.#look()) ? "in" : "out";
    } catch {
      this.state = "away";
    }
  }

  /** Ask the server for the user. Return whether the page may be shown. */
  async #look(): Promise<boolean> {
    const { needed, signedIn, ...who } = await get<LoginState>("login");
    this.needed = needed;
    if (needed && !signedIn) return false;
    this.who = { ...NOBODY, ...who };
    return true;
  }

  /** Ask for the user again. A local user may need no session. If the server doesn't answer, nothing changes. */
  async lookAgain(): Promise<void> {
    const isIn = await this.#look().catch(() => null);
    if (isIn) this.state = "in";
    else if (isIn === false && this.state === "in") this.#leave();
  }

  /** Sign in with a token. Throws the server's refusal. */
  async signIn(token: string): Promise<void> {
    const { data } = await request<{ session: string | null }>("login", { json: { token } });
    setSession(data.session);
    await this.start();
  }

  /** Sign in this tab with the key of a link. Throws the server's refusal. */
  async useLink(key: string): Promise<void> {
    const { data } = await request<{ session: string }>("login", { json: { key } });
    setTabSession(data.session);
  }

  /** Show the sign-in, even if no token is needed. */
  askToken(): void {
    this.#leave();
  }

  /** End the session, here and on the server. Throws if the server doesn't answer; the session then stays valid. */
  async signOut(): Promise<void> {
    await Promise.all(this.#before.map((work) => work()));
    await request("login", { method: "DELETE" }).catch((error: unknown) => {
      if (!(error instanceof ApiError) || error.status !== 401) throw error;
    });
    setSession(null);
    this.#leave(true);
    await this.lookAgain();
  }

  /** Forget what was loaded for this user. */
  #leave(isOwnWish = false): void {
    this.state = "out";
    this.who = NOBODY;
    for (const forget of this.#forgets) forget(isOwnWish);
  }
}

export const session = new Session();

/** The user's display name. */
export const whoName = (): string =>
  session.who.name === OWNER ? t("who.owner") : line(session.who.name) || t("who.none");

/** Whether the user has this role. Parts of the page hide what the user may not do. */
export const may = (role: Role): boolean => ROLES.indexOf(session.who.role) >= ROLES.indexOf(role);
