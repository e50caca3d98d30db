/** The tour: a few steps on the first visit, depending on the role. It points at things, but opens and changes nothing. */

import type { Key } from "../locales/en";
import { may, type Role } from "../api/session.svelte";
import { store, stored } from "./storage";

interface Step {
  /** The target: a screen by its id, or the search button. */
  at: string;
  title: Key;
  text: Key;
  role?: Role; // required for this step
  until?: Role; // this role and higher ones have a step of their own
}

const STEPS: readonly Step[] = [
  { at: "tools", title: "tour.tools", text: "tour.tools.call", until: "edit" },
  { at: "tools", title: "tour.tools", text: "tour.tools.text", role: "edit" },
  { at: "find", title: "tour.find", text: "tour.find.text" },
  { at: "build", title: "tour.build", text: "tour.build.text", role: "edit" },
  { at: "chat", title: "tour.chat", text: "tour.chat.text" },
  { at: "servers", title: "tour.servers", text: "tour.servers.text", role: "admin" },
  { at: "health", title: "tour.health", text: "tour.health.text", role: "edit" },
];

class Tour {
  at: number | null = $state(null);
  readonly #steps = $derived(STEPS.filter((one) => may(one.role ?? "call") && !(one.until && may(one.until))));

  get count(): number {
    return this.#steps.length;
  }

  get step(): Step | undefined {
    return this.at === null ? undefined : this.#steps[this.at];
  }

  /** Start on the first visit only. Without storage, the first visit can't be detected: never start. */
  offer(): void {
    if (!stored("tour", false) && store("tour", true)) this.at = 0;
  }

  /** Go to another step. After the last one, end the tour. */
  go(by: number): void {
    const to = (this.at ?? 0) + by;
    this.at = to < this.count ? Math.max(0, to) : null;
  }
}

export const tour = new Tour();
