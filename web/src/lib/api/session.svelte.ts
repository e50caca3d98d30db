/** Whether one has to sign in, and has; who one is, and what one may. */

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

/** Who one is, as the server says it. Each role may what those before it may. */
export interface Who {
  name?: string;
  role: Role;
  tools?: readonly string[] | null; // names and patterns; null: all
  expiresAt?: string;
  isCapped?: boolean; // the server is for calls only, whatever role one has
}

interface LoginState extends Partial<Who> {
  needed: boolean;
  signedIn?: boolean;
}

const ROLES: readonly Role[] = ["call", "edit", "admin"];
const NOBODY: Who = { role: "call" };
const OWNER = "(owner)"; // came by a link of `onetool page`

class Session {
  state: "asking" | "in" | "out" | "away" = $state("asking");
  /** Whether a token is configured: only then can one sign out. */
  needed = $state(false);
  who: Who = $state.raw({ role: "edit" }); // most are that: the frame that they see first stays as it is
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
      if (has && this.state === "in") this.#leave(); // perhaps it is somebody else now
      if (has) void this.start();
      else if (this.needed && this.state === "in") this.#leave();
    });
    whenRefused(() => void this.lookAgain()); // a reload may have brought another role
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
      this.state = (await this.#look()) ? "in" : "out";
    } catch {
      this.state = "away";
    }
  }

  /** Ask who one is. Whether one may see anything at all. */
  async #look(): Promise<boolean> {
    const { needed, signedIn, ...who } = await get<LoginState>("login");
    this.needed = needed;
    if (needed && !signedIn) return false;
    this.who = { ...NOBODY, ...who };
    return true;
  }

  /** Ask again who one is. On this machine one may be let in without a session, too; a server that is away says nothing. */
  async lookAgain(): Promise<void> {
    const isIn = await this.#look().catch(() => null);
    if (isIn) this.state = "in";
    else if (isIn === false && this.state === "in") this.#leave();
  }

  /** Sign in with a token. Raises what the server says against it. */
  async signIn(token: string): Promise<void> {
    const { data } = await request<{ session: string | null }>("login", { json: { token } });
    setSession(data.session);
    await this.start();
  }

  /** Sign in with the key of a link, for this tab. Raises what the server says against it. */
  async useLink(key: string): Promise<void> {
    const { data } = await request<{ session: string }>("login", { json: { key } });
    setTabSession(data.session);
  }

  /** Ask for a token, though one was let in without. */
  askToken(): void {
    this.#leave();
  }

  /** End the session, here and on the server. Raises if the server does not answer: then the session lives on. */
  async signOut(): Promise<void> {
    await Promise.all(this.#before.map((work) => work()));
    await request("login", { method: "DELETE" }).catch((error: unknown) => {
      if (!(error instanceof ApiError) || error.status !== 401) throw error;
    });
    setSession(null);
    this.#leave(true);
    await this.lookAgain();
  }

  /** What was read for one person is not shown to the next. */
  #leave(isOwnWish = false): void {
    this.state = "out";
    this.who = NOBODY;
    for (const forget of this.#forgets) forget(isOwnWish);
  }
}

export const session = new Session();

/** Whoever uses the page, in words. */
export const whoName = (): string =>
  session.who.name === OWNER ? t("who.owner") : line(session.who.name) || t("who.none");

/** Whether one may what this role may. What one may not is not offered: all parts of the page ask here. */
export const may = (role: Role): boolean => ROLES.indexOf(session.who.role) >= ROLES.indexOf(role);
